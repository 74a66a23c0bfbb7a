#include "analysis/tensor_findings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>

#include "analysis/percent_text.hpp"
#include "numerics/text/scale_text.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::analysis {
namespace {

const TensorState* worst_of(States tensors, const auto& measure) {
  const TensorState* worst = nullptr;
  for (const TensorState& tensor : tensors)
    if (measure(tensor) > 0 && (worst == nullptr || measure(tensor) > measure(*worst))) worst = &tensor;
  return worst;
}

/// How many tensors have something in a step.
std::size_t tensors_with(States tensors, const auto& what) {
  std::set<std::string_view> names;
  for (const TensorState& tensor : tensors)
    if (what(tensor)) names.insert(tensor.name);
  return names.size();
}

/// "fc1.weight", "fc1.weight in step 30"
std::string with_step(const TensorState& tensor) {
  return tensor.step ? fmt::format("{} in step {}", tensor.name, *tensor.step) : tensor.name;
}

/// "up to 3.2 times"; an error without a bound needs no digits.
std::string ratio_text(double ratio) {
  return ratio < 1000 ? fmt::format("up to {:.3g} times", ratio) : std::string("more than 1000 times");
}

std::optional<Finding> nonfinite_values(const RangeReport& report, const FormatRange& range,
                                        std::optional<double> scale) {
  Finding finding{.trouble = Trouble::non_finite, .serious = true};
  std::vector<TensorState> found;  // each in its first step
  std::map<std::string, std::size_t> places;
  std::set<std::string> tensors;
  for (const std::string& entry : report.tensors()) {
    tensors.insert(report.tensor_of(entry));
    TensorState state{.name = report.tensor_of(entry), .step = report.step_of(entry)};
    state.counts = report.tensor(entry).at_scale(range, scale);
    if (state.nonfinite() == 0) continue;
    if (state.step && (!finding.since || *state.step < *finding.since)) finding.since = state.step;
    const auto [place, added] = places.try_emplace(state.name, found.size());
    if (added)
      found.push_back(std::move(state));
    else if (state.step < found[place->second].step)
      found[place->second] = std::move(state);
  }
  if (found.empty()) return std::nullopt;
  std::ranges::stable_sort(found, [](const TensorState& a, const TensorState& b) { return a.step < b.step; });
  finding.tensor = found.front().name;
  finding.text = fmt::format("{} of {} tensors {} Inf or NaN", found.size(), tensors.size(),
                             found.size() == 1 ? "holds" : "hold");
  if (finding.since) finding.text += fmt::format(", first in step {}", *finding.since);
  constexpr std::size_t named_at_most = 4;
  for (std::size_t i = 0; i < std::min(found.size(), named_at_most); ++i) {
    const RangeCounts& counts = found[i].counts;
    finding.text += fmt::format("{} {} (", i == 0 ? ":" : ",", with_step(found[i]));
    if (counts.infinite > 0) finding.text += fmt::format("{} Inf", counts.infinite);
    if (counts.nan > 0) finding.text += fmt::format("{}{} NaN", counts.infinite > 0 ? ", " : "", counts.nan);
    finding.text += fmt::format(" of {})", counted(counts.total, "value"));
  }
  if (found.size() > named_at_most) finding.text += fmt::format(" and {} more", found.size() - named_at_most);
  finding.text += ".";
  return finding;
}

std::optional<Finding> overflowing_values(States tensors, const RateInterval& overflow,
                                          const Subject& subject, std::optional<double> scale) {
  const TensorState* worst =
      worst_of(tensors, [](const TensorState& tensor) { return rates_of(tensor.counts).overflow.upper; });
  if (worst == nullptr) return std::nullopt;
  const std::size_t several =
      tensors_with(tensors, [](const TensorState& tensor) { return tensor.counts.overflow.upper > 0; });
  Finding finding{.trouble = Trouble::overflow, .serious = true, .tensor = worst->name, .since = worst->step};
  finding.text = fmt::format("{} {} % of the finite non-zero {} Inf or NaN, most in {}: {} % of its own",
                             subject.makes, percent(overflow), subject.values, with_step(*worst),
                             percent(rates_of(worst->counts).overflow));
  if (worst->magnitudes && scale)
    finding.text += fmt::format(", the largest {:.3g} times {}'s largest number",
                                worst->magnitudes->greatest * *scale / range_of(subject.format).largest(),
                                title_of(subject.format));
  finding.text += several == 1 ? "."
                               : fmt::format(". {} of {} tensors overflow.", several,
                                             tensors_with(tensors, [](const TensorState&) { return true; }));
  return finding;
}

}  // namespace

