// What a tap (engine/autograd/tap.hpp) learns about a training run, and when: the engine's only outgoing
// interface. Rows are those of a run folder (run_rows.hpp).
//
//   HistogramRow   of a step, for each tensor that is wanted: What::gradients and the four after it
//   RecipeRow      with What::operands, for each operand that a recipe rounded
//   Culprits       with What::overflows and What::culprits
//   OverflowRow    with What::overflows, for a step in which gradients or the loss overflowed
//   CountedOps     with What::op_statistics
//   RunMemory      once, after the second step (or the only one)
//   StepRow        after every step: the last of the step's events
//   TrainingState  with What::checkpoint (engine/train/checkpoint.hpp); save_checkpoint writes it
//   EvaluatedBatch in an evaluation, after each batch
//   EvaluationRow  after an evaluation
//
// They come in this order. What::checkpoint is asked after every step that did not end the run as diverged,
// before the evaluation that is due at it, and What::stop before it, unless the step was the last one.
//
// The engine never includes analysis/ and writes no run folder; its observers (experiments/) do.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/autograd/tap.hpp"
#include "engine/tensor/tensor.hpp"
#include "numerics/files/run/run_rows.hpp"

namespace fp16lab::engine {

namespace amp {
class OpStatistics;  // engine/amp/levels/op_statistics.hpp
}

struct TrainingState;  // engine/train/checkpoint.hpp

/// What made the overflows of a step in which something overflowed or whose loss is not finite: at most one
/// culprit a pass, in the order in which they happened, without advice (analysis/first_culprit.hpp). Taking
/// them costs time and memory: every value of the step is looked at (train.graph or not, the step is done
/// verb by verb), and the backward passes of one that overflowed are done again (CulpritRow::finite_scale),
/// for which graphs are kept.
struct Culprits {
  std::uint64_t step = 0;
  std::vector<CulpritRow> rows;
};

/// The ops of a step's forward passes.
struct CountedOps {
  std::uint64_t step = 0;
  const amp::OpStatistics& statistics;
};

/// What an evaluation made of a batch. Not sent where the method gives no output.
struct EvaluatedBatch {
  Tensor output, targets;
};

}  // namespace fp16lab::engine
