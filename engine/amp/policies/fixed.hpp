// A constant loss scale, kept in FP32. Steps with a non-finite gradient are skipped; S does not answer.
#pragma once

#include <array>
#include <type_traits>

#include "engine/amp/observation.hpp"
#include "engine/amp/policy_parameters.hpp"
#include "numerics/platform/portability.hpp"

namespace fp16lab::engine::amp {

struct FixedScaling {
  static constexpr std::string_view name = "fixed";
  static constexpr std::string_view rule = "S is constant; a step with a non-finite gradient is skipped";
  static constexpr std::string_view source =
      "Micikevicius et al., Mixed Precision Training, ICLR 2018, section 3.2";
  static constexpr std::array parameters = {initial_scale_parameter(65536, "the scale")};
  static constexpr bool wants_statistics = false;
  static constexpr bool constant = true;

  struct Params {
    float scale = 1.0f;
  };
  struct State {
    float scale = 1.0f;
  };
  static Params params(const PolicyValues& values) { return {.scale = values.f32("initial_scale")}; }
  static State initial(const Params& params) { return {params.scale}; }
  FP16LAB_HD static void update(State& state, const Params& params, const Observation&) {
    state.scale = params.scale;
  }
};
static_assert(std::is_trivially_copyable_v<FixedScaling::State>);

/// MindSpore's FixedLossScaleManager: the same with a scale of 128.
struct MindSporeFixedScaling : FixedScaling {
  static constexpr std::string_view name = "mindspore-fixed";
  static constexpr std::string_view source =
      "mindspore-ai/mindspore python/mindspore/train/loss_scale_manager.py, FixedLossScaleManager";
  static constexpr std::array parameters = {initial_scale_parameter(128, "the scale")};
};

}  // namespace fp16lab::engine::amp
