// Iteration: the parts of one training run, and how a method uses them in an iteration.
//
// The trainer owns one for the whole run and begins and ends its iterations; between the two it belongs to
// the TrainingMethod (engine/train/method.hpp).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/amp/levels/autocast.hpp"
#include "engine/amp/scalers/grad_scaler.hpp"
#include "engine/amp/scalers/layer_scaler.hpp"
#include "engine/autograd/counting.hpp"
#include "engine/autograd/tape.hpp"
#include "engine/optim/optimizer.hpp"
#include "engine/train/culprit_finder.hpp"
#include "engine/train/method.hpp"
#include "engine/train/rescue.hpp"
#include "engine/train/tensor_dump.hpp"
#include "engine/train/tensor_log.hpp"
#include "engine/train/workload.hpp"

namespace fp16lab::engine {

class Iteration {
 public:
  /// Decorates the model as the level says, then makes one optimizer for each group of the method.
  /// std::invalid_argument on impossible options, naming them.
  Iteration(Backend& backend, Workload& workload, TrainingMethod& method, const TrainingPlan& plan,
            parallel::Communicator* communicator = nullptr);

  // ---- for the method, in an iteration or for one evaluation batch ----
  Backend& backend() { return *backend_; }
  Tape& tape() { return tape_; }
  amp::Autocast& autocast() { return autocast_; }
  /// For gradients that are part of a loss. std::logic_error where each loss has a scale of its own.
  amp::GradScaler& scaler();
  nn::Module& model() { return *workload_->model; }
  optim::Optimizer& optimizer(std::size_t group) { return *optimizers_.at(group); }
  std::size_t optimizer_count() const { return optimizers_.size(); }
  std::int64_t micro_batches() const { return options_.accumulate; }
  std::uint64_t number() const { return number_; }      ///< the iteration's, from 0, skipped ones included
  std::uint64_t seed() const { return options_.seed; }  ///< for streams that the method draws from

  /// The data of a micro-batch; also sets the tape's StepContext for it (dropout, BatchNorm).
  data::Batch begin_micro_batch(std::int64_t micro_batch);
  /// The batch's inputs as the level needs them: a constant, cast to low where the plan says so.
  Variable network_input(const Tensor& inputs);
  /// A network's output as the level hands it to a loss: cast to FP32 where the plan says so.
  Variable network_output(const Variable& output);
  /// The workload's supervised loss of an output (from network_output), in the scope "loss".
  Variable loss_of(const Variable& output, const Tensor& targets);
  /// Divides by the number of micro-batches where accumulate_mode is mean.
  Variable accumulated(const Variable& loss);
  /// The scaler's seed of a backward pass from `loss`: S, for each of the losses by shard.
  Tensor seed_of(const Variable& loss, int which = 0);
  /// Adds to the loss that the iteration is recorded with: the sum over calls, divided by micro_batches(). At
  /// least one call an iteration.
  void record_loss(const Variable& loss);
  /// Backward with the scaler's seed, in the loss's dtype; `which`: the loss's number
  /// (TrainingMethod::losses). A 16-bit loss whose product with S rounds to infinity sets
  /// StepState::loss_overflow: frameworks would compute that product, here it is only looked at.
  void backward(const Variable& loss, BackwardOptions options = {}, int which = 0);
  /// GradScaler::collect for the optimizers of these groups, after the backward passes of loss `which` and
  /// before those of another.
  void collect(int which, std::initializer_list<std::size_t> groups);
  /// Does collect take the gradients, so that no later pass adds to them?
  bool collects() const { return scaler_.per_loss(); }
  /// detect: the scaler's unscale, and the gradient dump where one is due.
  void unscale(optim::Optimizer& optimizer);
  /// train.clip_norm and train.clip_value, on unscaled gradients; also what StepRow::grad_norm learns the
  /// norm from, so call it without clipping too.
  void clip(optim::Optimizer& optimizer);
  /// Must graphs be kept (BackwardOptions::retain_graph, no Tape::reset), because a backward pass may have to
  /// be done again? Only where the method is rescuable().
  bool keeps_graphs() const { return rescue_limit_ > 0 || explains_scales(); }
  /// After the first unscale: where this step overflowed and is to be explained, calls `backward`, which
  /// calls Iteration::backward for every loss again, until it knows the greatest lower scale at which the
  /// step does not overflow (engine/train/rescue.hpp). Gradients, and all other inputs of the rest of the
  /// step, are left as they were.
  void find_finite_scale(optim::Optimizer& optimizer, const std::function<void()>& backward);
  /// After unscale: should the step's backward passes be done again, at a lower scale
  /// (engine/train/rescue.hpp)? Then the policy has decided that scale and gradients are cleared: call
  /// backward for every loss again, and unscale.
  bool rescue(optim::Optimizer& optimizer);
  /// apply, or skip: the scaler's step. If the method has not called unscale, that is done first, and the
  /// norm is noted; nothing is clipped.
  void step(optim::Optimizer& optimizer);

