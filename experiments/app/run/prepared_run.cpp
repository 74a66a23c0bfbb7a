#include "experiments/app/run/prepared_run.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "engine/amp/levels/level.hpp"
#include "engine/amp/scalers/layer_scaler.hpp"
#include "engine/nn/perturbation.hpp"
#include "engine/optim/optimizer.hpp"
#include "experiments/app/config/run_options.hpp"
#include "experiments/app/exit_code.hpp"

namespace fp16lab::experiments {
namespace {

/// What could only be asked once the back end was there. std::invalid_argument in the words of whoever knows.
void check_backend(const RunConfig& config, const PreparedRun& run) {
  RunConfig resolved = config;
  resolved.backend.device = run.chosen.record.device;
  resolved.backend.tensor_core = run.chosen.record.tensor_core;
  check_precision(resolved);
  const engine::Supervised supervised;
  const engine::TrainingMethod* method = run.workload.method.get();
  engine::check_graph(run.train, *run.backend, method == nullptr ? supervised : *method);
}

/// Patterns must name something in the network.
void check_network(const PreparedRun& run) {
  const engine::nn::Module& model = *run.workload.model;
  engine::amp::check_patterns(engine::amp::resolve(run.amp), engine::network_names(model));
  if (engine::amp::scales_layers(run.scaler))
    engine::amp::make_layer_scaler(*run.backend, run.scaler, model.parameters());
}

/// Options and schedule as the run's own optimizers will have them.
void check_optimizer(const RunConfig& config, const PreparedRun& run) {
  const engine::optim::ScheduleOptions& schedule = run.optimizer.schedule;
  if (schedule.name == "cosine" && config.schedule.total_steps == 0 &&
      schedule.total_steps <= schedule.warmup_steps)
    throw std::invalid_argument(
        fmt::format("{}: schedule.name = \"cosine\" needs more steps than schedule.warmup_steps = {} where "
                    "schedule.total_steps is not set",
                    config.train.steps > 0
                        ? fmt::format("train.steps = {}", config.train.steps)
                        : fmt::format("train.epochs = {}, of {} steps", config.train.epochs, run.train.steps),
                    schedule.warmup_steps));
  engine::optim::make_optimizer(*run.backend, {}, run.optimizer, run.train.steps);
}

/// How the data and the network that `run` has are to be trained. std::invalid_argument where they cannot be.
void set_options(const RunConfig& config, PreparedRun& run) {
  run.train = train_options(config, length_of(config, *run.data).steps);
  run.amp = amp_options(config);
  run.scaler = scaler_options(config);
  run.optimizer = optimizer_options(config, run.train.steps);
  check_backend(config, run);
  check_network(run);
  check_optimizer(config, run);
}

/// What data, batches and network are made from.
RunConfig made_from(const RunConfig& config) {
  RunConfig made;
  made.model = config.model;
  made.data = config.data;
  made.backend = config.backend;
  made.train.batch_size = config.train.batch_size;
  return made;
}

}  // namespace

std::unique_ptr<PreparedRun> prepare_run(const RunConfig& config, int threads) {
  return prepare_run(config, choose_backend(config, threads));
}

std::unique_ptr<PreparedRun> prepare_run(const RunConfig& config, std::unique_ptr<engine::Backend> backend) {
  ChosenBackend chosen;
  chosen.record = {.device = std::string(backend->name()),
                   .tensor_core = std::string(backend->tensor_core())};
  chosen.backend = std::move(backend);
  return prepare_run(config, std::move(chosen));
}

std::unique_ptr<PreparedRun> prepare_run(const RunConfig& config, ChosenBackend chosen) {
  const Workload& workload = workload_of(config);
  auto run = std::make_unique<PreparedRun>();
  run->backend = std::move(chosen.backend);
  chosen.backend = nullptr;
  run->chosen = std::move(chosen);
  run->data = load_data(config);
  try {
    run->workload.model = workload.make_model(*run->backend, config, run->data->shape());
    engine::nn::perturb_parameters(*run->backend, *run->workload.model,
                                   static_cast<std::uint64_t>(config.train.perturb_ulps),
                                   static_cast<std::uint64_t>(config.train.seed));
    if (workload.make_method != nullptr) run->workload.method = workload.make_method(config);
    run->batches = make_batches(config, *run->data);
    run->workload.training = run->batches.training.get();
    run->workload.evaluation = run->batches.evaluation.get();
    run->workload.loss = workload.loss;
    run->workload.accuracy = workload.metric == reports::Quantity::accuracy;
    if (workload.metric == reports::Quantity::bits_per_character)
      run->workload.bytes_per_character = evaluated_bytes_per_character(*run->data, *run->batches.evaluation);

    set_options(config, *run);
  } catch (const std::invalid_argument& error) {
    throw CommandError(ExitCode::usage, error.what());
  }
  return run;
}

RunLength RunChecker::check(const RunConfig& config) {
  const RunConfig made = made_from(config);
  if (run_ == nullptr || !(made == kept_)) {
    run_ = nullptr;  // its memory first
    run_ = prepare_run(config, 1);
    kept_ = made;
  } else {
    try {
      set_options(config, *run_);
    } catch (const std::invalid_argument& error) {
      throw CommandError(ExitCode::usage, error.what());
    }
  }
  return length_of(config, *run_->data);
}

}  // namespace fp16lab::experiments
