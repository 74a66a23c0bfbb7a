// The figure of fp16lab compare: losses, their difference and its growth, loss scales.
#pragma once

#include <filesystem>
#include <string>

#include "analysis/run_comparison.hpp"
#include "reports/figures/figure.hpp"

namespace fp16lab::reports {

/// compare.figure.json and its pictures in `folder`: what draw_figure() returns.
std::string draw_comparison(const analysis::RunComparison& comparison, const std::filesystem::path& folder,
                            const DrawingOptions& options = {});

}  // namespace fp16lab::reports
