// How far apart two trainings are, step by step, in their weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "experiments/app/sweep/sweep.hpp"

namespace fp16lab::experiments {

/// ||a - b|| / ||a||, L2 norms summed in FP64 in order; NaN for an `a` of zeros.
double relative_distance(std::span<const float> a, std::span<const float> b);

/// A reference and a variant that is trained beside it.
using VariantPair = std::pair<std::string_view, std::string_view>;

struct DistanceCurve {
  std::string workload, reference, variant;
  std::int64_t seed = 0;
  std::vector<double>
      distances{};  ///< relative_distance of all weights after step i; 0: before the first one
  std::uint64_t reference_hash = 0, variant_hash = 0;  ///< state_hash at the end: which trainings these were
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
/// the first of at least `high`, or the last: of trainings that part exponentially their Lyapunov exponent.
/// Nothing for fewer than fewest_growing_steps, or where a distance is 0 or not finite.
std::optional<double> growth_rate(std::span<const double> distances, double low, double high);
inline constexpr std::size_t fewest_growing_steps = 10;

}  // namespace fp16lab::experiments
