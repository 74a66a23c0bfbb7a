// The verb Backend::histogram of the device, for callers that need the counts at once: counted by Thrust
// (numerics/histogram/exponent_count_thrust-inl.h). CastProbe's counts, which are asynchronous, come from
// kernels that a recorded step can hold (histogram.cu).
#pragma once

#include "engine/backend/backend.hpp"

namespace fp16lab::engine::gpu {

class CudaBackend;

/// Adds the exponents of x (f32, f16, bf16) to `out`; waits for the device. The caller has looked at x, and
/// that nothing is recorded. DeviceFailure where memory for the counters is missing.
void count_by_thrust(CudaBackend& backend, const Tensor& x, ExponentHistogram& out);

}  // namespace fp16lab::engine::gpu
