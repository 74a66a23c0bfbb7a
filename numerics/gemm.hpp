// Matrix products whose every output bit is specified.
//
// Both products are one accumulator chain per output element over ascending k, so no result depends on
// tiling, vector width or the number of threads. Matrices are row-major with explicit leading dimensions (in
// elements).
#pragma once

#include <cstdint>

#include "numerics/small_float.hpp"
#include "numerics/tensor_core_model.hpp"

namespace fp16lab {

/// One operand. `transposed` says that memory holds the transpose of the logical matrix; `leading_dimension`
/// is the distance between consecutive rows *in memory*.
template <class T>
struct MatrixView {
  const T* data = nullptr;
  std::int64_t leading_dimension = 0;
  bool transposed = false;
};

struct GemmShape {
  std::int64_t m = 0;  ///< rows of A and D
  std::int64_t n = 0;  ///< columns of B and D
  std::int64_t k = 0;  ///< columns of A, rows of B
};

/// D (m x n, FP32) = C (+) A (m x k) * B (k x n) where each element equals
/// `fused_dot_add(model, row of A, column of B, c)` bit for bit.
/// `c` may be null (accumulators start at +0), may equal `d`, and shares `ldd`. A and B must not overlap D.
/// k == 0 copies C, or writes +0. Throws std::invalid_argument on negative sizes or too small leading
/// dimensions.
void emulated_gemm(const TensorCoreModel& model, GemmShape shape, MatrixView<Float16> a,
                   MatrixView<Float16> b, const float* c, float* d, std::int64_t ldd, int threads = 1);

/// D (m x n, FP32) = A * B where each element is the chain acc = fma(a[k], b[k], acc) over ascending k from
/// +0, every step a correctly rounded (nearest-even) FP32 fma. NaN results are stored as the canonical
/// 0x7fffffff. Same preconditions as above; k == 0 writes +0.
void fma_chain_gemm(GemmShape shape, MatrixView<float> a, MatrixView<float> b, float* d, std::int64_t ldd,
                    int threads = 1);

/// The instruction set that the run-time dispatch chose on this CPU, for manifests and benchmarks: "AVX3",
/// "AVX2", ...
const char* gemm_target_name();

}  // namespace fp16lab
