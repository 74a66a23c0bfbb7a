// The position of gradients in a format, at the scale they had and at any other.
//
// A histogram taken before the cast answers every what-if scale: multiplying by 2^k moves whole bins, and
// bounds say what they leave open. Given values (value_histogram.hpp) answer exactly. Either answer is local:
// a value that an earlier cast had already flushed to zero stays a zero here, whatever the scale. The casts
// of a run made counts of their own (cast_counts.hpp); the two kinds are never mixed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/format_fit.hpp"
#include "numerics/files/run/run_schema.hpp"
#include "numerics/formats/format_range.hpp"
#include "numerics/histogram/cast_counts.hpp"
#include "numerics/histogram/value_histogram.hpp"
#include "numerics/histogram/zones.hpp"

namespace fp16lab::analysis {

/// The what-if scales that tables list: 2^-10 ... 2^24.
inline constexpr int min_log2_scale = -10;
inline constexpr int max_log2_scale = 24;
/// Those among which one is suggested: every power of two among FP32's normal numbers, in which scalers hold
/// S.
inline constexpr int least_log2_scale = -126;
inline constexpr int greatest_log2_scale = 127;

struct RateInterval {
  double lower = 0;
  double upper = 0;
  double middle() const { return 0.5 * (lower + upper); }
};

/// Zone counts as fractions. Zeros, infinities and NaNs are fractions of all values; the four zones are
/// fractions of the finite non-zero values, so that exact zeros (half of all gradients after a ReLU) neither
/// hide nor fake underflow. All 0 where there is nothing to divide by.
struct ZoneRates {
  double zero = 0, infinite = 0, nan = 0;
  RateInterval lost, subnormal, normal, overflow;
};
ZoneRates rates_of(const RangeCounts& counts);

/// Gradients of one tensor, or of many, kept apart by the loss scale they carried when they were counted.
/// Merging is addition.
class ScaledHistograms {
 public:
  /// `values` carried `loss_scale`, which must be finite and > 0 (std::invalid_argument otherwise).
  void add(const ExponentHistogram& values, double loss_scale);
  /// Given values. All of them in the same bins, those of value_bins.
  void add(const ValueHistogram& values, double loss_scale);

  /// Zones of the gradients in a format when multiplied by `scale` instead of by the scale they had; none: by
  /// the one they had, whichever it was. The same in mass_at and cosine_at.
  RangeCounts at_scale(const FormatRange& range, std::optional<double> scale) const;
  /// The zones by magnitude: L1 and sums of squares of the unscaled gradients.
  ZoneMass mass_at(const FormatRange& range, std::optional<double> scale) const;
  /// Between the gradients and what the format keeps of them at `scale`; see DirectionSums::cosine. Unknown
  /// where a value is infinite or NaN, or may become so, and where no value has a direction.
  std::optional<MassInterval> cosine_at(const FormatRange& range, std::optional<double> scale) const;
  /// What rounding them would cost, in units of the unscaled gradients.
  FitSums fit_at(const FormatRange& range, std::optional<double> scale) const;
  /// The exact sums of the zones (lost, subnormal, normal, overflow) in units of the values as they were
  /// added; none if only their histograms were.
  std::optional<std::array<ExactMass, 4>> exact_zones(const FormatRange& range,
                                                      std::optional<double> scale) const;
  /// The scales they had, ascending.
  std::vector<double> recorded_scales() const;
  /// Smallest e such that every finite unscaled gradient is surely <= 2^e in magnitude (within one bin); and
  /// the same from below: every non-zero one is surely > 2^e. Both only if there is a finite non-zero value.
  struct Extent {
    int smallest = 0;
    int largest = 0;
  };
  bool empty() const;  ///< no finite non-zero value
  Extent extent() const;
  /// The smallest finite unscaled magnitude above zero and the greatest, both 0 where there is none; nothing
  /// where counts do not say (ExponentHistogram::extremes_known).
  struct Magnitudes {
    double smallest = 0, greatest = 0;
  };
  std::optional<Magnitudes> magnitudes() const;

 private:
  /// sum(what, factor, recorded) over all scales: `what` is values or a histogram, `factor` multiplies them.
  template <class Sum>
  void for_each(std::optional<double> scale, const Sum& sum) const;

  // By the scale that they carried, and apart: a histogram has 2 kB, the values of a small tensor far less.
  std::map<double, ExponentHistogram> histograms_;
  std::map<double, ValueHistogram> values_;
};

/// What the casts of a run did to one tensor, or to all together.
struct RecordedCast {
  std::string tensor;
  DType dtype = DType::f16;  ///< of the stored values, or of a product's operands
  CastCounts counts;
};

/// Per tensor and merged.
class RangeReport {
 public:
  void add(std::string_view tensor, const ExponentHistogram& values, double loss_scale);
  void add(std::string_view tensor, const ValueHistogram& values, double loss_scale);
  /// The values before the cast, and what the cast did to them. The row of a cast inside products (E4M3,
  /// E5M2) is about operands in transit, not about a tensor that is kept: only its cast is added. `watched`:
  /// as in cast_counts.
  void add(const HistogramRow& row, bool watched = false);

  /// Marks the entry `name`, which was added before, as `tensor` in `step` of a run; other entries are
  /// further steps. An unknown name throws std::invalid_argument.
  void is_step(std::string_view name, std::string_view tensor, std::uint64_t step);
  /// The tensor that is_step gave for an entry; the entry's own name, and no step, where it gave none.
  std::string tensor_of(const std::string& name) const;
  std::optional<std::uint64_t> step_of(const std::string& name) const;

  /// Tensors in the order in which they were first added.
  std::span<const std::string> tensors() const { return names_; }
  /// An unknown name throws std::invalid_argument.
  const ScaledHistograms& tensor(std::string_view name) const;
  const ScaledHistograms& merged() const { return merged_; }
  /// By tensor and dtype, in the order in which they came. Values without a cast, as those stored in FP32,
  /// have none.
  std::span<const RecordedCast> casts() const { return casts_; }
  /// The loss scales that they were made at.
  const std::set<double>& cast_scales() const { return cast_scales_; }
  /// The step of a run that all rows belong to; none: several steps, or no rows.
  std::optional<std::uint64_t> step() const {
    return steps_.size() == 1 ? std::optional(*steps_.begin()) : std::nullopt;
  }

 private:
  ScaledHistograms& named(std::string_view tensor);

  std::vector<std::string> names_;
  std::map<std::string, ScaledHistograms, std::less<>> tensors_;
  ScaledHistograms merged_;
  std::vector<RecordedCast> casts_;
  std::set<double> cast_scales_;
  std::set<std::uint64_t> steps_;
  std::map<std::string, std::pair<std::string, std::uint64_t>, std::less<>> of_steps_;
};

struct WhatIf {
  int log2_scale = 0;
  RangeCounts counts;
};
/// One entry for each power-of-two scale from 2^min_log2_scale to 2^max_log2_scale.
std::vector<WhatIf> what_if(const ScaledHistograms& gradients, const FormatRange& range);

/// Bins in which values answer exactly all that reports need: at every scale that may be suggested, and at
/// `scale` (or unscaled), if they carry one of `recorded_scales`.
std::shared_ptr<const ValueBins> value_bins(std::span<const FormatRange> ranges,
                                            std::span<const double> recorded_scales,
                                            std::optional<double> scale);

}  // namespace fp16lab::analysis
