// The figure of a sum's order.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "analysis/summation_tree.hpp"
#include "reports/figures/figure.hpp"

namespace fp16lab::reports {

/// STEM.figure.json and its pictures in `folder`: terms along x, each below the join that it enters; joins at the
/// height of the longest way from a term. What draw_figure() returns.
std::string draw_order(const analysis::SummationTree& tree, std::string_view title, const std::string& stem,
                       const std::filesystem::path& folder, const DrawingOptions& options = {});

}  // namespace fp16lab::reports
