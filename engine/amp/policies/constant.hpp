// Rules whose loss scale never moves: a step with a non-finite gradient is skipped, and S does not answer.
// Host and device.
#pragma once

#include <array>

#include "engine/amp/observation.hpp"
#include "engine/amp/policy_parameters.hpp"
#include "numerics/platform/portability.hpp"

namespace fp16lab::engine::amp {

template <class Scale>
struct ConstantScale {
  static constexpr const PolicyFamily& family = policy_families::constant;
  static constexpr bool constant = true;
  struct Params {
    Scale scale = 1;
  };
  struct State {
    Scale scale;
  };
  static State initial(const Params& params) { return {params.scale}; }
  FP16LAB_HD static void update(State& state, const Params& params, const Observation&) {
    state.scale = params.scale;
  }
};

struct NoScaling : ConstantScale<double> {
  static constexpr std::array<PolicyParameter, 0> parameters{};
  static Params params(const PolicyValues&) { return {}; }
};

struct FixedScaling : ConstantScale<float> {
  static constexpr std::array parameters = {initial_scale_parameter("the scale")};
  static Params params(const PolicyValues& values) { return {values.f32("initial_scale")}; }
};

/// The loss scale under layer scales (engine/amp/policies/layer_rule.hpp): constant, as their peers have it
/// (their own seed is 1).
struct LayersLossScale : FixedScaling {
  static constexpr const PolicyFamily& family = policy_families::layers;
  static constexpr bool constant = false;  // what moves answers to overflows
  static constexpr bool per_layer = true;
  static constexpr std::array parameters = {
      initial_scale_parameter("scale of the first step; of layer scales: S, which all of them multiply")};
};

/// layerwise and groups.
struct NamedLayers : LayersLossScale {
  static constexpr auto parameters =
      joined(LayersLossScale::parameters,
             std::array{growth_factor_parameter(), backoff_factor_parameter(), growth_interval_parameter()});
};

}  // namespace fp16lab::engine::amp
