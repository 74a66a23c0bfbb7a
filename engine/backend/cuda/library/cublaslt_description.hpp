// A product in cuBLASLt's words. It counts columns first; our rows are its columns, so every matrix is handed
// over as its transpose and the product as D^T (n x m) = op(B)^T (n x k) * op(A)^T (k x m): its first operand
// is our b, its m our n. A matrix of ours with rows of `ld` elements is, without a copy, a matrix of its with
// columns of `ld` elements; one that we store transposed is one that it has to transpose (CUBLAS_OP_T).
//
// Source: the comments of cublasLt.h (CUDA 13.0) and the cuBLAS documentation, "Using the cuBLASLt API".
// Descriptors lie on the stack (cublasLt...Init): a product allocates nothing. Needs no device.
#pragma once

#include <cublasLt.h>
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

#include "engine/backend/cuda/library/product_library.hpp"
#include "engine/backend/cuda/runtime/device_errors.hpp"

namespace fp16lab::engine::cublaslt {

inline void require(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw DeviceFailure(fmt::format("cublasLt: {}: {}", what, cublasLtGetStatusString(status)));
}

inline cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return CUDA_R_16F;
    case DType::bf16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

/// A matrix of cuBLASLt's: columns of `rows` neighbours, `ld` elements from one to the next.
class MatrixLayout {
 public:
  MatrixLayout(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t ld, std::int64_t batch) {
    require(cublasLtMatrixLayoutInit(&layout_, type_of(dtype), static_cast<std::uint64_t>(rows),
                                     static_cast<std::uint64_t>(columns), ld),
            "a matrix layout");
    if (batch == 1) return;
    const auto count = static_cast<std::int32_t>(batch);
    const std::int64_t stride = ld * columns;  // the next matrix begins where this one ends
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count));
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride));
  }
  /// The functions of the library take no pointer to const, and do not write.
  cublasLtMatrixLayout_t get() const { return const_cast<cublasLtMatrixLayout_t>(&layout_); }

 private:
  void set(cublasLtMatrixLayoutAttribute_t attribute, const void* value, std::size_t bytes) {
    require(cublasLtMatrixLayoutSetAttribute(&layout_, attribute, value, bytes),
            "an attribute of a matrix layout");
  }

  cublasLtMatrixLayoutOpaque_t layout_{};
};

class Operation {
 public:
  explicit Operation(const ProductProblem& p) {
    // 32F: FP32 accumulators, of FP16 and BF16 operands as of FP32 ones; TF32 only where it is asked for by
    // name. alpha and beta are FP32 in host memory (the default), the epilogue is none (the default).
    require(cublasLtMatmulDescInit(&operation_, p.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                                   CUDA_R_32F),
            "a product");
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a);
  }
  cublasLtMatmulDesc_t get() const { return const_cast<cublasLtMatmulDesc_t>(&operation_); }

 private:
  void set(cublasLtMatmulDescAttributes_t attribute, bool transposed) {
    const std::int32_t value = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    require(cublasLtMatmulDescSetAttribute(&operation_, attribute, &value, sizeof(value)),
            "an attribute of a product");
  }

  cublasLtMatmulDescOpaque_t operation_{};
};

/// `first` and `second` are cuBLASLt's A and B: our b and a. `result` is its D, and its C, which beta = 0
/// does not read.
struct Description {
  explicit Description(const ProductProblem& p)
      : operation(p),
        first(p.operands, p.transpose_b ? p.k : p.n, p.transpose_b ? p.n : p.k, p.ldb, p.batch),
        second(p.operands, p.transpose_a ? p.m : p.k, p.transpose_a ? p.k : p.m, p.lda, p.batch),
        result(p.out, p.n, p.m, p.ldd, p.batch) {}

  Operation operation;
  MatrixLayout first, second, result;
};

class Preference {
 public:
  Preference(const ProductProblem& p, ProductOrder order, std::size_t workspace_bytes) {
    require(cublasLtMatmulPreferenceInit(&preference_), "a preference");
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(workspace_bytes));
    if (order == ProductOrder::one_sequence)
      set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
          static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p.alignment_b);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p.alignment_a);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p.alignment_d);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p.alignment_d);
  }
  cublasLtMatmulPreference_t get() { return &preference_; }

 private:
  template <class Value>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, Value value) {
    require(cublasLtMatmulPreferenceSetAttribute(&preference_, attribute, &value, sizeof(value)),
            "an attribute of a preference");
  }

  cublasLtMatmulPreferenceOpaque_t preference_{};
};

}  // namespace fp16lab::engine::cublaslt
