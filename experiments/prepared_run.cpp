#include "experiments/prepared_run.hpp"

#include <stdexcept>

#include "engine/backend/emulated/emulated_backend.hpp"
#include "experiments/exit_code.hpp"
#include "numerics/tensor_core_model.hpp"

namespace fp16lab::experiments {
namespace {

engine::TrainOptions train_options(const RunConfig& config, std::uint64_t steps) {
  engine::TrainOptions options;
  options.steps = steps;
  options.accumulate = config.train.accumulate;
  options.accumulate_mode =
      config.train.accumulate_mode == "sum" ? engine::AccumulateMode::sum : engine::AccumulateMode::mean;
  options.clip_norm = config.train.clip_norm;
  options.clip_value = config.train.clip_value;
  options.seed = static_cast<std::uint64_t>(config.train.seed);
  options.evaluate_every = static_cast<std::uint64_t>(config.train.evaluate_every);
  options.skip_limit = static_cast<std::uint64_t>(config.train.skip_limit);
  return options;
}

engine::AmpOptions amp_options(const RunConfig& config) {
  engine::AmpOptions options;
  options.level = engine::amp::level_from_name(config.amp.level);
  options.dtype = DType::f16;
  options.dialect = engine::amp::dialect_from_name(config.amp.dialect);
  return options;
}

engine::ScalerOptions scaler_options(const RunConfig& config) {
  engine::ScalerOptions options;
  options.policy = config.scaler.policy;
  options.initial_scale = config.scaler.initial_scale;
  options.growth_factor = config.scaler.growth_factor;
  options.backoff_factor = config.scaler.backoff_factor;
  options.growth_interval = config.scaler.growth_interval;
  return options;
}

engine::OptimizerOptions optimizer_options(const RunConfig& config, std::uint64_t steps) {
  engine::OptimizerOptions options;
  options.name = config.optimizer.name;
  options.learning_rate = config.optimizer.lr;
  options.momentum = config.optimizer.momentum;
  options.nesterov = config.optimizer.nesterov;
  options.weight_decay = config.optimizer.weight_decay;
  options.beta1 = config.optimizer.beta1;
  options.beta2 = config.optimizer.beta2;
  options.epsilon = config.optimizer.epsilon;
  options.schedule.name = config.schedule.name;
  options.schedule.warmup_steps = static_cast<std::uint64_t>(config.schedule.warmup_steps);
  options.schedule.total_steps =
      config.schedule.total_steps == 0 ? steps : static_cast<std::uint64_t>(config.schedule.total_steps);
  options.schedule.minimum_factor = config.schedule.minimum_factor;
  options.schedule.step_interval = static_cast<std::uint64_t>(config.schedule.step_interval);
  options.schedule.step_factor = config.schedule.step_factor;
  return options;
}

}  // namespace

std::unique_ptr<engine::Backend> make_backend(const RunConfig& config, int threads) {
  if (config.backend.device == "cuda")
    throw CommandError(
        ExitCode::unavailable,
        "backend.device = \"cuda\": this build has no CUDA back end; use \"emulated\" or \"auto\"");
  return engine::make_emulated_backend(tensor_core_model(config.backend.tensor_core), threads);
}

std::unique_ptr<PreparedRun> prepare_run(const RunConfig& config, int threads) {
  const Workload& workload = workload_of(config);
  auto run = std::make_unique<PreparedRun>();
  run->backend = make_backend(config, threads);
  run->data = load_data(config);
  try {
    run->workload.model = workload.make_model(*run->backend, config, run->data->shape());
    run->batches = make_batches(config, *run->data);
    run->workload.training = run->batches.training.get();
    run->workload.evaluation = run->batches.evaluation.get();
    run->workload.loss = workload.loss;
    run->workload.accuracy = workload.metric == Metric::accuracy;
    run->workload.bits_per_character = workload.metric == Metric::bits_per_character;

    run->train = train_options(config, length_of(config, *run->data).steps);
    run->amp = amp_options(config);
    run->scaler = scaler_options(config);
    run->optimizer = optimizer_options(config, run->train.steps);
  } catch (const std::invalid_argument& error) {
    throw CommandError(ExitCode::usage, error.what());
  }
  return run;
}

}  // namespace fp16lab::experiments
