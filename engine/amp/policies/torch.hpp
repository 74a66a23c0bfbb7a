// Dynamic loss scaling by the rule of torch.amp.GradScaler (aten/src/ATen/native/cuda/AmpKernels.cu).
//
// overflow:   S = S * backoff_factor, and the count of good steps restarts;
// good step:  the count grows; when it is growth_interval, S = S * growth_factor
//             unless that is not finite, and the count restarts either way.
// S is FP32; the factors are FP64, and every product is formed in FP64 and rounded to FP32 (the kernel's
// parameters are doubles). There is no floor: S may fall below 1, as it does in torch. An infinite S, which
// growth never gives but a foreign checkpoint may hold, would stay infinite for ever (flax#2547): an overflow
// brings it back to the finite numbers first.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "engine/amp/observation.hpp"
#include "engine/amp/policy_parameters.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/formats/format.hpp"
#include "numerics/platform/portability.hpp"

namespace fp16lab::engine::amp {

struct TorchScaling {
  static constexpr std::string_view name = "torch";
  static constexpr std::string_view rule =
      "S *= backoff_factor on an overflow; S *= growth_factor after growth_interval good steps in a row";
  static constexpr std::string_view source =
      "pytorch/pytorch torch/amp/grad_scaler.py, aten/src/ATen/native/cuda/AmpKernels.cu";
  static constexpr std::array parameters = {initial_scale_parameter(65536), growth_factor_parameter(2),
                                            backoff_factor_parameter(0.5), growth_interval_parameter(2000)};
  static constexpr bool wants_statistics = false;

  struct Params {
    float initial_scale = 65536.0f;
    double growth_factor = 2.0;
    double backoff_factor = 0.5;
    std::int32_t growth_interval = 2000;
  };
  struct State {
    float scale = 65536.0f;
    std::int32_t growth_tracker = 0;  ///< good steps since the last growth or overflow
  };
  static Params params(const PolicyValues& values) {
    return {.initial_scale = values.f32("initial_scale"),
            .growth_factor = values.real("growth_factor"),
            .backoff_factor = values.real("backoff_factor"),
            .growth_interval = values.count("growth_interval")};
  }
  static State initial(const Params& params) { return {params.initial_scale, 0}; }

  FP16LAB_HD static void update(State& state, const Params& params, const Observation& observation) {
    if (observation.found_inf) {
      if (!is_finite(state.scale)) state.scale = 0x1p127f;
      state.scale = static_cast<float>(state.scale * params.backoff_factor);
      state.growth_tracker = 0;
      return;
    }
    if (++state.growth_tracker != params.growth_interval) return;  // a checkpoint's may be beyond it, for ever
    const auto grown = static_cast<float>(state.scale * params.growth_factor);
    if (is_finite(grown)) state.scale = grown;
    state.growth_tracker = 0;
  }

 private:
  FP16LAB_HD static bool is_finite(float value) {
    return (bits_of(value) & Binary32::magnitude_mask) < Binary32::infinity;
  }
};
static_assert(std::is_trivially_copyable_v<TorchScaling::State>);
static_assert(sizeof(TorchScaling::State) ==
              sizeof(float) + sizeof(std::int32_t));  // hashed as bytes: no padding

}  // namespace fp16lab::engine::amp
