// Where the gradients of a run sit in FP16, at the scale they had and at any other.
//
// A histogram taken before the cast answers every what-if scale: multiplying by 2^k moves whole bins. The
// answer is local: a value that an earlier cast had already flushed to zero stays a zero here, whatever the
// scale.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "numerics/files/run_schema.hpp"
#include "numerics/range_counts.hpp"
#include "numerics/zone_mass.hpp"

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

/// Exact zeros on both sides of the casts that were recorded, at the scales that they had. Only the difference is
/// underflow: the zeros before the cast are a property of the gradient (half of it, behind a ReLU), and the number of
/// zeros in FP32 says nothing of FP16.
struct CastZeros {
  std::uint64_t before = 0;
  std::uint64_t after = 0;
  std::uint64_t lost() const { return after > before ? after - before : 0; }
  bool operator==(const CastZeros&) const = default;
};

/// Gradients of one tensor, or of many, kept apart by the loss scale they carried when they were counted.
/// Merging is addition.
class ScaledHistograms {
 public:
  /// `values` carried `loss_scale`, which must be finite and > 0 (std::invalid_argument otherwise).
  void add(const ExponentHistogram& values, double loss_scale);
  /// The same of values that a cast has stored as `after`.
  void add(const ExponentHistogram& before, const ExponentHistogram& after, double loss_scale);

  /// Zones of the gradients multiplied by `scale` instead of by the scale they had; none: by the one they had, whichever
  /// it was. The same in mass_at and cosine_at.
  RangeCounts at_scale(std::optional<double> scale) const;
  /// The zones by magnitude: L1 and sums of squares of the unscaled gradients.
  ZoneMass mass_at(std::optional<double> scale) const;
  /// Between the gradients and what FP16 keeps of them at `scale`; see DirectionSums::cosine.
  MassInterval cosine_at(std::optional<double> scale) const;
  /// The scales they had, ascending.
  std::vector<double> recorded_scales() const;
  /// Of the casts among what was added; none if there was no cast.
  const std::optional<CastZeros>& cast_zeros() const { return cast_zeros_; }
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
  std::optional<CastZeros> cast_zeros_;
};

/// Per tensor and merged.
class RangeReport {
 public:
  void add(std::string_view tensor, const ExponentHistogram& values, double loss_scale);
  /// The values before the cast, and the zeros that the cast stored.
  void add(const HistogramRow& row);

  /// Tensors in the order in which they were first added.
  std::span<const std::string> tensors() const { return names_; }
  /// An unknown name throws std::invalid_argument.
  const ScaledHistograms& tensor(std::string_view name) const;
  const ScaledHistograms& merged() const { return merged_; }

 private:
  ScaledHistograms& named(std::string_view tensor);

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
