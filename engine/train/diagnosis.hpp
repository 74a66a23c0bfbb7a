// Why a run ended early: a bad loss scale, or a bad model. It decides from the run's records and runs nothing
// again.
//
// The loss scale enters a step after its forward pass and leaves it before the update. So what is not finite
// before any scaling (the loss, the weights), or at S <= 1, is not the scale's doing; an overflow that a
// smaller S would avoid is. A run whose loss or weights had grown out of all proportion before anything was
// not finite diverged by its updates: it does so in FP32. What to do never names what the run has already
// (RunSettings). The order of the questions is in diagnose().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/amp/observation.hpp"
#include "engine/train/observer.hpp"

namespace fp16lab::engine {

/// Values that are not finite, in tensors at the end of the run.
struct NonfiniteValues {
  std::uint64_t nan = 0;
  std::uint64_t infinite = 0;
  std::string first;  ///< name of the first tensor that holds any; empty: none does
  bool any() const { return nan + infinite > 0; }
};

/// What the run has already, so that no advice says to set it.
struct RunSettings {
  bool fp32 = false;                ///< amp.level = "O0"
  bool explained = false;           ///< --explain-overflow
  double learning_rate = 0;         ///< optimizer.lr
  bool adaptive = false;            ///< adam, adamw: they divide by a root plus optimizer.epsilon
  double optimizer_scale = 1;       ///< optimizer.loss_scale
  bool clips_norm = false;          ///< train.clip_norm
  bool sums_micro_batches = false;  ///< train.accumulate_mode = "sum", with several
  bool scaler_enabled = true;
  bool drops_overflow_update = true;
  bool rescues = false;  ///< scaler.rescue
  double min_scale = 0;  ///< scaler.min_scale; 0: none, or the policy has none
  double max_scale = 0;  ///< scaler.max_scale, likewise
};

/// The facts at the end. Counts of steps are of this run since it began or was resumed, but for those in a
/// row.
struct RunFacts {
  enum class End {
    skip_limit,        ///< train.skip_limit skipped steps in a row
    nonfinite_losses,  ///< Trainer::divergence_limit losses in a row, or the run's last one
    policy_stop,       ///< the policy's own rule; `stop_reason` has its words
    no_step,           ///< the last step was made, none was taken, and the scale cannot fall any further
  };
  End end = End::skip_limit;
  std::string policy = "none";
  std::string stop_reason;
  bool checked = true;  ///< code looks for overflows, and unscales

  std::uint64_t steps = 0;             ///< done in this process
  std::uint64_t skips_in_a_row = 0;    ///< up to now
  std::uint64_t nonfinite_losses = 0;  ///< likewise
  double loss = 0;                     ///< the last step's
  double scale = 1;                    ///< S of the last step
  double scale_before_skips = 1;       ///< S of the first step of the skips in a row
  /// The smallest S at which gradients were not finite, in this row of skips; infinite: none.
  double smallest_overflowing_scale = 0;
  bool any_step_taken = false;  ///< since the beginning, at least one step was not skipped
  std::uint64_t backoffs = 0;   ///< of S, since it last grew
  double scale_before_backoffs = 1;
  std::uint64_t zero_steps =
      0;  ///< taken steps in a row, up to the last one taken, with no gradient but zero

  NonfiniteValues weights;
  bool weights_began_nonfinite = false;  ///< some were when the run began or was resumed
  /// The greatest finite magnitude of all weights is in (2^e, 2^(e+1)]; nothing: all are zero, or not
  /// observed.
  std::optional<int> weight_exponent, first_weight_exponent;
  std::optional<double> first_loss;  ///< the first that was finite
  double greatest_loss = 0;          ///< finite magnitude
  RunSettings settings;
  /// The last step's gradients before they were rounded; nothing where they were not counted.
  std::optional<amp::GradientStatistics> counts;
};

struct Diagnosis {
  enum class Verdict { model, scale };
  Verdict verdict = Verdict::model;
  /// "learning_rate_too_high", "loss_not_finite", "weights_not_finite", "unchecked_overflow",
  /// "overflow_without_scaling", "nan_before_rounding", "zero_gradients", "scale_beyond_use", "scale_stuck",
  /// "scale_began_too_high", "scale_sinks", "scale_too_high"
  std::string_view code;
  std::string reason;  ///< what ended the run: "20 skipped steps in a row (train.skip_limit)"
  std::string text;    ///< "bad model: ...", "bad scale: ..." or "bad learning rate: ...", and what to do
};

/// A loss so many times its first value, or weights so many binades beyond where they began, have diverged:
/// training that learns lowers its loss, and moves weights by a share of what they are.
inline constexpr double diverged_loss_ratio = 10;
inline constexpr int diverged_weight_binades = 6;
/// So many back-offs without a growth are a scale that sinks.
inline constexpr std::uint64_t sinking_backoffs = 8;
/// Above it a scale is beyond use: what FP16 keeps is so small, divided by S, that its square is no normal
/// FP32 number.
inline constexpr double largest_useful_scale = 0x1p39;

Diagnosis diagnose(const RunFacts& facts);

/// Keeps the facts that are known step by step.
class FactKeeper {
 public:
  /// `next_scale`: S of the step after.
  void note(const StepRow& row, double next_scale);
  /// `skips_in_a_row`, `nonfinite_losses`: as the run counts them, over resumptions.
  RunFacts facts(std::uint64_t skips_in_a_row, std::uint64_t nonfinite_losses) const;

 private:
  RunFacts facts_;
  bool skipping_ = false;
};

}  // namespace fp16lab::engine
