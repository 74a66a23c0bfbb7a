#include "reports/data/series.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace fp16lab::reports {
namespace {

struct Extremes {
  double sum = 0, low = 0, high = 0;
  int count = 0;
  void add(double value) {
    low = count == 0 ? value : std::min(low, value);
    high = count == 0 ? value : std::max(high, value);
    sum += value;
    ++count;
  }
};

Band band_of(const std::map<double, Extremes>& points) {
  Band band;
  for (const auto& [step, extremes] : points) {
    band.step.push_back(step);
    band.mean.push_back(extremes.sum / extremes.count);
    band.low.push_back(extremes.low);
    band.high.push_back(extremes.high);
  }
  return band;
}

}  // namespace

Band training_loss(const RunSet& set, const Configuration& configuration, std::size_t points) {
  std::uint64_t last = 0;
  for (const std::size_t index : configuration.runs)
    if (!set.runs[index].folder.steps.empty())
      last = std::max(last, set.runs[index].folder.steps.back().step);
  if (last == 0) return {};
  const std::uint64_t count = std::min<std::uint64_t>(points, last);

  std::map<double, Extremes> over_seeds;
  for (const std::size_t index : configuration.runs) {
    std::map<std::uint64_t, Extremes> stretches;  // those of one seed
    for (const StepRow& row : set.runs[index].folder.steps)
      if (std::isfinite(row.loss) && row.step > 0) stretches[(row.step - 1) * count / last].add(row.loss);
    for (const auto& [stretch, losses] : stretches) {
      const double middle =
          0.5 + (static_cast<double>(stretch) + 0.5) * static_cast<double>(last) / static_cast<double>(count);
      over_seeds[middle].add(losses.sum / losses.count);
    }
  }
  return band_of(over_seeds);
}

Band evaluation_curve(const RunSet& set, const Configuration& configuration, const std::string& split,
                      Quantity quantity) {
  std::map<double, Extremes> over_seeds;
  for (const std::size_t index : configuration.runs)
    for (const EvaluationRow& row : set.runs[index].folder.evaluations)
      if (const std::optional<double> value = value_of(row, quantity);
          row.split == split && value && std::isfinite(*value))
        over_seeds[static_cast<double>(row.step)].add(*value);
  return band_of(over_seeds);
}

ScaleTrace scale_trace(std::span<const StepRow> steps) {
  ScaleTrace trace;
  for (const StepRow& row : steps) {
    if (trace.changes.empty() || trace.changes.back().scale != row.loss_scale)
      trace.changes.push_back({row.step, row.loss_scale});
    if (row.skipped) trace.skipped.push_back({row.step, row.loss_scale});
  }
  if (!steps.empty() && trace.changes.back().step != steps.back().step)
    trace.changes.push_back({steps.back().step, steps.back().loss_scale});
  return trace;
}

ScaleTrace thinned(ScaleTrace trace, std::size_t stretches) {
  using Change = ScaleTrace::Change;
  if (trace.changes.empty() || stretches == 0) return trace;
  const std::uint64_t first = trace.changes.front().step, steps = trace.changes.back().step - first + 1;
  const auto stretch_of = [&](const Change& change) { return (change.step - first) * stretches / steps; };
  if (trace.changes.size() > 2 * stretches) {
    const std::vector<Change>& all = trace.changes;
    std::vector<Change> kept{all.front()};
    for (std::size_t i = 1; i + 1 < all.size();) {
      std::size_t end = i, low = i, high = i;
      for (; end + 1 < all.size() && stretch_of(all[end]) == stretch_of(all[i]); ++end) {
        if (all[end].scale < all[low].scale) low = end;
        if (all[end].scale > all[high].scale) high = end;
      }
      kept.push_back(all[std::min(low, high)]);
      if (low != high) kept.push_back(all[std::max(low, high)]);
      i = end;
    }
    kept.push_back(all.back());
    trace.changes = std::move(kept);
  }
  if (trace.skipped.size() > stretches) {
    std::vector<Change> kept;
    for (const Change& skip : trace.skipped)
      if (kept.empty() || stretch_of(skip) != stretch_of(kept.back())) kept.push_back(skip);
    trace.skipped = std::move(kept);
  }
  return trace;
}

}  // namespace fp16lab::reports