std::optional<Finding> underflow_finding(States tensors, const RateInterval& lost, const Subject& subject) {
  const std::size_t unfit =
      tensors_with(tensors, [](const TensorState& tensor) { return tensor.fit.loses_too_much(); });
  const TensorState* worst =
      worst_of(tensors, [](const TensorState& tensor) { return rates_of(tensor.counts).lost.upper; });
  if (worst == nullptr) return std::nullopt;
  Finding finding{.trouble = Trouble::underflow, .serious = unfit > 0, .tensor = worst->name};
  finding.text =
      fmt::format("{} {} % of the finite non-zero {} zero, most in {}: {} % of its own.", subject.makes,
                  percent(lost), subject.values, with_step(*worst), percent(rates_of(worst->counts).lost));
  if (unfit == 0)
    finding.text += " Losing them raises no tensor's rounding error by a tenth.";
  else
    finding.text += fmt::format(
        " In {} that alone makes the rounding error more than {:g} times what {}'s precision costs.",
        counted(unfit, "tensor"), fit_limit, title_of(subject.format));
  return finding;
}

std::optional<Finding> distortion_finding(States tensors, DType format) {
  const auto ratio = [](const TensorState& tensor) {
    return tensor.fit.is_distorted() ? tensor.fit.ratio() : 0;
  };
  const TensorState* worst = worst_of(tensors, ratio);
  if (worst == nullptr) return std::nullopt;
  const std::size_t unfit =
      tensors_with(tensors, [&ratio](const TensorState& tensor) { return ratio(tensor) > 0; });
  return Finding{
      .trouble = Trouble::distortion,
      .serious = true,
      .tensor = worst->name,
      .since = {},
      .text = fmt::format(
          "{} keeps fewer bits of numbers below 2^{}: the rounding error of {} was {} that of larger "
          "numbers{}.",
          title_of(format), range_of(format).smallest_normal, with_step(*worst), ratio_text(ratio(*worst)),
          unfit == 1
              ? ""
              : fmt::format("; {} of {} tensors had more than {:g} times", unfit,
                            tensors_with(tensors, [](const TensorState&) { return true; }), fit_limit))};
}

Account account_of(const RangeReport& report, DType format, std::optional<double> scale) {
  const FormatRange range = range_of(format);
  std::vector<TensorState> states;  // for each tensor in each step
  for (const std::string& entry : report.tensors()) states.push_back(state_of(report, entry, range, scale));
  const ZoneRates rates = rates_of(report.merged().at_scale(range, scale));
  const Subject subject{.makes = fmt::format("{} at {} makes", title_of(format),
                                             scale ? scale_text(*scale) : "their own scales"),
                        .values = "values",
                        .format = format};
  Account account{
      .findings = {}, .trained = false, .counted = !report.merged().empty(), .casts = {}, .next = {}};
  for (std::optional<Finding>& finding : std::array{
           nonfinite_values(report, range, scale), overflowing_values(states, rates.overflow, subject, scale),
           underflow_finding(states, rates.lost, subject), distortion_finding(states, format)})
    if (finding) account.findings.push_back(std::move(*finding));
  return account;
}

}  // namespace fp16lab::analysis
