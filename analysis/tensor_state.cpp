#include "analysis/tensor_state.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <tuple>

namespace fp16lab::analysis {

bool TensorState::worse_than(const TensorState& other) const {
  const auto harm = [](const TensorState& state) {
    const ZoneRates rates = rates_of(state.counts);
    const double ratio = state.fit.ratio();
    return std::tuple(rates.infinite + rates.nan, rates.overflow.upper, ratio > fit_limit ? ratio : 0.0,
                      rates.lost.upper, ratio);
  };
  return harm(*this) > harm(other);
}

TensorState state_of(const RangeReport& report, const std::string& entry, const FormatRange& range,
                     std::optional<double> scale) {
  const ScaledHistograms& values = report.tensor(entry);
  return {.name = report.tensor_of(entry),
          .step = report.step_of(entry),
          .counts = values.at_scale(range, scale),
          .fit = values.fit_at(range, scale),
          .magnitudes = values.magnitudes()};
}

std::vector<TensorState> states_of(const RangeReport& report, const FormatRange& range,
                                   std::optional<double> scale) {
  std::vector<TensorState> states;
  std::map<std::string, std::size_t, std::less<>> places;
  for (const std::string& entry : report.tensors()) {
    TensorState state = state_of(report, entry, range, scale);
    const auto [place, added] = places.try_emplace(state.name, states.size());
    if (added)
      states.push_back(std::move(state));
    else if (state.worse_than(states[place->second]))
      states[place->second] = std::move(state);
  }
  std::ranges::stable_sort(states,
                           [](const TensorState& a, const TensorState& b) { return a.worse_than(b); });
  return states;
}

double StepChange::ratio() const {
  const double least = std::min(before, after), most = std::max(before, after);
  if (least == most) return 1;
  return least == 0 ? std::numeric_limits<double>::infinity() : most / least;
}

std::vector<StepChange> step_changes(const RangeReport& report) {
  std::vector<std::string> order;
  std::map<std::string, std::map<std::uint64_t, double>> greatest;  // by tensor and step
  for (const std::string& entry : report.tensors()) {
    const std::optional<std::uint64_t> step = report.step_of(entry);
    const std::optional<ScaledHistograms::Magnitudes> magnitudes = report.tensor(entry).magnitudes();
    if (!step || !magnitudes) continue;
    auto& steps = greatest[report.tensor_of(entry)];
    if (steps.empty()) order.push_back(report.tensor_of(entry));
    steps[*step] = magnitudes->greatest;
  }
  std::vector<StepChange> changes;
  for (const std::string& tensor : order) {
    StepChange most{.tensor = tensor};
    const auto& steps = greatest[tensor];
    for (auto before = steps.begin(), after = std::next(before); after != steps.end(); ++before, ++after) {
      const StepChange change{tensor, before->first, after->first, before->second, after->second};
      if (change.ratio() > most.ratio()) most = change;
    }
    if (most.ratio() >= least_told_change) changes.push_back(most);
  }
  std::ranges::stable_sort(changes, std::greater(), &StepChange::ratio);
  return changes;
}

}  // namespace fp16lab::analysis
