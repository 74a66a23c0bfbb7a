// Exponent counts of the arrays of numerics/files/array_stream.hpp.
#pragma once

#include <cstdint>
#include <span>

#include "numerics/exponent_histogram.hpp"
#include "numerics/files/array_stream.hpp"

namespace fp16lab {

/// FP16, BF16, FP8 and FP32 values are counted as they are: each is an FP32 number. FP64 values are counted by their exact
/// binades, never rounded to FP32 first, which would move values across bins and lose the tiny ones. Of those beyond FP32's
/// range
///   0 < |x| <= 2^-126   are in the lowest bin, which is (0, 2^-126] by its definition, however small they are;
///   |x| > 2^128         are put into the highest bin: they stay finite and overflow at every scale of use (from 2^-111 on).
/// `below_fp32` and `above_fp32` say how many there were.
struct ArrayCounts {
  ExponentHistogram values;
  std::uint64_t below_fp32 = 0;  ///< 0 < |x| < 2^-149, FP32's smallest subnormal
  std::uint64_t above_fp32 = 0;  ///< finite, |x| > (2 - 2^-23) * 2^127, FP32's largest number

  ArrayCounts& operator+=(const ArrayCounts& other);
  bool operator==(const ArrayCounts&) const = default;
};

/// Adds every element.
void count_exponents(std::span<const double> values, ArrayCounts& counts);

/// All elements of one array, on `threads` threads, which change speed and never counts. Errors as ArrayFile::visit.
ArrayCounts count_array(const ArrayFile& file, const ArrayInfo& array, int threads = 1);

}  // namespace fp16lab
