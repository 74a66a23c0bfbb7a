#include "experiments/workloads.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "engine/backend/emulated/emulated_backend.hpp"
#include "engine/nn/mlp.hpp"
#include "experiments/exit_code.hpp"
#include "numerics/tensor_core_model.hpp"

namespace fp16lab::experiments {
namespace {

struct WorkloadKind {
  WorkloadInfo info;
  engine::LossKind loss;
  engine::data::Targets targets;
  bool accuracy;
};

constexpr WorkloadKind workloads[] = {
    {{"classifier", "multilayer perceptron, softmax cross-entropy averaged over the batch"},
     engine::LossKind::cross_entropy,
     engine::data::Targets::labels,
     true},
    {{"autoencoder", "multilayer perceptron that reproduces its input, MSE averaged over batch and outputs"},
     engine::LossKind::mse,
     engine::data::Targets::inputs,
     false},
};

const WorkloadKind& workload_kind(const std::string& name) {
  for (const WorkloadKind& kind : workloads)
    if (kind.info.name == name) return kind;
  throw CommandError(ExitCode::usage, fmt::format("model.name = \"{}\": no such workload", name));
}

/// Evaluations average over batches, so all batches must be equally long and together the whole set: the
/// largest divisor of its size that is not above 1000.
std::int64_t evaluation_batch_size(std::int64_t count) {
  std::int64_t size = std::min<std::int64_t>(count, 1000);
  while (count % size != 0) --size;
  return size;
}

void require_fit(const RunConfig& config, const WorkloadKind& kind, const engine::data::Dataset& data) {
  const std::int64_t outputs = kind.targets == engine::data::Targets::labels ? data.classes : data.features;
  if (config.model.widths.front() != data.features)
    throw CommandError(ExitCode::usage,
                       fmt::format("model.widths begins with {}: expected {}, the pixels of an image of {}",
                                   config.model.widths.front(), data.features, config.data.name));
  if (config.model.widths.back() != outputs)
    throw CommandError(
        ExitCode::usage,
        fmt::format("model.widths ends with {}: expected {}, the {} of {}", config.model.widths.back(),
                    outputs, outputs == data.classes ? "classes" : "pixels of an image", config.data.name));
}

std::uint64_t steps_of(const RunConfig& config, const engine::data::Loader& training) {
  if (config.train.steps > 0) return static_cast<std::uint64_t>(config.train.steps);
  const std::uint64_t micro_batches =
      training.batches_per_epoch() * static_cast<std::uint64_t>(config.train.epochs);
  const std::uint64_t steps = micro_batches / static_cast<std::uint64_t>(config.train.accumulate);
  if (steps == 0)
    throw CommandError(
        ExitCode::usage,
        fmt::format("train.epochs = {} gives {} micro-batches, less than one step of train.accumulate = {}",
                    config.train.epochs, micro_batches, config.train.accumulate));
  return steps;
}

void load_data(const RunConfig& config, PreparedRun& run) {
  try {
    const engine::data::DatasetLocation location =
        engine::data::find_dataset(config.data.name, config.data.path);
    run.data_source = fmt::format("data: {} from {} (chosen by {})", config.data.name,
                                  location.folder.string(), location.chosen_by);
    run.training_set = engine::data::load_dataset(config.data.name, location, engine::data::Split::train,
                                                  config.data.subset);
    run.test_set = engine::data::load_dataset(config.data.name, location, engine::data::Split::test,
                                              config.data.test_subset);
  } catch (const std::invalid_argument& error) {
    throw CommandError(ExitCode::usage, error.what());
  } catch (const std::runtime_error& error) {
    throw CommandError(ExitCode::run_failed, error.what());
  }
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

std::span<const WorkloadInfo> known_workloads() {
  static const std::vector<WorkloadInfo> infos = [] {
    std::vector<WorkloadInfo> list;
    for (const WorkloadKind& kind : workloads) list.push_back(kind.info);
    return list;
  }();
  return infos;
}

std::unique_ptr<engine::Backend> make_backend(const RunConfig& config, int threads) {
  if (config.backend.device == "cuda")
    throw CommandError(
        ExitCode::unavailable,
        "backend.device = \"cuda\": this build has no CUDA back end; use \"emulated\" or \"auto\"");
  return engine::make_emulated_backend(tensor_core_model(config.backend.tensor_core), threads);
}

std::vector<engine::data::SourceFile> PreparedRun::files() const {
  std::vector<engine::data::SourceFile> all = training_set.files;
  all.insert(all.end(), test_set.files.begin(), test_set.files.end());
  return all;
}

std::unique_ptr<PreparedRun> prepare_run(const RunConfig& config, int threads) {
  const WorkloadKind& kind = workload_kind(config.model.name);
  auto run = std::make_unique<PreparedRun>();
  run->backend = make_backend(config, threads);
  load_data(config, *run);
  require_fit(config, kind, run->training_set);
  try {
    const engine::data::Normalisation normalisation =
        config.data.normalise == "standard" ? engine::data::standard_normalisation(run->training_set)
                                            : engine::data::unit_normalisation();
    const auto seed = static_cast<std::uint64_t>(config.train.seed);
    run->training = std::make_unique<engine::data::Loader>(
        run->training_set, normalisation,
        engine::data::LoaderOptions{
            .batch_size = config.train.batch_size, .targets = kind.targets, .shuffle = true, .seed = seed});
    run->evaluation = std::make_unique<engine::data::Loader>(
        run->test_set, normalisation,
        engine::data::LoaderOptions{.batch_size = evaluation_batch_size(run->test_set.count),
                                    .targets = kind.targets,
                                    .shuffle = false,
                                    .seed = seed});

    engine::nn::MlpOptions model;
    model.widths = config.model.widths;
    model.activation = engine::nn::activation_from_name(config.model.activation);
    model.initialization = engine::nn::initialization_from_name(config.model.init);
    model.seed = seed;
    run->workload.model = std::make_unique<engine::nn::Mlp>(*run->backend, model);
    run->workload.training = run->training.get();
    run->workload.evaluation = run->evaluation.get();
    run->workload.loss = kind.loss;
    run->workload.accuracy = kind.accuracy;

    run->train.steps = steps_of(config, *run->training);
    run->train.accumulate = config.train.accumulate;
    run->train.accumulate_mode =
        config.train.accumulate_mode == "sum" ? engine::AccumulateMode::sum : engine::AccumulateMode::mean;
    run->train.clip_norm = config.train.clip_norm;
    run->train.evaluate_every = static_cast<std::uint64_t>(config.train.evaluate_every);
    run->train.skip_limit = static_cast<std::uint64_t>(config.train.skip_limit);

    run->amp.level = engine::amp::level_from_name(config.amp.level);
    run->amp.dtype = DType::f16;
    run->amp.dialect = engine::amp::dialect_from_name(config.amp.dialect);

    run->scaler.policy = config.scaler.policy;
    run->scaler.initial_scale = config.scaler.initial_scale;
    run->scaler.growth_factor = config.scaler.growth_factor;
    run->scaler.backoff_factor = config.scaler.backoff_factor;
    run->scaler.growth_interval = config.scaler.growth_interval;

    run->optimizer = optimizer_options(config, run->train.steps);
  } catch (const std::invalid_argument& error) {
    throw CommandError(ExitCode::usage, error.what());
  }
  return run;
}

}  // namespace fp16lab::experiments
