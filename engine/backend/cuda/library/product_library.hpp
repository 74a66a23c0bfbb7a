// ProductLibrary: products by cuBLAS, which `backend.gemm = cublas` calls unchanged. It adds in an order of
// its own, so that these products are outside of the promise of equal bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "engine/backend/cuda/runtime/runtime.hpp"
#include "numerics/formats/dtype.hpp"

struct cublasContext;

namespace fp16lab::engine::gpu {

/// d (m x n) = op(a) (m x k) * op(b) (k x n), row-major and contiguous; `batch` of them, one after the other
/// in memory. No extent is 0.
struct LibraryProduct {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  DType operands = DType::f16;  ///< a's and b's: f16, bf16 or f32
  DType out = DType::f16;       ///< d's: that of the operands, or f32
  bool transpose_a = false;     ///< a is stored (k x m)
  bool transpose_b = false;     ///< b is stored (n x k)
};

/// cuBLAS for one back end, on its stream and with a workspace of its own.
class ProductLibrary {
 public:
  /// `tf32`: f32 operands are rounded to TF32. DeviceFailure in the library's words where it does not start.
  ProductLibrary(Runtime& runtime, bool tf32);

  /// In order with the verbs on the runtime's stream; recorded while recording. Sums are FP32, also those of
  /// parts of k. d overlaps neither operand. DeviceFailure in the library's words.
  void run(const LibraryProduct& product, const std::byte* a, const std::byte* b, std::byte* d);

 private:
  struct Destroy {
    void operator()(cublasContext* handle) const;
  };

  Runtime* runtime_;
  bool tf32_;
  std::unique_ptr<std::byte, std::function<void(std::byte*)>> workspace_;
  std::unique_ptr<cublasContext, Destroy> handle_;
};

}  // namespace fp16lab::engine::gpu
