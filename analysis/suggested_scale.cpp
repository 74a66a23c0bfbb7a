#include "analysis/suggested_scale.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "numerics/text/text.hpp"

namespace fp16lab::analysis {
namespace {

/// A tensor with values to judge by.
struct Judged {
  std::string name;  ///< "" of one alone
  const ScaledHistograms* gradients;
};

/// The gradients of one question, in one format.
struct ScaleQuestion {
  const ScaledHistograms& all;
  std::vector<Judged> tensors;  ///< that `all` is of, without those that have no finite non-zero value
  DType format;
  std::optional<std::uint64_t> step{};  ///< the run's step
  std::vector<std::string> unknown{};   ///< tensors with an Inf or NaN and no finite value but zeros
  std::vector<std::string> zeros{};     ///< tensors of zeros alone

  FitSums fit(const Judged& tensor, int log2_scale) const {
    return tensor.gradients->fit_at(range_of(format), std::scalbn(1.0, log2_scale));
  }
  bool of_several() const { return tensors.size() > 1; }
};

/// The first k from `begin` to `end` for which holds(k), which no larger one loses; none: not even `end`.
template <class Predicate>
std::optional<int> first_that(int begin, int end, const Predicate& holds) {
  if (!holds(end)) return std::nullopt;
  while (begin < end) {
    const int middle = begin + (end - begin) / 2;
    if (holds(middle))
      end = middle;
    else
      begin = middle + 1;
  }
  return begin;
}

void find_range(const ScaleQuestion& question, SuggestedScale& found) {
  int least = least_log2_scale, greatest = greatest_log2_scale;
  bool any_least = true, any_greatest = true;
  for (const Judged& tensor : question.tensors) {
    // It searches only what needs more than those before it.
    if (any_least && !question.fit(tensor, least).is_precise()) {
      const auto own = first_that(least + 1, greatest_log2_scale,
                                  [&](int k) { return question.fit(tensor, k).is_precise(); });
      any_least = own.has_value();
      least = own.value_or(least);
      found.asks_most = tensor.name;
    }
    if (any_greatest && question.fit(tensor, greatest).overflows) {
      const auto beyond =
          first_that(least_log2_scale, greatest, [&](int k) { return question.fit(tensor, k).overflows; });
      any_greatest = *beyond > least_log2_scale;
      greatest = *beyond - 1;
      found.overflows_first = tensor.name;
    }
  }
  if (any_least) found.least = least;
  if (any_greatest) found.greatest = greatest;
}

void choose(SuggestedScale& found) {
  if (!found.greatest) return;
  if (!found.fits()) {
    found.suggested = std::max(*found.greatest - room_before_overflow, least_log2_scale);
    return;
  }
  found.needs_none = *found.least <= -room_of_none && *found.greatest >= room_of_none;
  const int middle = (*found.least + *found.greatest + 1) >> 1;
  found.suggested = found.needs_none ? 0 : std::max(middle, *found.greatest - most_room_above);
}

/// The scope of the text, if that is not simply all values: a sentence and a blank, or nothing.
std::string about_subject(const ScaleQuestion& question) {
  const RangeCounts counts = question.all.at_scale(range_of(question.format), 1.0);
  const std::uint64_t odd = counts.infinite + counts.nan;
  std::vector<std::string> of;
  if (question.step) of.push_back(fmt::format("step {} alone", *question.step));
  if (odd > 0)
    of.push_back(fmt::format("{} of {} values; the others are Inf or NaN", counts.total - odd, counts.total));
  return of.empty() ? "" : fmt::format("This covers {}. ", fmt::join(of, ", "));
}

/// Tensors of zeros, which no scale can be asked of: a sentence and a blank, or nothing.
std::string about_zeros(const ScaleQuestion& question) {
  if (question.zeros.empty()) return "";
  const std::size_t count = question.zeros.size();
  return fmt::format(
      "{} of {} tensors {} zeros alone, such as {}, and cannot be judged: if casts before theirs made them, "
      "they need a larger scale than these values show. ",
      count, count + question.tensors.size(), count == 1 ? "holds" : "hold", question.zeros.front());
}

std::string named(const std::string& tensor) { return tensor.empty() ? "" : fmt::format(" ({})", tensor); }

/// "every tensor fits from 2^4 (fc1.weight) to 2^18 (fc2.weight)".
std::string range_text(const SuggestedScale& found, const ScaleQuestion& question) {
  const bool from_least = *found.least == least_log2_scale,
             to_greatest = *found.greatest == greatest_log2_scale;
  const std::string whom = !question.zeros.empty() ? "every other tensor fits"
                           : question.of_several() ? "every tensor fits"
                                                   : "the values fit";
  if (from_least && to_greatest) return whom + " at every scale";
  if (*found.least == *found.greatest) return fmt::format("{} at 2^{} alone", whom, *found.least);
  std::string text = whom;
  if (!from_least) text += fmt::format(" from 2^{}{}", *found.least, named(found.asks_most));
  if (!to_greatest)
    text += fmt::format("{} 2^{}{}", from_least ? " up to" : " to", *found.greatest,
                        named(found.overflows_first));
  else
    text += " on";
  return text;
}

std::string power_text(int k) { return k < 13 ? fmt::format("{}", 1 << k) : fmt::format("2^{}", k); }

std::string about_fitting(const SuggestedScale& found, const ScaleQuestion& question) {
  const std::string title = title_of(question.format), range = range_text(found, question);
  const std::string meaning = fmt::format(
      "nothing overflows, and rounding costs at most {:g} times what {}'s precision costs by itself",
      fit_limit, title);
  if (found.needs_none) return fmt::format("{} needs no loss scale: {} ({}).", title, range, meaning);
  const int k = *found.suggested, above = *found.greatest - k, below = k - *found.least;
  std::string text = fmt::format("In {} {}: {}.", title, range, meaning);
  if (*found.least <= 0 && *found.greatest >= 0) text += " Without a loss scale they fit too.";
  const std::string step = question.step ? fmt::format(" for step {} alone", *question.step) : "";
  return text + fmt::format(
                    " Suggested{}: 2^{}: gradients may become {} times as large before one overflows, and "
                    "{} times as small before rounding costs more.",
                    step, k, power_text(above), power_text(below));
}

/// The tensor to which rounding is worst at 2^k, and how many of them do not fit.
std::string about_misfits(const ScaleQuestion& question, int k) {
  const Judged* worst = nullptr;
  double ratio = 0;
  std::size_t misfits = 0;
  for (const Judged& tensor : question.tensors) {
    const double own = question.fit(tensor, k).ratio();
    if (own > fit_limit) ++misfits;
    if (own > ratio) {
      ratio = own;
      worst = &tensor;
    }
  }
  const std::string cost = fmt::format("rounding costs {} {:.3g} times what precision costs by itself",
                                       worst->name.empty() ? "them" : worst->name, ratio);
  return question.of_several()
             ? fmt::format("{} of {} tensors do not fit there; {}", misfits, question.tensors.size(), cost)
             : cost + " there";
}

std::string about_none(const SuggestedScale& found, const ScaleQuestion& question) {
  const std::string title = title_of(question.format);
  const auto whom = [&](const std::string& tensor) { return tensor.empty() ? "a value" : tensor; };
  if (!found.greatest)
    return fmt::format("No loss scale suits {}: {} overflows even at 2^{}.", title,
                       whom(found.overflows_first), least_log2_scale);
  std::string text;
  if (!question.of_several())
    text = found.least
               ? fmt::format(
                     "No loss scale suits {}: the values fit only from 2^{} on, and overflow beyond 2^{}",
                     title, *found.least, *found.greatest)
               : fmt::format("No loss scale suits {}: the values do not fit even at 2^{}", title,
                             greatest_log2_scale);
  else
    text = fmt::format(
        "No loss scale suits every tensor in {}: {} {}, {} overflows beyond 2^{}", title, found.asks_most,
        found.least ? fmt::format("fits only from 2^{} on", *found.least)
                    : fmt::format("does not fit even at 2^{}", greatest_log2_scale),
        found.overflows_first == found.asks_most ? "and it" : found.overflows_first, *found.greatest);
  const int k = *found.suggested;
  return text + fmt::format(". Suggested{}: 2^{}, which leaves {} before the first overflow; {}.",
                            question.step ? fmt::format(" for step {} alone", *question.step) : "", k,
                            counted(static_cast<std::size_t>(*found.greatest - k), "bit"),
                            about_misfits(question, k));
}

SuggestedScale suggest(const ScaleQuestion& question) {
  SuggestedScale found;
  const std::string subject = about_subject(question);
  if (question.tensors.empty()) {
    found.reasoning = subject + "No gradient is finite and non-zero, so no scale can be judged.";
    return found;
  }
  if (!question.unknown.empty()) {
    found.unknown = question.unknown.back();
    found.reasoning = subject + fmt::format(
                                    "No loss scale can be suggested: {} of {} tensors hold no finite values "
                                    "but zeros, such as {}. Record them at a lower scale.",
                                    question.unknown.size(),
                                    question.unknown.size() + question.tensors.size(), found.unknown);
    return found;
  }
  find_range(question, found);
  choose(found);
  found.reasoning = subject + about_zeros(question) +
                    (found.fits() ? about_fitting(found, question) : about_none(found, question));
  return found;
}

}  // namespace

SuggestedScale suggest_scale(const RangeReport& report, DType format) {
  ScaleQuestion question{.all = report.merged(), .tensors = {}, .format = format, .step = report.step()};
  for (const std::string& name : report.tensors()) {
    const ScaledHistograms& gradients = report.tensor(name);
    const RangeCounts counts = gradients.at_scale(range_of(format), 1.0);
    if (!gradients.empty())
      question.tensors.push_back({name, &gradients});
    else if (counts.infinite + counts.nan > 0)
      question.unknown.push_back(name);
    else if (counts.total > 0)
      question.zeros.push_back(name);
  }
  if (question.tensors.size() == 1) question.tensors.front().name.clear();
  return suggest(question);
}

SuggestedScale suggest_scale(const ScaledHistograms& gradients, DType format,
                             std::optional<std::uint64_t> step) {
  ScaleQuestion question{.all = gradients, .tensors = {}, .format = format, .step = step};
  if (!gradients.empty()) question.tensors.push_back({"", &gradients});
  return suggest(question);
}

}  // namespace fp16lab::analysis
