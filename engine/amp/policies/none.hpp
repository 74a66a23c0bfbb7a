// No loss scaling: S = 1 for ever. A step with a non-finite gradient is still skipped.
#pragma once

#include <cstdint>
#include <type_traits>

#include "numerics/portability.hpp"

namespace fp16lab::engine::amp {

struct NoScaling {
  struct Params {
    std::uint64_t unused = 0;
  };
  struct State {
    double scale = 1.0;
  };
  static State initial(const Params&) { return {}; }
  FP16LAB_HD static void update(State& state, const Params&, bool /*found_inf*/) { state.scale = 1.0; }
};
static_assert(std::is_trivially_copyable_v<NoScaling::State>);

}  // namespace fp16lab::engine::amp
