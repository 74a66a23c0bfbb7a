// TrainingMethod: what happens between the beginning of an iteration and the scaler's update.
//
// Supervised training (the default) is one forward, one loss and one backward per micro-batch, and one
// optimizer. Other methods have several losses, models or optimizers, or differentiate twice. They are
// written with the same parts, and everything around them (records, checkpoints, resuming, evaluations) stays
// the Trainer's.
#pragma once

#include <string>
#include <vector>

#include "engine/autograd/tape.hpp"
#include "engine/data/batch_source.hpp"
#include "engine/nn/losses.hpp"
#include "engine/nn/module.hpp"

namespace fp16lab::engine {

using nn::LossKind;

/// The parameters of one optimizer, which has this group's position as its slot in StepState.
struct OptimizerGroup {
  std::string name;  ///< "generator": for messages and records
  std::vector<Parameter*> parameters;
};

class Iteration;  // engine/train/iteration.hpp: what a method works with

class TrainingMethod {
 public:
  virtual ~TrainingMethod() = default;
  /// One optimizer for each; at least one, at most max_optimizers. Default: one, named "model", with all
  /// parameters.
  virtual std::vector<OptimizerGroup> groups(nn::Module& model) const;
  /// How many losses have backward passes of their own, numbered from 0. A method with several calls
  /// Iteration::collect, so that scaler.per_loss can give each a scale of its own
  /// (engine/amp/scalers/grad_scaler.hpp).
  virtual int losses() const { return 1; }
  /// Does run() the same verbs in every iteration, with the same numbers from the host, but for the data of
  /// the batches? Then iterations can be recorded and replayed (train.graph). Random masks and learning rates
  /// are no obstacle: they follow StepState. A method that draws by Iteration::number() or waits for the
  /// device cannot be recorded.
  virtual bool recordable() const { return false; }
  /// Does run() call Iteration::rescue?
  virtual bool rescuable() const { return false; }
  /// From cleared gradients to the last Iteration::step. The trainer has begun the iteration, and calls the
  /// scaler's update afterwards. Autocast is off on entry: the method sets an AutocastGuard around forward
  /// passes.
  virtual void run(Iteration& iteration) = 0;
  /// The loss of an evaluation batch, gradients off and autocast on; `output` (for accuracy) may be left
  /// undefined.
  struct Evaluation {
    Variable loss;
    Variable output = {};
  };
  virtual Evaluation evaluate(Iteration& iteration, const data::Batch& batch) = 0;
};

/// One model, one loss, one optimizer; reads like the data-flow line of the design.
class Supervised final : public TrainingMethod {
 public:
  bool recordable() const override { return true; }
  bool rescuable() const override { return true; }
  void run(Iteration& iteration) override;
  Evaluation evaluate(Iteration& iteration, const data::Batch& batch) override;
};

}  // namespace fp16lab::engine