  // ---- for the trainer ----
  /// Will the gradients of iteration `number` be dumped?
  bool dumps(std::uint64_t number) const { return dump_ && dump_->due(number + 1); }
  /// Begins iteration `number`: counters, learning rates, cleared gradients. `names_overflows`: are the names
  /// in nonfinite_parameters() wanted?
  void begin(std::uint64_t number, bool names_overflows);
  /// Does the policy decide by the counts of every step? Then a log must be set.
  bool wants_statistics() const { return scaler_.wants_statistics(); }
  /// The observers of the iterations to come, neither owned, each may be null. `log`: counts the tensors that
  /// it takes (TensorLog::begin), and gradients where the policy decides by them. `finder` follows every
  /// value; begin() clears it.
  void set_taps(TensorLog* log, CulpritFinder* finder);
  bool follows_values() const { return finder_ != nullptr; }
  /// What the last iteration repeated: `attempts` is 0 where nothing was done again.
  const Rescue& last_rescue() const { return rescue_; }
  /// CulpritRow::finite_scale of the last iteration.
  std::optional<double> finite_scale() const { return finite_scale_; }
  /// Why the policy's rule ends the run here, or nothing. `state`: as last read. With a scale for each loss
  /// it waits.
  std::optional<std::string> policy_stop(const StepState& state) const { return scaler_.stop(state); }
  /// GradScaler::can_fall.
  bool can_fall(const StepState& state) const { return layer_scaler_ != nullptr || scaler_.can_fall(state); }
  /// Ends it: the scaler's update, and the gradient dump where it is due. std::logic_error for a method that
  /// recorded no loss.
  void end();
  /// If the back end runs asynchronously: prepares the data of the next iteration while the device is still
  /// at work on the last one.
  void fetch_ahead();
  /// Bytes of the last iteration's inputs, and of what it had made when its first backward pass began.
  std::size_t forward_bytes() const { return forward_bytes_; }
  /// Mean of the recorded losses of the last iteration.
  double mean_loss();
  Sharding& sharding() { return sharding_; }
  /// Names of the group's parameters whose gradients of the last iteration hold an Inf or NaN.
  std::vector<std::string> nonfinite_parameters(std::size_t group);

  // ---- recording (engine/train/recorded_steps.hpp) ----
  /// What a group's gradients held before clipping by value hid it; counted asynchronously.
  struct CountedGradient {
    const Parameter* parameter = nullptr;
    CastProbe probe;
  };
  using CountedGradients = std::vector<CountedGradient>;

  /// Are the steps to be recorded (train.graph)?
  bool records_steps() const { return options_.graph; }
  /// Copies the iteration's batches, `fed` or else those of the training loader, to where a recorded step
  /// finds them, at the first call made in their shapes; begin_micro_batch gives them from there then. False
  /// where they have other shapes than those of the first call.
  bool load_batches(std::uint64_t number, std::span<const data::Batch> fed = {});
  /// By group, for the last iteration.
  const std::vector<CountedGradients>& counted_gradients() const { return counted_; }
  /// The host's part of an iteration that the back end has replayed.
  void note_replayed(std::uint64_t number, bool names_overflows,
                     const std::vector<CountedGradients>& counted);

  Tensor& step_memory() { return step_; }
  /// For records. With a scale for each loss, `scale` is that of loss 0.
  StepState read_step_state() { return scaler_.read_step_state(); }
  bool checks() const { return scaler_.checks(); }
  const std::string& policy_name() const { return scaler_.policy_name(); }
  /// With a scale for each loss: "scaler.lossN", a StepState each. With scales of layers:
  /// "scaler.layer_scales" and "scaler.layer_counts". With a recipe of delayed scales:
  /// "amp.amax_histories". Else nothing.
  std::span<const optim::NamedTensor> loss_states() const { return loss_states_; }
  /// What a checkpoint has put into the memory of all this is the state from now on.
  void note_loaded() {
    if (layer_scaler_ != nullptr) layer_scaler_->reload();
    if (histories_.defined()) autocast_.recipe_records().restore(histories_.host<float>());
  }
  const OptimizerGroup& group(std::size_t position) const { return groups_[position]; }
  /// Writes a GradientDump of that iteration (1-based).
  void dump_gradients(std::uint64_t step, std::filesystem::path path) {
    dump_.emplace(step, std::move(path));
  }

