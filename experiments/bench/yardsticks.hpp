// What fp16lab's kernels are measured against.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "numerics/gemm/gemm.hpp"

namespace fp16lab::bench {

/// D = A * B by the linked BLAS's cblas_sgemm.
void sgemm(GemmShape shape, MatrixView<float> a, MatrixView<float> b, float* d, std::int64_t ldd);
/// OpenBLAS's threads; without effect on another BLAS.
void set_sgemm_threads(int threads);
/// OpenBLAS's kernel set ("SkylakeX"), or "not OpenBLAS".
const char* sgemm_core();

/// A plain loop of F16C conversions, 8 elements an instruction; false if this CPU or build has none.
bool f16c_narrow(std::span<const float> from, std::span<std::uint16_t> to);
bool f16c_widen(std::span<const std::uint16_t> from, std::span<float> to);

/// FP16 arithmetic as people write it first: widen, one FP32 operation, convert; 16 elements an AVX-512
/// instruction (8 with AVX2). Its fma rounds twice. False if this CPU or build cannot.
enum class HalfOperation { add, mul, fma };
bool naive_half_arithmetic(HalfOperation operation, const std::uint16_t* a, const std::uint16_t* b,
                           const std::uint16_t* c, std::uint16_t* out, std::size_t count);

/// The bandwidth of reading: an xor over all words.
std::uint64_t read_all(std::span<const float> from);

}  // namespace fp16lab::bench
