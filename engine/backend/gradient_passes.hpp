// The passes over all gradients (FP16LAB_GRADIENT_PASSES): one source for every back end, host and device.
//
// A pass is a struct:
//   notes_overflow   found_inf of the optimizer becomes 1 if an element was not finite before
//   applies          whether anything is to be done; otherwise the gradients keep every byte
//   of               the pass of a step, from its state (clip_by_value has none) and the limit of the call
//   operator()       an element's new value. Gradients of 16 bits are widened, and rounded once more
#pragma once

#include <cstdint>

#include "engine/backend/elementwise_functions.hpp"
#include "engine/backend/step_state.hpp"

namespace fp16lab::engine::functions::passes {

/// g = mul_rn(g, inverse_scale).
struct Unscale {
  static constexpr bool notes_overflow = true;
  float factor;
  FP16LAB_HD static bool applies(const StepState*, double) { return true; }
  FP16LAB_HD static Unscale of(const StepState* state, double) { return {state->inverse_scale}; }
  FP16LAB_HD float operator()(float g) const { return Multiply{}(g, factor); }
};

/// g = mul_rn(g, max_norm / (grad_norm + 1e-6)): one FP64 quotient, rounded once to FP32 (PyTorch's
/// clip_grad_norm_). A norm that is not finite clips nothing: such a step is skipped.
struct ClipByNorm {
  static constexpr bool notes_overflow = false;
  float factor;
  FP16LAB_HD static bool applies(const StepState* state, double max_norm) {
    return state->grad_norm - state->grad_norm == 0.0 && state->grad_norm > max_norm;
  }
  FP16LAB_HD static ClipByNorm of(const StepState* state, double max_norm) {
    return {static_cast<float>(max_norm / (state->grad_norm + 1e-6))};
  }
  FP16LAB_HD float operator()(float g) const { return Multiply{}(g, factor); }
};

/// g = Minimum(Maximum(g, -max_value), max_value) for a max_value > 0. On bit patterns, which order
/// magnitudes, because compilers turn the two comparisons into branches.
struct ClipByValue {
  static constexpr bool notes_overflow = false;
  float max_value;
  FP16LAB_HD static bool applies(const StepState*, double) { return true; }
  FP16LAB_HD static ClipByValue of(const StepState*, double max_value) {
    return {static_cast<float>(max_value)};
  }
  FP16LAB_HD float operator()(float g) const {
    const std::uint32_t bits = bits_of(g);
    const std::uint32_t magnitude = bits & Binary32::magnitude_mask;
    const std::uint32_t smaller = magnitude < bits_of(max_value) ? magnitude : bits_of(max_value);
    const std::uint32_t result = smaller | (bits & Binary32::sign_mask);
    return float_from_bits(magnitude > Binary32::infinity ? Binary32::canonical_nan : result);
  }
};

}  // namespace fp16lab::engine::functions::passes
