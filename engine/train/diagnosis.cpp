#include "engine/train/diagnosis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/amp/policies/gradient_range.hpp"

namespace fp16lab::engine {

namespace {

using Verdict = Diagnosis::Verdict;

/// "2^13", "1.5"
std::string scale_text(double scale) {
  int exponent = 0;
  if (std::isfinite(scale) && scale > 0 && std::frexp(scale, &exponent) == 0.5)
    return fmt::format("2^{}", exponent - 1);
  return fmt::format("{:g}", scale);
}

std::string reason_of(const RunFacts& facts) {
  switch (facts.end) {
    case RunFacts::End::skip_limit:
      return fmt::format("{} skipped steps in a row (train.skip_limit)", facts.skips_in_a_row);
    case RunFacts::End::nonfinite_losses:
      return fmt::format("the loss was not finite in {} steps in a row", facts.nonfinite_losses);
    case RunFacts::End::policy_stop:
      return fmt::format("policy \"{}\" ends the run: {}", facts.policy, facts.stop_reason);
  }
  return {};
}

Diagnosis of(const RunFacts& facts, Verdict verdict, std::string_view code, const std::string& text) {
  return {.verdict = verdict,
          .code = code,
          .reason = reason_of(facts),
          .text = (verdict == Verdict::model ? "bad model: " : "bad scale: ") + text};
}

/// NaN among gradients that were not rounded yet, and nothing that could have made it by overflowing.
bool nan_without_overflow(const amp::GradientStatistics& counts) {
  return counts.weight.nan + counts.activation.nan > 0 &&
         counts.weight.infinite + counts.activation.infinite == 0 &&
         amp::upper_exponent(counts) < amp::end_exponent(counts.range);
}

Diagnosis of_nonfinite_loss(const RunFacts& facts) {
  if (!facts.weights.any())
    return of(
        facts, Verdict::model, "loss_not_finite",
        fmt::format("the loss itself is {} while all weights are finite. It comes from the forward pass, "
                    "which the loss scale does not enter, so no scale helps. --explain-overflow names the "
                    "first operation; amp.to_float keeps a layer in FP32, and amp.level = \"O0\" shows "
                    "whether FP16 has a part in it (a logarithm of 0 or a division by 0 has the same loss "
                    "there)",
                    facts.loss));
  if (!facts.checked)
    return of(
        facts, Verdict::scale, "unchecked_overflow",
        fmt::format("{} holds {} NaN or infinite values, and nobody looks for overflows in this run, so "
                    "one that happened went into the weights. Let the scaler check (scaler.enabled and "
                    "scaler.drop_overflow_update = true), from a checkpoint before it",
                    facts.weights.first, facts.weights.nan + facts.weights.infinite));
  return of(
      facts, Verdict::model, "weights_not_finite",
      fmt::format("{} holds {} NaN or infinite values, so every loss is NaN at any scale. Gradients were "
                  "checked, so an update with finite ones wrote them: a learning rate too high, or an "
                  "epsilon of the optimizer too small. Go on from a checkpoint before it with a lower "
                  "optimizer.lr, or with train.clip_norm",
                  facts.weights.first, facts.weights.nan + facts.weights.infinite));
}

Diagnosis of_overflows(const RunFacts& facts) {
  const std::string from = scale_text(facts.scale_before_skips), to = scale_text(facts.scale);
  if (facts.smallest_overflowing_scale <= 1)
    return of(
        facts, Verdict::model, "overflow_without_scaling",
        fmt::format("gradients are not finite even at S = {}, where nothing was scaled up, so no scale "
                    "helps. Look at the loss (a sum instead of a mean, train.accumulate_mode), at the "
                    "derivative of a root or logarithm at 0, and at the learning rate; --explain-overflow "
                    "names the first operation",
                    scale_text(facts.smallest_overflowing_scale)));
  if (facts.counts && nan_without_overflow(*facts.counts))
    return of(
        facts, Verdict::model, "nan_before_rounding",
        fmt::format("{} gradients are NaN before anything was rounded to FP16, and none of the others is "
                    "infinite or beyond 65504: no overflow made them, and no scale helps. Look for 0/0, or "
                    "the derivative of a root at 0, in the backward pass; --explain-overflow names the "
                    "operation",
                    facts.counts->weight.nan + facts.counts->activation.nan));
  if (facts.zero_steps > 0)
    return of(
        facts, Verdict::model, "zero_gradients",
        fmt::format("all gradients were exactly zero in the last {} steps that were taken, so nothing held "
                    "the scale back and it stands at {}. Find out why nothing is learned: dead units, a "
                    "part of the model that is cut off from the loss, a loss that is constant",
                    facts.zero_steps, to));
  if (facts.scale > largest_useful_scale)
    return of(
        facts, Verdict::scale, "scale_beyond_use",
        fmt::format("S has grown to {}: gradients were so small for so long that the first ordinary one "
                    "overflows. Set scaler.max_scale (2^24 = 16777216 is ample for most networks)",
                    to));
  if (facts.scale == facts.scale_before_skips)
    return of(
        facts, Verdict::scale, "scale_stuck",
        fmt::format("S stayed at {} through all {} overflows, so each step overflows as the one before. "
                    "Lower it (scaler.initial_scale, scaler.min_scale), or take a policy that answers to "
                    "every overflow (scaler.policy = \"torch\" or \"lost-mass\")",
                    to, facts.skips_in_a_row));
  if (!facts.any_step_taken)
    return of(
        facts, Verdict::scale, "scale_began_too_high",
        fmt::format("no step was taken yet: S began at {} and has come down to {}, which is still too much. "
                    "Begin lower (scaler.initial_scale), or allow more skips (train.skip_limit)",
                    from, to));
  if (facts.backoffs >= sinking_backoffs)
    return of(
        facts, Verdict::model, "scale_sinks",
        fmt::format("S sinks steadily: {} back-offs without a growth, from {} to {}, so gradients grow as "
                    "training goes on. That is what a learning rate too high, or an epsilon of the "
                    "optimizer too small, looks like; lower optimizer.lr, or set train.clip_norm. A smaller "
                    "scale only puts it off",
                    facts.backoffs, scale_text(facts.scale_before_backoffs), to));
  return of(facts, Verdict::scale, "scale_too_high",
            fmt::format("gradients have become too large for S faster than it came down: from {} to {} in {} "
                        "skipped steps. Allow more skips (train.skip_limit), let it back off further "
                        "(scaler.backoff_factor, or scaler.policy = \"lost-mass\"), or rescue such steps "
                        "(scaler.rescue)",
                        from, to, facts.skips_in_a_row));
}

}  // namespace

Diagnosis diagnose(const RunFacts& facts) {
  return std::isfinite(facts.loss) && facts.end != RunFacts::End::nonfinite_losses ? of_overflows(facts)
                                                                                   : of_nonfinite_loss(facts);
}

void FactKeeper::note(const StepRecord& record, double next_scale) {
  ++facts_.steps;
  facts_.loss = record.loss;
  facts_.scale = record.loss_scale;
  if (record.skipped) {
    if (!skipping_) {
      facts_.scale_before_skips = record.loss_scale;
      facts_.smallest_overflowing_scale = std::numeric_limits<double>::infinity();
    }
    if (record.found_inf)
      facts_.smallest_overflowing_scale = std::min(facts_.smallest_overflowing_scale, record.loss_scale);
  } else {
    facts_.any_step_taken = true;
    facts_.zero_steps = record.grad_norm == 0.0 ? facts_.zero_steps + 1 : 0;
  }
  skipping_ = record.skipped;
  if (next_scale < record.loss_scale) {
    if (facts_.backoffs++ == 0) facts_.scale_before_backoffs = record.loss_scale;
  } else if (next_scale > record.loss_scale) {
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
