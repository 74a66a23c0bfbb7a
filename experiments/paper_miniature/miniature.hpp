// What the miniature measured, what it claims, and its figures.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "analysis/comparison.hpp"
#include "experiments/paper_miniature/update_study.hpp"
#include "experiments/sweep.hpp"
#include "numerics/exponent_histogram.hpp"

namespace fp16lab::experiments {

inline constexpr const char* needs_scaling = "needs-scaling";
inline constexpr const char* no_scaling = "no-scaling";
inline constexpr const char* small_updates = "small-updates";
/// The loss scales of the paper's networks: 1, 8 (SSD), 128 (bigLSTM), 1024 (translation), 32K (the guide).
inline constexpr int paper_log2_scales[] = {0, 3, 7, 10, 15};

/// The runs of one workload and variant, all seeds.
struct MiniatureRuns {
  std::string workload;
  std::string variant;
  std::vector<double> losses{};  ///< last evaluation's; infinite for a run that diverged
  std::vector<double> accuracies{};
  bool complete = true;
  ExponentHistogram activation_gradients{};  ///< all observed steps and tensors, as they were before any cast
  double recorded_scale = 1;               ///< that they carry
};
std::vector<MiniatureRuns> measure(const SweepPlan& plan);
const MiniatureRuns& runs_of(const std::vector<MiniatureRuns>& all, const std::string& workload,
                             const std::string& variant);

/// Percent of the finite non-zero activation gradients that FP16 rounds to zero at 2^log2_scale.
double lost_percent(const MiniatureRuns& runs, int log2_scale);

struct Miniature {
  std::vector<MiniatureRuns> runs;
  UpdateStudy with_masters, without_masters;
};

enum class ClaimState { holds, fails, undecided };
struct MiniatureClaim {
  std::string claim;
  std::string criterion;  ///< fixed before anything was measured
  std::string measured;
  ClaimState state = ClaimState::undecided;
};
std::vector<MiniatureClaim> judge(const Miniature& miniature);
/// The numbers behind the claims and figures.
std::string csv(const Miniature& miniature);

/// Scripts and data, and the pictures where gnuplot is there; returns what failed, or nothing.
std::optional<std::string> write_figures(const Miniature& miniature, const std::filesystem::path& folder);

}  // namespace fp16lab::experiments
