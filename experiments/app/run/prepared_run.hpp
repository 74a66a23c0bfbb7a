// From a configuration to something the trainer can run: back end, data, model, loss and options.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/backend/backend.hpp"
#include "engine/train/trainer.hpp"
#include "experiments/app/config/run_plan.hpp"
#include "experiments/app/run/run_backend.hpp"
#include "experiments/app/run/run_data.hpp"

namespace fp16lab::experiments {

/// What an optimizer step takes, counted on a back end that computes nothing (engine/backend/counting).
/// Loss scaling takes nothing to speak of and is left out.
struct StepCosts {
  double multiply_adds = 0;  ///< of matrix products, forward and backward
  RunMemory memory;
  std::size_t scratch = 0;  ///< besides `memory`: the most that the emulated back end takes for one product
};
/// std::invalid_argument as prepare_run.
StepCosts costs_of_step(const RunPlan& plan, const RunData& data);
/// The same before anything is allocated: CommandError(usage) for a network that does not fit together, or
/// has shapes that no memory holds.
StepCosts checked_costs(const RunPlan& plan, const RunData& data);

/// Everything that one run needs, with the lifetimes in order. Not copyable or movable: parts point at each
/// other.
struct PreparedRun {
  std::unique_ptr<const RunData> data;
  ChosenBackend chosen;  ///< what is known of the back end; itself it is the next member
  std::unique_ptr<engine::Backend> backend;
  RunBatches batches;
  engine::Workload workload;
  RunPlan plan;                                     ///< complete
  StepCosts costs;                                  ///< checked before the model was made
  std::optional<engine::data::SourceFile> initial;  ///< train.initial

  /// All that the run was made from: of the data, then of the initial weights.
  std::vector<engine::data::SourceFile> files() const;
};

/// Loads and checks, and completes the plan by what the data say. CommandError(usage) for a configuration
/// that does not fit its data, (run_failed) for data that cannot be read, (unavailable) for a missing back
/// end. `before_network`, unless it is empty, is called before anything of the network's size takes this
/// machine's memory: not where it is to take a GPU's.
std::unique_ptr<PreparedRun> prepare_run(RunPlan plan, int threads,
                                         const std::function<void(const StepCosts&)>& before_network = {});
/// The same on a back end that the caller chose, whatever `config.backend` says.
std::unique_ptr<PreparedRun> prepare_run(RunPlan plan, ChosenBackend chosen,
                                         const std::function<void(const StepCosts&)>& before_network = {});
std::unique_ptr<PreparedRun> prepare_run(RunPlan plan, std::unique_ptr<engine::Backend> backend);

struct RunLength {
  std::uint64_t steps = 0;
  double multiply_adds = 0;  ///< of all steps' matrix products, forward and backward
  std::uint64_t memory = 0;  ///< of this machine, that a step takes with its scratch; 0 on a GPU
};

/// Checks configurations without running them, as prepare_run does. Those that follow each other and differ
/// only in what neither the data nor the network depends on share both.
class RunChecker {
 public:
  /// `before_network` as prepare_run has it: a check makes the network.
  explicit RunChecker(std::function<void(const StepCosts&)> before_network = {})
      : before_network_(std::move(before_network)) {}
  /// How long the run will be. CommandError as prepare_run.
  RunLength check(const RunConfig& config);
  /// What the last one would run on.
  const BackendRecord& backend() const { return run_->chosen.record; }

 private:
  std::function<void(const StepCosts&)> before_network_;
  RunConfig kept_;  ///< of `run_`, but for what does not matter
  std::unique_ptr<PreparedRun> run_;
};

}  // namespace fp16lab::experiments
