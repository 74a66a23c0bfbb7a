#include "reports/run_gradients.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace fp16lab::reports {

std::vector<std::size_t> evenly_chosen(std::size_t count, std::size_t limit) {
  limit = std::min(count, std::max<std::size_t>(limit, 2));
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < limit; ++i) chosen.push_back(limit < 2 ? i : i * (count - 1) / (limit - 1));
  return chosen;
}

bool GradientSnapshot::one_scale() const {
  return std::all_of(scales.begin(), scales.end(), [&](double scale) { return scale == loss_scale; });
}

RunGradients load_gradients(const Run& run, std::size_t max_snapshots) {
  // Two passes over the file keep memory at the size of what is shown.
  RunGradients gradients;
  std::set<std::uint64_t> steps;
  std::map<std::string, std::size_t> index;
  for_each_histogram(run.folder.path, [&](const HistogramRow& row) {
    steps.insert(row.step);
    if (index.emplace(row.tensor, gradients.tensors.size()).second) {
      gradients.tensors.push_back(row.tensor);
      gradients.kinds.push_back(row.kind);
    }
    gradients.report.add(row);
  });
  gradients.observed_steps = steps.size();
  std::map<std::uint64_t, GradientSnapshot> snapshots;
  const std::vector<std::uint64_t> all(steps.begin(), steps.end());
  std::set<std::uint64_t> chosen;
  for (const std::size_t place : evenly_chosen(all.size(), max_snapshots)) chosen.insert(all[place]);
  for_each_histogram(run.folder.path, [&](const HistogramRow& row) {
    // A run that is still going on may have grown since the first pass.
    const auto known = index.find(row.tensor);
    if (!chosen.contains(row.step) || known == index.end()) return;
    GradientSnapshot& snapshot = snapshots[row.step];
    snapshot.step = row.step;
    snapshot.loss_scale = row.loss_scale;
    snapshot.histograms.resize(gradients.tensors.size());
    snapshot.scales.resize(gradients.tensors.size());
    snapshot.histograms[known->second] += row.before;
    snapshot.scales[known->second] = row.loss_scale;
  });
  for (auto& [step, snapshot] : snapshots) {
    for (double& scale : snapshot.scales)  // of tensors that this step did not see
      if (scale == 0) scale = snapshot.loss_scale;
    gradients.snapshots.push_back(std::move(snapshot));
  }
  return gradients;
}

}  // namespace fp16lab::reports
