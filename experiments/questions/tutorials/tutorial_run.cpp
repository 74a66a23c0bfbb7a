#include "experiments/questions/tutorials/tutorial_run.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "engine/train/trainer.hpp"
#include "experiments/app/exit_code.hpp"
#include "experiments/app/process.hpp"
#include "experiments/app/run/prepared_run.hpp"
#include "numerics/random/philox.hpp"

namespace fp16lab::experiments {
namespace {

/// Compares one parameter's stored bits with those before the first step.
class WatchedParameter {
 public:
  WatchedParameter(engine::Backend& backend, const engine::Parameter& parameter)
      : parameter_(&parameter), first_(parameter.value.byte_count()), now_(first_.size()) {
    moved_.resize(static_cast<std::size_t>(parameter.value.element_count()));
    backend.download(parameter.value, first_);
  }

  void look(engine::Backend& backend) {
    backend.download(parameter_->value, now_);
    const std::size_t size = size_of(parameter_->value.dtype());
    for (std::size_t i = 0; i < moved_.size(); ++i)
      if (std::memcmp(&first_[i * size], &now_[i * size], size) != 0) moved_[i] = true;
  }

  void add_to(Motion& motion) const {
    motion.elements += moved_.size();
    motion.moved += static_cast<std::uint64_t>(std::count(moved_.begin(), moved_.end(), true));
  }
  bool is_bias() const { return parameter_->name.ends_with("bias"); }

 private:
  const engine::Parameter* parameter_;
  std::vector<std::byte> first_, now_;
  std::vector<bool> moved_;
};

std::uint64_t digest_of(engine::Backend& backend, const std::vector<engine::Parameter*>& parameters) {
  std::uint64_t digest = 0;
  for (const engine::Parameter* parameter : parameters)
    digest += backend.digest(parameter->value, stream_id(parameter->name));
  return digest;
}

/// One batch of another source, to evaluate on.
class ChosenBatch final : public engine::data::BatchSource {
 public:
  ChosenBatch(engine::data::BatchSource& source, std::uint64_t index) : source_(&source), index_(index) {}
  std::uint64_t batches_per_epoch() const override { return 1; }
  std::int64_t rows_per_batch() const override { return source_->rows_per_batch(); }
  std::string_view split() const override { return "train"; }
  engine::data::Batch batch(engine::Backend& backend, std::uint64_t) override {
    return source_->batch(backend, index_);
  }

 private:
  engine::data::BatchSource* source_;
  std::uint64_t index_;
};

class Watcher final : public engine::Tap {
 public:
  void watch(engine::Backend& backend, std::vector<engine::Parameter*> parameters) {
    backend_ = &backend;
    parameters_ = std::move(parameters);
    for (const engine::Parameter* parameter : parameters_) watched_.emplace_back(backend, *parameter);
  }
  /// Calls `action` when `steps` steps are done.
  void after(std::uint64_t steps, std::function<void()> action) {
    action_step_ = steps;
    action_ = std::move(action);
  }
  /// An epoch has that many steps.
  void note_losses_every(std::uint64_t steps) { epoch_ = steps; }
  void report(TutorialRun& run) const {
    run.epoch_losses = epoch_losses_;
    for (const WatchedParameter& parameter : watched_)
      parameter.add_to(parameter.is_bias() ? run.biases : run.weights);
    run.digest_after_first_step = digest_after_first_step_;
  }

  void see(const engine::Event& event) override {
    const auto* const row = event.as<StepRow>();
    if (row == nullptr) return;
    for (WatchedParameter& parameter : watched_) parameter.look(*backend_);
    if (row->step == action_step_) action_();
    if (row->step % epoch_ == 0) epoch_losses_.push_back(row->loss);
    if (row->step == 1) digest_after_first_step_ = digest_of(*backend_, parameters_);
  }
  bool wants(const engine::Site& site) override { return site.what == engine::What::stop && interrupted(); }

 private:
  engine::Backend* backend_ = nullptr;
  std::vector<engine::Parameter*> parameters_;
  std::vector<WatchedParameter> watched_;
  std::uint64_t digest_after_first_step_ = 0;
  std::uint64_t epoch_ = 1;
  std::vector<double> epoch_losses_;
  std::uint64_t action_step_ = 0;  ///< 0: never
  std::function<void()> action_;
};

}  // namespace

TutorialRun run_tutorial(std::string system, std::string variant, const RunConfig& config, int threads,
                         const TutorialChange& change) {
  const auto start = std::chrono::steady_clock::now();
  TutorialRun run{.system = std::move(system), .variant = std::move(variant), .config = config};
  const std::unique_ptr<PreparedRun> prepared = prepare_run(resolve_run(config), threads);
  const std::uint64_t epoch = prepared->workload.training->batches_per_epoch();
  if (change) change(*prepared);
  Watcher watcher;
  engine::Trainer trainer(*prepared->backend, prepared->workload, prepared->plan, watcher);
  watcher.watch(*prepared->backend, trainer.parameters());
  run.digest_before = digest_of(*prepared->backend, trainer.parameters());
  run.loss_before = trainer.evaluate().loss;

  const std::uint64_t micro_batches =
      prepared->plan.train.steps * static_cast<std::uint64_t>(prepared->plan.train.accumulate);
  ChosenBatch last_batch(*prepared->workload.training, micro_batches - 1);
  const auto loss_of_last_batch = [&] {
    engine::data::BatchSource* const evaluation = std::exchange(prepared->workload.evaluation, &last_batch);
    const double loss = trainer.evaluate().loss;
    prepared->workload.evaluation = evaluation;
    return loss;
  };
  run.last_batch_unmoved = loss_of_last_batch();
  if (prepared->plan.train.steps == 1)
    run.last_batch_loss = run.last_batch_unmoved;
  else
    watcher.after(prepared->plan.train.steps - 1, [&] { run.last_batch_loss = loss_of_last_batch(); });
  watcher.note_losses_every(
      std::max<std::uint64_t>(1, epoch / static_cast<std::uint64_t>(prepared->plan.train.accumulate)));
  if (prepared->data->kind == engine::data::DataKind::images)
    run.label_entropy = engine::data::label_entropy(prepared->data->training);

  const engine::RunResult result = trainer.run();
  if (result.end == engine::RunResult::End::stopped) throw CommandError(ExitCode::interrupted, "interrupted");
  if (result.evaluation) {
    if (result.end == engine::RunResult::End::finished) run.loss = result.evaluation->loss;
    run.accuracy = result.evaluation->accuracy;
  }
  run.steps = result.steps;
  run.skipped = result.skipped_steps;
  run.final_scale = result.final_loss_scale;
  run.weights_digest = digest_of(*prepared->backend, trainer.parameters());
  watcher.report(run);
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return run;
}

}  // namespace fp16lab::experiments
