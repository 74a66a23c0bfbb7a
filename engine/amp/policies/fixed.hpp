// A constant loss scale, kept in FP32. Steps with a non-finite gradient are skipped; S does not answer.
#pragma once

#include <type_traits>

#include "numerics/portability.hpp"

namespace fp16lab::engine::amp {

struct FixedScaling {
  struct Params {
    float scale = 1.0f;
  };
  struct State {
    float scale = 1.0f;
  };
  static State initial(const Params& params) { return {params.scale}; }
  FP16LAB_HD static void update(State& state, const Params& params, bool /*found_inf*/) {
    state.scale = params.scale;
  }
};
static_assert(std::is_trivially_copyable_v<FixedScaling::State>);

}  // namespace fp16lab::engine::amp
