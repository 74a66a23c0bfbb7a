#include "experiments/policy_league/league.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>
#include <utility>

#include "experiments/replay/replay.hpp"
#include "numerics/cast_counts.hpp"
#include "numerics/files/run_folder.hpp"
#include "numerics/range_mass.hpp"

namespace fp16lab::experiments {
namespace {

using RunKey = std::pair<std::string, std::int64_t>;  ///< workload, seed

/// What the casts of a run lost of the gradients that it counted; its mass from the counts before them.
struct Counted {
  CastCounts casts;
  MassInterval lost_l1, kept_l1;
};

Counted count_run(const std::filesystem::path& folder) {
  Counted counted;
  for_each_histogram(folder, [&counted](const HistogramRow& row) {
    const std::optional<CastCounts> casts = cast_counts(row.dtype, row.before, row.after);
    if (!casts) return;
    counted.casts += *casts;
    const RangeMass mass = range_mass(row.before, range_of(row.dtype), 1.0);
    const double scale = row.loss_scale;
    counted.lost_l1 = counted.lost_l1 + MassInterval{mass.lost_l1.lower / scale, mass.lost_l1.upper / scale};
    counted.kept_l1 = counted.kept_l1 + MassInterval{mass.kept_l1.lower / scale, mass.kept_l1.upper / scale};
  });
  return counted;
}

double final_loss(const RunFolder& run) {
  return run.finished() && !run.evaluations.empty() ? run.evaluations.back().loss
                                                    : std::numeric_limits<double>::infinity();
}

class Measurement {
 public:
  explicit Measurement(const SweepPlan& plan) : plan_(&plan) {
    for (const PlannedRun& run : plan.runs)
      if (run.variant == league_reference && is_done(run))
        references_[{run.workload, run.config.train.seed}] = final_loss(read_run_folder(run.folder));
  }

  TrainedRuns runs_of(const std::string& workload, const std::string& variant) const {
    TrainedRuns result;
    Counted counted;
    double seconds = 0;
    for (const PlannedRun& planned : plan_->runs) {
      if (planned.workload != workload || planned.variant != variant) continue;
      ++result.planned;
      if (!is_done(planned)) continue;
      ++result.complete;
      const RunFolder run = read_run_folder(planned.folder);
      const double loss = final_loss(run);
      result.final_losses.push_back(loss);
      const auto reference = references_.find({workload, planned.config.train.seed});
      if (reference != references_.end())
        result.differences.push_back(100 * (loss - reference->second) / reference->second);
      for (const StepRow& step : run.steps) {
        ++result.steps;
        result.skipped += step.skipped ? 1 : 0;
        seconds += step.seconds;
      }
      const Counted more = count_run(planned.folder);
      counted.casts += more.casts;
      counted.lost_l1 = counted.lost_l1 + more.lost_l1;
      counted.kept_l1 = counted.kept_l1 + more.kept_l1;
    }
    result.paired = analysis::paired_interval(result.differences);
    if (counted.casts.values > 0) {
      result.underflow = counted.casts.underflow_rate();
      result.lost_l1 = mass_detail::share(counted.lost_l1, counted.kept_l1).middle();
    }
    if (result.steps > 0) result.seconds_per_step = seconds / static_cast<double>(result.steps);
    return result;
  }

 private:
  const SweepPlan* plan_;
  std::map<RunKey, double> references_;
};

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

League measure(const SweepPlan& plan, bool quick) {
  League league;
  for (const PlannedRun& run : plan.runs)
    if (std::find(league.workloads.begin(), league.workloads.end(), run.workload) == league.workloads.end())
      league.workloads.push_back(run.workload);
  const Measurement measurement(plan);
  for (const std::string& workload : league.workloads) {
    const std::size_t first = league.rows.size();
    league.rows.push_back({.workload = workload,
                           .policy = std::string(league_reference),
                           .trained = measurement.runs_of(workload, std::string(league_reference))});
    for (const std::string& policy : league_policies(quick))
      league.rows.push_back({.workload = workload,
                             .policy = policy,
                             .trained = measurement.runs_of(workload, policy_variant(policy))});
    const std::size_t first_fixed = league.fixed.size();
    for (const int scale : league_scales(quick))
      league.fixed.push_back({.workload = workload,
                              .log2_scale = scale,
                              .trained = measurement.runs_of(workload, scale_variant(scale))});
    const double seeds = static_cast<double>(league.rows[first].trained.complete);
    for (const PlannedRun& run : plan.runs) {
      if (run.workload != workload || run.variant != league_reference || !is_done(run)) continue;
      const ReplayFile replay = replay_run(run.folder, replay_options(quick));
      for (const ReplayedPolicy& policy : replay.policies) {
        const std::string& name = policy.name;
        for (std::size_t i = first; i < league.rows.size(); ++i)
          if (league.rows[i].policy == name) league.rows[i].replays.push_back(policy);
      }
      ReplayOptions own;
      own.contestants = {
          .policies = {std::string(league_ours), std::string(league_peer)}, .settings = {}, .interval = {}};
      own.oracle = false;
      for (const ReplayedPolicy& policy : replay_run(run.folder, own).policies)
        for (std::size_t i = first; i < league.rows.size(); ++i)
          if (league.rows[i].policy == policy.name) league.rows[i].own_replays.push_back(policy);
      league.allowed.push_back({.workload = workload, .seed = run.config.train.seed, .band = replay.band});
      for (std::size_t i = first_fixed; i < league.fixed.size(); ++i) {
        FixedScale& fixed = league.fixed[i];
        ReplayOptions options;
        options.contestants = {.policies = {"fixed"},
                               .settings = {"fixed.initial_scale=2^" + std::to_string(fixed.log2_scale)},
                               .interval = {}};
        options.oracle = false;
        const ReplayedPolicy row = replay_run(run.folder, options).policies.at(0);
        add(fixed.lost_count, row.lost_count, 1 / seeds);
        add(fixed.lost_l1, row.lost_l1, 1 / seeds);
        add(fixed.lost_l2, row.lost_l2, 1 / seeds);
      }
    }
  }
  return league;
}

}  // namespace fp16lab::experiments
