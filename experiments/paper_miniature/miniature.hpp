// What the miniature measured, what it claims, and its figures.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/app/sweep/sweep.hpp"
#include "experiments/paper_miniature/update_study.hpp"
#include "experiments/study/judged_rows.hpp"
#include "numerics/histogram/exponent_histogram.hpp"

namespace fp16lab::experiments {

inline constexpr const char* needs_scaling = "needs-scaling";
inline constexpr const char* no_scaling = "no-scaling";
inline constexpr const char* small_updates = "small-updates";
/// The loss scales of the paper's networks: 1, 8 (SSD), 128 (bigLSTM), 1024 (translation), 32K (the guide).
inline constexpr int paper_log2_scales[] = {0, 3, 7, 10, 15};

/// One variant of one workload, all seeds.
struct MiniatureRow {
  std::string workload, variant;
  JudgedRow judged{};
};

struct Miniature {
  std::vector<MiniatureRow> rows{};
  /// Histograms of FP32's runs, by workload: all observed steps and tensors, at a loss scale of 1.
  std::map<std::string, ExponentHistogram, std::less<>> activation_gradients{};
  UpdateStudy with_masters{}, without_masters{};
  std::string table{}, csv{};  ///< of the sweep

  /// std::out_of_range without one.
  const JudgedRow& row(std::string_view workload, std::string_view variant) const;
  /// Percent of the finite non-zero activation gradients that FP16 would round to zero at 2^log2_scale.
  double lost_percent(std::string_view workload, int log2_scale) const;
};

/// A sweep file's runs and FP32's twins. CommandError(usage) where it lacks what the claims are about.
SweepPlan miniature_plan(const CommonOptions& common);
/// From what is on disk, but the updates of weights: two of the runs are repeated in this process.
Miniature measure_miniature(const SweepPlan& plan, int threads);
/// Criteria fixed before anything was measured.
std::vector<Question<Miniature>> miniature_questions();

/// workload, log2_scale, lost_percent: of FP32's activation gradients.
std::string lost_gradients_csv(const Miniature& miniature);

/// reports::draw_paper_figures().
std::string draw_figures(const Miniature& miniature, const std::filesystem::path& folder);

}  // namespace fp16lab::experiments
