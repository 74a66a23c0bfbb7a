// The scaler's own scalar programs: its changes to a StepState in that state's memory, on every back end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "engine/backend/step_state.hpp"
#include "numerics/platform/portability.hpp"

namespace fp16lab::engine::amp {

/// "scaler.clear_found_inf": no optimizer of the state has seen an overflow.
FP16LAB_HD inline void clear_found_inf_program(StepState& step, const std::byte*) {
  for (float& flag : step.found_inf) flag = 0.0f;
}

struct MergeFoundInf {
  const std::byte* loss_state;  ///< a StepState in back-end memory
};

/// "scaler.merge_found_inf": an optimizer is skipped if any loss overflowed in its gradients.
FP16LAB_HD inline void merge_found_inf_program(StepState& step, const std::byte* parameters) {
  MergeFoundInf merge;
  std::memcpy(&merge, parameters, sizeof(merge));
  StepState loss;
  std::memcpy(&loss, merge.loss_state, sizeof(loss));
  for (std::size_t slot = 0; slot < step.found_inf.size(); ++slot) {
    if (loss.found_inf[slot] != 0.0f) step.found_inf[slot] = 1.0f;
  }
}

/// One optimizer's found_inf, while it steps with zeros (ScalerOptions::on_overflow).
struct SetAsideFoundInf {
  std::uint64_t optimizer;
  float* found_inf;  ///< back-end memory, both
  float* finite;     ///< 1, or 0 after an overflow
};

/// "scaler.set_aside_found_inf": the optimizer's next verbs see no overflow.
FP16LAB_HD inline void set_aside_found_inf_program(StepState& step, const std::byte* parameters) {
  SetAsideFoundInf aside;
  std::memcpy(&aside, parameters, sizeof(aside));
  float& flag = step.found_inf[aside.optimizer];
  *aside.found_inf = flag;
  *aside.finite = flag == 0.0f ? 1.0f : 0.0f;
  flag = 0.0f;
}

/// "scaler.bring_back_found_inf"
FP16LAB_HD inline void bring_back_found_inf_program(StepState& step, const std::byte* parameters) {
  SetAsideFoundInf aside;
  std::memcpy(&aside, parameters, sizeof(aside));
  step.found_inf[aside.optimizer] = *aside.found_inf;
}

}  // namespace fp16lab::engine::amp
