#include "experiments/policy_league/league.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <stdexcept>
#include <utility>

#include "experiments/app/replay/replay.hpp"
#include "experiments/app/sweep/summary_output.hpp"
#include "experiments/study/judged_sweep.hpp"

namespace fp16lab::experiments {
namespace {

struct Correlations {
  std::optional<double> a, b;
  std::optional<double> difference() const { return a && b ? std::optional(*b - *a) : std::nullopt; }
};

Correlations correlations(std::span<const PredictedPoint> points, std::optional<std::size_t> without = {}) {
  std::vector<double> a, b, outcome;
  for (const PredictedPoint& point : points) {
    if (point.group == without) continue;
    a.push_back(point.a);
    b.push_back(point.b);
    outcome.push_back(point.outcome);
  }
  return {rank_correlation(a, outcome), rank_correlation(b, outcome)};
}

/// Differences of the final test loss, whatever the workload is judged by.
analysis::PairedSample loss_pairs(reports::SummaryRow variant, reports::SummaryRow reference) {
  variant.final_values = variant.final_losses;
  reference.final_values = reference.final_losses;
  return reports::pairs_of({.name = "test loss", .quantity = reports::Quantity::loss}, variant, reference);
}

std::size_t tests_of(const JudgedSweep& sweep) {
  std::set<std::uint64_t> bits;
  std::size_t tests = 0;
  for (const reports::WorkloadSummary& workload : sweep.workloads())
    for (const reports::SummaryRow& row : workload.rows)
      if (row.against_reference && row.against_reference->p_differs)
        tests += row.bits == 0 || bits.insert(row.bits).second ? 1 : 0;
  return tests;
}

/// "classifier, the same runs bit for bit: policy-torch, policy-paddle": a line for each such group.
std::string same_runs(const reports::WorkloadSummary& workload) {
  std::map<std::uint64_t, std::vector<std::string>> names;
  for (const reports::SummaryRow& row : workload.rows)
    if (row.bits != 0) names[row.bits].push_back(row.label);
  std::string text;
  for (const reports::SummaryRow& row : workload.rows)  // in the rows' order
    if (const auto& same = names[row.bits]; same.size() > 1 && same.front() == row.label)
      text += fmt::format("{}, the same runs bit for bit: {}\n", workload.name, fmt::join(same, ", "));
  return text;
}

ReplayOptions replay_options(bool quick) {
  ReplayOptions options;
  options.contestants = {.policies = league_policies(quick), .settings = {}, .interval = league_interval};
  return options;
}

void add(ReplayInterval& sum, const ReplayInterval& more, double weight) {
  sum.lower += weight * more.lower;
  sum.upper += weight * more.upper;
}

}  // namespace

const LeagueRow& League::row(std::string_view workload, std::string_view policy) const {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const LeagueRow& row) {
    return row.workload == workload && row.policy == policy;
  });
  if (found == rows.end()) throw std::out_of_range("the league has no such row");
  return *found;
}

std::optional<double> FixedScale::excess() const {
  if (differences.empty() || diverged > 0) return std::nullopt;
  return analysis::percent_of(std::accumulate(differences.begin(), differences.end(), 0.0) /
                              static_cast<double>(differences.size()));
}

std::optional<analysis::Interval> FixedScale::interval() const {
  return analysis::percent_of(analysis::mean_interval(differences));
}

