// cuBLAS, as far as the device back end calls it: products whose terms are added from the last to the first,
// which no kernel of ours does. A call that the documentation forbids, or that does not promise FP32 sums, is
// refused in words. Source: cuBLAS documentation, "cublasGemmStridedBatchedEx()", "cublasSetWorkspace()",
// "cublasSetStream()", "cublasMath_t".
#include <cublas_v2.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

#include "numerics/convert/convert.hpp"
#include "numerics/formats/bits.hpp"
#include "tests/machines/ptx/cudart/simulation.hpp"

using namespace fp16lab::engine::ptx::cudart;

struct cublasContext {
  cudaStream_t stream = nullptr;
  void* workspace = nullptr;  ///< the user's
  std::size_t workspace_bytes = 0;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
};

namespace {

using fp16lab::Binary16;
using fp16lab::BrainFloat16;

void expect(bool condition, const char* what) {
  if (condition) return;
  say(std::string("cuBLAS: ") + what);
  throw Refusal{cudaErrorInvalidValue};
}

template <class Body>
cublasStatus_t status_of(const char* function, Body body) {
  return on_device(function, body) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

/// A matrix in columns, and those that follow it.
struct Columns {
  std::byte* data;
  cudaDataType type;
  std::int64_t rows, columns, ld;
  long long stride;

  std::size_t element() const { return type == CUDA_R_32F ? 4 : 2; }
  void check(const Simulation& simulation, const Device& device, std::int64_t batch) const {
    expect(rows > 0 && columns > 0 && batch > 0, "an extent is not positive");
    expect(ld >= rows, "a leading dimension is smaller than the rows of its matrix");
    const auto elements = static_cast<std::size_t>((batch - 1) * stride + (columns - 1) * ld + rows);
    expect(simulation.owner(data, elements * element()) == &device,
           "a matrix lies outside of the device's memory");
  }
  float at(std::int64_t item, std::int64_t row, std::int64_t column, bool tf32) const {
    const std::byte* const from = place(item, row, column);
    std::uint32_t bits = 0;
    std::memcpy(&bits, from, element());
    if (type == CUDA_R_16F)
      return fp16lab::widen(fp16lab::Float16::from_bits(static_cast<std::uint16_t>(bits)));
    if (type == CUDA_R_16BF)
      return fp16lab::widen(fp16lab::BFloat16::from_bits(static_cast<std::uint16_t>(bits)));
    return fp16lab::float_from_bits(tf32 ? bits & 0xffffe000u : bits);
  }
  void store(std::int64_t item, std::int64_t row, std::int64_t column, float x) const {
    const std::uint32_t bits = type == CUDA_R_16F    ? fp16lab::narrow<Binary16>(x).bits()
                               : type == CUDA_R_16BF ? fp16lab::narrow<BrainFloat16>(x).bits()
                                                     : fp16lab::bits_of(x);
    std::memcpy(place(item, row, column), &bits, element());
  }

 private:
  std::byte* place(std::int64_t item, std::int64_t row, std::int64_t column) const {
    return data + static_cast<std::size_t>(item * stride + column * ld + row) * element();
  }
};

Columns matrix(const void* data, cudaDataType type, cublasOperation_t operation, std::int64_t rows,
               std::int64_t columns, std::int64_t ld, long long stride) {
  if (operation == CUBLAS_OP_T) std::swap(rows, columns);
  return {static_cast<std::byte*>(const_cast<void*>(data)), type, rows, columns, ld, stride};
}

}  // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  return status_of("cublasCreate", [=](Simulation&, Device&) { *handle = new cublasContext; });
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "success" : "an unsupported value or parameter was passed";
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  return status_of("cublasSetStream", [=](Simulation& simulation, Device&) {
    simulation.stream(stream);
    handle->stream = stream;
    handle->workspace = nullptr;  // "unconditionally resets the workspace"
  });
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, std::size_t bytes) {
  return status_of("cublasSetWorkspace", [=](Simulation& simulation, Device& device) {
    expect(reinterpret_cast<std::uintptr_t>(workspace) % 256 == 0,
           "the workspace is not aligned to 256 bytes");
    expect(simulation.owner(workspace, bytes) == &device, "the workspace is not the device's memory");
    handle->workspace = workspace;
    handle->workspace_bytes = bytes;
  });
}
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  handle->math = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmStridedBatchedEx_64(cublasHandle_t handle, cublasOperation_t transa,
                                             cublasOperation_t transb, std::int64_t m, std::int64_t n,
                                             std::int64_t k, const void* alpha, const void* A,
                                             cudaDataType Atype, std::int64_t lda, long long strideA,
                                             const void* B, cudaDataType Btype, std::int64_t ldb,
                                             long long strideB, const void* beta, void* C, cudaDataType Ctype,
                                             std::int64_t ldc, long long strideC, std::int64_t batch,
                                             cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
  return status_of("cublasGemmStridedBatchedEx", [=](Simulation& simulation, Device& device) {
    const Columns a = matrix(A, Atype, transa, m, k, lda, strideA),
                  b = matrix(B, Btype, transb, k, n, ldb, strideB),
                  c = matrix(C, Ctype, CUBLAS_OP_N, m, n, ldc, strideC);
    for (const Columns& one : {a, b, c}) one.check(simulation, device, batch);
    expect(batch == 1 || strideC >= ldc * n, "outputs overlap");
    expect(Atype == Btype && (Ctype == Atype || Ctype == CUDA_R_32F), "such types are not supported");
    const bool tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    expect(compute == CUBLAS_COMPUTE_32F || (tf32 && Atype == CUDA_R_32F), "sums are not FP32");
    expect((handle->math & CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION) != 0,
           "sums of parts of k may be rounded to 16 bits");
    expect((handle->math & 0xf) == CUBLAS_DEFAULT_MATH && algorithm == CUBLAS_GEMM_DEFAULT,
           "another arithmetic");
    float scales[2];
    std::memcpy(&scales[0], alpha, sizeof(float));
    std::memcpy(&scales[1], beta, sizeof(float));
    expect(scales[0] == 1 && scales[1] == 0, "alpha is not 1, or beta not 0");
    const std::shared_ptr<Stream> stream = simulation.stream(handle->stream);
    expect(&stream->device() == &device, "another device than the stream's is the current one");
    expect(handle->workspace != nullptr || !stream->capturing(),
           "a capture without a workspace of the user's");
    stream->add([=, workspace = handle->workspace, bytes = handle->workspace_bytes] {
      if (workspace != nullptr) std::memset(workspace, 0x5a, std::min<std::size_t>(bytes, 4096));
      for (std::int64_t item = 0; item < batch; ++item)
        for (std::int64_t i = 0; i < m; ++i)
          for (std::int64_t j = 0; j < n; ++j) {
            float sum = 0;
            for (std::int64_t at = k; at-- > 0;)
              sum += a.at(item, transa == CUBLAS_OP_T ? at : i, transa == CUBLAS_OP_T ? i : at, tf32) *
                     b.at(item, transb == CUBLAS_OP_T ? j : at, transb == CUBLAS_OP_T ? at : j, tf32);
            c.store(item, i, j, sum);
          }
    });
  });
}

}  // extern "C"
