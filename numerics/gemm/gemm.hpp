// Matrix products whose every output bit is specified.
//
// Both products are one accumulator chain per output element over ascending k, so no result depends on
// tiling, vector width or the number of threads. Matrices are row-major with explicit leading dimensions (in
// elements).
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "numerics/tensor_core/tensor_core_model.hpp"

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

namespace gemm_detail {

/// An operand whose element type is a value.
struct Operand {
  const void* data = nullptr;
  std::int64_t leading_dimension = 0;
  bool transposed = false;
  DType format = DType::f16;
};

/// Block scales of both operands, codes of kind.format: a is m x k / kind.block, b is k / kind.block x n.
struct Scales {
  ScaleKind kind = {};
  Operand a = {}, b = {};
};

template <class T>
Operand operand_of(MatrixView<T> matrix) {
  return {matrix.data, matrix.leading_dimension, matrix.transposed, operand_format_of<T>};
}

/// emulated_gemm for all element types; c and d point to elements of `format`.
void emulated_gemm(const TensorCoreModel& model, GemmShape shape, const Operand& a, const Operand& b,
                   DType format, const void* c, void* d, std::int64_t ldd, int threads,
                   std::byte* packed_b = nullptr, const Scales& scales = {});
std::size_t packed_b_bytes(const TensorCoreModel& model, GemmShape shape, const Operand& b);
void pack_b(const TensorCoreModel& model, GemmShape shape, const Operand& b, std::byte* packed_b,
            int threads);

}  // namespace gemm_detail

/// D (m x n) = C (+) A (m x k) * B (k x n) where each element equals
/// `fused_dot_add(model, row of A, column of B, c)` bit for bit.
///
/// A and B hold numbers of any operand format (dtype.hpp), float being TF32 registers, whose low 13 bits are
/// ignored; C and D hold float or Float16. `model` must have these operands and accumulate in D's type. Rows
/// with block scales need strided_gemm.hpp, and what quantize left quantized_gemm.hpp.
/// `c` may be null (accumulators start at +0), may equal `d`, and shares `ldd`. A and B must not overlap D. k
/// == 0 copies C, or writes +0. Throws std::invalid_argument on formats and parameters that the model does
/// not have, negative sizes or too small leading dimensions. With `packed_b`, what pack_b left of b, no
/// element of b is read; the result is the same.
template <class A, class B, class D>
void emulated_gemm(const TensorCoreModel& model, GemmShape shape, MatrixView<A> a, MatrixView<B> b,
                   const std::type_identity_t<D>* c, D* d, std::int64_t ldd, int threads = 1,
                   std::byte* packed_b = nullptr) {
  gemm_detail::emulated_gemm(model, shape, gemm_detail::operand_of(a), gemm_detail::operand_of(b),
                             DTypeOf<D>::value, c, d, ldd, threads, packed_b);
}

/// Bytes that pack_b writes for products with this b, n and k (m may differ); 0 where nothing is to be saved.
template <class B>
std::size_t packed_b_bytes(const TensorCoreModel& model, GemmShape shape, MatrixView<B> b) {
  return gemm_detail::packed_b_bytes(model, shape, gemm_detail::operand_of(b));
}
/// Writes b to `packed_b` (packed_b_bytes > 0, aligned to 64 bytes) as the kernels of emulated_gemm read it.
template <class B>
void pack_b(const TensorCoreModel& model, GemmShape shape, MatrixView<B> b, std::byte* packed_b,
            int threads = 1) {
  gemm_detail::pack_b(model, shape, gemm_detail::operand_of(b), packed_b, threads);
}

/// D (m x n, FP32) = C (+) A * B where each element is the chain acc = fma(a[k], b[k], acc) over ascending k
/// from the element of C, every step a correctly rounded (nearest-even) FP32 fma. NaN results are stored as
/// the canonical 0x7fffffff. `c`, `packed_b` and all preconditions as above; k == 0 copies C, or writes +0.
void fma_chain_gemm(GemmShape shape, MatrixView<float> a, MatrixView<float> b, const float* c, float* d,
                    std::int64_t ldd, int threads = 1, const float* packed_b = nullptr);
/// The same from +0.
inline void fma_chain_gemm(GemmShape shape, MatrixView<float> a, MatrixView<float> b, float* d,
                           std::int64_t ldd, int threads = 1) {
  fma_chain_gemm(shape, a, b, nullptr, d, ldd, threads);
}

/// As packed_b_bytes and pack_b, for fma_chain_gemm.
std::size_t fma_chain_packed_b_bytes(GemmShape shape);
void fma_chain_pack_b(GemmShape shape, MatrixView<float> b, float* packed_b, int threads = 1);

/// The instruction set that the run-time dispatch chose on this CPU, for manifests and benchmarks: "AVX3",
/// "AVX2", ...
const char* gemm_target_name();

}  // namespace fp16lab
