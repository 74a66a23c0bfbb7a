// Dynamic loss scaling by the rule of torch.amp.GradScaler (aten/src/ATen/native/cuda/AmpKernels.cu).
//
// overflow:   S = S * backoff_factor, and the count of good steps restarts;
// good step:  the count grows; when it reaches growth_interval, S = S * growth_factor
//             unless that is not finite, and the count restarts either way.
// S is FP32 and every product is rounded to FP32. There is no floor: S may fall below 1, as it does in torch.
// An infinite S, which growth never gives but a foreign checkpoint may hold, would stay infinite for ever
// (flax#2547): an overflow brings it back to the finite numbers first.
#pragma once

#include <cstdint>
#include <type_traits>

#include "numerics/bits.hpp"
#include "numerics/format.hpp"
#include "numerics/portability.hpp"

namespace fp16lab::engine::amp {

struct DynamicScaling {
  struct Params {
    float initial_scale = 65536.0f;
    float growth_factor = 2.0f;
    float backoff_factor = 0.5f;
    std::int32_t growth_interval = 2000;
  };
  struct State {
    float scale = 65536.0f;
    std::int32_t growth_tracker = 0;  ///< good steps since the last growth or overflow
  };
  static State initial(const Params& params) { return {params.initial_scale, 0}; }

  FP16LAB_HD static void update(State& state, const Params& params, bool found_inf) {
    if (found_inf) {
      if (!is_finite(state.scale)) state.scale = 0x1p127f;
      state.scale *= params.backoff_factor;
      state.growth_tracker = 0;
      return;
    }
    if (++state.growth_tracker < params.growth_interval) return;
    const float grown = state.scale * params.growth_factor;
    if (is_finite(grown)) state.scale = grown;
    state.growth_tracker = 0;
  }

 private:
  FP16LAB_HD static bool is_finite(float value) {
    return (bits_of(value) & Binary32::magnitude_mask) < Binary32::infinity;
  }
};
static_assert(std::is_trivially_copyable_v<DynamicScaling::State>);
static_assert(sizeof(DynamicScaling::State) ==
              sizeof(float) + sizeof(std::int32_t));  // hashed as bytes: no padding

}  // namespace fp16lab::engine::amp
