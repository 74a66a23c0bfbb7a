// Trainer: one training run. `train_step` reads like the data-flow line of the design:
//
//   master weights f32 --cast--> f16 --forward GEMM / f32 ops--> loss f32 --x S--> scaled dL --cast--> f16
//      --backward GEMMs (histogram before and after the cast)--> scaled gradients
//      --unscale + found_inf--> f32 gradients --clip--> step or skip --> policy(found_inf) --> next S
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/amp/autocast.hpp"
#include "engine/amp/grad_scaler.hpp"
#include "engine/backend/backend.hpp"
#include "engine/nn/module.hpp"
#include "engine/optim/optimizer.hpp"
#include "engine/train/checkpoint.hpp"
#include "engine/train/gradient_log.hpp"
#include "engine/train/observer.hpp"
#include "engine/train/tensor_dump.hpp"

namespace fp16lab::engine {

namespace data {
class BatchSource;  // engine/data/batch_source.hpp
}

using amp::AmpOptions;
using amp::Level;
using amp::ScalerOptions;
using optim::OptimizerOptions;

enum class LossKind {
  cross_entropy,  ///< softmax cross-entropy, mean over the batch; targets i32 (batch)
  mse,            ///< mean over batch and outputs; targets f32 (batch, outputs)
};

struct Workload {
  std::unique_ptr<nn::Module> model;
  data::BatchSource* training = nullptr;    ///< not owned
  data::BatchSource* evaluation = nullptr;  ///< not owned; may be null
  LossKind loss = LossKind::cross_entropy;
  bool accuracy = false;            ///< count argmax == target in evaluations (cross_entropy only)
  bool bits_per_character = false;  ///< report loss / ln 2 in evaluations (cross_entropy only)
};

enum class AccumulateMode {
  mean,  ///< the loss of every micro-batch is divided by their number
  sum,   ///< it is not: gradients grow with the number of micro-batches
};

struct TrainOptions {
  std::uint64_t steps = 0;      ///< optimizer iterations, skipped ones included
  std::int64_t accumulate = 1;  ///< micro-batches per iteration, >= 1
  AccumulateMode accumulate_mode = AccumulateMode::mean;
  double clip_norm = 0;              ///< 0: off
  double clip_value = 0;             ///< largest magnitude of a gradient element, after clip_norm; 0: off
  std::uint64_t seed = 0;            ///< of dropout's masks
  std::uint64_t evaluate_every = 0;  ///< 0: only at the end
  std::uint64_t skip_limit = 0;      ///< consecutive skips that end the run; 0: none
};

struct RunResult {
  enum class End { finished, stopped, diverged };
  End end = End::finished;
  std::uint64_t steps = 0;  ///< iterations done, skipped ones included
  std::uint64_t skipped_steps = 0;
  double final_train_loss = 0;  ///< of the last iteration
  double final_loss_scale = 1;  ///< S after the last update
  std::uint64_t state_hash = 0;
  std::size_t peak_tensor_bytes = 0;      ///< most bytes of tensors alive at once, in whole pool blocks
  std::optional<double> evaluation_loss;  ///< at the end of the run
  std::optional<double> evaluation_accuracy;
  std::optional<double> evaluation_bits_per_character;
};

class Trainer {
 public:
  /// Loss non-finite on so many consecutive iterations ends a run as diverged.
  static constexpr std::uint64_t divergence_limit = 50;

  /// All references must outlive the trainer. std::invalid_argument on impossible options, naming them.
  Trainer(Backend& backend, Workload& workload, const TrainOptions& train, const AmpOptions& amp,
          const ScalerOptions& scaler, const OptimizerOptions& optimizer, TrainObserver& observer);

  /// Steps until the end, a stop request, or divergence; evaluates on the way and at the end (not after
  /// divergence). After resume() it continues as the uninterrupted run would have, beginning with the evaluation
  /// that is due at the checkpoint's step.
  RunResult run();

  /// Puts the trainer, fresh from its constructor, behind the checkpoint's iteration. std::runtime_error naming the
  /// file, the tensor and the reason if anything does not fit, the state_hash included; the trainer is of no use
  /// then. std::logic_error after a step.
  void resume(const CheckpointFile& checkpoint);
  /// All that later iterations depend on, for save_checkpoint. Shares the trainer's memory.
  TrainingState training_state();

  /// Writes a GradientDump of that iteration (1-based, not yet begun) on the way. Bits do not change.
  void dump_gradients(std::uint64_t step, std::filesystem::path path);

  /// One optimizer iteration: `accumulate` micro-batches, one update or skip. Tells the observer.
  StepRecord train_step();

  /// Mean loss (and accuracy) over the evaluation loader, in the precision of training. Tells the observer.
  /// std::logic_error without an evaluation loader.
  EvaluationRecord evaluate();

  std::uint64_t iteration() const { return iteration_; }
  /// Digest of weights, optimizer state and StepState: equal runs have equal hashes.
  std::uint64_t state_hash();
  std::vector<Parameter*> parameters() const { return workload_->model->parameters(); }
  StepState step_state() { return backend_->read_step_state(step_); }
  const optim::Optimizer& optimizer() const { return *optimizer_; }

 private:
  Variable loss_of(const Variable& prediction, const Tensor& targets) const;
  void forward_backward(std::int64_t micro_batch, const Tensor& seed);
  StepRecord record_step(bool observed);
  bool dumping() const { return gradient_dump_ && gradient_dump_->due(iteration_ + 1); }
  void write_gradient_dump();
  bool evaluation_due() const;
  double mean_loss();
  bool found_inf(const StepState& state) const;

  Backend* backend_;
  Workload* workload_;
  TrainOptions options_;
  TrainObserver* observer_;
  Tensor step_;  ///< StepState in back-end memory
  Tape tape_;
  amp::Autocast autocast_;
  amp::GradScaler scaler_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::vector<Parameter*> parameters_;  ///< of the model, listed once: the hash of every step walks them
  std::vector<nn::Buffer*> buffers_;
  GradientLog gradient_log_;
  std::optional<GradientDump> gradient_dump_;
  Tensor loss_sum_;  ///< f32 scalar: sum of the micro-batch losses of an iteration
  std::uint64_t iteration_ = 0;
  RunCounters counters_;
  bool resumed_ = false;
  double recorded_scale_ =
      1;  ///< S of the coming iteration, as read back for the last record; for records only
};

}  // namespace fp16lab::engine
