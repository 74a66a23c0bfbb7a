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

}  // namespace

SuggestedScale suggest_scale(const RangeReport& report, const ScaleTargets& targets) {
  if (!(targets.lost_rate > 0 && targets.lost_rate <= 1))
    throw std::invalid_argument(fmt::format("target lost rate {}: must be in (0, 1]", targets.lost_rate));
  if (targets.headroom_bits < 0)
    throw std::invalid_argument(fmt::format("head-room of {} bits: must be >= 0", targets.headroom_bits));

  SuggestedScale suggestion;
  const ScaledHistograms& all = report.merged();
  if (all.empty()) {
    suggestion.reasoning = "There is no finite non-zero gradient to judge a scale by.";
    return suggestion;
  }
  for (int k = min_log2_scale; k <= max_log2_scale; ++k) {
    if (all.at_scale(power_of_two(k + targets.headroom_bits)).overflow.upper == 0)
      suggestion.largest_safe = k;
    if (!suggestion.smallest_sufficient &&
        rates_of(all.at_scale(power_of_two(k))).lost.upper < targets.lost_rate)
      suggestion.smallest_sufficient = k;
  }

  const int largest = all.extent().largest;
  const std::string target = fmt::format("{:.3g} %", 100 * targets.lost_rate);
  std::string& text = suggestion.reasoning;
  if (suggestion.smallest_sufficient) {
    const int k = *suggestion.smallest_sufficient;
    const Worst worst = worst_tensor(report, k);
    text = fmt::format(
        "2^{} is the smallest scale at which less than {} of the non-zero gradients round to zero "
        "(all tensors together {:.2g} %; the worst, {}, {:.2g} %).",
        k, target, 100 * rates_of(all.at_scale(power_of_two(k))).lost.upper, worst.tensor, 100 * worst.rate);
  } else {
    text = fmt::format("Even at 2^{} at least {} of the non-zero gradients round to zero.", max_log2_scale,
                       target);
  }
  if (suggestion.largest_safe == max_log2_scale)
    text += fmt::format(" Every scale up to 2^{} leaves {} bits of head-room: no gradient exceeds 2^{}.",
                        max_log2_scale, targets.headroom_bits, largest);
  else if (suggestion.largest_safe)
    text += fmt::format(
        " 2^{} is the largest that leaves {} bits of head-room: the largest gradients are at most 2^{}.",
        *suggestion.largest_safe, targets.headroom_bits, largest);
  else
    text += fmt::format(" No scale from 2^{} on leaves {} bits of head-room: gradients reach up to 2^{}.",
                        min_log2_scale, targets.headroom_bits, largest);
  if (suggestion.both())
    text += *suggestion.smallest_sufficient == *suggestion.largest_safe
                ? " It does both."
                : " Every power of two between them does both.";
  else if (suggestion.largest_safe && suggestion.smallest_sufficient)
    text += " No single scale does both: the gradients span more than FP16 holds.";
  const RangeCounts counts = all.at_scale(1.0);
  if (counts.infinite + counts.nan > 0)
    text +=
        fmt::format(" {} values were infinite or NaN when they were counted; they say nothing about scales.",
                    counts.infinite + counts.nan);
  return suggestion;
}

}  // namespace fp16lab::analysis
