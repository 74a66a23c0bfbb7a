// RunPlan: what a configuration means. It is resolved once, and everything about a run reads it.
#pragma once

#include <cstdint>
#include <string_view>

#include "engine/train/workload.hpp"
#include "experiments/app/config/config.hpp"
#include "experiments/app/config/learning_task.hpp"

namespace fp16lab::experiments {

/// The engine's plan, and where it comes from. `train.steps` and `optimizer.schedule.total_steps` may be 0
/// until the data are known (experiments/app/run/prepared_run.hpp).
struct RunPlan : engine::TrainingPlan {
  RunConfig config;                     ///< as given, with the policy in the place of "auto"
  std::vector<std::string> left_out{};  ///< what was given and does not count, a sentence each
};

/// Resolves and checks amp.*, scaler.* and what they mean for train.*, backend.tensor_core and
/// backend.accumulator. CommandError(usage) in the engine's own words.
RunPlan resolve_run(RunConfig config);
/// The same, and checks whatever concerns several keys at once: CommandError(usage) that begins with `where`.
RunPlan resolve_run(RunConfig config, std::string_view where);

/// Does this back end have the products that the plan needs? std::invalid_argument naming the keys.
void check_products(const RunPlan& plan, const BackendConfig& backend);

/// Why a configuration needs the emulated back end: products of FP8, sums in FP16, results that
/// saturate, or the order of a library. Empty where it does
/// not.
std::string_view needs_emulation(const RunConfig& config);

/// The factor that gradients keep when the optimizer gets them, other than optimizer.loss_scale: S where
/// scaler.drop_overflow_update = false leaves the division to the optimizer, else 1.
double scale_left_to_optimizer(const engine::TrainingPlan& plan);

}  // namespace fp16lab::experiments
