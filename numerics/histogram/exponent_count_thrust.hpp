// count_exponents once more, by another algorithm in another library: keys sorted by Thrust on OpenMP
// threads. Equal counts are a test of both. count_exponents is the faster one; nothing but tests and
// benchmarks calls this.
#pragma once

#include <span>

#include "numerics/histogram/exponent_histogram.hpp"

namespace fp16lab {

/// Was this built where Thrust's headers are (Debian: libthrust-dev)?
bool have_thrust_counting();

/// Adds every element to `histogram`, on as many threads as OpenMP gives. std::runtime_error without Thrust.
void count_exponents_by_sorting(std::span<const float> values, ExponentHistogram& histogram);
void count_exponents_by_sorting(std::span<const Float16> values, ExponentHistogram& histogram);
void count_exponents_by_sorting(std::span<const BFloat16> values, ExponentHistogram& histogram);

}  // namespace fp16lab
