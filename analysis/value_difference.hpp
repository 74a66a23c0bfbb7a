// What two arrays of numbers differ by, and what of it a cast alone explains.
//
// Both carry a scale, which is taken out. The format with fewer significant bits is the grid: a cast alone
// explains an element where rounding the other one to the grid, to nearest even and at the grid's own scale,
// gives the same bits. Differences are counted in numbers of the grid (ulps), and measured in FP64, which
// holds every element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "numerics/formats/dtype.hpp"

namespace fp16lab::analysis {

/// One of the two arrays.
struct ValueSide {
  DType type = DType::f32;
  double scale = 1;  ///< what its numbers carry: finite, above 0; 1 for integers
};

struct DifferentElement {
  std::uint64_t index = 0;               ///< in the order in which elements were added
  double a = 0, b = 0;                   ///< without their scales
  std::uint64_t a_bits = 0, b_bits = 0;  ///< as stored
};

/// It measures the elements that are finite on both sides; for integers, only the counts and the first
/// difference.
struct ValueDifference {
  std::uint64_t elements = 0;
  std::uint64_t differing = 0;        ///< other numbers: -0 is not 0, and a NaN is any other NaN
  std::uint64_t beyond_cast = 0;      ///< those among them that a cast alone does not explain
  std::uint64_t other_nonfinite = 0;  ///< those among these with an Inf or NaN on a side
  std::uint64_t other_signs = 0;      ///< those among these above 0 on one side and below 0 on the other
  std::uint64_t nonfinite_a = 0, nonfinite_b = 0;
  double largest = 0;  ///< |a - b|
  std::uint64_t largest_at = 0;
  /// How many steps from one number of the grid to the next separate a and b, once both are there; zeros of
  /// both signs are one number, and what a cast takes beyond the largest number is one step above it.
  std::uint64_t ulps = 0;
  std::uint64_t ulps_at = 0;
  double relative_l2 = 0;          ///< |a - b| / max(|a|, |b|), Euclidean norms; 0 where both are 0
  double norm_a = 0, norm_b = 0;   ///< may be infinite, or zero, where FP64 does not hold the norm
  std::optional<double> cosine{};  ///< cosine of the angle between a and b; none where one of them is 0
  std::optional<DifferentElement> first{}, first_beyond_cast{};
};

/// Which of two floating-point formats is the grid.
DType grid_of(DType a, DType b);

/// Takes two arrays chunk by chunk, in memory that does not grow. What it says does not depend on the chunks'
/// sizes but for the last bits of norms and cosine, whose sums are FP64's.
class ValueComparer {
 public:
  /// std::invalid_argument for integers of two types, for one side of integers, and for a scale that is not
  /// finite and above 0, or is not 1 with integers.
  ValueComparer(ValueSide a, ValueSide b);

  /// As many elements of the one as of the other, in native byte order, aligned; std::invalid_argument
  /// otherwise.
  void add(std::span<const std::byte> a, std::span<const std::byte> b);
  ValueDifference result() const;

 private:
  /// sum * 2^(2 exponent), a sum of squares or products that FP64 alone might not hold.
  struct ScaledSum {
    double sum = 0;
    int exponent = 0;
    void add(double part, int part_exponent);
  };
  void add_integers(std::span<const std::byte> a, std::span<const std::byte> b);
  void add_block(const std::byte* a, const std::byte* b, std::size_t count);
  void add_norms(std::span<double> a, std::span<double> b);

  ValueSide a_, b_;
  ValueDifference found_;
  ScaledSum aa_, bb_, ab_, dd_;
};

}  // namespace fp16lab::analysis
