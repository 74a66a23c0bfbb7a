#include "experiments/questions/tutorials/tutorial_run.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "engine/train/trainer.hpp"
#include "experiments/app/exit_code.hpp"
#include "experiments/app/run/prepared_run.hpp"
#include "experiments/questions/step_tap.hpp"
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

}  // namespace

TutorialRun run_tutorial(std::string system, std::string variant, const RunConfig& config, int threads,
                         const TutorialChange& change) {
  const auto start = std::chrono::steady_clock::now();
  TutorialRun run{.system = std::move(system), .variant = std::move(variant), .config = config};
  const std::unique_ptr<PreparedRun> prepared = prepare_run(resolve_run(config), threads);
  const std::uint64_t epoch = prepared->workload.training->batches_per_epoch();
  if (change) change(*prepared);
  engine::Backend& backend = *prepared->backend;
  StepTap tap;
  engine::Trainer trainer(backend, prepared->workload, prepared->plan, tap);
  const std::vector<engine::Parameter*> parameters = trainer.parameters();
  std::vector<WatchedParameter> watched;
  for (const engine::Parameter* parameter : parameters) watched.emplace_back(backend, *parameter);
  run.digest_before = digest_of(backend, parameters);
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
  if (prepared->plan.train.steps == 1) run.last_batch_loss = run.last_batch_unmoved;
  const std::uint64_t steps_of_epoch =
      std::max<std::uint64_t>(1, epoch / static_cast<std::uint64_t>(prepared->plan.train.accumulate));
  tap.after = [&](const StepRow& row) {
    for (WatchedParameter& parameter : watched) parameter.look(backend);
    if (row.step + 1 == prepared->plan.train.steps) run.last_batch_loss = loss_of_last_batch();
    if (row.step % steps_of_epoch == 0) run.epoch_losses.push_back(row.loss);
    if (row.step == 1) run.digest_after_first_step = digest_of(backend, parameters);
  };
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
  run.weights_digest = digest_of(backend, parameters);
  for (const WatchedParameter& parameter : watched)
    parameter.add_to(parameter.is_bias() ? run.biases : run.weights);
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return run;
}

}  // namespace fp16lab::experiments
