// The recorded gradient histograms of one run, thinned to what figures and pages can show.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "analysis/range_report.hpp"
#include "reports/run_set.hpp"

namespace fp16lab::reports {

/// All gradients of one observed step; `histograms` follows RunGradients::tensors.
struct GradientSnapshot {
  std::uint64_t step = 0;
  double loss_scale = 1;                      ///< of the step; where tensors differ, of the last one
  std::vector<ExponentHistogram> histograms;  ///< before the cast, still carrying their tensor's scale
  std::vector<double> scales;                 ///< of each tensor: policies may scale layers apart
  bool one_scale() const;
};

struct RunGradients {
  std::vector<std::string> tensors;  ///< in the order of the file
  std::vector<std::string> kinds;
  std::vector<GradientSnapshot> snapshots;
  std::size_t observed_steps = 0;  ///< also those without a snapshot here
  analysis::RangeReport report;    ///< over every observed step
};

/// `limit` of `count` places, evenly chosen, the first and the last among them; all where there are no more. At least 2
/// are taken of 2 or more.
std::vector<std::size_t> evenly_chosen(std::size_t count, std::size_t limit);

/// At most `max_snapshots` of the observed steps, evenly chosen, the first and the last among them.
RunGradients load_gradients(const Run& run, std::size_t max_snapshots);

}  // namespace fp16lab::reports
