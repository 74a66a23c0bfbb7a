#include "analysis/suggested_scale.hpp"

#include <fmt/core.h>

#include <cmath>
#include <stdexcept>

namespace fp16lab::analysis {
namespace {

double power_of_two(int k) { return std::scalbn(1.0, k); }

struct Worst {
  std::string tensor;
  double rate = -1;
};

Worst worst_tensor(const RangeReport& report, int log2_scale) {
  Worst worst;
  for (const std::string& name : report.tensors()) {
    const double rate = rates_of(report.tensor(name).at_scale(power_of_two(log2_scale))).lost.upper;
    if (rate > worst.rate) worst = {name, rate};
  }
  return worst;
}

double lost_rate(const ScaledHistograms& gradients, int log2_scale) {
  return rates_of(gradients.at_scale(power_of_two(log2_scale))).lost.upper;
}

double lost_l1(const ScaledHistograms& gradients, int log2_scale) {
  return gradients.mass_at(power_of_two(log2_scale)).l1.lost.share().upper;
}

void check(const ScaleTargets& targets) {
  if (!(targets.lost_rate > 0 && targets.lost_rate <= 1))
    throw std::invalid_argument(fmt::format("target lost rate {}: must be in (0, 1]", targets.lost_rate));
  if (!(targets.lost_l1 > 0 && targets.lost_l1 <= 1))
    throw std::invalid_argument(
        fmt::format("target lost share of L1 {}: must be in (0, 1]", targets.lost_l1));
  if (targets.headroom_bits < 0)
    throw std::invalid_argument(fmt::format("head-room of {} bits: must be >= 0", targets.headroom_bits));
}

/// Everything but the reasoning.
SuggestedScale find_scales(const ScaledHistograms& gradients, const ScaleTargets& targets) {
  SuggestedScale found;
  for (int k = min_log2_scale; k <= max_log2_scale; ++k) {
    if (gradients.at_scale(power_of_two(k + targets.headroom_bits)).overflow.upper == 0)
      found.largest_safe = k;
    if (!found.smallest_sufficient && lost_rate(gradients, k) < targets.lost_rate)
      found.smallest_sufficient = k;
    if (!found.smallest_sufficient_l1 && lost_l1(gradients, k) < targets.lost_l1)
      found.smallest_sufficient_l1 = k;
  }
  found.suggested = found.largest_safe;
  return found;
}

std::string about_count(const SuggestedScale& suggestion, const ScaledHistograms& all,
                        const RangeReport* report, const ScaleTargets& targets) {
  const std::string target = fmt::format("{:.3g} %", 100 * targets.lost_rate);
  if (!suggestion.smallest_sufficient)
    return fmt::format("Even at 2^{} at least {} of the non-zero gradients round to zero.", max_log2_scale,
                       target);
  const int k = *suggestion.smallest_sufficient;
  const double rate = 100 * lost_rate(all, k);
  const std::string begin = fmt::format(
      "2^{} is the smallest scale at which less than {} of the non-zero gradients round to zero", k, target);
  if (report == nullptr) return fmt::format("{} ({:.2g} %).", begin, rate);
  const Worst worst = worst_tensor(*report, k);
  return fmt::format("{} (all tensors together {:.2g} %; the worst, {}, {:.2g} %).", begin, rate,
                     worst.tensor, 100 * worst.rate);
}

std::string about_mass(const SuggestedScale& suggestion, const ScaledHistograms& all,
                       const ScaleTargets& targets) {
  const std::string target = fmt::format("{:.2g} %", 100 * targets.lost_l1);
  if (!suggestion.smallest_sufficient_l1)
    return fmt::format(" By magnitude, even at 2^{} what is lost may be {} of their L1.", max_log2_scale,
                       target);
  const int k = *suggestion.smallest_sufficient_l1;
  return fmt::format(
      " By magnitude 2^{} is enough: there what is lost is less than {} of their L1 (at most {:.2g} %), "
      "while {:.2g} % "
      "of the values are.",
      k, target, 100 * lost_l1(all, k), 100 * lost_rate(all, k));
}

std::string about_headroom(const SuggestedScale& suggestion, int largest, const ScaleTargets& targets) {
  if (suggestion.largest_safe == max_log2_scale)
    return fmt::format(" Every scale up to 2^{} leaves {} bits of head-room: no gradient exceeds 2^{}.",
                       max_log2_scale, targets.headroom_bits, largest);
  if (suggestion.largest_safe)
    return fmt::format(
        " 2^{} is the largest that leaves {} bits of head-room: the largest gradients are at most 2^{}.",
        *suggestion.largest_safe, targets.headroom_bits, largest);
  return fmt::format(" No scale from 2^{} on leaves {} bits of head-room: gradients reach up to 2^{}.",
                     min_log2_scale, targets.headroom_bits, largest);
}

std::string conclusion(const SuggestedScale& suggestion, const ScaledHistograms& all) {
  if (!suggestion.suggested) return {};
  const int k = *suggestion.suggested;
  const MassInterval cosine = all.cosine_at(power_of_two(k));
  std::string text;
  if (suggestion.both())
    text = *suggestion.smallest_sufficient == *suggestion.largest_safe
               ? " It does both."
               : " Every power of two between them does both.";
  else if (suggestion.smallest_sufficient)
    text = suggestion.smallest_sufficient_l1 && *suggestion.smallest_sufficient_l1 <= k
               ? " No single scale does both, the gradients span more than FP16 holds; but what is lost at "
                 "the largest "
                 "one is small."
               : " No single scale does both: the gradients span more than FP16 holds.";
  text += fmt::format(
      " Suggested: 2^{}, the largest with head-room, loses least: {:.2g} % of the values, at most {:.2g} % "
      "of L1",
      k, 100 * lost_rate(all, k), 100 * lost_l1(all, k));
  // Values that were infinite when they were counted leave no direction to compare with.
  if (cosine.lower > 0)
    text += fmt::format("; the cosine to the unrounded gradient is at least {:.6f}",
                        std::floor(cosine.lower * 1e6) * 1e-6);
  return text + '.';
}

SuggestedScale suggest(const ScaledHistograms& all, const RangeReport* report, const ScaleTargets& targets) {
  check(targets);
  SuggestedScale suggestion;
  if (all.empty()) {
    suggestion.reasoning = "There is no finite non-zero gradient to judge a scale by.";
    return suggestion;
  }
  suggestion = find_scales(all, targets);
  suggestion.reasoning =
      about_count(suggestion, all, report, targets) + about_mass(suggestion, all, targets) +
      about_headroom(suggestion, all.extent().largest, targets) + conclusion(suggestion, all);
  const RangeCounts counts = all.at_scale(1.0);
  if (counts.infinite + counts.nan > 0)
    suggestion.reasoning +=
        fmt::format(" {} values were infinite or NaN when they were counted; they say nothing about scales.",
                    counts.infinite + counts.nan);
  return suggestion;
}

}  // namespace

SuggestedScale suggest_scale(const RangeReport& report, const ScaleTargets& targets) {
  return suggest(report.merged(), &report, targets);
}

SuggestedScale suggest_scale(const ScaledHistograms& gradients, const ScaleTargets& targets) {
  return suggest(gradients, nullptr, targets);
}

}  // namespace fp16lab::analysis
