#include "experiments/prepared_run.hpp"

#include <stdexcept>

#include "engine/backend/emulated/emulated_backend.hpp"
#include "experiments/exit_code.hpp"
#include "experiments/run_options.hpp"
#include "numerics/tensor_core_model.hpp"

namespace fp16lab::experiments {

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
    if (workload.make_method != nullptr) run->workload.method = workload.make_method(config);
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
