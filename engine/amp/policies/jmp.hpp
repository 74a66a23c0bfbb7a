// jmp.DynamicLossScale: FP32, a floor of 1, growth only where finite.
//
// The peer's floor is lost whenever its scale passes through jit or tree_map (tree_unflatten drops it), so
// that one below 1 does not last; a floor here is a parameter of the policy. The peer has no default for the
// initial scale; this one is of its documentation.
#pragma once

#include "engine/amp/policies/counters.hpp"

namespace fp16lab::engine::amp {

struct JmpScaling : GoodStepScaling<OneFactor<float>> {
  static constexpr std::string_view name = "jmp";
  static constexpr std::string_view rule =
      "S /= growth_factor on an overflow, not below min_scale; S *= growth_factor after growth_interval good "
      "steps in a row";
  static constexpr std::string_view source = "deepmind/jmp jmp/_src/loss_scale.py, DynamicLossScale";
  static constexpr std::array parameters = {initial_scale_parameter(32768), one_factor_parameter(2),
                                            growth_interval_parameter(2000), min_scale_parameter(1)};
};

}  // namespace fp16lab::engine::amp
