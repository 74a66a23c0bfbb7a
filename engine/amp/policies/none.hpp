// No loss scaling: S = 1 for ever. A step with a non-finite gradient is still skipped.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "engine/amp/observation.hpp"
#include "engine/amp/policy_parameters.hpp"
#include "numerics/platform/portability.hpp"

namespace fp16lab::engine::amp {

struct NoScaling {
  static constexpr std::string_view name = "none";
  static constexpr std::string_view rule = "S = 1; a step with a non-finite gradient is skipped";
  static constexpr std::string_view source = "plain FP16 training";
  static constexpr std::array<PolicyParameter, 0> parameters{};
  static constexpr bool wants_statistics = false;
  static constexpr bool constant = true;

  struct Params {
    std::uint64_t unused = 0;
  };
  struct State {
    double scale = 1.0;
  };
  static Params params(const PolicyValues&) { return {}; }
  static State initial(const Params&) { return {}; }
  FP16LAB_HD static void update(State& state, const Params&, const Observation&) { state.scale = 1.0; }
};
static_assert(std::is_trivially_copyable_v<NoScaling::State>);

}  // namespace fp16lab::engine::amp
