// How far the log-probabilities are apart that two engines give to the same targets.
//
// A trainer that learns from samples of another engine corrects by the importance ratio exp(b - a) of each token
// (truncated importance sampling; Yao et al. 2025), which is 1 only where both give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "analysis/paired_verdict.hpp"

namespace fp16lab::analysis {

/// ln softmax(logits)[target] of each row, in FP64 from the FP32 numbers; -infinity and NaN as they come.
/// std::invalid_argument: logits that are no rows of one length, a target outside of it.
std::vector<double> log_probabilities(std::span<const float> logits, std::span<const std::int32_t> targets);

/// What b differs from a: gap = b - a for each target. Equal log-probabilities, infinities too, are a gap of exactly 0.
struct ProbabilityGap {
  std::size_t targets = 0;
  double mean_magnitude = 0, mean = 0, largest = 0;
  std::size_t largest_at = 0;          ///< a target
  double outside = 0;                  ///< share of importance ratios outside of 1 / band to band
  std::optional<Interval> interval{};  ///< of mean_magnitude over batches, 95 %; from two batches on
};
/// `batches` are numbers of neighbouring targets. std::invalid_argument: lengths that do not fit, a band below 1.
ProbabilityGap probability_gap(std::span<const double> a, std::span<const double> b,
                               std::span<const std::size_t> batches, double band);

}  // namespace fp16lab::analysis
