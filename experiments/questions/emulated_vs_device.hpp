// One configuration trained on two back ends side by side, compared bit for bit after every step.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/backend/backend.hpp"
#include "engine/train/observer.hpp"
#include "engine/train/trainer.hpp"
#include "experiments/app/config/config.hpp"
#include "experiments/questions/device_side.hpp"
#include "numerics/text/named_enum.hpp"

namespace fp16lab::experiments {

enum class TensorKind : std::uint8_t { gradient, parameter, buffer, optimizer_state, step_state };
using fp16lab::name_of;
constexpr std::array<std::string_view, 5> names_of(TensorKind) {
  return {"gradient", "parameter", "buffer", "optimizer state", "step state"};
}

/// A tensor of a run under the name that both sides know it by.
struct RunTensor {
  TensorKind kind = TensorKind::parameter;
  std::string name;
  engine::Tensor tensor;
};

struct TensorDifference {
  TensorKind kind = TensorKind::parameter;
  std::string name;
  std::string emulated, device;  ///< what each side has: "f32 (10, 784)"
  std::uint64_t emulated_digest = 0, device_digest = 0;
  std::uint64_t elements = 0,
                differing = 0;  ///< differing: 0 where the two cannot be compared (types, shapes)
  std::uint64_t first = 0;      ///< row-major index of the first element that differs
  std::uint64_t emulated_bits = 0, device_bits = 0;
  int digits = 0;  ///< hexadecimal digits of an element
};

/// "gradient fc1.weight, f32 (10, 784): 3 of 7840 elements differ; element 17: emulated 3f800000, device
/// 3f800001".
std::string text_of(const TensorDifference& difference);

/// All tensors whose digests differ, or that one side lacks, in the order of `emulated`.
std::vector<TensorDifference> differing_tensors(engine::Backend& emulated_backend,
                                                const std::vector<RunTensor>& emulated,
                                                engine::Backend& device_backend,
                                                const std::vector<RunTensor>& device);

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

/// Trains `config` on the emulated back end with `row` and `threads` and on `device`, which must follow the same
/// row (std::invalid_argument), until the first difference or the end; evaluations and checkpoints are left
/// out, for they change nothing.
Lockstep run_lockstep(const RunConfig& config, const std::string& row, int threads,
                      std::unique_ptr<engine::Backend> device, const LockstepOptions& options);

// What a comparison leaves.

/// One line: "200 steps, no difference", or "step 3: loss differs: ...; first tensor: ...".
std::string summary_of(const Lockstep& lockstep);
/// All tensors that differ, a line each.
std::vector<std::string> differences_of(const Lockstep& lockstep);
/// A JSON object, without a final newline.
std::string json_of(const Lockstep& lockstep, const DeviceSide& side, int indent = 2);

}  // namespace fp16lab::experiments
