// Exponents of values in a device's memory that the caller owns, counted on the caller's stream: for PyTorch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "numerics/formats/dtype.hpp"
#include "numerics/histogram/exponent_histogram.hpp"

namespace fp16lab::engine {

/// Numbers of a row of counts, which all begin with 0: ExponentHistogram's bins, zeros, Infs and NaNs, which
/// are sums; then two maxima over finite magnitudes that are not zero, as FP32 bits: the greatest, and
/// infinity's bits less the smallest.
inline constexpr int histogram_row_size = ExponentHistogram::bin_count + 5;

/// Adds the counts of `count` values of `dtype` (f32, f16, bf16) to the histogram_row_size numbers at `row`.
/// Both are in memory of the thread's current device, the values at a multiple of 16 bytes. `stream`: a
/// cudaStream_t, in whose order it happens; nothing waits. DeviceUnavailable without a device back end;
/// std::invalid_argument for another dtype or address; DeviceFailure where the launch is refused.
void count_exponents_on_stream(const void* values, std::size_t count, DType dtype, std::uint64_t* row,
                               void* stream);

}  // namespace fp16lab::engine
