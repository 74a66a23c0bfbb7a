// The figure of fp16lab compare: losses, their difference and its growth, loss scales.
#pragma once

#include <filesystem>
#include <string>

#include "analysis/run_comparison.hpp"

namespace fp16lab::reports {

/// Writes compare.dat and compare.gp into `folder` and draws compare.svg and compare.png. Returns an empty
/// string, or the one-line reason why nothing was drawn.
std::string draw_comparison(const analysis::RunComparison& comparison, const std::filesystem::path& folder,
                            const std::string& gnuplot = "gnuplot");

}  // namespace fp16lab::reports
