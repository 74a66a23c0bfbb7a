// TrainingMethod: what happens between the beginning of an iteration and the scaler's update.
//
// Supervised training (the default) is one forward, one loss and one backward per micro-batch, and one optimizer. Other
// methods have several losses, models or optimizers, or differentiate twice. They are written with the same parts, and
// everything around them (records, checkpoints, resuming, evaluations) stays the Trainer's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "engine/amp/levels/autocast.hpp"
#include "engine/amp/scalers/grad_scaler.hpp"
#include "engine/autograd/tape.hpp"
#include "engine/data/batch_source.hpp"
#include "engine/nn/module.hpp"
#include "engine/optim/optimizer.hpp"

namespace fp16lab::engine {

/// How the trainer measures a supervised loss; methods may ignore it.
enum class LossKind {
  cross_entropy,  ///< softmax cross-entropy, mean over the batch; targets i32 (batch)
  mse,            ///< mean over batch and outputs; targets f32 (batch, outputs)
};

/// The parameters of one optimizer, which has this group's position as its slot in StepState.
struct OptimizerGroup {
  std::string name;  ///< "generator": for messages and records
  std::vector<Parameter*> parameters;
};

/// The trainer's parts, lent to a method for one iteration (or one evaluation batch).
class Iteration {
 public:
  virtual ~Iteration() = default;

  virtual Backend& backend() = 0;
  virtual Tape& tape() = 0;
  virtual amp::Autocast& autocast() = 0;
  /// For gradients that are part of a loss. std::logic_error where each loss has a scale of its own.
  virtual amp::GradScaler& scaler() = 0;
  virtual nn::Module& model() = 0;
  virtual optim::Optimizer& optimizer(std::size_t group) = 0;
  virtual std::size_t optimizer_count() const = 0;
  virtual std::int64_t micro_batches() const = 0;  ///< train.accumulate
  virtual std::uint64_t number() const = 0;        ///< of this iteration, from 0, skipped ones included
  virtual std::uint64_t seed() const = 0;          ///< train.seed: of streams that the method draws from

  /// The data of a micro-batch; also sets the tape's StepContext for it (dropout, BatchNorm).
  virtual data::Batch begin_micro_batch(std::int64_t micro_batch) = 0;
  /// The batch's inputs as the level wants them: a constant, cast to low where the plan says so.
  virtual Variable network_input(const Tensor& inputs) = 0;
  /// A network's output as the level hands it to a loss: cast to FP32 where the plan says so.
  virtual Variable network_output(const Variable& output) = 0;
  /// The workload's supervised loss of an output (from network_output), in the scope "loss".
  virtual Variable loss_of(const Variable& output, const Tensor& targets) = 0;
  /// Divides by the number of micro-batches where accumulate_mode is mean.
  virtual Variable accumulated(const Variable& loss) = 0;
  /// Adds to the loss that the iteration is recorded with: the sum over calls, divided by micro_batches(). At least one
  /// call an iteration.
  virtual void record_loss(const Variable& loss) = 0;
  /// Backward with the scaler's seed, in the loss's dtype; `which`: the loss's number (TrainingMethod::losses). A 16-bit
  /// loss whose product with S rounds to infinity sets StepState::loss_overflow: frameworks would compute that product,
  /// here it is only looked at.
  virtual void backward(const Variable& loss, BackwardOptions options = {}, int which = 0) = 0;
  /// With a scale for each loss: PerLossScaler::collect for the optimizers of these groups, behind the backward passes
  /// of loss `which` and before those of another. With one scale for all there is nothing to do, and nothing is done.
  virtual void collect(int which, std::initializer_list<std::size_t> groups) = 0;
  /// detect: the scaler's unscale (or combine), and the gradient dump where one is due.
  virtual void unscale(optim::Optimizer& optimizer) = 0;
  /// train.clip_norm and train.clip_value, on unscaled gradients; also what StepRow::grad_norm learns the norm from,
  /// so call it without clipping too.
  virtual void clip(optim::Optimizer& optimizer) = 0;
  /// Must graphs be kept (BackwardOptions::retain_graph, no Tape::reset), because a backward pass may have to be done
  /// again? Only where the method is rescuable().
  virtual bool keeps_graphs() const { return false; }
  /// Behind the first unscale: where this step overflowed and is to be explained, calls `backward`, which calls
  /// Iteration::backward for every loss again, until it knows the greatest lower scale at which the step does not
  /// overflow (engine/train/rescue.hpp). Gradients, and all else that the step goes on with, are left as they were.
  virtual void find_finite_scale(optim::Optimizer& /*optimizer*/, const std::function<void()>& /*backward*/) {
  }
  /// Behind unscale: should the step's backward passes be done again, at a lower scale (engine/train/rescue.hpp)? Then the
  /// policy has decided that scale and gradients are cleared: call backward for every loss again, and unscale.
  virtual bool rescue(optim::Optimizer& /*optimizer*/) { return false; }
  /// apply, or skip: the scaler's step. Where the method has not called unscale, that is done first, and the norm is
  /// noted; nothing is clipped.
  virtual void step(optim::Optimizer& optimizer) = 0;
};

class TrainingMethod {
 public:
  virtual ~TrainingMethod() = default;
  /// One optimizer for each; at least one, at most max_optimizers. Default: one, named "model", of all parameters.
  virtual std::vector<OptimizerGroup> groups(nn::Module& model) const;
  /// How many losses have backward passes of their own, numbered from 0. A method with several calls
  /// Iteration::collect, so that scaler.per_loss can give each a scale of its own (engine/amp/scalers/per_loss_scaler.hpp).
  virtual int losses() const { return 1; }
  /// Does run() the same verbs in every iteration, with the same numbers from the host, but for the data of the batches?
  /// Then iterations can be recorded and replayed (train.graph). Random masks and learning rates are no obstacle: they
  /// follow StepState. What is drawn by Iteration::number() is one, and so is what waits for the device.
  virtual bool recordable() const { return false; }
  /// Does run() ask Iteration::rescue?
  virtual bool rescuable() const { return false; }
  /// From cleared gradients to the last Iteration::step. The trainer has begun the iteration, and calls the scaler's
  /// update afterwards. Autocast is off on entry: the method sets an AutocastGuard around forward passes.
  virtual void run(Iteration& iteration) = 0;
  /// The loss of an evaluation batch, gradients off and autocast on; `output` (for accuracy) may be left undefined.
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
