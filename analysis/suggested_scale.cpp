#include "analysis/suggested_scale.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <stdexcept>

namespace fp16lab::analysis {
namespace {

double power_of_two(int k) { return std::scalbn(1.0, k); }

struct Worst {
  std::string tensor;
  double rate = -1;
};

/// The gradients of one question, in one format.
struct Question {
  const ScaledHistograms& all;
  const RangeReport* report;  ///< nullptr: of one tensor
  DType format;
  ScaleTargets targets;
  FormatRange range = range_of(format);

  RangeCounts counts(int log2_scale) const { return all.at_scale(range, power_of_two(log2_scale)); }
  double lost_rate(int log2_scale) const { return rates_of(counts(log2_scale)).lost.upper; }
  double lost_l1(int log2_scale) const {
    return all.mass_at(range, power_of_two(log2_scale)).l1.lost.share().upper;
  }
  Worst worst_tensor(int log2_scale) const {
    Worst worst;
    for (const std::string& name : report->tensors()) {
      const double rate = rates_of(report->tensor(name).at_scale(range, power_of_two(log2_scale))).lost.upper;
      if (rate > worst.rate) worst = {name, rate};
    }
    return worst;
  }
};

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
SuggestedScale find_scales(const Question& question) {
  const ScaleTargets& targets = question.targets;
  SuggestedScale found;
  for (int k = min_log2_scale; k <= max_log2_scale; ++k) {
    if (question.counts(k + targets.headroom_bits).overflow.upper == 0) found.largest_safe = k;
    if (!found.smallest_sufficient && question.lost_rate(k) < targets.lost_rate)
      found.smallest_sufficient = k;
    if (!found.smallest_sufficient_l1 && question.lost_l1(k) < targets.lost_l1)
      found.smallest_sufficient_l1 = k;
  }
  found.suggested = found.largest_safe;
  found.at_edge = found.suggested == max_log2_scale;
  return found;
}

std::string about_count(const SuggestedScale& suggestion, const Question& question) {
  const std::string target = fmt::format("{:.3g} %", 100 * question.targets.lost_rate);
  if (!suggestion.smallest_sufficient)
    return fmt::format(
        "Even at 2^{}, the largest scale looked at, at least {} of the non-zero gradients round to zero.",
        max_log2_scale, target);
  const int k = *suggestion.smallest_sufficient;
  const double rate = 100 * question.lost_rate(k);
  const std::string begin =
      k == min_log2_scale
          ? fmt::format(
                "Already at 2^{}, the smallest scale looked at, less than {} of the non-zero gradients round "
                "to zero",
                k, target)
          : fmt::format(
                "2^{} is the smallest scale at which less than {} of the non-zero gradients round to zero", k,
                target);
  if (question.report == nullptr) return fmt::format("{} ({:.2g} %).", begin, rate);
  const Worst worst = question.worst_tensor(k);
  return fmt::format("{} (all tensors together {:.2g} %; the worst, {}, {:.2g} %).", begin, rate,
                     worst.tensor, 100 * worst.rate);
}

std::string about_mass(const SuggestedScale& suggestion, const Question& question) {
  const std::string target = fmt::format("{:.2g} %", 100 * question.targets.lost_l1);
  if (!suggestion.smallest_sufficient_l1)
    return fmt::format(" By magnitude, even at 2^{} what is lost may be {} of their L1.", max_log2_scale,
                       target);
  const int k = *suggestion.smallest_sufficient_l1;
  return fmt::format(
      " By magnitude 2^{} is enough: there what is lost is less than {} of their L1 (at most {:.2g} %), "
      "while "
      "{:.2g} % of the values are.",
      k, target, 100 * question.lost_l1(k), 100 * question.lost_rate(k));
}

std::string about_headroom(const SuggestedScale& suggestion, const Question& question) {
  const int bits = question.targets.headroom_bits, largest = question.all.extent().largest;
  if (suggestion.at_edge)
    return fmt::format(" Every scale up to 2^{} leaves {} bits of head-room: no gradient exceeds 2^{}.",
                       max_log2_scale, bits, largest);
  if (suggestion.largest_safe)
    return fmt::format(
        " 2^{} is the largest that leaves {} bits of head-room: the largest gradients are at most 2^{}.",
        *suggestion.largest_safe, bits, largest);
  return fmt::format(" No scale from 2^{} on leaves {} bits of head-room: gradients reach up to 2^{}.",
                     min_log2_scale, bits, largest);
}

std::string conclusion(const SuggestedScale& suggestion, const Question& question) {
  if (!suggestion.suggested) return {};
  const int k = *suggestion.suggested;
  const std::string holds = format_title(question.format) + " holds";
  std::string text;
  if (suggestion.both())
    text = *suggestion.smallest_sufficient == *suggestion.largest_safe
               ? " It does both."
               : " Every power of two between them does both.";
  else if (suggestion.smallest_sufficient)
    text = suggestion.smallest_sufficient_l1 && *suggestion.smallest_sufficient_l1 <= k
               ? " No single scale does both, the gradients span more than " + holds +
                     "; but what is lost at the largest one is small."
               : " No single scale does both: the gradients span more than " + holds + ".";
  text += fmt::format(" Suggested: 2^{}, {}: {:.2g} % of the values, at most {:.2g} % of L1", k,
                      suggestion.at_edge
                          ? "the largest that was looked at (larger ones may do as well), loses least"
                          : "the largest with head-room, loses least",
                      100 * question.lost_rate(k), 100 * question.lost_l1(k));
  if (const std::optional<MassInterval> cosine = question.all.cosine_at(question.range, power_of_two(k)))
    text += fmt::format("; the cosine to the unrounded gradient is at least {:.6f}",
                        std::floor(cosine->lower * 1e6) * 1e-6);
  else
    text += "; the cosine to the unrounded gradient is unknown";
  text += '.';
  const RangeCounts unscaled = question.counts(0);
  if (unscaled.lost.upper + unscaled.overflow.upper == 0)
    text += fmt::format(" Without a loss scale (2^0) no value rounds to zero or overflows in {}.",
                        format_title(question.format));
  return text;
}

SuggestedScale suggest(const Question& question) {
  check(question.targets);
  SuggestedScale suggestion;
  if (question.all.empty()) {
    suggestion.reasoning = "There is no finite non-zero gradient to judge a scale by.";
    return suggestion;
  }
  suggestion = find_scales(question);
  suggestion.reasoning = about_count(suggestion, question) + about_mass(suggestion, question) +
                         about_headroom(suggestion, question) + conclusion(suggestion, question);
  const RangeCounts counts = question.counts(0);
  if (counts.infinite + counts.nan > 0)
    suggestion.reasoning +=
        fmt::format(" {} values were infinite or NaN when they were counted; they say nothing about scales.",
                    counts.infinite + counts.nan);
  return suggestion;
}

}  // namespace

SuggestedScale suggest_scale(const RangeReport& report, DType format, const ScaleTargets& targets) {
  return suggest({.all = report.merged(), .report = &report, .format = format, .targets = targets});
}

SuggestedScale suggest_scale(const ScaledHistograms& gradients, DType format, const ScaleTargets& targets) {
  return suggest({.all = gradients, .report = nullptr, .format = format, .targets = targets});
}

std::string format_title(DType format) {
  std::string title(name_of(format));
  std::transform(title.begin(), title.end(), title.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::toupper(letter)); });
  return title[0] == 'F' ? "FP" + title.substr(1) : title;
}

}  // namespace fp16lab::analysis
