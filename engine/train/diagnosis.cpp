#include "engine/train/diagnosis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "engine/amp/policies/gradient_range.hpp"
#include "numerics/text/scale_text.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::engine {

namespace {

using Verdict = Diagnosis::Verdict;

std::string reason_of(const RunFacts& facts) {
  switch (facts.end) {
    case RunFacts::End::skip_limit:
      return fmt::format("{} in a row (train.skip_limit)", counted(facts.skips_in_a_row, "skipped step"));
    case RunFacts::End::nonfinite_losses:
      return facts.nonfinite_losses == 1
                 ? "the last loss was not finite"
                 : fmt::format("the loss was not finite in {} steps in a row", facts.nonfinite_losses);
    case RunFacts::End::policy_stop:
      return fmt::format("policy \"{}\" ends the run: {}", facts.policy, facts.stop_reason);
    case RunFacts::End::no_step:
      return fmt::format("skipped {} of {}, and the scale cannot fall any further", facts.skips_in_a_row,
                         counted(facts.skips_in_a_row, "step"));
  }
  return {};
}

constexpr std::string_view learning_rate_too_high = "learning_rate_too_high";

Diagnosis of(const RunFacts& facts, Verdict verdict, std::string_view code, const std::string& text) {
  const char* const bad = code == learning_rate_too_high ? "bad learning rate: "
                          : verdict == Verdict::model    ? "bad model: "
                                                         : "bad scale: ";
  return {.verdict = verdict, .code = code, .reason = reason_of(facts), .text = bad + text};
}

/// NaN among gradients that were not rounded yet, and nothing that could have made it by overflowing.
bool nan_without_overflow(const amp::GradientStatistics& counts) {
  return counts.weight.nan + counts.activation.nan > 0 &&
         counts.weight.infinite + counts.activation.infinite == 0 &&
         amp::upper_exponent(counts) < amp::end_exponent(counts.range);
}

/// "a", "a or b", "a, b, or c"
std::string either(const std::vector<std::string>& ways) {
  if (ways.size() < 3) return fmt::format("{}", fmt::join(ways, " or "));
  return fmt::format("{}, or {}", fmt::join(ways.begin(), ways.end() - 1, ", "), ways.back());
}

/// The place to read about the first operation.
std::string first_operation(const RunFacts& facts) {
  return facts.settings.explained ? "culprits.jsonl has the first operation"
                                  : "--explain-overflow names the first operation";
}

bool loss_grew(const RunFacts& facts) {
  return facts.first_loss && facts.greatest_loss > diverged_loss_ratio * std::fabs(*facts.first_loss);
}
bool weights_grew(const RunFacts& facts) {
  return facts.weight_exponent && facts.first_weight_exponent &&
         *facts.weight_exponent - *facts.first_weight_exponent >= diverged_weight_binades;
}

/// Updates were too large, whatever was not finite in the end.
std::optional<Diagnosis> of_divergence(const RunFacts& facts) {
  std::vector<std::string> growth;
  if (loss_grew(facts))
    growth.push_back(
        fmt::format("the loss grew from {:.4g} to {:.4g}", *facts.first_loss, facts.greatest_loss));
  if (weights_grew(facts))
    growth.push_back(fmt::format("the greatest weight grew from 2^{} to 2^{}",
                                 *facts.first_weight_exponent + 1, *facts.weight_exponent + 1));
  if (growth.empty()) return std::nullopt;
  return of(
      facts, Verdict::model, learning_rate_too_high,
      fmt::format("{} while every number was finite, so the updates are too large{}. Lower optimizer.lr "
                  "(it is {})",
                  fmt::join(growth, ", and "),
                  facts.settings.fp32 ? ", and no format or scale is to blame: this is FP32"
                                      : ", as they would be in FP32",
                  facts.settings.learning_rate));
}

Diagnosis of_nonfinite_weights(const RunFacts& facts) {
  const RunSettings& settings = facts.settings;
  const std::string what =
      fmt::format("{} holds {}", facts.weights.first,
                  counted(facts.weights.nan + facts.weights.infinite, "NaN or infinite value"));
  if (facts.weights_began_nonfinite)
    return of(facts, Verdict::model, "weights_not_finite",
              what +
                  ", and weights were not finite when this run began, so every loss is NaN at any scale. "
                  "Begin with other weights, or from an earlier checkpoint");
  if (!facts.checked) {
    std::vector<std::string> ways;
    if (!settings.scaler_enabled) ways.emplace_back("scaler.enabled = true");
    if (!settings.drops_overflow_update) ways.emplace_back("scaler.drop_overflow_update = true");
    if (settings.optimizer_scale != 1)
      ways.emplace_back("optimizer.loss_scale = 1, because the scaler then divides");
    return of(
        facts, Verdict::scale, "unchecked_overflow",
        fmt::format("{}, and nothing looks for overflows in this run, so one went into the weights "
                    "unnoticed. Let the scaler check ({}), from the beginning or a checkpoint before it",
                    what, fmt::join(ways, ", ")));
  }
  std::vector<std::string> ways{fmt::format("a lower optimizer.lr (it is {})", settings.learning_rate)};
  if (settings.adaptive) ways.emplace_back("a greater optimizer.epsilon");
  return of(
      facts, Verdict::model, "weights_not_finite",
      fmt::format("{}, so every loss is NaN at any scale. Gradients were checked, so an update with finite "
                  "ones wrote them. Begin again, or from a checkpoint before it, with {}",
                  what, either(ways)));
}

Diagnosis of_nonfinite_loss(const RunFacts& facts) {
  if (!facts.weights_began_nonfinite)
    if (const std::optional<Diagnosis> diverged = of_divergence(facts)) return *diverged;
  if (facts.weights.any()) return of_nonfinite_weights(facts);
  const std::string what = fmt::format(
      "the loss itself is {} while all weights are finite. It comes from the forward pass, which the loss "
      "scale "
      "does not enter, so no scale helps",
      facts.loss);
  if (facts.settings.fp32)
    return of(facts, Verdict::model, "loss_not_finite",
              fmt::format("{}, and no format: this is FP32. Look at the batch, and for a logarithm of 0 or a "
                          "division by 0 in the model; {}",
                          what, first_operation(facts)));
  return of(facts, Verdict::model, "loss_not_finite",
            fmt::format("{}. Keep the layer whose values are beyond FP16 in FP32 (amp.excluded, "
                        "amp.to_float); {}; amp.level = \"O0\" shows whether FP16 contributes to it (a "
                        "logarithm of 0 or a division by 0 has the same loss there)",
                        what, first_operation(facts)));
}

Diagnosis of_overflow_without_scaling(const RunFacts& facts) {
  if (const std::optional<Diagnosis> diverged = of_divergence(facts)) return *diverged;
  std::vector<std::string> ways;
  if (!facts.settings.fp32)
    ways.emplace_back(
        "keep the layer whose gradients are beyond FP16 in FP32 (amp.excluded), take a scale below 1 "
        "(scaler.policy = \"fixed\" with scaler.initial_scale = 2^-8)");
  if (facts.settings.sums_micro_batches) ways.emplace_back("train.accumulate_mode = \"mean\"");
  ways.emplace_back(
      "look for a loss that is a sum instead of a mean, and for the derivative of a root or logarithm at 0");
  return of(
      facts, Verdict::model, "overflow_without_scaling",
      fmt::format("gradients are not finite even at S = {}, where nothing was scaled up. Remedies: {}; {}",
                  scale_text(facts.smallest_overflowing_scale), either(ways), first_operation(facts)));
}

Diagnosis of_stuck_scale(const RunFacts& facts) {
  std::vector<std::string> ways{"lower scaler.initial_scale"};
  if (facts.settings.min_scale > 0 && facts.scale <= facts.settings.min_scale)
    ways = {fmt::format("lower scaler.min_scale (it is {})", scale_text(facts.settings.min_scale))};
  const bool answers = facts.policy == "torch" || facts.policy == "lost-mass";
  if (!answers)
    ways.emplace_back(
        "take a policy that answers to every overflow (scaler.policy = \"torch\" or \"lost-mass\")");
  const std::string how =
      facts.skips_in_a_row == 1
          ? "at the one overflow, so the next step would overflow as that one did"
          : fmt::format("through all {} overflows, so each step overflows as the one before",
                        facts.skips_in_a_row);
  return of(facts, Verdict::scale, "scale_stuck",
            fmt::format("S stayed at {} {}. To go on, {}", scale_text(facts.scale), how, either(ways)));
}

Diagnosis of_overflows(const RunFacts& facts) {
  const RunSettings& settings = facts.settings;
  const std::string from = scale_text(facts.scale_before_skips), to = scale_text(facts.scale);
  const bool limited = facts.end == RunFacts::End::skip_limit;  // not the policy's own end
  if (facts.smallest_overflowing_scale <= 1) return of_overflow_without_scaling(facts);
  if (facts.counts && nan_without_overflow(*facts.counts))
    return of(
        facts, Verdict::model, "nan_before_rounding",
        fmt::format(
            "{} NaN before anything was rounded to FP16, and none of the others is "
            "infinite or beyond 65504: no overflow made them, and no scale helps. Look for 0/0, or "
            "the derivative of a root at 0, in the backward pass; {}",
            facts.counts->weight.nan + facts.counts->activation.nan == 1
                ? "1 gradient is"
                : fmt::format("{} gradients are", facts.counts->weight.nan + facts.counts->activation.nan),
            first_operation(facts)));
  if (facts.zero_steps > 0)
    return of(facts, Verdict::model, "zero_gradients",
              fmt::format("all gradients were exactly zero in the last {} taken, so nothing held the scale "
                          "back and it is {}. Find out why nothing is learned: dead units, a part of the "
                          "model that is cut off from the loss, a loss that is constant",
                          facts.zero_steps == 1 ? "step that was"
                                                : fmt::format("{} steps that were", facts.zero_steps),
                          to));
  if (facts.scale == facts.scale_before_skips) return of_stuck_scale(facts);
  if (facts.scale > largest_useful_scale)
    return of(
        facts, Verdict::scale, "scale_beyond_use",
        fmt::format("{}. {} scaler.max_scale (2^24 is ample for most networks)",
                    facts.any_step_taken
                        ? fmt::format("S has grown to {}: gradients were so small for so long that the first "
                                      "ordinary one overflows",
                                      to)
                        : fmt::format("S began at {} and has come down to {}, where ordinary gradients "
                                      "overflow",
                                      from, to),
                    settings.max_scale > 0 ? "Lower" : "Set"));
  std::vector<std::string> ways;
  if (!facts.any_step_taken) {
    ways = {"begin lower (scaler.initial_scale)"};
    if (limited) ways.emplace_back("allow more skips (train.skip_limit)");
    return of(
        facts, Verdict::scale, "scale_began_too_high",
        fmt::format("no step was taken yet: S began at {} and has come down to {}, which is still too much. "
                    "To go on, {}",
                    from, to, either(ways)));
  }
  if (facts.backoffs >= sinking_backoffs) {
    ways = {fmt::format("lower optimizer.lr (it is {})", settings.learning_rate)};
    if (!settings.clips_norm) ways.emplace_back("set train.clip_norm");
    return of(facts, Verdict::model, "scale_sinks",
              fmt::format("S sinks steadily: {} back-offs without a growth, from {} to {}, so gradients grow "
                          "during training. That is typical of a learning rate that is too high: {}. A "
                          "smaller scale only postpones the end",
                          facts.backoffs, scale_text(facts.scale_before_backoffs), to, either(ways)));
  }
  if (limited) ways.emplace_back("allow more skips (train.skip_limit)");
  if (facts.policy != "lost-mass")
    ways.emplace_back("let it back off further (scaler.backoff_factor, or scaler.policy = \"lost-mass\")");
  if (!settings.rescues) ways.emplace_back("rescue such steps (scaler.rescue)");
  if (ways.empty()) ways.emplace_back("begin lower (scaler.initial_scale)");
  return of(
      facts, Verdict::scale, "scale_too_high",
      fmt::format("gradients have become too large for S faster than it came down: from {} to {} in {}. "
                  "To go on, {}",
                  from, to, counted(facts.skips_in_a_row, "skipped step"), either(ways)));
}

}  // namespace

