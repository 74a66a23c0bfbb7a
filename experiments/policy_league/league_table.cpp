#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "analysis/comparison.hpp"
#include "experiments/policy_league/league.hpp"
#include "experiments/replay/replay_output.hpp"

namespace fp16lab::experiments {
namespace {

constexpr std::array<const char*, 10> headings = {"policy",        "skips",     "lost L1 %", "final scale",
                                                  "skips",         "lost L1 %", "loss",      "vs FP32",
                                                  "95 % of pairs", "ms/step"};
using Cells = std::array<std::string, headings.size()>;

ReplayInterval total_skips(const LeagueRow& row) {
  ReplayInterval sum;
  for (const ReplayedPolicy& replay : row.replays) {
    sum.lower += replay.skips.lower;
    sum.upper += replay.skips.upper;
  }
  return sum;
}

ReplayInterval mean_lost_l1(const LeagueRow& row) {
  ReplayInterval mean;
  for (const ReplayedPolicy& replay : row.replays) {
    mean.lower += replay.lost_l1.lower / static_cast<double>(row.replays.size());
    mean.upper += replay.lost_l1.upper / static_cast<double>(row.replays.size());
  }
  return mean;
}

bool was_replayed(const LeagueRow& row) { return !row.replays.empty() && row.replays.front().replayed; }

Cells cells_of(const LeagueRow& row) {
  Cells cells;
  cells.fill("-");
  cells[0] = row.policy;
  if (was_replayed(row)) {
    cells[1] = interval_text(total_skips(row));
    cells[2] = percent_text(mean_lost_l1(row));
    double lower = std::numeric_limits<double>::infinity(), upper = -lower;
    for (const ReplayedPolicy& replay : row.replays) {
      lower = std::min(lower, replay.log2_scale_lower.back());
      upper = std::max(upper, replay.log2_scale_upper.back());
    }
    cells[3] = scale_text(lower, upper);
  }
  const TrainedRuns& trained = row.trained;
  if (trained.complete == 0) {
    cells[6] = "no run";
    return cells;
  }
  cells[4] = fmt::format("{}", trained.skipped);
  if (trained.lost_l1) cells[5] = percent_text({*trained.lost_l1, *trained.lost_l1});
  const analysis::Quality quality = analysis::quality_of(trained.final_losses);
  cells[6] = quality.non_finite > 0 ? fmt::format("{} diverged", quality.non_finite)
                                    : fmt::format("{:.5g}", quality.mean);
  if (row.policy != league_reference && quality.non_finite == 0) {
    cells[7] = fmt::format("{:+.2f} %", analysis::quality_of(trained.differences).mean);
    if (trained.paired)
      cells[8] = fmt::format("[{:+.2f}, {:+.2f}] %", trained.paired->lower, trained.paired->upper);
  }
  cells[9] = fmt::format("{:.2f}", 1e3 * trained.seconds_per_step);
  return cells;
}

std::string bounds(const ReplayInterval& interval) {
  return fmt::format("{},{}", interval.lower, interval.upper);
}

std::string trained_csv(const TrainedRuns& trained) {
  const analysis::Quality quality = analysis::quality_of(trained.final_losses);
  const auto number = [](double x) { return std::isfinite(x) ? fmt::format("{}", x) : std::string("nan"); };
  const auto known = [&](const std::optional<double>& x) { return x ? number(*x) : std::string(); };
  return fmt::format(
      "{},{},{},{},{},{},{},{},{},{},{},{}", trained.complete, quality.non_finite, trained.steps,
      trained.skipped, known(trained.underflow), known(trained.lost_l1), number(quality.mean),
      number(quality.minimum), number(quality.maximum),
      trained.differences.empty() ? "" : number(analysis::quality_of(trained.differences).mean),
      trained.paired ? fmt::format("{},{}", trained.paired->lower, trained.paired->upper) : ",",
      number(trained.seconds_per_step));
}

constexpr const char* trained_columns =
    "runs,diverged,steps,skipped,underflow,lost_l1,loss_mean,loss_min,loss_max,difference_percent,paired_"
    "lower,"
    "paired_upper,seconds_per_step";

}  // namespace

std::string league_text(const League& league) {
  std::string text;
  for (const std::string& workload : league.workloads) {
    std::vector<Cells> rows{Cells{}};
    std::copy(headings.begin(), headings.end(), rows.front().begin());
    int seeds = 0;
    for (const LeagueRow& row : league.rows) {
      if (row.workload != workload) continue;
      rows.push_back(cells_of(row));
      seeds = std::max(seeds, row.trained.complete);
    }
    std::array<std::size_t, headings.size()> widths{};
    for (const Cells& row : rows)
      for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    const std::size_t replayed = widths[1] + widths[2] + widths[3] + 4;
    text += fmt::format("{}{} ({} seeds; skips are sums)\n{:<{}}  {:-^{}}  trained anew\n",
                        text.empty() ? "" : "\n", workload, seeds, "", widths[0], " replayed ", replayed);
    for (const Cells& row : rows) {
      text += fmt::format("{:<{}}", row[0], widths[0]);
      for (std::size_t i = 1; i < row.size(); ++i) text += fmt::format("  {:>{}}", row[i], widths[i]);
      text += '\n';
    }
  }
  return text;
}

std::string league_csv(const League& league) {
  std::string text = fmt::format(
      "workload,policy,replayed,exact,replay_skips_lower,replay_skips_upper,replay_lost_l1_lower,replay_lost_"
      "l1_upper,"
      "{}\n",
      trained_columns);
  for (const LeagueRow& row : league.rows) {
    const bool replayed = was_replayed(row);
    const bool exact = std::all_of(row.replays.begin(), row.replays.end(),
                                   [](const ReplayedPolicy& replay) { return replay.exact; });
    text += fmt::format("{},{},{},{},{},{},{}\n", row.workload, row.policy, replayed ? 1 : 0,
                        replayed && exact ? 1 : 0, replayed ? bounds(total_skips(row)) : ",",
                        replayed ? bounds(mean_lost_l1(row)) : ",", trained_csv(row.trained));
  }
  return text;
}

std::string fixed_csv(const League& league) {
  std::string text = fmt::format(
      "workload,log2_scale,lost_count_lower,lost_count_upper,replay_lost_l1_lower,replay_lost_l1_upper,lost_"
      "l2_lower,"
      "lost_l2_upper,{}\n",
      trained_columns);
  for (const FixedScale& fixed : league.fixed)
    text += fmt::format("{},{},{},{},{},{}\n", fixed.workload, fixed.log2_scale, bounds(fixed.lost_count),
                        bounds(fixed.lost_l1), bounds(fixed.lost_l2), trained_csv(fixed.trained));
  return text;
}

}  // namespace fp16lab::experiments
