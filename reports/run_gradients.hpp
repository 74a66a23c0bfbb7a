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
  double loss_scale = 1;
  std::vector<ExponentHistogram> histograms;  ///< before the cast, still carrying loss_scale
};

struct RunGradients {
  std::vector<std::string> tensors;  ///< in the order of the file
  std::vector<std::string> kinds;
  std::vector<GradientSnapshot> snapshots;
  analysis::RangeReport report;  ///< over every recorded step, also those without a snapshot here
};

/// At most `max_snapshots` of the observed steps, evenly chosen, the first and the last among them.
RunGradients load_gradients(const Run& run, std::size_t max_snapshots);

}  // namespace fp16lab::reports
