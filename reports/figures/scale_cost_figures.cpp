#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "numerics/text/text.hpp"
#include "reports/figures/figure_json.hpp"
#include "reports/figures/question_figures.hpp"

namespace fp16lab::reports {

std::string draw_highest_scales(std::span<const std::string> workloads, std::span<const AllowedScaleRow> rows,
                                const std::filesystem::path& folder) {
  OrderedJson panels = OrderedJson::array();
  for (const std::string& workload : workloads) {
    struct OverSeeds {
      double least, sum, most;
      int seeds;
    };
    std::map<std::uint64_t, OverSeeds> steps;
    std::size_t seeds = 0;
    for (const AllowedScaleRow& allowed : rows) {
      if (allowed.workload != workload || allowed.band.steps.empty()) continue;
      ++seeds;
      for (std::size_t i = 0; i < allowed.band.steps.size(); ++i) {
        const double scale = allowed.band.log2_highest[i];
        OverSeeds& step =
            steps.try_emplace(allowed.band.steps[i], OverSeeds{scale, 0, scale, 0}).first->second;
        step.least = std::min(step.least, scale);
        step.most = std::max(step.most, scale);
        step.sum += scale;
        ++step.seeds;
      }
    }
    if (steps.empty()) continue;
    OrderedJson mean = OrderedJson::array(), low = OrderedJson::array(), high = OrderedJson::array();
    for (const auto& [step, over] : steps) {
      mean.push_back({step, drawn_number(over.sum / over.seeds)});
      low.push_back(over.least);
      high.push_back(over.most);
    }
    panels.push_back({{"kind", "plot"},
                      {"title", fmt::format("{} ({})", workload, counted(seeds, "seed"))},
                      {"x", {{"title", "step"}, {"form", "count"}}},
                      {"y", {{"title", "largest scale without overflow"}, {"form", "power2"}}},
                      {"series", OrderedJson::array({{{"points", std::move(mean)},
                                                      {"low", std::move(low)},
                                                      {"high", std::move(high)}}})}});
  }
  if (panels.empty()) return {};
  return draw_figure(
      {{"stem", "highest-scale"},
       {"title", "Largest power of two without overflow, step by step (FP32 runs)"},
       {"caption", "A line is the mean over seeds, a band goes from the smallest to the largest of them."},
       {"columns", std::min<std::size_t>(panels.size(), 2)},
       {"panels", std::move(panels)}},
      folder);
}

std::string draw_prediction(std::span<const std::string> workloads, std::span<const LossCostRow> rows,
                            const std::filesystem::path& folder) {
  // A logarithmic axis has no zero: nothing lost is drawn at its left end.
  constexpr double floor = 1e-10;
  constexpr std::array marks{"dot", "square", "triangle", "ring", "cross"};
  constexpr std::array colors{"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9"};  // Okabe and Ito 2008
  OrderedJson styles = OrderedJson::object();
  const auto panel = [&](std::string_view axis, double LossCostRow::*lost) {
    OrderedJson series = OrderedJson::array();
    for (const std::string& workload : workloads) {
      OrderedJson points = OrderedJson::array(), intervals = OrderedJson::array();
      for (const LossCostRow& row : rows) {
        if (row.workload != workload) continue;
        const double x = std::max(floor, row.*lost);
        points.push_back({x, row.excess});
        intervals.push_back({x, row.interval.lower, x, row.interval.upper});
      }
      if (points.empty()) continue;
      styles[workload] = {{"color", colors[series.size() % colors.size()]},
                          {"width", 1.3},
                          {"thick", 1},
                          {"mark", marks[series.size() % marks.size()]}};
      series.push_back(
          {{"label", workload}, {"points", std::move(points)}, {"segments", std::move(intervals)}});
    }
    return OrderedJson{
        {"kind", "plot"},
        {"title", axis},
        {"height", 360},
        {"series", std::move(series)},
        {"x", {{"title", "share of non-zero gradients, %"}, {"log", true}, {"low", floor}, {"high", 100}}},
        {"y", {{"title", "final test loss above FP32, %"}}}};
  };
  OrderedJson panels = OrderedJson::array({panel("values that become zero", &LossCostRow::lost_values),
                                           panel("their L1 norm", &LossCostRow::lost_l1)});
  if (panels[0]["series"].empty()) return {};
  return draw_figure(
      {{"stem", "what-predicts-the-loss"},
       {"title", "Fixed scales: what was lost, and what it cost"},
       {"caption", "Vertical lines are 95 % over seeds. Scales that lost nothing are at the left edge."},
       {"columns", 2},
       {"styles", std::move(styles)},
       {"panels", std::move(panels)}},
      folder);
}

}  // namespace fp16lab::reports
