// Trainer: one training run. An iteration reads like the data-flow line of the design, part by part:
//
//   master weights f32 --cast--> f16 --forward GEMM / f32 ops--> loss f32 --x S--> scaled dL --cast--> f16
//      --backward GEMMs (histogram before and after the cast)--> scaled gradients
//      --unscale + found_inf--> f32 gradients --clip--> step or skip --> policy(found_inf) --> next S
//
// From the weights to "step or skip" it is the method's (Supervised::run in engine/train/method.cpp); the
// last arrow, records, checkpoints and evaluations are the trainer's.
//
// Where the back end runs asynchronously, the host gives the whole iteration away and prepares the data of
// the next one before it waits. It waits where it records: for the StepState, the loss and the digest of
// every step; with scaler.per_loss for the scale of loss 0; for the counts of an observed step, all at once;
// for the names of gradients in a step that overflowed. Policies that decide by counts wait for those of
// every step, before the update; scaler.rescue waits for found_inf, before the optimizer's verbs. Between the
// first of these waits and the next step the device has little to do, so each costs a round trip and no more.
// Nothing else of a step waits: not the scaler, nor clipping, nor the optimizers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/amp/levels/autocast.hpp"
#include "engine/amp/levels/op_statistics.hpp"
#include "engine/amp/scalers/grad_scaler.hpp"
#include "engine/backend/backend.hpp"
#include "engine/nn/module.hpp"
#include "engine/optim/optimizer.hpp"
#include "engine/train/checkpoint.hpp"
#include "engine/train/diagnosis.hpp"
#include "engine/train/iteration.hpp"
#include "engine/train/method.hpp"
#include "engine/train/observer.hpp"
#include "engine/train/recorded_steps.hpp"
#include "engine/train/tensor_log.hpp"
#include "engine/train/workload.hpp"

namespace fp16lab::engine {

using amp::AmpOptions;
using amp::Level;
using amp::ScalerOptions;
using optim::OptimizerOptions;

struct RunResult {
  enum class End { finished, stopped, diverged };
  End end = End::finished;
  std::uint64_t steps = 0;          ///< iterations done, skipped ones included
  std::uint64_t skipped_steps = 0;  ///< those of the optimizer that skipped most
  double final_train_loss = 0;      ///< the last iteration's
  double final_loss_scale = 1;      ///< S after the last update
  std::uint64_t state_hash = 0;
  std::size_t peak_tensor_bytes = 0;        ///< most bytes of tensors alive at once, in whole pool blocks
  std::optional<Diagnosis> diagnosis;       ///< where it ended as diverged
  std::optional<EvaluationRow> evaluation;  ///< at the end of the run
};

class Trainer {
 public:
  /// Loss non-finite on so many consecutive iterations ends a run as diverged; in the last one, too.
  static constexpr std::uint64_t divergence_limit = 50;

  /// All references must outlive the trainer. Decorates the model as the level says (so a low level needs a
  /// fresh model) and makes the method's optimizers. std::invalid_argument on impossible options, naming
  /// them.
  /// `communicator`: that of the ranks that train together, each with its own trainer; null: one process.
  Trainer(Backend& backend, Workload& workload, const TrainingPlan& plan, Tap& tap,
          parallel::Communicator* communicator = nullptr);
  /// By plan_training.
  Trainer(Backend& backend, Workload& workload, const TrainOptions& train, const AmpOptions& amp,
          const ScalerOptions& scaler, const OptimizerOptions& optimizer, Tap& tap);

  /// Steps until the end, a stop request, or divergence (losses that are not finite, train.skip_limit, a rule
  /// of the policy; at the end a last loss that is not finite, or no step taken); evaluates on the way, and
  /// after the last step unless none was taken. After resume() it continues as the uninterrupted run would
  /// have, beginning with the evaluation that is due at the checkpoint's step.
  RunResult run();

  /// Puts the trainer, fresh from its constructor, after the checkpoint's iteration. std::runtime_error
  /// naming the file, the tensor and the reason if anything does not fit, the state_hash included; the
  /// trainer is of no use then. std::logic_error after a step.
  void resume(const CheckpointFile& checkpoint);
  /// All that later iterations depend on, for save_checkpoint. Shares the trainer's memory.
  TrainingState training_state();

  /// Writes a GradientDump of that iteration (1-based, not yet begun) on the way. Bits do not change.
  void dump_gradients(std::uint64_t step, std::filesystem::path path);

  /// One optimizer iteration: `accumulate` micro-batches, one update or skip of each optimizer. Sends the tap
  /// its events.
  StepRow train_step();

  /// Mean loss (and accuracy) over the evaluation loader, in the precision of training. Sends the tap its
  /// events. std::logic_error without an evaluation loader.
  EvaluationRow evaluate();

  std::uint64_t iteration() const { return iteration_; }
  /// The last step's memory, and the peak so far.
  RunMemory memory();
  /// Digest of weights, optimizer state, StepState and the states of losses: equal runs have equal hashes.
  std::uint64_t state_hash();
  std::vector<Parameter*> parameters() const { return parameters_; }
  /// With scaler.per_loss, `scale` is that of loss 0, in records and results too.
  StepState step_state() { return parts_.read_step_state(); }
  const optim::Optimizer& optimizer(std::size_t group = 0) { return parts_.optimizer(group); }
  std::size_t optimizer_count() const { return parts_.optimizer_count(); }

 private:
  StepKind begin_looking(std::uint64_t step);
  void end_looking();
  bool is_replayed(StepKind kind);
  StepRow record_step();
  std::vector<NamedDigest> digests();
  void forget_unread_powers();
  void report_tensors(StepRow& row, const StepState& state);
  void report_overflow(const StepRow& row, const StepState& state);
  Diagnosis diagnosis(RunFacts::End end, const std::string& stop_reason);
  std::optional<int> look_at_weights(NonfiniteValues& nonfinite);
  bool evaluation_due() const;
  bool wants(What what, std::uint64_t step) const { return tap_->wants({.what = what, .step = step}); }
  bool wants_culprits(std::uint64_t step) const {
    return wants(What::overflows, step) && wants(What::culprits, step);
  }

  Backend* backend_;
  Workload* workload_;
  std::unique_ptr<TrainingMethod> supervised_;  ///< where the workload has no method
  TrainingMethod* method_;
  TrainOptions options_;
  Tap* tap_;
  Iteration parts_;
  std::vector<Parameter*> parameters_;  ///< the model's, listed once: the hash of every step walks them
  std::vector<nn::Buffer*> buffers_;
  TensorLog tensor_log_;
  std::optional<RecordedSteps> recorded_;  ///< train.graph
  CulpritFinder culprits_;                 ///< at work where the tap takes culprits
  std::vector<DigestItem> digests_;        ///< for state_hash; kept for its capacity
  amp::OpStatistics op_statistics_;
  std::uint64_t iteration_ = 0;
  RunCounters counters_;
  RunSettings settings_;
  FactKeeper facts_;
  std::optional<int> first_weight_exponent_;  ///< RunFacts, at the beginning of run()
  bool weights_began_nonfinite_ = false;
  bool resumed_ = false;
  StepState last_;  ///< as read back for the last record; for records only
};

}  // namespace fp16lab::engine
