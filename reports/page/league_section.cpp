#include "reports/page/page_sections.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "numerics/text/scale_text.hpp"
#include "reports/data/league.hpp"
#include "reports/data/run_config.hpp"
#include "reports/page/marked.hpp"
#include "reports/page/table.hpp"

namespace fp16lab::reports {
namespace {

std::string count_text(const ReplayInterval& count) {
  return count.exact() ? fmt::format("{}", count.lower) : fmt::format("{}–{}", count.lower, count.upper);
}

std::string log2_scale_text(const ReplayedPolicy& policy) {
  if (policy.log2_scale_lower.empty()) return "–";
  const double low = policy.log2_scale_lower.back(), high = policy.log2_scale_upper.back();
  const auto power = [](double k) {
    return k == std::floor(k) ? pretty(scale_text(std::exp2(k))) : fmt::format("{:.6g}", std::exp2(k));
  };
  return low == high ? power(low) : power(low) + "–" + power(high);
}

std::string parameters_text(const ReplayedPolicy& policy) {
  std::string text = policy.name == policy.label ? "" : policy.name;
  for (const auto& [name, value] : policy.parameters)
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", name, value);
  if (!policy.source.empty()) text += fmt::format("{}source: {}", text.empty() ? "" : "; ", policy.source);
  return text;
}

/// Unlike the rates of histograms these separate policies by their smallness: "1.2e-05 %", not "< 0.01 %".
std::string percent_text(double rate) {
  const double percent = 100 * rate;
  if (percent == 0 || percent >= 99.95)
    return percent == 0 ? "0" : rate == 1 ? "100" : fmt::format("{:.4g}", percent);
  return percent < 0.01 ? fmt::format("{:.1e}", percent) : fmt::format("{:.2g}", percent);
}

TableCell share(const ReplayInterval& rate) {
  const std::string lower = percent_text(rate.lower), upper = percent_text(rate.upper);
  return {(lower == upper ? upper : lower + "–" + upper) + " %", rate.upper};
}

OrderedJson league_table(const ReplayFile& replay) {
  const std::vector<TableColumn> columns{
      {"policy", "The rule that moves the loss scale; hover for its parameters and source.", true},
      {"skips", "Skipped steps."},
      {"wasted", "Steps skipped, or without any non-zero weight gradient, or after the policy’s stop."},
      {"unused",
       "Share of the gradients’ L1 mass that no update used, with every step counted equally: a skipped step "
       "loses all of it, other steps what rounds to zero."},
      {"lost values", "Share of all non-zero gradients that round to zero, over the steps not skipped."},
      {"lost L1", "The same for the sum of magnitudes."},
      {"lost L2", "The same for the root of the sum of squares."},
      {"1 − cosine", "Upper bound of the angle between the gradients and what their formats keep of them."},
      {"last scale", "The loss scale at the end, or the range that histograms leave open."}};
  const std::vector<bool> front = league_front(replay);
  std::vector<TableRow> rows;
  for (const std::size_t i : league_order(replay)) {
    const ReplayedPolicy& policy = replay.policies[i];
    const std::string parameters = parameters_text(policy);
    std::string name =
        parameters.empty() ? plain(pretty(policy.label)) : explained(plain(pretty(policy.label)), parameters);
    if (front[i]) name += " " + explained("◆", "No other policy has both fewer skips and less lost L1.");
    if (!policy.note.empty()) name += "\n" + soft(plain(policy.note));
    const auto known = [&policy](TableCell cell) {
      return policy.any_applied ? std::move(cell) : TableCell{"–"};
    };
    TableRow row{
        {{name},
         {count_text(policy.skips), policy.skips.upper},
         {count_text(policy.wasted_steps), policy.wasted_steps.upper},
         share(unused_share(policy, replay.total_steps)),
         known(share(policy.lost_count)),
         known(share(policy.lost_l1)),
         known(share(policy.lost_l2)),
         known({fmt::format("{:.2g}", 1 - policy.cosine.lower), 1 - policy.cosine.lower}),
         {log2_scale_text(policy),
          policy.log2_scale_upper.empty() ? std::optional<double>() : policy.log2_scale_upper.back()}},
        is_yardstick(policy)};
    rows.push_back(std::move(row));
  }
  return table_json("Policies replayed: " + replay.run, columns, rows);
}

}  // namespace

OrderedJson league_json(const ReplayFile& replay) {
  OrderedJson left_out = OrderedJson::array(), notes = OrderedJson::array(), bounds = OrderedJson::array();
  for (const ReplayedPolicy& policy : replay.policies)
    if (!policy.replayed) left_out.push_back(plain(fmt::format("{}: {}", policy.label, policy.note)));
  for (const std::string& note : replay.notes) notes.push_back(plain(note));
  const auto ends = [](double lower, double upper) {
    return OrderedJson::array({number_or_null(lower), number_or_null(upper)});
  };
  for (const std::size_t i : league_order(replay)) {
    const ReplayedPolicy& policy = replay.policies[i];
    bounds.push_back({{"label", pretty(policy.label)},
                      {"yardstick", is_yardstick(policy)},
                      {"skips", ends(policy.skips.lower, policy.skips.upper)},
                      {"lost", ends(100 * policy.lost_l1.lower, 100 * policy.lost_l1.upper)},
                      {"angle", ends(1 - policy.cosine.upper, 1 - policy.cosine.lower)}});
  }
  return {{"words",
           plain(fmt::format("Every loss-scale policy over the recorded gradients of {}: {} steps, {} of "
                             "them with histograms. {} A replay is not a training run: another scale would "
                             "have skipped other steps, and so changed the weights and every later gradient.",
                             replay.workload, replay.total_steps, replay.observed_steps,
                             replay.exact ? "All numbers are exact."
                                          : "Where histograms leave something open, both ends are given."))},
          {"table", league_table(replay)},
          {"left_out", std::move(left_out)},
          {"notes", std::move(notes)},
          {"bounds", std::move(bounds)}};
}

}  // namespace fp16lab::reports
