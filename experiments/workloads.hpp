// From a configuration to something the trainer can run: back end, data, model, loss and options.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/backend/backend.hpp"
#include "engine/data/dataset.hpp"
#include "engine/data/loader.hpp"
#include "engine/train/trainer.hpp"
#include "experiments/config.hpp"

namespace fp16lab::experiments {

struct WorkloadInfo {
  std::string_view name;  ///< model.name
  std::string_view description;
};
std::span<const WorkloadInfo> known_workloads();

/// The back end that `config.backend` asks for. CommandError(unavailable) where it is not built or not here.
std::unique_ptr<engine::Backend> make_backend(const RunConfig& config, int threads);

/// Everything that one run needs, with the lifetimes in order. Not copyable or movable: parts point at each
/// other.
struct PreparedRun {
  std::string data_source;  ///< one line for stderr: which data was taken and why
  engine::data::Dataset training_set;
  engine::data::Dataset test_set;
  std::unique_ptr<engine::Backend> backend;
  std::unique_ptr<engine::data::Loader> training;
  std::unique_ptr<engine::data::Loader> evaluation;
  engine::Workload workload;
  engine::TrainOptions train;
  engine::AmpOptions amp;
  engine::ScalerOptions scaler;
  engine::OptimizerOptions optimizer;

  std::vector<engine::data::SourceFile> files() const;
};

/// Loads and checks. CommandError(usage) for a configuration that does not fit its data, (run_failed) for
/// data that cannot be read, (unavailable) for a missing back end.
std::unique_ptr<PreparedRun> prepare_run(const RunConfig& config, int threads);

}  // namespace fp16lab::experiments
