// Static figures: for each one a data file, a gnuplot script that users may restyle, and the SVG and PNG it
// draws.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "reports/data/run_gradients.hpp"
#include "reports/data/run_set.hpp"
#include "reports/data/summary.hpp"

namespace fp16lab::reports {

struct Figure {
  std::string stem;      ///< file name without extension: "loss-classifier-on-fashion-mnist"
  std::string workload;  ///< Workload::name
  std::string title;     ///< what one sees
  bool drawn = false;    ///< the .svg and .png are there
};

/// What one workload's figures are made from. `gradients` follows workload.configurations; empty where a
/// configuration has no histograms.
struct WorkloadFigures {
  const RunSet& set;
  const Workload& workload;
  const WorkloadSummary& summary;
  const std::vector<RunGradients>& gradients;
};

// Each writes STEM.dat and STEM.gp into `folder` and says what they show; nothing is drawn yet. They return
// no figure where there is nothing to show.
std::vector<Figure> write_loss_figure(const WorkloadFigures& input, const std::filesystem::path& folder);
std::vector<Figure> write_quality_figure(const WorkloadFigures& input, const std::filesystem::path& folder);
std::vector<Figure> write_scale_figure(const WorkloadFigures& input, const std::filesystem::path& folder);
std::vector<Figure> write_histogram_figures(const WorkloadFigures& input,
                                            const std::filesystem::path& folder);
std::vector<Figure> write_what_if_figure(const WorkloadFigures& input, const std::filesystem::path& folder);
std::vector<Figure> write_heat_map_figure(const WorkloadFigures& input, const std::filesystem::path& folder);

/// All of them for one workload.
std::vector<Figure> write_figures(const WorkloadFigures& input, const std::filesystem::path& folder);

/// Draws every figure with `gnuplot` (a program name or path). Stops at the first failure and returns its
/// one-line reason; scripts and data stay in any case. Empty: all drawn.
std::string draw_figures(std::vector<Figure>& figures, const std::filesystem::path& folder,
                         const std::string& gnuplot);

}  // namespace fp16lab::reports
