#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "engine/amp/policy.hpp"
#include "experiments/app/replay/replay.hpp"
#include "experiments/policy_league/league.hpp"
#include "reports/figures/question_figures.hpp"

namespace fp16lab::experiments {
namespace {

constexpr std::array<const char*, 5> headings = {"replayed", "growth interval", "skips", "lost L1 %",
                                                 "final scale"};
using Cells = std::array<std::string, headings.size()>;
using Replays = std::vector<ReplayedPolicy>;

ReplayInterval total_skips(const Replays& replays) {
  ReplayInterval sum;
  for (const ReplayedPolicy& replay : replays) {
    sum.lower += replay.skips.lower;
    sum.upper += replay.skips.upper;
  }
  return sum;
}

ReplayInterval mean_lost_l1(const Replays& replays) {
  ReplayInterval mean;
  for (const ReplayedPolicy& replay : replays) {
    mean.lower += replay.lost_l1.lower / static_cast<double>(replays.size());
    mean.upper += replay.lost_l1.upper / static_cast<double>(replays.size());
  }
  return mean;
}

bool was_replayed(const Replays& replays) { return !replays.empty() && replays.front().replayed; }

/// "20", "" for a policy that counts no clean steps.
std::string growth_interval(const Replays& replays) {
  for (const auto& [name, value] : replays.front().parameters)
    if (name == "growth_interval") return fmt::format("{:g}", value);
  return "";
}

Cells cells_of(const std::string& policy, const Replays& replays) {
  double lower = std::numeric_limits<double>::infinity(), upper = -lower;
  for (const ReplayedPolicy& replay : replays) {
    lower = std::min(lower, replay.log2_scale_lower.back());
    upper = std::max(upper, replay.log2_scale_upper.back());
  }
  return {policy, growth_interval(replays), interval_text(total_skips(replays)),
          percent_text(mean_lost_l1(replays)), log2_range_text(lower, upper)};
}

std::string bounds(const ReplayInterval& interval) {
  return fmt::format("{},{}", interval.lower, interval.upper);
}

}  // namespace

std::string league_text(const League& league) {
  std::string text;
  for (const std::string& workload : league.workloads) {
    std::vector<Cells> rows{Cells{}};
    std::copy(headings.begin(), headings.end(), rows.front().begin());
    std::size_t seeds = 0;
    for (const LeagueRow& row : league.rows) {
      if (row.workload != workload) continue;
      for (const Replays* const replays : {&row.replays, &row.own_replays})
        if (was_replayed(*replays)) rows.push_back(cells_of(row.policy, *replays));
      seeds = std::max(seeds, row.replays.size());
    }
    std::array<std::size_t, headings.size()> widths{};
    for (const Cells& row : rows)
      for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    text += fmt::format("{}: replayed on {} FP32 runs; skips are their sums\n", workload, seeds);
    for (const Cells& row : rows) {
      text += fmt::format("  {:<{}}", row[0], widths[0]);
      for (std::size_t i = 1; i < row.size(); ++i) text += fmt::format("  {:>{}}", row[i], widths[i]);
      text += '\n';
    }
    text += '\n';
  }
  return text + "trained anew\n\n" + league.table +
         fmt::format("{} pairs of all that were trained have bits of their own and a test: the family\n",
                     league.tests);
}

std::string replays_csv(const League& league) {
  std::string text =
      "workload,policy,growth_interval,seeds,exact,skips_lower,skips_upper,lost_l1_lower,lost_l1_upper\n";
  for (const LeagueRow& row : league.rows)
    for (const Replays* const replays : {&row.replays, &row.own_replays}) {
      if (!was_replayed(*replays)) continue;
      const bool exact = std::all_of(replays->begin(), replays->end(),
                                     [](const ReplayedPolicy& replay) { return replay.exact; });
      text += fmt::format("{},{},{},{},{},{},{}\n", row.workload, row.policy, growth_interval(*replays),
                          replays->size(), exact ? 1 : 0, bounds(total_skips(*replays)),
                          bounds(mean_lost_l1(*replays)));
    }
  return text;
}

std::string fixed_csv(const League& league) {
  std::string text =
      "workload,log2_scale,lost_count_lower,lost_count_upper,replay_lost_l1_lower,replay_lost_l1_upper,"
      "lost_l2_lower,lost_l2_upper,steps,skipped,diverged,loss_difference_percent,lower,upper\n";
  for (const FixedScale& fixed : league.fixed) {
    const auto interval = fixed.interval();
    text +=
        fmt::format("{},{},{},{},{},{},{},{},{},{}\n", fixed.workload, fixed.log2_scale,
                    bounds(fixed.lost_count), bounds(fixed.lost_l1), bounds(fixed.lost_l2), fixed.steps,
                    fixed.skipped, fixed.diverged, fixed.excess() ? fmt::format("{}", *fixed.excess()) : "",
                    interval ? fmt::format("{},{}", interval->lower, interval->upper) : ",");
  }
  return text;
}

std::string draw_league(const League& league, const std::filesystem::path& folder) {
  std::vector<reports::AllowedScaleRow> allowed;
  for (const AllowedScales& run : league.allowed) allowed.push_back({run.workload, run.band});
  std::string problem = reports::draw_highest_scales(league.workloads, allowed, folder);
  if (!problem.empty()) return problem;
  std::vector<reports::LossCostRow> costs;
  for (const FixedScale& fixed : league.fixed) {
    if (!fixed.excess() || fixed.overflows()) continue;
    const auto percent = [](const ReplayInterval& share) { return 50 * (share.lower + share.upper); };
    // Without an interval (fewer than two seeds) the bar has no length.
    costs.push_back(
        {.workload = fixed.workload,
         .lost_values = percent(fixed.lost_count),
         .lost_l1 = percent(fixed.lost_l1),
         .excess = *fixed.excess(),
         .interval = fixed.interval().value_or(analysis::Interval{*fixed.excess(), *fixed.excess()}),
         .log2_scale = fixed.log2_scale});
  }
  return reports::draw_prediction(league.workloads, costs, folder);
}

}  // namespace fp16lab::experiments