Diagnosis diagnose(const RunFacts& facts) {
  return std::isfinite(facts.loss) && facts.end != RunFacts::End::nonfinite_losses ? of_overflows(facts)
                                                                                   : of_nonfinite_loss(facts);
}

void FactKeeper::note(const StepRow& row, double next_scale) {
  ++facts_.steps;
  facts_.loss = row.loss;
  if (std::isfinite(row.loss)) {
    if (!facts_.first_loss) facts_.first_loss = row.loss;
    facts_.greatest_loss = std::max(facts_.greatest_loss, std::fabs(row.loss));
  }
  facts_.scale = row.loss_scale;
  if (row.skipped) {
    if (!skipping_) {
      facts_.scale_before_skips = row.loss_scale;
      facts_.smallest_overflowing_scale = std::numeric_limits<double>::infinity();
    }
    if (row.found_inf)
      facts_.smallest_overflowing_scale = std::min(facts_.smallest_overflowing_scale, row.loss_scale);
  } else {
    facts_.any_step_taken = true;
    facts_.zero_steps = row.grad_norm == 0.0 ? facts_.zero_steps + 1 : 0;
  }
  skipping_ = row.skipped;
  if (next_scale < row.loss_scale) {
    if (facts_.backoffs++ == 0) facts_.scale_before_backoffs = row.loss_scale;
  } else if (next_scale > row.loss_scale) {
    facts_.backoffs = 0;
  }
}

RunFacts FactKeeper::facts(std::uint64_t skips_in_a_row, std::uint64_t nonfinite_losses) const {
  RunFacts facts = facts_;
  facts.skips_in_a_row = skips_in_a_row;
  facts.nonfinite_losses = nonfinite_losses;
  if (!skipping_) {
    facts.scale_before_skips = facts.scale;
    facts.smallest_overflowing_scale = std::numeric_limits<double>::infinity();
  }
  return facts;
}

}  // namespace fp16lab::engine
