// Where the gradients of a run sit in FP16, at the scale they had and at any other.
//
// A histogram taken before the cast answers every what-if scale: multiplying by 2^k moves whole bins. The
// answer is local: a value that an earlier cast had already flushed to zero stays a zero here, whatever the
// scale.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "numerics/files/run_schema.hpp"
#include "numerics/range_counts.hpp"

namespace fp16lab::analysis {

/// The what-if scales that reports show: 2^-10 ... 2^24.
inline constexpr int min_log2_scale = -10;
inline constexpr int max_log2_scale = 24;

struct RateInterval {
  double lower = 0;
  double upper = 0;
  double middle() const { return 0.5 * (lower + upper); }
};

/// Zone counts as fractions. Zeros, infinities and NaNs are fractions of all values; the four zones are
/// fractions of the finite non-zero values, so that exact zeros (half of all gradients behind a ReLU) neither
/// hide nor fake underflow. All 0 where there is nothing to divide by.
struct ZoneRates {
  double zero = 0, infinite = 0, nan = 0;
  RateInterval lost, subnormal, normal, overflow;
};
ZoneRates rates_of(const RangeCounts& counts);

/// Adds counts and interval ends.
RangeCounts& operator+=(RangeCounts& sum, const RangeCounts& other);

/// Gradients of one tensor, or of many, kept apart by the loss scale they carried when they were counted.
/// Merging is addition.
class ScaledHistograms {
 public:
  /// `values` carried `loss_scale`, which must be finite and > 0 (std::invalid_argument otherwise).
  void add(const ExponentHistogram& values, double loss_scale);

  /// Zones of the gradients multiplied by `scale` instead of by the scale they had.
  RangeCounts at_scale(double scale) const;
  /// Smallest e such that every finite unscaled gradient is surely <= 2^e in magnitude (within one bin); and
  /// the same from below: every non-zero one is surely > 2^e. Both only if there is a finite non-zero value.
  struct Extent {
    int smallest = 0;
    int largest = 0;
  };
  bool empty() const;  ///< no finite non-zero value
  Extent extent() const;

 private:
  std::map<double, ExponentHistogram> by_scale_;
};

/// Per tensor and merged.
class RangeReport {
 public:
  void add(std::string_view tensor, const ExponentHistogram& values, double loss_scale);
  /// The values before the cast.
  void add(const HistogramRow& row) { add(row.tensor, row.before, row.loss_scale); }

  /// Tensors in the order in which they were first added.
  std::span<const std::string> tensors() const { return names_; }
  /// An unknown name throws std::invalid_argument.
  const ScaledHistograms& tensor(std::string_view name) const;
  const ScaledHistograms& merged() const { return merged_; }

 private:
  std::vector<std::string> names_;
  std::map<std::string, ScaledHistograms, std::less<>> tensors_;
  ScaledHistograms merged_;
};

struct WhatIf {
  int log2_scale = 0;
  RangeCounts counts;
};
/// One entry for each power-of-two scale from 2^min_log2_scale to 2^max_log2_scale.
std::vector<WhatIf> what_if(const ScaledHistograms& gradients);

}  // namespace fp16lab::analysis
