#include "analysis/suggested_scale.hpp"
#include "numerics/text/text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <stdexcept>
#include <vector>

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
  std::optional<std::uint64_t> step;  ///< of a run
  FormatRange range = range_of(format);

  RangeCounts counts(int log2_scale) const { return all.at_scale(range, power_of_two(log2_scale)); }
  double lost_rate(int log2_scale) const { return rates_of(counts(log2_scale)).lost.upper; }
  double lost_l1(int log2_scale) const {
    return all.mass_at(range, power_of_two(log2_scale)).l1.lost.share().upper;
  }
  std::string headroom() const {
    return counted(static_cast<std::size_t>(targets.headroom_bits), "bit") + " of head-room";
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

/// What it is all about, if that is not simply all values: a sentence and a blank, or nothing.
std::string about_subject(const Question& question) {
  const RangeCounts counts = question.counts(0);
  const std::uint64_t odd = counts.infinite + counts.nan;
  std::vector<std::string> of;
  if (question.step) of.push_back(fmt::format("of step {} alone", *question.step));
  if (odd > 0)
    of.push_back(fmt::format("of {} of {} values; the others were Inf or NaN and say nothing",
                             counts.total - odd, counts.total));
  return of.empty() ? "" : fmt::format("This is {}. ", fmt::join(of, ", "));
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
  if (rate == 0) return begin + " (none does).";
  if (question.report == nullptr) return fmt::format("{} ({:.2g} %).", begin, rate);
  const Worst worst = question.worst_tensor(k);
  return fmt::format("{} (all tensors together {:.2g} %; the worst, {}, {:.2g} %).", begin, rate,
                     worst.tensor, 100 * worst.rate);
}

std::string about_mass(const SuggestedScale& suggestion, const Question& question) {
  std::string target = fmt::format("{:.2g} % of their L1", 100 * question.targets.lost_l1);
  if (question.targets.lost_l1 == ScaleTargets{}.lost_l1)
    target += " (2^-11, half a unit in the last place of FP16)";
  if (!suggestion.smallest_sufficient_l1)
    return fmt::format(" By magnitude, even at 2^{} what is lost may be {}.", max_log2_scale, target);
  const int k = *suggestion.smallest_sufficient_l1;
  const std::string begin =
      fmt::format(" By magnitude 2^{} is enough: there what is lost is less than {}", k, target);
  if (question.lost_rate(k) == 0) return begin + "; nothing is.";
  return begin + fmt::format("; at most {:.2g} % of it is lost, with {:.2g} % of the values.",
                             100 * question.lost_l1(k), 100 * question.lost_rate(k));
}

std::string about_headroom(const SuggestedScale& suggestion, const Question& question) {
  const std::optional<double> greatest = question.all.greatest();
  const std::string reach =
      greatest ? fmt::format("the greatest finite gradient is {:.4g}", *greatest)
               : fmt::format("no finite gradient exceeds 2^{}", question.all.extent().largest);
  if (!suggestion.largest_safe)
    return fmt::format(" No scale from 2^{} on leaves {}: {}.", min_log2_scale, question.headroom(), reach);
  const std::string begin = suggestion.at_edge
                                ? fmt::format(" Every scale up to 2^{} leaves", max_log2_scale)
                                : fmt::format(" 2^{} is the largest that leaves", *suggestion.largest_safe);
  return fmt::format("{} {}: {}.", begin, question.headroom(), reach);
}

/// Is there a scale that both leaves head-room and loses few values?
std::string about_both(const SuggestedScale& suggestion, const Question& question) {
  if (!suggestion.smallest_sufficient) return {};
  const int least = *suggestion.smallest_sufficient, largest = *suggestion.largest_safe;
  if (suggestion.both())
    return least == largest ? fmt::format(" 2^{} does both.", least)
                            : fmt::format(" Every power of two from 2^{} to 2^{} does both.", least, largest);
  std::string text = fmt::format(" No scale both leaves {} and loses less than {:.3g} % of the values",
                                 question.headroom(), 100 * question.targets.lost_rate);
  const CountInterval overflow = question.counts(least).overflow;
  if (overflow.upper == 0)
    text += fmt::format("; with less head-room 2^{} does the latter", least);
  else if (overflow.lower > 0)
    text += fmt::format("; the gradients span more than {} holds", title_of(question.format));
  if (suggestion.smallest_sufficient_l1 && *suggestion.smallest_sufficient_l1 <= largest)
    text += fmt::format("; but by magnitude what 2^{} loses is small", largest);
  return text + '.';
}

/// Whether no scaling at all would do, where it would.
std::string about_none(const SuggestedScale& suggestion, const Question& question) {
  const RangeCounts counts = question.counts(0);
  if (counts.lost.upper + counts.overflow.upper > 0) return {};
  const std::uint64_t odd = counts.infinite + counts.nan;
  const std::string whom =
      odd > 0 ? fmt::format("none of the {} finite values", counts.total - odd) : "no value";
  return fmt::format(
      " Without a loss scale (2^0) {} rounds to zero or overflows in {}{}.", whom, title_of(question.format),
      *suggestion.largest_safe < 0 ? fmt::format(", but less than {} is left", question.headroom()) : "");
}

std::string conclusion(const SuggestedScale& suggestion, const Question& question) {
  if (!suggestion.suggested) return {};
  const int k = *suggestion.suggested;
  std::string text = about_both(suggestion, question) + about_none(suggestion, question);
  text += fmt::format(" Suggested{}: 2^{}, {}; ",
                      question.step ? fmt::format(" for step {} alone", *question.step) : "", k,
                      suggestion.at_edge ? "the largest that was looked at (larger ones may do as well)"
                                         : "the largest with head-room");
  const double rate = question.lost_rate(k);
  text += rate == 0
              ? "nothing is lost"
              : fmt::format("of those {} it loses least: {:.2g} % of the values, at most {:.2g} % of L1",
                            suggestion.at_edge ? "looked at" : "with head-room", 100 * rate,
                            100 * question.lost_l1(k));
  if (const std::optional<MassInterval> cosine = question.all.cosine_at(question.range, power_of_two(k)))
    text += fmt::format("; the cosine to the unrounded gradient is at least {:.6f}",
                        std::floor(cosine->lower * 1e6) * 1e-6);
  else
    text += "; the cosine to the unrounded gradient is unknown";
  return text + '.';
}

SuggestedScale suggest(const Question& question) {
  check(question.targets);
  SuggestedScale suggestion;
  const std::string subject = about_subject(question);
  if (question.all.empty()) {
    suggestion.reasoning = subject + "There is no finite non-zero gradient to judge a scale by.";
    return suggestion;
  }
  suggestion = find_scales(question);
  suggestion.reasoning = subject + about_count(suggestion, question) + about_mass(suggestion, question) +
                         about_headroom(suggestion, question) + conclusion(suggestion, question);
  return suggestion;
}

}  // namespace

SuggestedScale suggest_scale(const RangeReport& report, DType format, const ScaleTargets& targets) {
  return suggest({.all = report.merged(),
                  .report = &report,
                  .format = format,
                  .targets = targets,
                  .step = report.step()});
}

SuggestedScale suggest_scale(const ScaledHistograms& gradients, DType format, const ScaleTargets& targets,
                             std::optional<std::uint64_t> step) {
  return suggest({.all = gradients, .report = nullptr, .format = format, .targets = targets, .step = step});
}

}  // namespace fp16lab::analysis
