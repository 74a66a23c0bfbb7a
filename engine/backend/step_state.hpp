// The scalars of a training step, as back-end memory.
//
// Loss scale, found_inf flags, counters and beta powers live where the tensors live, so that a captured CUDA
// graph can read and update them without the host. On the emulated back end that memory is host memory. All
// of it goes into checkpoints and into state_hash.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace fp16lab::engine {

inline constexpr int max_optimizers = 8;

/// Plain old data; zero bytes in padding (value-initialise it), because it is hashed and stored as bytes.
struct StepState {
  double scale = 1.0;        ///< S, the loss scale of the step in progress
  double grad_norm = 0.0;    ///< L2 norm of the unscaled gradients of the last `global_norm`
  double beta1_power = 1.0;  ///< beta1^t of Adam, a running product over taken steps
  double beta2_power = 1.0;
  std::uint64_t iteration = 0;      ///< optimizer iterations begun, skipped ones included
  std::uint64_t taken_steps = 0;    ///< iterations whose update was applied
  std::uint64_t skipped_steps = 0;  ///< iterations whose update was skipped
  float inverse_scale = 1.0f;       ///< float(1.0 / scale), set together with `scale`
  float learning_rate = 0.0f;       ///< of this iteration, from the schedule
  std::array<float, max_optimizers>
      found_inf{};  ///< per optimizer: 1 if a scaled gradient was not finite, else 0
  /// The loss-scale policy's own counters; the policy defines the layout (see engine/amp/policy.hpp).
  alignas(8) std::array<std::byte, 64> policy{};

  /// S and its reciprocal: one FP64 division, rounded once to FP32.
  constexpr void set_scale(double new_scale) {
    scale = new_scale;
    inverse_scale = static_cast<float>(1.0 / new_scale);
  }
};
static_assert(std::is_trivially_copyable_v<StepState>);
static_assert(sizeof(StepState) == 160, "no padding: the bytes are hashed");

/// A small function of (StepState, parameters) that runs where the state lives: a policy's update, the start
/// of an iteration, a beta power. `name` is the key under which a device back end finds its own copy of the
/// function.
struct ScalarProgram {
  std::string_view name;
  void (*function)(StepState& state, const std::byte* parameters) = nullptr;
  alignas(8) std::array<std::byte, 128> parameters{};
};

}  // namespace fp16lab::engine
