// Values for the tests of histograms and of what is read from them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "numerics/formats/bits.hpp"
#include "numerics/histogram/exponent_histogram.hpp"

namespace fp16lab {

inline ExponentHistogram histogram_of(const std::vector<float>& values, int threads = 1) {
  ExponentHistogram histogram;
  count_exponents(values, histogram, threads);
  return histogram;
}

/// All bit patterns, with zeros, infinities and powers of two among them more often.
inline std::vector<float> random_patterns(std::size_t n, std::uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) {
    std::uint32_t bits = static_cast<std::uint32_t>(engine());
    if (i % 11 == 0) bits &= 0x80000000u;                        // zeros of both signs
    if (i % 13 == 0) bits = (bits & 0x80000000u) | 0x7f800000u;  // infinities
    if (i % 5 == 0) bits &= 0xff800000u;                         // powers of two
    values[i] = float_from_bits(bits);
  }
  return values;
}

}  // namespace fp16lab
