// Dynamic loss scaling by the rule of torch.amp.GradScaler (aten/src/ATen/native/cuda/AmpKernels.cu).
//
// overflow:   S = S * backoff_factor, and the count of good steps restarts;
// good step:  the count grows; when it reaches growth_interval, S = S * growth_factor
//             unless that is not finite, and the count restarts either way.
// S is FP32 and every product is rounded to FP32. There is no floor: S may fall below 1, as it does in torch.
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
      state.scale *= params.backoff_factor;
      state.growth_tracker = 0;
      return;
    }
    if (++state.growth_tracker < params.growth_interval) return;
    const float grown = state.scale * params.growth_factor;
    if ((bits_of(grown) & Binary32::magnitude_mask) < Binary32::infinity) state.scale = grown;
    state.growth_tracker = 0;
  }
};
static_assert(std::is_trivially_copyable_v<DynamicScaling::State>);
static_assert(sizeof(DynamicScaling::State) ==
              sizeof(float) + sizeof(std::int32_t));  // hashed as bytes: no padding

}  // namespace fp16lab::engine::amp
