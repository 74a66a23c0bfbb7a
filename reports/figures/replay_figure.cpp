#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "reports/data/league.hpp"
#include "reports/data/run_config.hpp"
#include "reports/figures/figure_json.hpp"
#include "reports/figures/question_figures.hpp"

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

OrderedJson traces_figure(const ReplayFile& replay, std::size_t stretches) {
  OrderedJson policies = OrderedJson::array();
  for (const std::size_t i : league_order(replay)) {
    const ReplayedPolicy& policy = replay.policies[i];
    const ReplayPaths paths = replay_paths(policy, stretches);
    OrderedJson json = {
        {"label", pretty(policy.label)}, {"per_layer", policy.per_layer}, {"lower", path_json(paths.lower)}};
    // Equal paths are one.
    if (!paths.one) json["upper"] = path_json(paths.upper);
    json["skipped"] = skips_json(paths.lower);
    if (policy.skipped_lower != policy.skipped_upper) json["possible"] = skips_json(paths.upper);
    policies.push_back(std::move(json));
  }
  if (policies.empty()) return nullptr;
  const auto band = [&](const std::vector<double>& scales) {
    return path_json(band_path(replay.band.steps, scales, stretches / 4));
  };
  return {{"title", fmt::format("What every policy’s loss scale would have been, {}", replay.run)},
          {"subject", replay.run},
          {"caption",
           "Crosses below the axis are skipped steps, rings are steps that may be skipped. Shaded are the "
           "scales that the run allowed, from the smallest that loses at most 1 % of the L1 norm to the "
           "largest that cannot overflow. Where there are two lines the scale is between them, or they are "
           "the scales of the tensors of a policy that moves them apart."},
          {"width", 1040},
          {"panels",
           {{{"kind", "traces"},
             {"first", 1},
             {"last", replay.total_steps},
             {"highest", band(replay.band.log2_highest)},
             {"one_percent", band(replay.band.log2_one_percent)},
             {"policies", std::move(policies)}}}}};
}

std::string draw_replay(const ReplayFile& replay, const std::filesystem::path& folder) {
  OrderedJson figure = traces_figure(replay);
  if (figure.is_null()) return {};
  figure["stem"] = "replay";
  return draw_figure(figure, folder);
}

}  // namespace fp16lab::reports
