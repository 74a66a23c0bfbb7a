// count_exponents once more, by another algorithm in another library: Thrust, on OpenMP threads. It is the
// algorithm by which a GPU counts tensors (engine/backend/cuda/verbs/thrust_histogram.hpp), so that equal
// counts here test it where there is none. count_exponents is what a CPU counts with.
#pragma once

#include <span>

#include "numerics/histogram/exponent_histogram.hpp"

namespace fp16lab {

/// Was this built where Thrust's headers are (Debian: libthrust-dev)?
bool have_thrust_counting();

/// Adds every element to `histogram`, on as many threads as OpenMP gives. std::runtime_error without Thrust.
void count_exponents_by_thrust(std::span<const float> values, ExponentHistogram& histogram);
void count_exponents_by_thrust(std::span<const Float16> values, ExponentHistogram& histogram);
void count_exponents_by_thrust(std::span<const BFloat16> values, ExponentHistogram& histogram);

}  // namespace fp16lab