League measure_league(const SweepPlan& plan, bool quick) {
  const JudgedSweep sweep(plan);
  League league{.tests = tests_of(sweep), .table = sweep.table(), .csv = summary_csv(sweep.workloads())};
  for (const reports::WorkloadSummary& summary : sweep.workloads()) {
    const std::string& workload = summary.name;
    league.workloads.push_back(workload);
    league.table += same_runs(summary);
    const std::size_t first = league.rows.size();
    for (const std::string& policy : league_policies(quick))
      league.rows.push_back({.workload = workload,
                             .policy = policy,
                             .trained = {summary.metric, sweep.row(workload, policy_variant(policy))}});
    const std::size_t first_fixed = league.fixed.size();
    const reports::SummaryRow& reference = sweep.row(workload, league_reference);
    for (const int scale : league_scales(quick)) {
      const reports::SummaryRow& row = sweep.row(workload, scale_variant(scale));
      analysis::PairedSample pairs = loss_pairs(row, reference);
      league.fixed.push_back({.workload = workload,
                              .log2_scale = scale,
                              .differences = std::move(pairs.differences),
                              .steps = row.steps,
                              .skipped = row.skipped,
                              .diverged = pairs.diverged});
    }
    std::vector<const PlannedRun*> replayed;
    for (const PlannedRun& run : plan.runs)
      if (run.workload == workload && run.variant == league_reference && is_done(run))
        replayed.push_back(&run);
    const double seeds = static_cast<double>(replayed.size());
    for (const PlannedRun* const run : replayed) {
      const ReplayFile replay = replay_run(run->folder, replay_options(quick));
      league.replayed_steps += replay.total_steps;
      for (const ReplayedPolicy& policy : replay.policies)
        for (std::size_t i = first; i < league.rows.size(); ++i)
          if (league.rows[i].policy == policy.name) league.rows[i].replays.push_back(policy);
      ReplayOptions own;
      own.contestants = {
          .policies = {std::string(league_ours), std::string(league_peer)}, .settings = {}, .interval = {}};
      own.oracle = false;
      for (const ReplayedPolicy& policy : replay_run(run->folder, own).policies)
        for (std::size_t i = first; i < league.rows.size(); ++i)
          if (league.rows[i].policy == policy.name) league.rows[i].own_replays.push_back(policy);
      league.allowed.push_back({.workload = workload,
                                .seed = static_cast<std::int64_t>(run->config.train.seed),
                                .band = replay.band});
      for (std::size_t i = first_fixed; i < league.fixed.size(); ++i) {
        FixedScale& fixed = league.fixed[i];
        ReplayOptions options;
        options.contestants = {.policies = {"fixed"},
                               .settings = {"fixed.initial_scale=2^" + std::to_string(fixed.log2_scale)},
                               .interval = {}};
        options.oracle = false;
        const ReplayedPolicy row = replay_run(run->folder, options).policies.at(0);
        add(fixed.lost_count, row.lost_count, 1 / seeds);
        add(fixed.lost_l1, row.lost_l1, 1 / seeds);
        add(fixed.lost_l2, row.lost_l2, 1 / seeds);
      }
    }
  }
  return league;
}

std::vector<double> ranks(std::span<const double> values) {
  if (std::any_of(values.begin(), values.end(), [](double value) { return std::isnan(value); }))
    throw std::invalid_argument("ranks: a value is NaN, which has no rank");
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [values](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> result(values.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    // Ranks begin + 1 ... end, whose mean is:
    const double mean = 0.5 * static_cast<double>(begin + 1 + end);
    for (; begin < end; ++begin) result[order[begin]] = mean;
  }
  return result;
}

std::optional<double> rank_correlation(std::span<const double> x, std::span<const double> y) {
  if (x.size() != y.size()) throw std::invalid_argument("rank_correlation: sides of different length");
  if (x.size() < 3) return std::nullopt;
  const std::vector<double> a = ranks(x), b = ranks(y);
  const double mean = 0.5 * static_cast<double>(x.size() + 1);
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean) * (b[i] - mean);
    aa += (a[i] - mean) * (a[i] - mean);
    bb += (b[i] - mean) * (b[i] - mean);
  }
  if (aa == 0 || bb == 0) return std::nullopt;
  return ab / std::sqrt(aa * bb);
}

PredictorContest contest(std::span<const PredictedPoint> points) {
  std::set<std::size_t> groups;
  for (const PredictedPoint& point : points) groups.insert(point.group);
  const Correlations all = correlations(points);
  PredictorContest result{.groups = groups.size(), .by_a = all.a, .by_b = all.b};
  if (!all.difference() || groups.size() < analysis::fewest_pairs) return result;
  const auto n = static_cast<double>(groups.size());
  std::vector<double> pseudo_values;
  for (const std::size_t group : groups) {
    const std::optional<double> others = correlations(points, group).difference();
    if (!others) return result;
    pseudo_values.push_back(n * *all.difference() - (n - 1) * *others);
  }
  result.difference = analysis::mean_interval(pseudo_values);
  return result;
}

}  // namespace fp16lab::experiments
