// Static figures: for each one a data file, a gnuplot script that users may restyle, and the SVG and PNG it
// draws.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "reports/data/run_gradients.hpp"
#include "reports/data/run_set.hpp"
#include "reports/data/summary.hpp"

namespace fp16lab::reports {

struct Figure {
  std::string stem;       ///< file name without extension: "loss-classifier-on-fashion-mnist"
  std::string workload;   ///< Workload::name
  std::string title;      ///< what one sees
  bool drawn = false;     ///< the .svg and .png are there
  bool is_graph = false;  ///< made from STEM.dot by graphviz, where that is installed, not from STEM.gp
};

/// What one workload's figures are made from. `gradients` follows workload.configurations; empty where a
/// configuration has no histograms.
struct WorkloadFigures {
  const RunSet& set;
  const Workload& workload;
  const WorkloadSummary& summary;
  const std::vector<RunGradients>& gradients;
};

// Each writes STEM.dat and STEM.gp (the network: STEM.dot) into `folder` and says what they show; nothing is
// drawn yet. They return no figure where there is nothing to show.
std::vector<Figure> write_loss_figure(const WorkloadFigures& input, const std::filesystem::path& folder);
std::vector<Figure> write_quality_figure(const WorkloadFigures& input, const std::filesystem::path& folder);
std::vector<Figure> write_costs_figure(const WorkloadFigures& input, const std::filesystem::path& folder);
std::vector<Figure> write_network_figure(const WorkloadFigures& input, const std::filesystem::path& folder);
std::vector<Figure> write_scale_figure(const WorkloadFigures& input, const std::filesystem::path& folder);
std::vector<Figure> write_histogram_figures(const WorkloadFigures& input,
                                            const std::filesystem::path& folder);
std::vector<Figure> write_what_if_figure(const WorkloadFigures& input, const std::filesystem::path& folder);
std::vector<Figure> write_heat_map_figure(const WorkloadFigures& input, const std::filesystem::path& folder);

/// All of them for one workload.
std::vector<Figure> write_figures(const WorkloadFigures& input, const std::filesystem::path& folder);

/// Draws every figure with `gnuplot` (a program name or path), networks with `graphviz`. Stops at gnuplot's
/// first failure and returns its one-line reason; scripts and data stay in any case. Empty: all drawn, but
/// for networks where there is no graphviz.
std::string draw_figures(std::span<Figure> figures, const std::filesystem::path& folder,
                         const std::string& gnuplot, const std::string& graphviz);

}  // namespace fp16lab::reports
