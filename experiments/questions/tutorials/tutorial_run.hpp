// One run of a tutorial's system in this process, watched more closely than a run folder can tell: the loss
// before the first step, and which stored weights ever moved.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "experiments/app/config/config.hpp"
#include "experiments/app/run/prepared_run.hpp"

namespace fp16lab::experiments {

/// Statistics of the elements of some parameters, as they are stored (FP32 where there are master weights).
struct Motion {
  std::uint64_t elements = 0;
  std::uint64_t moved = 0;  ///< had other bits than before the first step, after any step

  /// The share of those whose bits never changed; 0 of nothing.
  double still() const {
    return elements == 0 ? 0 : 1 - static_cast<double>(moved) / static_cast<double>(elements);
  }
};

struct TutorialRun {
  std::string system;   ///< "paddle_linear9"
  std::string variant;  ///< "o2-no-masters"
  RunConfig config = {};

  double loss_before = 0;           ///< of the evaluation batches, before the first step
  std::optional<double> loss = {};  ///< and after the last one; nothing where the run diverged
  std::optional<double> accuracy = {};
  double last_batch_loss = 0;  ///< of the last micro-batch, before its step: what the tutorials print
  double last_batch_unmoved =
      0;  ///< of that micro-batch before the first step: where a network that never moves stays
  std::vector<double> epoch_losses = {};     ///< of the last step of each epoch, before its update
  std::optional<double> label_entropy = {};  ///< of labelled images: the least loss of a constant answer
  std::uint64_t steps = 0;
  std::uint64_t skipped = 0;
  double final_scale = 1;
  Motion weights = {};  ///< all parameters but biases
  Motion biases = {};
  std::uint64_t weights_digest = 0;  ///< of all parameters at the end: equal runs have equal ones
  std::uint64_t digest_after_first_step = 0;
  std::uint64_t digest_before = 0;
  double seconds = 0;
};

/// What configuration keys cannot say, done to a run before it begins.
using TutorialChange = std::function<void(PreparedRun&)>;

/// Trains to the end. CommandError(interrupted) after Ctrl-C, where catch_interrupts() was called; other
/// errors as prepare_run.
TutorialRun run_tutorial(std::string system, std::string variant, const RunConfig& config, int threads,
                         const TutorialChange& change = {});

}  // namespace fp16lab::experiments
