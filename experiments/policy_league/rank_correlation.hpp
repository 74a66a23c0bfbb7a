// How well the order of one quantity tells the order of another.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "analysis/paired_verdict.hpp"

namespace fp16lab::experiments {

/// Ranks from 1; equal values share the mean of their ranks. NaN is not allowed (std::invalid_argument).
std::vector<double> ranks(std::span<const double> values);

/// Spearman's rank correlation (The Proof and Measurement of Association between Two Things, 1904): Pearson's
/// of the ranks. Nothing for fewer than three pairs or where a side has one value only. std::invalid_argument
/// for sides of different length.
std::optional<double> rank_correlation(std::span<const double> x, std::span<const double> y);

/// Two quantities that may tell an outcome.
struct PredictedPoint {
  std::size_t group = 0;  ///< points of one group depend on each other, groups do not
  double a = 0, b = 0, outcome = 0;
};
struct PredictorContest {
  std::size_t groups = 0;
  std::optional<double> by_a{}, by_b{};  ///< rank correlation with the outcome, over all points
  /// 95 % for by_b - by_a by the delete-one-group jackknife: Student's interval of the groups' pseudo-values
  /// (Tukey, Ann. Math. Stat. 29, 1958). Nothing for fewer than three groups, or where a correlation without
  /// one of them does not exist. Where the predictors are exchangeable, simulated contests of four groups
  /// find a difference in 2 to 7 % of cases.
  std::optional<analysis::Interval> difference{};
};
PredictorContest contest(std::span<const PredictedPoint> points);

}  // namespace fp16lab::experiments
