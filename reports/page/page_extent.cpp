#include "reports/page/page_extent.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <span>

#include "numerics/text/text.hpp"

namespace fp16lab::reports {
namespace {

/// Which configurations of a workload are shown, in their order.
std::vector<std::size_t> chosen(const WorkloadSummary& summary, std::size_t most) {
  std::vector<bool> taken(summary.rows.size());
  std::size_t count = 0;
  const auto take = [&](std::size_t i) {
    if (taken[i] || count == most) return;
    taken[i] = true;
    ++count;
  };
  for (std::size_t i = 0; i < summary.rows.size(); ++i)
    if (summary.rows[i].is_reference || summary.rows[i].is_twin) take(i);
  if (summary.ranking)
    for (const std::size_t i : std::span(summary.ranking->order).first(2)) take(i);
  for (std::size_t i = 0; i < summary.rows.size(); ++i) take(i);
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < taken.size(); ++i)
    if (taken[i]) places.push_back(i);
  return places;
}

std::size_t configurations_of(const std::vector<Workload>& workloads) {
  std::size_t count = 0;
  for (const Workload& workload : workloads) count += workload.configurations.size();
  return count;
}

/// The seeds of a configuration: "3 seeds", "2 to 100 seeds".
std::string seeds_text(const RunSet& set) {
  std::size_t fewest = set.runs.size(), most = 0;
  for (const Workload& workload : set.workloads)
    for (const Configuration& configuration : workload.configurations) {
      fewest = std::min(fewest, configuration.runs.size());
      most = std::max(most, configuration.runs.size());
    }
  return fewest == most ? counted(most, "run") : fmt::format("{} to {} runs", fewest, most);
}

}  // namespace

PageExtent extent_of(const RunSet& set, const std::vector<WorkloadSummary>& summaries) {
  constexpr std::size_t always = 4;  // FP32, its twin, and the two best: no workload is shown without them
  PageExtent extent;
  std::size_t left = most_rows;
  for (std::size_t w = 0; w < set.workloads.size() && extent.workloads.size() < most_workloads; ++w) {
    const std::size_t room = std::min(most_configurations, left);
    if (room < std::min(always, set.workloads[w].configurations.size())) break;
    const std::vector<std::size_t> places = chosen(summaries[w], room);
    left -= places.size();
    extent.workloads.push_back(set.workloads[w]);
    extent.summaries.push_back(summaries[w]);
    if (places.size() == summaries[w].rows.size()) continue;
    Workload& workload = extent.workloads.back();
    WorkloadSummary& summary = extent.summaries.back();
    workload.configurations.clear();
    summary.rows.clear();
    for (const std::size_t i : places) {
      workload.configurations.push_back(set.workloads[w].configurations[i]);
      summary.rows.push_back(summaries[w].rows[i]);
    }
    if (!summary.ranking) continue;
    std::erase_if(summary.ranking->order,
                  [&](std::size_t i) { return !std::ranges::binary_search(places, i); });
    for (std::size_t& i : summary.ranking->order)
      i = static_cast<std::size_t>(std::ranges::lower_bound(places, i) - places.begin());
  }
  return extent;
}

std::string extent_words(const RunSet& set, const PageExtent& extent) {
  if (set.runs.empty()) return "";
  const std::size_t configurations = configurations_of(set.workloads);
  std::string words = fmt::format(
      "{}{} as {} of {}. A row of a table combines all seeds of a configuration ({}), a curve is their mean; "
      "loss scales, overflows and gradients are those of one run each.",
      counted(set.runs.size(), "run"),
      set.missing() == 0 ? "" : fmt::format(" ({} of them missing)", set.missing()),
      counted(configurations, "configuration"), counted(set.workloads.size(), "workload"), seeds_text(set));
  std::vector<std::string> left_out;
  if (const std::size_t shown = extent.workloads.size(); shown < set.workloads.size())
    left_out.push_back(fmt::format("{} of {} workloads (the first by name are here)",
                                   set.workloads.size() - shown, set.workloads.size()));
  for (std::size_t w = 0; w < extent.workloads.size(); ++w) {
    const std::size_t all = set.workloads[w].configurations.size(),
                      shown = extent.workloads[w].configurations.size();
    if (shown < all)
      left_out.push_back(
          fmt::format("{} of {} configurations of {} (FP32, its twin, the two best and the "
                      "first of the others are here)",
                      all - shown, all, extent.workloads[w].name));
  }
  for (std::size_t i = 0; i < left_out.size(); ++i) words += (i == 0 ? " Left out: " : "; ") + left_out[i];
  if (!left_out.empty())
    words +=
        ". Verdicts and words take all runs into account; a sweep's summary.csv has a row for every "
        "configuration, and fp16lab report shows those whose run folders it receives.";
  return words;
}

}  // namespace fp16lab::reports
