// Six generations of tensor cores, one training: which runs there are, what came out of them, what follows.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/paired_verdict.hpp"
#include "experiments/app/common_options.hpp"
#include "experiments/app/config/config.hpp"
#include "experiments/app/sweep/sweep.hpp"
#include "experiments/generations/distance.hpp"
#include "experiments/study/study.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"
#include "reports/data/summary.hpp"

namespace fp16lab::experiments {

/// Variants of configs/generations.toml that claims name.
inline constexpr std::string_view fp32_variant = "fp32", twin_variant = "fp32-twin",
                                  one_ulp_variant = "hopper-ulp";
/// The three arithmetics of FP16 products with FP32 sums, and with FP16 sums.
inline constexpr std::array<std::string_view, 3> f32_rows{"volta", "ampere", "hopper"};
inline constexpr std::array<std::string_view, 3> f16_rows{"volta-f16", "ampere-f16", "hopper-f16"};
/// The four of FP8 products: sums of 25 bits, 25, 14 and 14.
inline constexpr std::array<std::string_view, 4> fp8_rows{"hopper-fp8", "blackwell-tcgen05-fp8", "ada-fp8",
                                                          "hopper-wgmma-fp8"};

// ---- generation_plan.cpp

/// The rows that products of a run follow: FP16's, and FP8's where it has those. None for FP32.
std::vector<const TensorCoreModel*> rows_of(const RunConfig& config);

/// Variants that differ in their rows' names only, not in any function: the first of the plan, and the
/// others.
struct SameRows {
  std::string variant;
  std::vector<std::string> others;
  std::string function;  ///< stages_text of their rows
};
std::vector<SameRows> same_rows(const SweepPlan& plan);

/// FP8 is the second panel.
inline constexpr std::size_t fp8_seeds = 5;

/// The file's runs with FP32's twins; of SameRows::others the first seed only, of FP8's variants the first
/// fp8_seeds. `quick`: 12 steps, two seeds.
SweepPlan generations_plan(const CommonOptions& common, bool quick);

// ---- trained.cpp

struct TrainedRun {
  std::string workload, variant;
  std::int64_t seed = 0;
  std::vector<std::uint64_t> hashes;  ///< state_hash after every step
  double loss = 0, metric = 0;        ///< of the final evaluation; NaN where the run diverged
};

struct TrainedWorkload {
  std::string name;
  reports::Metric metric{};
};

struct Generations {
  std::vector<TrainedWorkload> workloads;  ///< in the plan's order
  std::vector<TrainedRun> runs;
  std::vector<SameRows> same;
  std::string final_values;           ///< the sweep's own tables
  std::vector<DistanceCurve> curves;  ///< of drawn_pairs()

  const TrainedRun* find(std::string_view workload, std::string_view variant, std::int64_t seed) const;
  /// The runs of a variant, in the plan's order.
  std::vector<std::int64_t> seeds_of(std::string_view workload, std::string_view variant) const;
};
Generations read_generations(const SweepPlan& plan);

/// The first step (from 1) whose state_hash differs; nothing where none does. Runs of other lengths differ
/// behind the shorter one.
std::optional<std::uint64_t> first_differing_step(const TrainedRun& a, const TrainedRun& b);

// ---- generation_table.cpp

/// A variant against a reference, by the final metric of one workload.
struct JudgedPair {
  std::string workload, variant, reference;
  std::string_view unit;  ///< of differences
  analysis::Judgement judgement;
};
/// Every variant against FP32 and against the twin, and generations against each other: one family.
std::vector<JudgedPair> judged_pairs(const Generations& measured);
const JudgedPair* find(const std::vector<JudgedPair>& pairs, std::string_view workload,
                       std::string_view variant, std::string_view reference);
std::string pairs_text(const std::vector<JudgedPair>& pairs);
std::string pairs_csv(const std::vector<JudgedPair>& pairs);

/// The pairs whose distances are measured and drawn: one ulp of the weights in FP32 and on hopper,
/// generations, FP16 itself, FP16 sums, FP8's sums of 14 bits (wgmma) and of 25 (mma).
std::span<const VariantPair> drawn_pairs();
/// reports::draw_distances() of curves of those.
std::string draw_distances(const std::vector<DistanceCurve>& curves, const std::filesystem::path& folder);

// ---- spread.cpp

/// The scale of final test losses over a group of variants, as a multiple of their scale over another group.
struct SpreadRatio {
  double ratio = 1;
  std::optional<analysis::Interval> interval{};  ///< 95 % where nothing else was asked for
};
/// Over seeds: losses[seed][variant] of both groups, all above 0. In each seed the variance of ln(loss) over
/// the group's variants (unbiased, so that groups may differ in size); theta = 1/2 ln of the ratio of its
/// means. The interval is Student's of theta's jackknife values, a seed left out at a time (Miller, Ann.
/// Math. Stat. 39, 1968), which does not take losses for normal. No interval for fewer than three seeds, or
/// where a variance is 0 or not finite.
class Spread {
 public:
  Spread(const std::vector<std::vector<double>>& losses, const std::vector<std::vector<double>>& reference);
  const std::vector<double>& jackknife_values() const { return values_; }  ///< one a seed; empty: no interval
  SpreadRatio ratio(double confidence = 0.95) const;

 private:
  std::vector<double> values_;
};
/// The geometric mean of ratios over workloads that have equally many seeds.
SpreadRatio mean_ratio(const std::vector<Spread>& spreads);

// ---- generation_claims.cpp

/// Fixed before any of the runs was made.
inline constexpr double largest_spread_ratio = 1.5;
/// Fixed before any of the distances was measured, but for one seed that is none of theirs: where growth is
/// measured, above what rounding to FP16 makes at once and below where distances saturate; and the ratio of
/// rates that counts as none.
inline constexpr double growth_low = 1e-3, growth_high = 1e-2, largest_growth_ratio = 1.25;

/// Do generations part as fast as weights that are one ulp apart?
Answer judge_growth(const std::vector<DistanceCurve>& curves);

std::vector<Question<Generations>> generation_questions();

}  // namespace fp16lab::experiments
