// Figures of single questions (experiments/): each takes rows of numbers, writes STEM.figure.json into a folder and
// draws it. What draw_figure() returns.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/paired_verdict.hpp"
#include "numerics/files/run/replay_file.hpp"
#include "numerics/histogram/exponent_histogram.hpp"
#include "reports/figures/figure.hpp"

namespace fp16lab::reports {

/// How far two training runs of one seed are apart after each step (0 is before the first one): relative L2
/// distances.
struct DistanceRow {
  std::string_view workload;
  std::size_t pair = 0;  ///< in DistanceFigure::pairs
  std::int64_t seed = 0;
  std::span<const double> distances;
};

struct DistanceFigure {
  std::string title;
  /// Names of at most eight pairs; the first two have bands over their seeds under all lines.
  std::span<const std::string_view> pairs;
};

/// distances: a panel a workload, geometric means over the seeds.
std::string draw_distances(const DistanceFigure& figure, std::span<const DistanceRow> rows,
                           const std::filesystem::path& folder);

/// The scales that one FP32 run of a workload allowed.
struct AllowedScaleRow {
  std::string_view workload;
  const ReplayBand& band;
};

/// highest-scale: the largest power of two without overflow, step by step, a panel a workload in their order.
std::string draw_highest_scales(std::span<const std::string> workloads, std::span<const AllowedScaleRow> rows,
                                const std::filesystem::path& folder);

/// What a fixed scale lost in the gradients of FP32, in percent, and what training with it cost.
struct LossCostRow {
  std::string_view workload;
  double lost_values = 0, lost_l1 = 0;
  double excess = 0;            ///< final test loss above FP32, percent, mean over the seeds
  analysis::Interval interval;  ///< 95 % of it
  int log2_scale = 0;
};

/// what-predicts-the-loss: excess against lost values and against lost L1 norm, a curve a workload in their
/// order.
std::string draw_prediction(std::span<const std::string> workloads, std::span<const LossCostRow> rows,
                            const std::filesystem::path& folder);

/// The histograms of "Mixed Precision Training" in miniature.
struct PaperFigures {
  /// FP32 master weights, and FP16 weights without them: magnitudes of the updates of all `elements` weights;
  /// those that are counted are not zero.
  struct Updates {
    const ExponentHistogram& magnitudes;
    std::uint64_t elements;
  };
  Updates with_masters, without_masters;
  /// Activation gradients at a loss scale of 1, of a network that needs scaling and of one that does not.
  const ExponentHistogram &needs_scaling, &no_scaling;
  std::map<int, double>
      paper_percent;  ///< share of the paper's values in [2^exponent, 2^(exponent+1)), by exponent
  /// Percent lost at 2^0, 2^1, ... 2^16: needs scaling, does not, the paper's.
  struct Lost {
    double needs_scaling, no_scaling, paper;
  };
  std::span<const Lost> lost;
};

/// weight-updates, activation-gradients, lost-against-scale.
std::string draw_paper_figures(const PaperFigures& figures, const std::filesystem::path& folder);

/// The loss scales that every policy would have had, as a figure without a stem; paths are thinned to `stretches` (replay_paths()).
/// Null without a policy.
nlohmann::ordered_json traces_figure(const ReplayFile& replay, std::size_t stretches = 400);

/// replay: that figure. Empty, and nothing is drawn, without a policy.
std::string draw_replay(const ReplayFile& replay, const std::filesystem::path& folder);

}  // namespace fp16lab::reports
