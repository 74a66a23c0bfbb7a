#include "reports/run_gradients.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace fp16lab::reports {
namespace {

std::set<std::uint64_t> evenly_chosen(const std::set<std::uint64_t>& steps, std::size_t count) {
  if (steps.size() <= count || count < 2) return steps;
  const std::vector<std::uint64_t> all(steps.begin(), steps.end());
  std::set<std::uint64_t> chosen;
  for (std::size_t i = 0; i < count; ++i) chosen.insert(all[i * (all.size() - 1) / (count - 1)]);
  return chosen;
}

}  // namespace

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
  std::map<std::uint64_t, GradientSnapshot> snapshots;
  const std::set<std::uint64_t> chosen = evenly_chosen(steps, max_snapshots);
  for_each_histogram(run.folder.path, [&](const HistogramRow& row) {
    // A run that is still going on may have grown since the first pass.
    const auto known = index.find(row.tensor);
    if (!chosen.contains(row.step) || known == index.end()) return;
    GradientSnapshot& snapshot = snapshots[row.step];
    snapshot.step = row.step;
    snapshot.loss_scale = row.loss_scale;
    snapshot.histograms.resize(gradients.tensors.size());
    snapshot.histograms[known->second] += row.before;
  });
  for (auto& [step, snapshot] : snapshots) gradients.snapshots.push_back(std::move(snapshot));
  return gradients;
}

}  // namespace fp16lab::reports
