// Six generations of tensor cores, one training: which runs there are, what came out of them, what follows.
// Four networks are trained on the emulated tensor cores, with FP32 and FP16 sums and with products of FP8,
// beside FP32 and its one-ulp twin (configs/generations.toml); some of them once more side by side, to see how
// far apart their weights are after every step.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/paired_verdict.hpp"
#include "experiments/app/common_options.hpp"
#include "experiments/app/config/config.hpp"
#include "experiments/app/sweep/sweep.hpp"
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

// ---- how far apart two training runs are, step by step, in their weights: distance.cpp

/// ||a - b|| / ||a||, L2 norms summed in FP64 in order; NaN for an `a` of zeros.
double relative_distance(std::span<const float> a, std::span<const float> b);

/// A reference and a variant that is trained beside it.
using VariantPair = std::pair<std::string_view, std::string_view>;

struct DistanceCurve {
  std::string workload, reference, variant;
  std::int64_t seed = 0;
  std::vector<double>
      distances{};  ///< relative_distance of all weights after step i; 0: before the first one
  std::uint64_t reference_hash = 0, variant_hash = 0;  ///< state_hash at the end: identifies the runs
};

/// How measure_distances goes about it.
struct DistanceOptions {
  std::size_t seeds = 5;  ///< the first ones of each workload
  int threads = 1;
  std::vector<DistanceCurve> known{};  ///< taken where the planned runs on disk end with their state_hash
  std::function<void(const std::vector<DistanceCurve>&)> keep =
      {};  ///< all so far, after each workload and seed
  std::function<void(const std::string&)> progress = {};
};

/// Trains the variants of `pairs` side by side in this process, seed by seed. Pairs of which the plan has
/// only one are left out. CommandError(run_failed) if a training ends with another state_hash than that run
/// has on disk, where it is there; CommandError(interrupted) on Ctrl-C.
std::vector<DistanceCurve> measure_distances(const SweepPlan& plan, std::span<const VariantPair> pairs,
                                             const DistanceOptions& options);

/// "workload,reference,variant,seed,step,distance,reference_hash,variant_hash".
std::string distances_csv(const std::vector<DistanceCurve>& curves);
/// The inverse; no curves without the file. std::runtime_error "FILE:LINE: ..." for anything else.
std::vector<DistanceCurve> read_distances(const std::filesystem::path& file);

/// Least-squares slope of ln(distance), per step, from the first step with a distance of at least `low` to
/// the first of at least `high`, or the last: their Lyapunov exponent where runs part exponentially.
/// Nothing for fewer than fewest_growing_steps, or where a distance is 0 or not finite.
std::optional<double> growth_rate(std::span<const double> distances, double low, double high);
inline constexpr std::size_t fewest_growing_steps = 10;

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

/// The pairs whose distances are measured and drawn: one ulp of the weights in FP32 and on hopper,
/// generations, FP16 itself, FP16 sums, FP8's sums of 14 bits (wgmma) and of 25 (mma).
std::span<const VariantPair> drawn_pairs();

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

/// Do generations part as fast as weights that are one ulp apart?
Answer judge_growth(const std::vector<DistanceCurve>& curves);

std::vector<Question<Generations>> generation_questions();

}  // namespace fp16lab::experiments
