// A replay's part of the page's JSON: paths of scales as changes.
#include <cmath>
#include <nlohmann/json.hpp>

#include "reports/data/league.hpp"
#include "reports/data/run_config.hpp"
#include "reports/figures/figure_style.hpp"
#include "reports/page/page_json.hpp"
#include "reports/page/page_sections.hpp"

namespace fp16lab::reports {
namespace {

/// [[step, log2 of the scale], ...]; three decimals are a thousandth of an octave.
OrderedJson path_json(const ScaleTrace& path) {
  OrderedJson array = OrderedJson::array();
  for (const ScaleTrace::Change& change : path.changes)
    array.push_back(OrderedJson::array({change.step, std::round(change.scale * 1000) / 1000}));
  return array;
}

OrderedJson skips_json(const ScaleTrace& path) {
  OrderedJson array = OrderedJson::array();
  for (const ScaleTrace::Change& skip : path.skipped) array.push_back(skip.step);
  return array;
}

}  // namespace

OrderedJson replay_json(const ReplayFile& replay, const PageDetail& detail) {
  OrderedJson policies = OrderedJson::array(), league = OrderedJson::array();
  const auto bounds = [](double lower, double upper) {
    return OrderedJson::array({number_or_null(lower), number_or_null(upper)});
  };
  for (const std::size_t i : league_order(replay)) {
    const ReplayedPolicy& policy = replay.policies[i];
    const ReplayPaths paths = replay_paths(policy, detail.trace_points);
    OrderedJson json = {
        {"label", pretty(policy.label)}, {"per_layer", policy.per_layer}, {"lower", path_json(paths.lower)}};
    // Equal paths are one.
    if (!paths.one) json["upper"] = path_json(paths.upper);
    json["skipped"] = skips_json(paths.lower);
    if (policy.skipped_lower != policy.skipped_upper) json["possible"] = skips_json(paths.upper);
    policies.push_back(std::move(json));
    league.push_back({{"label", pretty(policy.label)},
                      {"yardstick", is_yardstick(policy)},
                      {"skips", bounds(policy.skips.lower, policy.skips.upper)},
                      {"lost", bounds(100 * policy.lost_l1.lower, 100 * policy.lost_l1.upper)},
                      {"angle", bounds(1 - policy.cosine.upper, 1 - policy.cosine.lower)}});
  }
  const auto band = [&](const std::vector<double>& scales) {
    return path_json(band_path(replay.band.steps, scales, detail.trace_points / 4));
  };
  return {{"run", replay.run},
          {"slug", slug(replay.run)},
          {"first", 1},
          {"last", replay.total_steps},
          {"highest", band(replay.band.log2_highest)},
          {"one_percent", band(replay.band.log2_one_percent)},
          {"policies", std::move(policies)},
          {"league", std::move(league)},
          {"section", league_json(replay)}};
}

}  // namespace fp16lab::reports
