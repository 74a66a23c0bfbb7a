// The figure of a sum's order.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "analysis/summation_tree.hpp"

namespace fp16lab::reports {

/// STEM.dat, .gp, .svg and .png in `folder`, which is made: terms along x, each below the join that it
/// enters; joins at the height of the longest way from a term. Empty, or in one line why nothing was drawn.
std::string draw_order(const analysis::SummationTree& tree, std::string_view title, const std::string& stem,
                       const std::filesystem::path& folder);

}  // namespace fp16lab::reports
