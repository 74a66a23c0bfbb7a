// The optimizers' scalar programs: their changes to a StepState in that state's memory, on every back end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "engine/backend/step_state.hpp"
#include "numerics/platform/portability.hpp"

namespace fp16lab::engine::optim {

struct BeginIteration {
  std::uint64_t optimizer;
  const float* learning_rates;  ///< back-end memory
  std::uint64_t count;
};

/// "optimizer.begin_iteration". The schedule counts taken steps: a skipped one does not move it.
FP16LAB_HD inline void begin_iteration_program(StepState& step, const std::byte* parameters) {
  BeginIteration begin;
  std::memcpy(&begin, parameters, sizeof(begin));
  if (begin.optimizer == 0) ++step.iteration;
  const std::uint64_t taken = step.taken_steps[begin.optimizer];
  step.learning_rate[begin.optimizer] = begin.learning_rates[taken < begin.count ? taken : begin.count - 1];
}

struct AdvanceSteps {
  std::uint64_t optimizer;
  float beta1;  ///< the FP32 coefficients that adam_step uses: their powers are those of the same numbers
  float beta2;
};

/// "optimizer.advance_steps": advances counters and beta powers only where the update will be applied.
FP16LAB_HD inline void advance_steps_program(StepState& step, const std::byte* parameters) {
  AdvanceSteps advance;
  std::memcpy(&advance, parameters, sizeof(advance));
  if (step.found_inf[advance.optimizer] != 0.0f) {
    ++step.skipped_steps[advance.optimizer];
    return;
  }
  ++step.taken_steps[advance.optimizer];
  step.beta1_power[advance.optimizer] *= static_cast<double>(advance.beta1);
  step.beta2_power[advance.optimizer] *= static_cast<double>(advance.beta2);
}

}  // namespace fp16lab::engine::optim
