// A configuration in the engine's terms.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/amp/levels/level.hpp"
#include "engine/amp/policy.hpp"
#include "engine/optim/optimizer.hpp"
#include "engine/train/workload.hpp"
#include "experiments/app/config/config.hpp"
#include "numerics/formats/dtype.hpp"

namespace fp16lab::experiments {

/// `steps`: the length of the run (experiments/app/run/run_data.hpp).
engine::TrainOptions train_options(const RunConfig& config, std::uint64_t steps);
/// std::invalid_argument for an entry of amp.to_float that is not PATTERN=DTYPE.
engine::amp::AmpOptions amp_options(const RunConfig& config);
/// scaler.policy, or where it is "auto" the policy that amp.level brings in amp.dialect, "none" if it brings none.
/// std::invalid_argument for a level that the dialect does not have.
std::string scaler_policy(const RunConfig& config);
engine::amp::ScalerOptions scaler_options(const RunConfig& config);
engine::optim::OptimizerOptions optimizer_options(const RunConfig& config, std::uint64_t steps);

/// amp.save_dtype; nothing where it is empty.
std::optional<DType> save_dtype(const RunConfig& config);

/// Why a configuration needs the emulated back end: products of FP8, or sums in FP16. Empty where it does not.
std::string_view needs_emulation(const RunConfig& config);

/// Checks amp.*, scaler.* and what they mean for train.*, backend.tensor_core and backend.accumulator, with the
/// engine's own words.
/// std::invalid_argument.
void check_precision(const RunConfig& config);

/// The factor that gradients keep when the optimizer gets them, other than optimizer.loss_scale: S where
/// scaler.drop_overflow_update = false leaves the division to the optimizer, else 1.
double scale_left_to_optimizer(const RunConfig& config);

}  // namespace fp16lab::experiments
