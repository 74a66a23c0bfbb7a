#include "analysis/suggested_scale.hpp"
#include "numerics/text/text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

namespace fp16lab::analysis {
namespace {

double power_of_two(int k) { return std::scalbn(1.0, k); }

/// The gradients of one question, in one format.
struct Question {
  const ScaledHistograms& all;
  DType format;
  ScaleTargets targets;
  std::optional<std::uint64_t> step{};   ///< of a run
  const RangeReport* tensors = nullptr;  ///< that `all` is of; none: of one
  FormatRange range = range_of(format);

  RangeCounts counts(int log2_scale) const { return all.at_scale(range, power_of_two(log2_scale)); }
  double lost_rate(int log2_scale) const { return rates_of(counts(log2_scale)).lost.upper; }
  bool overflows(const ScaledHistograms& gradients, int log2_scale) const {
    const double scale = power_of_two(log2_scale + targets.headroom_bits);
    return gradients.at_scale(range, scale).overflow.upper > 0;
  }
  double lost_l1(const ScaledHistograms& gradients, int log2_scale) const {
    return gradients.mass_at(range, power_of_two(log2_scale)).l1.lost.share().upper;
  }
  double lost_l1(int log2_scale) const { return lost_l1(all, log2_scale); }
  /// Has more than one tensor gradients to judge by?
  bool of_several() const {
    return tensors && std::ranges::count_if(tensors->tensors(), [this](const std::string& name) {
                        return !tensors->tensor(name).empty();
                      }) > 1;
  }
  std::string headroom() const {
    return counted(static_cast<std::size_t>(targets.headroom_bits), "bit") + " of head-room";
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

/// smallest_sufficient_each and asks_most. What is lost never grows with the scale: a tensor that loses
/// little at the scale which those before it ask for asks for no more.
void ask_each(const Question& question, SuggestedScale& found) {
  int least = min_log2_scale;
  for (const std::string& name : question.tensors->tensors()) {
    const ScaledHistograms& gradients = question.tensors->tensor(name);
    if (gradients.empty()) continue;
    while (question.lost_l1(gradients, least) >= question.targets.lost_l1) {
      found.asks_most = name;
      if (++least > max_log2_scale) return;
    }
  }
  found.smallest_sufficient_each = least;
}

/// Everything but the reasoning.
SuggestedScale find_scales(const Question& question) {
  const ScaleTargets& targets = question.targets;
  SuggestedScale found;
  for (int k = min_log2_scale; k <= max_log2_scale; ++k) {
    if (!question.overflows(question.all, k)) found.largest_safe = k;
    if (!found.smallest_sufficient && question.lost_rate(k) < targets.lost_rate)
      found.smallest_sufficient = k;
    if (!found.smallest_sufficient_l1 && question.lost_l1(k) < targets.lost_l1)
      found.smallest_sufficient_l1 = k;
  }
  if (question.tensors)
    ask_each(question, found);
  else
    found.smallest_sufficient_each = found.smallest_sufficient_l1;
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

/// The first tensor that leaves less head-room at 2^log2_scale.
std::string first_too_large(const Question& question, int log2_scale) {
  for (const std::string& name : question.tensors->tensors())
    if (question.overflows(question.tensors->tensor(name), log2_scale)) return name;
  return {};
}

/// The same of each tensor on its own, where there are several: a blank and a sentence.
std::string about_each(const SuggestedScale& suggestion, const Question& question) {
  if (!question.of_several() || !suggestion.largest_safe) return {};
  const std::optional<int>& least = suggestion.smallest_sufficient_each;
  const int largest = *suggestion.largest_safe;
  if (suggestion.fits_each()) {
    if (least == suggestion.smallest_sufficient_l1) return " The same holds for each tensor on its own.";
    return fmt::format(" Each tensor on its own: from 2^{} ({}) to 2^{}.", *least, suggestion.asks_most,
                       largest);
  }
  const std::string none = " No loss scale does so for each tensor on its own: ";
  if (!least) return none + fmt::format("{} loses more even at 2^{}.", suggestion.asks_most, max_log2_scale);
  return none + fmt::format("{} loses so little only from 2^{} on, {} leaves {} only up to 2^{}.",
                            suggestion.asks_most, *least, first_too_large(question, largest + 1),
                            question.headroom(), largest);
}

/// Which scales lose little and leave head-room, the "scales that fit" of the tables; or why none does.
std::string about_range(const SuggestedScale& suggestion, const Question& question) {
  const std::optional<double> greatest = question.all.greatest();
  const std::string reach =
      greatest ? fmt::format("the greatest finite gradient is {:.4g}", *greatest)
               : fmt::format("no finite gradient exceeds 2^{}", question.all.extent().largest);
  const std::string little = fmt::format("less than {:.2g} % of L1{}", 100 * question.targets.lost_l1,
                                         question.of_several() ? " of all tensors together" : "");
  const std::optional<int>&least = suggestion.smallest_sufficient_l1, &largest = suggestion.largest_safe;
  if (!largest)
    return fmt::format("No loss scale from 2^{} on leaves {}: {}.", min_log2_scale, question.headroom(),
                       reach);
  if (!least) return fmt::format("No loss scale up to 2^{} loses {}.", max_log2_scale, little);
  if (suggestion.fits()) {
    const std::string range = *least == *largest
                                  ? fmt::format("The loss scale 2^{}", *least)
                                  : fmt::format("Every loss scale from 2^{} to 2^{}", *least, *largest);
    return fmt::format("{} loses {} and leaves {}: {}.", range, little, question.headroom(), reach);
  }
  std::string text = fmt::format("No loss scale both leaves {} and loses {}", question.headroom(), little);
  const CountInterval overflow = question.counts(*least).overflow;
  if (overflow.upper == 0)
    text += "; with less head-room there is one";
  else if (overflow.lower > 0)
    text += fmt::format("; the gradients span more than {} holds", title_of(question.format));
  return fmt::format("{}: {}.", text, reach);
}

/// Whether no scaling at all would do, where it would.
std::string about_none(const SuggestedScale& suggestion, const Question& question) {
  const RangeCounts counts = question.counts(0);
  if (counts.lost.upper + counts.overflow.upper > 0) return {};
  const std::uint64_t odd = counts.infinite + counts.nan;
  const std::string whom =
      odd > 0 ? fmt::format("none of the {} finite values", counts.total - odd) : "no value";
  return fmt::format(
      " Without a loss scale {} rounds to zero or overflows in {}{}.", whom, title_of(question.format),
      *suggestion.largest_safe < 0 ? fmt::format(", but less than {} is left", question.headroom()) : "");
}

std::string conclusion(const SuggestedScale& suggestion, const Question& question) {
  if (!suggestion.suggested) return {};
  const int k = *suggestion.suggested;
  std::string text = about_none(suggestion, question);
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
  suggestion.reasoning = subject + about_range(suggestion, question) + about_each(suggestion, question) +
                         conclusion(suggestion, question);
  return suggestion;
}

}  // namespace

SuggestedScale suggest_scale(const RangeReport& report, DType format, const ScaleTargets& targets) {
  return suggest({.all = report.merged(),
                  .format = format,
                  .targets = targets,
                  .step = report.step(),
                  .tensors = &report});
}

SuggestedScale suggest_scale(const ScaledHistograms& gradients, DType format, const ScaleTargets& targets,
                             std::optional<std::uint64_t> step) {
  return suggest({.all = gradients, .format = format, .targets = targets, .step = step});
}

}  // namespace fp16lab::analysis
