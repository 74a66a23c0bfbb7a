#include "experiments/app/run/prepared_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "engine/amp/scalers/layer_scaler.hpp"
#include "engine/backend/counting/counting_backend.hpp"
#include "engine/nn/perturbation.hpp"
#include "engine/train/tensor_dump.hpp"
#include "experiments/app/exit_code.hpp"
#include "numerics/files/disk/sha256.hpp"

namespace fp16lab::experiments {
namespace {

/// What could only be asked once the back end was there. std::invalid_argument in the words of whoever knows.
void check_backend(const RunPlan& plan, const PreparedRun& run) {
  try {
    check_products(plan, settled(plan.config.backend, run.chosen.record));
  } catch (const std::invalid_argument& error) {
    if (!run.chosen.gpu) throw;
    throw std::invalid_argument(fmt::format("{}, compute capability {}: {}", *run.chosen.gpu,
                                            run.chosen.record.capability.value_or("?"), error.what()));
  }
  const engine::Supervised supervised;
  const engine::TrainingMethod* method = run.workload.method.get();
  engine::check_graph(plan.train, *run.backend, method == nullptr ? supervised : *method);
}

/// Patterns must name something in the network.
void check_network(const RunPlan& plan, const PreparedRun& run) {
  const engine::nn::Module& model = *run.workload.model;
  engine::amp::check_patterns(plan.amp, engine::network_names(model));
  if (engine::amp::scales_layers(plan.scaler))
    engine::amp::make_layer_scaler(*run.backend, plan.scaler, model.parameters());
}

/// Options and schedule as the run's own optimizers will have them.
void check_optimizer(const RunPlan& plan, const PreparedRun& run) {
  const engine::optim::ScheduleOptions& schedule = plan.optimizer.schedule;
  const TrainConfig& train = plan.config.train;
  if (ends(schedule.name) && plan.config.optimizer.schedule.total_steps == 0 &&
      schedule.total_steps <= schedule.warmup_steps)
    throw std::invalid_argument(fmt::format(
        "{}: schedule.name = \"{}\" needs more steps than schedule.warmup_steps = {} where "
        "schedule.total_steps is not set",
        train.steps > 0 ? fmt::format("train.steps = {}", train.steps)
                        : fmt::format("train.epochs = {}, of {} steps", train.epochs, plan.train.steps),
        name_of(schedule.name), schedule.warmup_steps));
  engine::optim::make_optimizer(*run.backend, {}, plan.optimizer, plan.train.steps);
  for (const auto& [model, options] : plan.own_optimizers)
    engine::optim::make_optimizer(*run.backend, {}, plan.optimizer_of(model), plan.train.steps);
}

/// Does `work`; CommandError(usage) for what it finds wrong with the configuration.
template <typename Work>
void by_usage(const Work& work) {
  try {
    work();
  } catch (const std::invalid_argument& error) {
    throw CommandError(ExitCode::usage, error.what());
  }
}

/// How the data and the network that `run` has are to be trained. std::invalid_argument where they cannot be.
void complete(RunPlan plan, PreparedRun& run) {
  plan.train.steps = steps_of(plan.config, *run.data);
  if (plan.optimizer.schedule.total_steps == 0) plan.optimizer.schedule.total_steps = plan.train.steps;
  check_backend(plan, run);
  check_network(plan, run);
  check_optimizer(plan, run);
  run.plan = std::move(plan);
}

/// What data, batches, network and method are made from.
RunConfig made_from(const RunConfig& config) {
  RunConfig made;
  made.model = config.model;
  made.data = config.data;
  made.backend = config.backend;
  made.train.batch_size = config.train.batch_size;
  made.train.method = config.train.method;
  made.train.penalty = config.train.penalty;
  made.train.initial = config.train.initial;
  return made;
}

/// train.initial. CommandError(usage) for a file that does not fit the network, (run_failed) for one that
/// cannot be read.
void load_initial(PreparedRun& run, const std::string& file) {
  if (file.empty()) return;
  try {
    engine::load_weights(file, *run.backend, *run.workload.model);
    run.initial = {.path = file, .sha256 = sha256_of_file(file)};
  } catch (const std::invalid_argument& error) {
    throw CommandError(ExitCode::usage, fmt::format("train.initial: {}", error.what()));
  } catch (const std::runtime_error& error) {
    throw CommandError(ExitCode::run_failed, fmt::format("train.initial: {}", error.what()));
  }
}

}  // namespace

std::vector<engine::data::SourceFile> PreparedRun::files() const {
  std::vector<engine::data::SourceFile> files = data->files;
  if (initial) files.push_back(*initial);
  return files;
}

std::unique_ptr<PreparedRun> prepare_run(RunPlan plan, int threads,
                                         const std::function<void(const StepCosts&)>& before_network) {
  ChosenBackend chosen = choose_backend(plan.config, threads);
  return prepare_run(std::move(plan), std::move(chosen), before_network);
}

std::unique_ptr<PreparedRun> prepare_run(RunPlan plan, std::unique_ptr<engine::Backend> backend) {
  ChosenBackend chosen;
  chosen.record = {.device = std::string(backend->name()),
                   .tensor_core = std::string(backend->tensor_core())};
  chosen.backend = std::move(backend);
  return prepare_run(std::move(plan), std::move(chosen));
}

std::unique_ptr<PreparedRun> prepare_run(RunPlan plan, ChosenBackend chosen,
                                         const std::function<void(const StepCosts&)>& before_network) {
  const RunConfig& config = plan.config;
  const LearningTask task = task_of(config);
  auto run = std::make_unique<PreparedRun>();
  run->backend = std::move(chosen.backend);
  chosen.backend = nullptr;
  run->chosen = std::move(chosen);
  run->data = load_data(config);
  run->costs = checked_costs(plan, *run->data);
  if (before_network && !run->chosen.gpu) before_network(run->costs);
  by_usage([&] {
    run->workload.model = make_model(*run->backend, config, run->data->shape());
    load_initial(*run, config.train.initial);
    engine::nn::perturb_parameters(*run->backend, *run->workload.model, config.train.perturb_ulps,
                                   config.train.seed);
    run->workload.method = make_method(config);
    run->batches = make_batches(config, *run->data);
    run->workload.training = run->batches.training.get();
    run->workload.evaluation = run->batches.evaluation.get();
    run->workload.loss = task.loss;
    run->workload.accuracy = task.metric == reports::Quantity::accuracy;
    if (task.metric == reports::Quantity::bits_per_character)
      run->workload.symbols_per_character =
          evaluated_symbols_per_character(*run->data, *run->batches.evaluation);

    complete(std::move(plan), *run);
  });
  return run;
}

StepCosts costs_of_step(const RunPlan& plan, const RunData& data) {
  engine::CountingBackend backend;
  engine::Workload workload;
  workload.model = make_model(backend, plan.config, data.shape());
  const RunBatches batches = make_batches(plan.config, data);
  workload.training = batches.training.get();
  workload.loss = task_of(plan.config).loss;
  workload.method = make_method(plan.config);
  engine::TrainingPlan one = plan;
  one.train.steps = 2;  // the first one makes the optimizer's state
  one.train.accumulate = std::min<std::int64_t>(plan.train.accumulate, 2);  // they are all alike
  one.train.graph = false;
  one.optimizer.schedule = {};  // a rate takes nothing
  one.scaler = {.policy = "none"};
  one.policy = engine::amp::make_scale_policy(one.scaler);
  engine::Tap nobody;
  engine::Trainer trainer(backend, workload, one, nobody);
  trainer.run();
  const double of_micro_batch = backend.multiply_adds() / static_cast<double>(2 * one.train.accumulate);
  return {.multiply_adds = of_micro_batch * static_cast<double>(plan.train.accumulate),
          .memory = trainer.memory(),
          .scratch = backend.most_scratch()};
}

StepCosts checked_costs(const RunPlan& plan, const RunData& data) {
  StepCosts costs;
  by_usage([&] { costs = costs_of_step(plan, data); });
  return costs;
}

RunLength RunChecker::check(const RunConfig& config) {
  const RunConfig made = made_from(config);
  if (run_ == nullptr || !(made == kept_)) {
    run_ = nullptr;  // its memory first
    run_ = prepare_run(resolve_run(config), 1, before_network_);
    kept_ = made;
  } else {
    by_usage([&] { complete(resolve_run(config), *run_); });
  }
  RunLength length{.steps = run_->plan.train.steps};
  by_usage([&] {
    const StepCosts costs = costs_of_step(run_->plan, *run_->data);
    length.multiply_adds = costs.multiply_adds * static_cast<double>(length.steps);
    if (!run_->chosen.gpu) length.memory = costs.memory.peak + costs.scratch;
  });
  return length;
}

}  // namespace fp16lab::experiments
