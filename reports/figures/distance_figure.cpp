#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "numerics/text/text.hpp"
#include "reports/figures/figure_json.hpp"
#include "reports/figures/question_figures.hpp"

namespace fp16lab::reports {
namespace {

/// How each pair looks; colours of Okabe and Ito (2008). The first two have bands over the seeds under all
/// lines.
const OrderedJson& looks() {
  static const OrderedJson all = OrderedJson::parse(R"([
    {"color": "#A0A0A0", "width": 2.2}, {"color": "#000000", "width": 2.2}, {"color": "#D55E00", "width": 1.5},
    {"color": "#0072B2", "width": 1.5}, {"color": "#009E73", "width": 1.5},
    {"color": "#A8457F", "width": 1.5, "dash": [8, 4]}, {"color": "#C98A00", "width": 1.5, "dash": [2, 3]},
    {"color": "#3A9BD6", "width": 1.5, "dash": [1, 3, 6, 3]}])");
  return all;
}
constexpr std::size_t with_bands = 2;
constexpr double least_distance = 2e-8;  ///< where the logarithmic axis begins

/// The curve of one pair over its seeds: geometric means, and where it has a band its ends. Steps with a zero
/// are left out: a logarithmic axis has none.
OrderedJson curve_of(const std::vector<const DistanceRow*>& seeds, std::string_view name, std::size_t pair) {
  OrderedJson points = OrderedJson::array(), low = OrderedJson::array(), high = OrderedJson::array();
  std::size_t steps = 0;
  for (const DistanceRow* seed : seeds) steps = std::max(steps, seed->distances.size());
  for (std::size_t step = 0; step < steps; ++step) {
    double logs = 0, least = INFINITY, most = 0;
    for (const DistanceRow* seed : seeds) {
      const double x = step < seed->distances.size() ? seed->distances[step] : 0;
      logs += std::log(x);
      least = std::min(least, x);
      most = std::max(most, x);
    }
    if (!(least > 0)) continue;
    points.push_back({step, drawn_number(std::exp(logs / static_cast<double>(seeds.size())))});
    low.push_back(drawn_number(least));
    high.push_back(drawn_number(most));
  }
  OrderedJson curve = {{"label", name}, {"points", std::move(points)}};
  if (pair < with_bands) {
    curve["low"] = std::move(low);
    curve["high"] = std::move(high);
    curve["bandOpacity"] = 0.3;
  }
  return curve;
}

}  // namespace

std::string draw_distances(const DistanceFigure& figure, std::span<const DistanceRow> rows,
                           const std::filesystem::path& folder) {
  std::vector<std::string_view> workloads;
  std::vector<std::int64_t> seeds;
  for (const DistanceRow& row : rows) {
    if (std::ranges::find(workloads, row.workload) == workloads.end()) workloads.push_back(row.workload);
    if (std::ranges::find(seeds, row.seed) == seeds.end()) seeds.push_back(row.seed);
  }
  if (rows.empty()) return {};
  OrderedJson panels = OrderedJson::array(), styles;
  for (std::size_t pair = 0; pair < figure.pairs.size(); ++pair)
    styles[std::string(figure.pairs[pair])] = looks().at(pair);
  for (const std::string_view workload : workloads) {
    OrderedJson series = OrderedJson::array();
    for (std::size_t pair = 0; pair < figure.pairs.size(); ++pair) {
      std::vector<const DistanceRow*> own;
      for (const DistanceRow& row : rows)
        if (row.workload == workload && row.pair == pair) own.push_back(&row);
      if (!own.empty()) series.push_back(curve_of(own, figure.pairs[pair], pair));
    }
    panels.push_back({{"kind", "plot"},
                      {"title", workload},
                      {"series", std::move(series)},
                      {"x", {{"title", "step"}, {"form", "count"}}},
                      {"y",
                       {{"title", "relative distance of the weights"},
                        {"log", true},
                        {"low", least_distance},
                        {"high", 1}}}});
  }
  return draw_figure(
      {{"stem", "distances"},
       {"title", figure.title},
       {"caption",
        fmt::format(
            "The relative distance of the weights of two training runs that differ in one thing only: "
            "the mean and, shaded, the band of {}.",
            counted(seeds.size(), "seed"))},
       {"columns", 2},
       {"styles", std::move(styles)},
       {"panels", std::move(panels)}},
      folder);
}

}  // namespace fp16lab::reports
