// From a configuration to something the trainer can run: back end, data, model, loss and options.
#pragma once

#include <memory>

#include "engine/backend/backend.hpp"
#include "engine/train/trainer.hpp"
#include "experiments/config.hpp"
#include "experiments/run_data.hpp"

namespace fp16lab::experiments {

/// The back end that `config.backend` asks for. CommandError(unavailable) where it is not built or not here.
std::unique_ptr<engine::Backend> make_backend(const RunConfig& config, int threads);

/// Everything that one run needs, with the lifetimes in order. Not copyable or movable: parts point at each
/// other.
struct PreparedRun {
  std::unique_ptr<const RunData> data;
  std::unique_ptr<engine::Backend> backend;
  RunBatches batches;
  engine::Workload workload;
  engine::TrainOptions train;
  engine::AmpOptions amp;
  engine::ScalerOptions scaler;
  engine::OptimizerOptions optimizer;
};

/// Loads and checks. CommandError(usage) for a configuration that does not fit its data, (run_failed) for
/// data that cannot be read, (unavailable) for a missing back end.
std::unique_ptr<PreparedRun> prepare_run(const RunConfig& config, int threads);

}  // namespace fp16lab::experiments
