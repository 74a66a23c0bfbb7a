// The scalars of a training step, as back-end memory.
//
// Loss scale, found_inf flags, counters and beta powers are in the tensors' memory, so that a captured CUDA
// graph can read and update them without the host. On the emulated back end that memory is host memory. All
// of it goes into checkpoints and into state_hash.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace fp16lab::engine {

inline constexpr int max_optimizers = 8;

/// One number for each optimizer: skipping, schedules and Adam's powers are per optimizer.
template <class T>
using PerOptimizer = std::array<T, static_cast<std::size_t>(max_optimizers)>;

constexpr PerOptimizer<double> ones_per_optimizer() {
  PerOptimizer<double> ones{};
  for (double& one : ones) one = 1.0;
  return ones;
}

/// Plain old data; zero bytes in padding (value-initialise it), because it is hashed and stored as bytes.
struct StepState {
  double scale = 1.0;           ///< S, the loss scale of the step in progress
  double grad_norm = 0.0;       ///< L2 norm of the unscaled gradients of the last `global_norm`
  std::uint64_t iteration = 0;  ///< iterations begun, skipped ones included
  float inverse_scale = 1.0f;   ///< float(1.0 / scale), set together with `scale`
  /// 1 if the loss of a micro-batch of this iteration, times S, was beyond the 16-bit dtype that the loss has
  /// (engine/train/trainer.hpp), else 0. Told apart from an overflow of gradients, which found_inf says.
  float loss_overflow = 0.0f;
  PerOptimizer<double> beta1_power = ones_per_optimizer();  ///< beta1^t of Adam: a product over taken steps
  PerOptimizer<double> beta2_power = ones_per_optimizer();
  PerOptimizer<std::uint64_t> taken_steps{};    ///< iterations whose update was applied
  PerOptimizer<std::uint64_t> skipped_steps{};  ///< iterations whose update was skipped
  PerOptimizer<float> learning_rate{};          ///< for this iteration, from the schedule
  PerOptimizer<float> found_inf{};              ///< 1 if a scaled gradient was not finite, else 0
  /// The loss-scale policy's own counters; the policy defines the layout (see engine/amp/policy.hpp).
  alignas(8) std::array<std::byte, 64> policy{};

  /// S and its reciprocal: one FP64 division, rounded once to FP32.
  constexpr void set_scale(double new_scale) {
    scale = new_scale;
    inverse_scale = static_cast<float>(1.0 / new_scale);
  }
};
static_assert(std::is_trivially_copyable_v<StepState>);
static_assert(sizeof(StepState) == 32 + 8 * 40 + 64, "no padding: the bytes are hashed");

/// A small function of (StepState, parameters) that runs in the state's memory: a policy's update, the start
/// of an iteration, a beta power. `name` is the key under which a device back end finds its own copy of the
/// function.
struct ScalarProgram {
  std::string_view name;
  void (*function)(StepState& state, const std::byte* parameters) = nullptr;
  alignas(8) std::array<std::byte, 128> parameters{};
};

/// `parameters` as the bytes that `function` gets: plain old data, of which the function copies its own back.
template <class Parameters>
ScalarProgram scalar_program(std::string_view name, void (*function)(StepState&, const std::byte*),
                             const Parameters& parameters) {
  static_assert(std::is_trivially_copyable_v<Parameters>);
  static_assert(sizeof(parameters) <= sizeof(ScalarProgram::parameters));
  ScalarProgram program{.name = name, .function = function, .parameters = {}};
  std::memcpy(program.parameters.data(), &parameters, sizeof(parameters));
  return program;
}

}  // namespace fp16lab::engine
