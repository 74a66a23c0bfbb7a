// Counts, L1 and sum of squares of values by zone of a format, exactly: where range_mass.hpp and zone_mass.hpp bound the sums
// from the counts of bins, this looks at every value. Nothing rounds before the end, so merging is addition and no
// chunking or number of threads shows. There is no vector code: correctness is the point.
#pragma once

#include <cstdint>
#include <span>

#include "numerics/fixed_point_sum.hpp"
#include "numerics/format_range.hpp"
#include "numerics/small_float.hpp"

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

/// The zones of range_counts.hpp at one scale, each value put where it belongs: no edge is in doubt.
class ExactZoneMass {
 public:
  /// `scale` finite and above zero (std::invalid_argument). Products with it are exact.
  ExactZoneMass(const FormatRange& range, double scale);

  /// Any number of chunks, in any order. `threads` >= 1 (std::invalid_argument).
  void add(std::span<const float> values, int threads = 1);
  void add(std::span<const double> values, int threads = 1);
  void add(std::span<const Float16> values, int threads = 1);
  void add(std::span<const BFloat16> values, int threads = 1);
  /// Adds what another one saw, which must have the same range and scale (std::invalid_argument).
  ExactZoneMass& operator+=(const ExactZoneMass& other);

  const FormatRange& range() const { return range_; }
  double scale() const { return scale_; }
  std::uint64_t zero() const { return zero_; }  ///< exact zeros: not underflow
  std::uint64_t infinite() const { return infinite_; }
  std::uint64_t nan() const { return nan_; }
  /// In units of the values themselves, not of their products with the scale.
  const ExactMass& lost() const { return zones_[0]; }
  const ExactMass& subnormal() const { return zones_[1]; }
  const ExactMass& normal() const { return zones_[2]; }
  const ExactMass& overflow() const { return zones_[3]; }
  /// All finite non-zero values.
  ExactMass total() const;

  bool operator==(const ExactZoneMass&) const = default;

 private:
  static constexpr std::size_t zone_count = 4;
  template <class T>
  void add_values(std::span<const T> values, int threads);
  template <class T>
  void add_block(std::span<const T> values);

  FormatRange range_;
  double scale_;
  /// The largest FP64 numbers of the first three zones; 0: none is.
  double edges_[zone_count - 1];
  std::uint64_t zero_ = 0, infinite_ = 0, nan_ = 0;
  ExactMass zones_[zone_count];
};

}  // namespace fp16lab
