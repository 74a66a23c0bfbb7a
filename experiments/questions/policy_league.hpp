// The league of loss-scale policies: what each would have done on the same recorded gradients, and what came
// of it when the networks were trained with it, in FP32 and beside it as one-ulp twins, with every policy and
// with fixed scales.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/paired_verdict.hpp"
#include "experiments/app/sweep/sweep.hpp"
#include "experiments/study/judged_sweep.hpp"
#include "numerics/files/run/replay_file.hpp"

namespace fp16lab::experiments {

/// Growth intervals that are longer become this long: the runs are short.
inline constexpr std::int64_t league_interval = 20;
/// The exponents of the fixed scales.
std::vector<int> league_scales(bool quick);

/// FP32, every policy and the fixed scales on the workloads of a sweep file. `quick`: one seed, twelve steps
/// and a few policies, for tests.
SweepPlan league_plan(const CommonOptions& common, bool quick);

struct LeagueRow {
  std::string workload, policy;
  std::vector<ReplayedPolicy> replays{};  ///< one a seed
  /// The same with every parameter as the policy has it, growth intervals too; of the two that claim 1
  /// compares.
  std::vector<ReplayedPolicy> own_replays{};
  JudgedRow trained{};
};

/// A fixed scale: what the FP32 run of the same seed says that it loses, and what training with it cost.
struct FixedScale {
  std::string workload;
  int log2_scale = 0;
  ReplayInterval lost_count{}, lost_l1{}, lost_l2{};  ///< mean over seeds
  /// The difference of the final test loss to the FP32 run of the same seed: analysis::loss_difference, one a
  /// finite pair.
  std::vector<double> differences{};
  std::uint64_t steps = 0, skipped = 0;
  int diverged = 0;
  /// Their mean, and its 95 % interval, reported in percent. No mean without any, or where a run diverged.
  std::optional<double> excess() const;
  std::optional<analysis::Interval> interval() const;
  /// Is it overflow that it costs, more than underflow? A tenth of the steps or more were skipped.
  bool overflows() const { return 10 * skipped >= steps; }
};

/// The scales that an FP32 run allowed.
struct AllowedScales {
  std::string workload;
  std::int64_t seed = 0;
  ReplayBand band{};
};

struct League {
  std::vector<std::string> workloads{};
  std::vector<LeagueRow> rows{};  ///< workload by workload
  std::vector<FixedScale> fixed{};
  std::vector<AllowedScales> allowed{};
  std::uint64_t replayed_steps = 0;  ///< of all FP32 runs
  std::size_t tests = 0;       ///< m: pairs with bits of their own that have a t test, of the whole sweep
  std::string table{}, csv{};  ///< of the sweep; the table with which variants were the same runs
  const LeagueRow& row(std::string_view workload, std::string_view policy) const;
};

/// Criteria fixed before anything was measured.
std::vector<Question<League>> league_questions();

// How well the order of one quantity tells the order of another.

/// Ranks from 1; equal values share the mean of their ranks. NaN is not allowed (std::invalid_argument).
std::vector<double> ranks(std::span<const double> values);

/// Spearman's rank correlation (The Proof and Measurement of Association between Two Things, 1904): Pearson's
/// of the ranks. Nothing for fewer than three pairs or where a side has one value only. std::invalid_argument
/// for sides of different length.
std::optional<double> rank_correlation(std::span<const double> x, std::span<const double> y);

/// Two quantities that may tell an outcome.
struct PredictedPoint {
  std::size_t group = 0;  ///< points of one group depend on each other, groups do not
  double a = 0, b = 0, outcome = 0;
};
struct PredictorContest {
  std::size_t groups = 0;
  std::optional<double> by_a{}, by_b{};  ///< rank correlation with the outcome, over all points
  /// 95 % for by_b - by_a by the delete-one-group jackknife: Student's interval of the groups' pseudo-values
  /// (Tukey, Ann. Math. Stat. 29, 1958). Nothing for fewer than three groups, or where a correlation without
  /// one of them does not exist. Where the predictors are exchangeable, simulated contests of four groups
  /// find a difference in 2 to 7 % of cases.
  std::optional<analysis::Interval> difference{};
};
PredictorContest contest(std::span<const PredictedPoint> points);

}  // namespace fp16lab::experiments
