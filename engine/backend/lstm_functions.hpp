// One element of an LSTM's cell, forward and backward: one source for every back end, host and device.
//
// FP32 throughout, one rounding an operation, as engine/backend/backend.hpp writes it. Results that are NaN
// are canonical where they are stored.
#pragma once

#include "numerics/elementary/elementary.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/platform/portability.hpp"

namespace fp16lab::engine::functions {

/// The gates of one unit: as sums, after their functions, or gradients of the sums.
struct LstmGates {
  float input, forget, candidate, output;
};

/// `sums` after their functions.
FP16LAB_HD inline LstmGates lstm_activated(const LstmGates& sums) {
  return {sigmoid_f32(sums.input), sigmoid_f32(sums.forget), tanh_f32(sums.candidate),
          sigmoid_f32(sums.output)};
}

/// c from the gates and the c before.
FP16LAB_HD inline float lstm_next_cell(const LstmGates& gates, float before) {
  const float kept = gates.forget * before, added = gates.input * gates.candidate;
  return canonicalize(kept + added);
}
/// h from the output gate and tanh(c).
FP16LAB_HD inline float lstm_output(float gate, float squashed) { return canonicalize(gate * squashed); }

/// dc, without what later steps give.
FP16LAB_HD inline float lstm_cell_gradient(const LstmGates& gates, float squashed, float hidden_gradient) {
  const float through = hidden_gradient * gates.output;
  const float slope = (1.0f - squashed) * (1.0f + squashed);
  return through * slope;
}
/// Gradients of the sums, from dh and the whole dc.
FP16LAB_HD inline LstmGates lstm_gate_gradients(const LstmGates& gates, float before, float squashed,
                                                float hidden_gradient, float cell_gradient) {
  const auto of_sigmoid = [](float gradient, float y) { return canonicalize(gradient * (y * (1.0f - y))); };
  const float candidate_slope = (1.0f - gates.candidate) * (1.0f + gates.candidate);
  return {of_sigmoid(cell_gradient * gates.candidate, gates.input),
          of_sigmoid(cell_gradient * before, gates.forget),
          canonicalize((cell_gradient * gates.input) * candidate_slope),
          of_sigmoid(hidden_gradient * squashed, gates.output)};
}

}  // namespace fp16lab::engine::functions
