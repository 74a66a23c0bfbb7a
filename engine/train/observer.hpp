// What a training run tells the outside: the engine's only outgoing interface.
//
// The engine never includes analysis/ and writes no run folder; whoever watches (experiments/) implements
// this.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/autograd/tap.hpp"
#include "numerics/files/run/run_rows.hpp"

namespace fp16lab::engine {

namespace amp {
class OpStatistics;  // engine/amp/levels/op_statistics.hpp
}

struct TrainingState;  // engine/train/checkpoint.hpp

/// Rows are those of a run folder. Whoever watches says what it wants; what is not asked for is not computed.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  /// Which tensors of this step should be counted? Counting costs time; it never changes bits. Whoever
  /// follows gradients only answers wants_gradients instead.
  virtual ObservedSet wants_tensors(std::uint64_t step) {
    return wants_gradients(step) ? ObservedSet{Observed::gradients} : ObservedSet{};
  }
  virtual bool wants_gradients(std::uint64_t /*step*/) { return false; }
  /// And of those, the one with this name (HistogramRow::tensor)? The same answer in every step of a run.
  virtual bool wants_name(std::string_view /*tensor*/) { return true; }
  /// Before on_step, where the answers were yes. Gradients come to on_gradient, unless this is overridden.
  virtual void on_tensor(const HistogramRow& row) {
    if (row.observed == Observed::gradients) on_gradient(row);
  }
  virtual void on_gradient(const HistogramRow& /*row*/) {}
  virtual void on_step(const StepRow& /*row*/) {}
  /// Once, behind the second step (or the only one), before on_step.
  virtual void on_memory(const RunMemory& /*memory*/) {}
  virtual void on_evaluation(const EvaluationRow& /*row*/) {}
  /// Should overflows be told with the names of what overflowed? Finding them costs time, in steps with one
  /// only.
  virtual bool wants_overflows() { return false; }
  /// Before on_step, for a step in which gradients or the loss overflowed.
  virtual void on_overflow(const OverflowRow& /*row*/) {}
  /// With wants_overflows: and with what made them? Asked before every step. Every value of the step is
  /// looked at then, and the backward passes of one that overflowed are done again
  /// (CulpritRow::finite_scale), for which graphs are kept: that costs time and memory (train.graph or not,
  /// the step is done verb by verb) and changes no bit.
  virtual bool wants_culprits() { return false; }
  /// Before on_overflow, where the answer was yes, for a step in which something overflowed or whose loss is
  /// not finite: at most one culprit a pass, in the order in which they happened, without advice
  /// (analysis/first_culprit.hpp).
  virtual void on_culprits(std::uint64_t /*step*/, std::vector<CulpritRow> /*rows*/) {}
  /// Should the ops of this step's forward passes be counted? Asked before the step; it never changes bits.
  virtual bool wants_op_statistics(std::uint64_t /*step*/) { return false; }
  /// Before on_step, where the answer was yes.
  virtual void on_op_statistics(std::uint64_t /*step*/, const amp::OpStatistics& /*statistics*/) {}
  /// Asked after every step: true ends the run early (Ctrl-C).
  virtual bool stop_requested() { return false; }
  /// Asked after every step that did not end the run as diverged, before the evaluation that is due at it:
  /// should the state be saved now?
  virtual bool wants_checkpoint(std::uint64_t /*step*/, RunMoment /*moment*/) { return false; }
  /// Called where the answer was yes; the observer knows where checkpoints go (save_checkpoint).
  virtual void on_checkpoint(const TrainingState& /*state*/) {}
};

}  // namespace fp16lab::engine
