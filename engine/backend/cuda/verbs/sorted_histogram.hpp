// Backend::histogram by another algorithm: Thrust sorts keys, where histogram.cu lets CUB count in shared
// memory. Sorting moves every key several times and CUB reads every element once, so histogram.cu is what
// runs; equal counts are a test of both, and of the OpenMP build of the same algorithm
// (numerics/histogram/exponent_count_thrust.hpp).
#pragma once

#include "engine/backend/backend.hpp"

namespace fp16lab::engine {

/// Adds the exponents of x (f32, f16, bf16) to `out`. `backend` is one that make_cuda_backend made and x is
/// on its device (std::invalid_argument otherwise). Waits for the device; not while it records
/// (std::logic_error). DeviceFailure where memory for the keys is missing.
void sorted_histogram(Backend& backend, const Tensor& x, ExponentHistogram& out);

}  // namespace fp16lab::engine
