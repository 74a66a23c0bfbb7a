// One configuration trained on two back ends side by side, compared bit for bit after every step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/backend/backend.hpp"
#include "engine/train/observer.hpp"
#include "experiments/app/config/config.hpp"
#include "experiments/emulated_vs_device/tensor_difference.hpp"

namespace fp16lab::experiments {

/// What one side says of a step. Step 0: before the first one.
struct StepWords {
  StepRow row;
  bool loss_overflow = false;        ///< StepState::loss_overflow
  std::uint64_t gradient_hash = 0;   ///< of all parameters' gradients, as the step left them
  std::uint64_t histogram_hash = 0;  ///< of all observed histograms; 0 where none were
};

struct StepPair {
  StepWords emulated, device;
};

/// The first thing that is not the same.
struct FirstDifference {
  std::uint64_t step = 0;
  /// "loss", "loss_scale", "found_inf", "histogram of fc2.input", ..., in the order of a step's data flow.
  std::string quantity;
  std::string emulated = {}, device = {};      ///< value and bits on both sides
  std::vector<TensorDifference> tensors = {};  ///< all that differ then; the first one first
};

struct Lockstep {
  std::string tensor_core;
  std::uint64_t steps_asked = 0;
  std::uint64_t skipped_steps = 0;       ///< of the emulated side
  std::vector<StepPair> steps;           ///< up to the first difference, that step included; step 0 first
  std::optional<FirstDifference> first;  ///< nothing: every step was the same
  double emulated_seconds = 0, device_seconds = 0;
  bool interrupted = false;
};

struct LockstepOptions {
  std::uint64_t steps = 0;             ///< 0: as the configuration says
  std::uint64_t histograms_every = 1;  ///< 0: never
  /// Called after every step that was the same.
  std::function<void(std::uint64_t step, std::uint64_t of)> progress = {};
};

/// Trains `config` on both until the first difference or the end; evaluations and checkpoints are left out,
/// for they change nothing. Both back ends must follow the same row of tensor cores (std::invalid_argument).
Lockstep run_lockstep(const RunConfig& config, std::unique_ptr<engine::Backend> emulated,
                      std::unique_ptr<engine::Backend> device, const LockstepOptions& options);

/// The same on the emulated back end with `row` and `threads`.
Lockstep run_lockstep(const RunConfig& config, const std::string& row, int threads,
                      std::unique_ptr<engine::Backend> device, const LockstepOptions& options);

}  // namespace fp16lab::experiments
