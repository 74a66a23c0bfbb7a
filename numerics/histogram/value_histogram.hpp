// Counts, L1 and sums of squares of values between chosen edges. An ExponentHistogram bounds what a format
// does to its values, because an edge of the format may be inside of a bin; given the values themselves, the
// bins here end at the edges of all formats and scales in question, and then every zone is a whole number of
// bins: one pass over the values answers all of them exactly. Nothing rounds before the end, so merging is
// addition, and neither chunks nor threads show.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "numerics/arithmetic/fixed_point_sum.hpp"
#include "numerics/formats/format_range.hpp"
#include "numerics/formats/small_float.hpp"
#include "numerics/histogram/exponent_histogram.hpp"
#include "numerics/histogram/rounding_errors.hpp"
#include "numerics/histogram/zones.hpp"

namespace fp16lab {

/// 2^64 values of up to 2^1024, in units of the smallest subnormal FP64 number; and their squares.
using ExactL1 = FixedPointSum<-1074, (1074 + 1024 + 64 + 63) / 64>;
using ExactL2 = FixedPointSum<-2148, (2148 + 2048 + 64 + 63) / 64>;

struct ExactMass {
  std::uint64_t count = 0;
  ExactL1 l1;
  ExactL2 l2_squared;

  ExactMass& operator+=(const ExactMass& other);
  bool operator==(const ExactMass&) const = default;
};

/// A format, and what values are multiplied by before they are rounded to it.
struct ScaledFormat {
  FormatRange range;
  double scale = 1;
};

/// Magnitudes cut into bins (low, high]: at every power of two, at FP32's smallest and largest number, and at
/// the edges of some scaled formats. Products with scales are exact, so an edge is the last FP64 number on
/// its lower side.
class ValueBins {
 public:
  /// Scales finite and above zero (std::invalid_argument).
  explicit ValueBins(std::span<const ScaledFormat> formats);

  std::size_t count() const { return tops_.size(); }
  /// FP64 bits of the largest number of a bin, and of the one below its smallest (0 below the first bin).
  std::uint64_t top(std::size_t bin) const { return tops_[bin]; }
  std::uint64_t below(std::size_t bin) const { return bin == 0 ? 0 : tops_[bin - 1]; }
  /// Is this, as FP64 bits, the largest number of a bin, or 0?
  bool is_edge(std::uint64_t magnitude) const;
  /// The bin of a finite magnitude that is not zero, as FP64 bits.
  std::size_t bin_of(std::uint64_t magnitude) const {
    std::size_t bin = first_of_binade_[(magnitude - 1) >> Binary64::fraction_bits];
    while (magnitude > tops_[bin]) ++bin;
    return bin;
  }

 private:
  std::vector<std::uint64_t> tops_;  ///< ascending
  std::array<std::uint32_t, (std::size_t{1} << Binary64::exponent_bits) - 1> first_of_binade_{};
};

class ValueHistogram {
 public:
  /// The same bins for all histograms that are to be added.
  explicit ValueHistogram(std::shared_ptr<const ValueBins> bins);

  /// Any number of chunks, in any order. `threads` >= 1 (std::invalid_argument).
  template <class T>  // the element type of a floating-point dtype
  void add(std::span<const T> values, int threads = 1);
  /// What another one counted, in the same bins (std::invalid_argument).
  ValueHistogram& operator+=(const ValueHistogram& other);

  std::uint64_t zero() const { return zero_; }
  std::uint64_t infinite() const { return infinite_; }
  std::uint64_t nan() const { return nan_; }
  std::uint64_t finite_nonzero() const;
  /// The binades (2^e, 2^(e+1)] of the smallest and the greatest finite magnitude that is not zero; there
  /// must be one. FP64's subnormals are all in that of -1023.
  int smallest_exponent() const;
  int greatest_exponent() const;
  /// The smallest finite magnitude that is not zero, and the greatest; 0: there is none.
  double smallest() const { return double_from_bits(smallest_); }
  double greatest() const { return double_from_bits(greatest_); }
  /// What rounding them to a format would cost.
  const RoundingErrors& rounding_errors() const { return rounding_errors_; }
  /// 0 < |x| < 2^-149, FP32's smallest number; and finite beyond its largest.
  std::uint64_t below_fp32() const;
  std::uint64_t above_fp32() const;

  /// The values of the zones in the order of Zone::Index: lost, subnormal, normal, overflow. Takes only the
  /// formats and scales that the bins were made for (std::invalid_argument): then no bin is cut.
  std::array<ExactMass, Zone::count> zones(const ScaledFormat& format) const;
  /// All finite values.
  ExactMass total() const;

  /// The counts by binary exponent. What is below FP32's range is put into the lowest bin, what is above into
  /// the highest.
  ExponentHistogram exponents() const;

  bool operator==(const ValueHistogram& other) const;

 private:
  /// Sums of significands, in units of the bin's last place.
  struct Bin {
    std::uint32_t index = 0;
    std::uint64_t count = 0;
    unsigned __int128 l1 = 0;          ///< 2^64 values of up to 2^53
    FixedPointSum<0, 3> l2_squared{};  ///< and of up to 2^106
    bool operator==(const Bin&) const = default;
  };
  template <class T>
  void add_block(std::span<const T> values);
  void add_bins(std::span<const Bin> bins);
  void add_to(ExactMass& mass, const Bin& bin) const;

  std::shared_ptr<const ValueBins> edges_;
  std::uint64_t zero_ = 0, infinite_ = 0, nan_ = 0;
  std::uint64_t smallest_ = 0, greatest_ = 0;  ///< FP64 bits
  RoundingErrors rounding_errors_;
  std::vector<Bin> bins_;  ///< those with values, ascending: memory follows the values, not the edges
};

/// zones.hpp of values, for the formats and scales of `zones`: counts are exact, and both ends of a sum are
/// the exact sum, rounded once to FP64. What rounding does to a direction is still a bound.
RangeCounts count_ranges(const ValueHistogram& values, const FormatRange& range, double scale);
ZoneMass zone_mass(const ValueHistogram& values, const FormatRange& range, double scale);
DirectionSums direction_sums(const ValueHistogram& values, const FormatRange& range, double scale);

}  // namespace fp16lab