 private:
  /// Is there work of the device left when a verb returns?
  bool runs_asynchronously() const { return backend_->records() && !step_.on_host(); }
  bool dumping() const { return dumps(number_); }
  /// Gradients of these parameters by shard become their mean.
  void reduce(optim::Optimizer& optimizer);
  /// Puts the states of amax histories where checkpoints and hashes find them.
  void store_histories();
  /// Are overflows explained, and is there one scale to be found?
  bool explains_scales() const {
    return finder_ != nullptr && !scaler_.per_loss() && layer_scaler_ == nullptr;
  }
  /// `seed`, a scalar, for each of several losses.
  Tensor for_each(const Shape& losses, const Tensor& seed);
  void try_backward(const Variable& loss, const BackwardOptions& options);
  /// At this scale instead of the scaler's, unwatched and uncounted: does nothing overflow?
  bool is_finite_at(double scale, optim::Optimizer& optimizer, const std::function<void()>& backward);
  /// Does the log take any of these?
  bool logs(std::initializer_list<Observed> any) const;
  /// Limits of 0 only note the norm.
  void clip(optim::Optimizer& optimizer, double max_norm, double max_value);
  data::Batch take_batch(std::uint64_t number, std::int64_t micro_batch);
  /// The casts at the ends of the network are the level's, as those that op lists ask for.
  void count_cast(DType dtype);
  void keep_names(std::size_t group);
  void note_loss_overflow(const Tensor& loss, const Tensor& seed);
  /// The counts of all gradients since the last update, where the policy needs them; else null. Waits.
  const amp::GradientStatistics* statistics();

  Backend* backend_;
  Workload* workload_;
  TrainOptions options_;
  Sharding sharding_;
  Tensor step_;  ///< StepState in back-end memory
  Tape tape_;
  Counting counting_;
  amp::Autocast autocast_;
  amp::GradScaler scaler_;
  std::unique_ptr<amp::LayerScaler> layer_scaler_;  ///< policies with scales of layers
  std::vector<optim::NamedTensor> loss_states_;
  Tensor histories_;  ///< f32, the states of all amax histories; undefined: scales are not delayed
  std::vector<OptimizerGroup> groups_;
  std::vector<std::unique_ptr<optim::Optimizer>> optimizers_;
  Tensor loss_sum_;  ///< f32 scalar: sum of the recorded losses of an iteration
  Tensor norms_;     ///< f64, by optimizer: norms of their unscaled gradients, where there are several
  std::uint64_t number_ = 0;
  bool loss_recorded_ = false;
  std::size_t begun_with_ = 0;     ///< bytes in use before its first inputs
  std::size_t forward_bytes_ = 0;  ///< 0 until its first backward pass
  bool names_overflows_ = false;
  /// Names found before clipping by value hid what they name; where the host must not wait for them, the
  /// counts to find them in.
  std::vector<std::optional<std::vector<std::string>>> names_;
  std::vector<CountedGradients> counted_;
  std::vector<data::Batch> loaded_;             ///< by micro-batch; empty: nothing was recorded
  std::optional<std::uint64_t> loaded_number_;  ///< the iteration that they are of
  /// The first batch of an iteration that has not begun.
  struct Ahead {
    std::uint64_t number = 0;
    data::Batch batch;
  };
  std::optional<Ahead> ahead_;
  std::optional<GradientDump> dump_;
  CulpritFinder* finder_ = nullptr;
  TensorLog* log_ = nullptr;
  amp::GradientStatistics statistics_;  ///< scratch
  ExponentHistogram reduced_;       ///< counts of gradients that were reduced, where the policy needs them
  std::uint64_t rescue_limit_ = 0;  ///< scaler.rescue
  Rescue rescue_;                   ///< this iteration's
  std::optional<double> finite_scale_;  ///< likewise
  /// A backward pass that is only tried.
  struct Trial {
    double scale = 1;
    bool finite = true;  ///< the product of S and every loss of 16 bits
  };
  std::optional<Trial> trial_;
};

}  // namespace fp16lab::engine
