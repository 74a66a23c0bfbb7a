// An iteration's scalar programs: the training loop's changes to a StepState in that state's memory, on every
// back end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "engine/backend/elementwise_functions.hpp"
#include "engine/backend/step_state.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/platform/portability.hpp"

namespace fp16lab::engine {

/// An FP64 norm for each optimizer.
struct Norms {
  double* by_optimizer;  ///< back-end memory
  std::uint64_t count;
  std::uint64_t optimizer;
};

/// "train.begin_iteration"
FP16LAB_HD inline void begin_iteration_program(StepState& step, const std::byte* parameters) {
  Norms norms;
  std::memcpy(&norms, parameters, sizeof(norms));
  step.loss_overflow = 0.0f;
  for (std::uint64_t i = 0; i < norms.count; ++i) norms.by_optimizer[i] = 0.0;
}

/// "train.begin_rescue": clears the state of the backward pass before it is done again.
FP16LAB_HD inline void begin_rescue_program(StepState& step, const std::byte*) { step.loss_overflow = 0.0f; }

/// A loss, and its scaled value.
struct ScaledLoss {
  const std::uint16_t* loss;    ///< back-end memory, one 16-bit element each
  const std::uint16_t* scaled;  ///< loss x S, rounded to the loss's dtype
  std::uint16_t infinity;       ///< bits of the dtype's +Inf
};

/// "train.note_loss_overflow". A NaN loss is not an overflow; an infinite seed (S rounded to the dtype) is,
/// whatever the loss.
FP16LAB_HD inline void note_loss_overflow_program(StepState& step, const std::byte* parameters) {
  ScaledLoss value;
  std::memcpy(&value, parameters, sizeof(value));
  constexpr std::uint16_t magnitude = 0x7fff;
  const auto loss = static_cast<std::uint16_t>(*value.loss & magnitude);
  const auto scaled = static_cast<std::uint16_t>(*value.scaled & magnitude);
  if (loss <= value.infinity && scaled >= value.infinity) step.loss_overflow = 1.0f;
}

/// "train.keep_norm": the norm of an optimizer's gradients, kept for the norm over all of them.
FP16LAB_HD inline void keep_norm_program(StepState& step, const std::byte* parameters) {
  Norms norms;
  std::memcpy(&norms, parameters, sizeof(norms));
  norms.by_optimizer[norms.optimizer] = step.grad_norm;
}

/// "train.total_norm"
FP16LAB_HD inline void total_norm_program(StepState& step, const std::byte* parameters) {
  Norms norms;
  std::memcpy(&norms, parameters, sizeof(norms));
  double squares = 0.0;
  for (std::uint64_t i = 0; i < norms.count; ++i) squares += norms.by_optimizer[i] * norms.by_optimizer[i];
  step.grad_norm = canonicalize(functions::square_root_f64(squares));
}

/// "train.unscale_norm", for gradients that still carry S.
FP16LAB_HD inline void unscale_norm_program(StepState& step, const std::byte*) {
  step.grad_norm = canonicalize(step.grad_norm / step.scale);
}

}  // namespace fp16lab::engine
