// How well the order of one quantity tells the order of another.
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace fp16lab::experiments {

/// Ranks from 1; equal values share the mean of their ranks. NaN is not allowed (std::invalid_argument).
std::vector<double> ranks(std::span<const double> values);

/// Spearman's rank correlation (The Proof and Measurement of Association between Two Things, 1904): Pearson's of the
/// ranks. Nothing for fewer than three pairs or where a side has one value only. std::invalid_argument for sides of
/// different length.
std::optional<double> rank_correlation(std::span<const double> x, std::span<const double> y);

}  // namespace fp16lab::experiments
