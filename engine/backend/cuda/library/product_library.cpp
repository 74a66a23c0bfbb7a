// Source: the cuBLAS documentation (CUDA 12.0 and newer), "cublasGemmStridedBatchedEx()",
// "cublasSetWorkspace()", "cublasSetStream()", "cublasMath_t".
#include "engine/backend/cuda/library/product_library.hpp"

#include <cublas_v2.h>
#include <fmt/format.h>

#include "engine/backend/cuda/runtime/device_errors.hpp"

namespace fp16lab::engine::gpu {

namespace {

/// What cuBLAS gives itself on Hopper, its most.
constexpr std::size_t workspace_bytes = std::size_t{32} << 20;

void require(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw DeviceFailure(fmt::format("cuBLAS: {}: {} (backend.gemm = \"mma\" does without cuBLAS)", what,
                                    cublasGetStatusString(status)));
}

cudaDataType_t type_of(DType dtype) {
  return dtype == DType::f16 ? CUDA_R_16F : dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

}  // namespace

void ProductLibrary::Destroy::operator()(cublasContext* handle) const { cublasDestroy(handle); }

ProductLibrary::ProductLibrary(Runtime& runtime, bool tf32)
    : runtime_(&runtime),
      tf32_(tf32),
      workspace_(
          Runtime::allocate(runtime.device().ordinal, workspace_bytes),
          [ordinal = runtime.device().ordinal](std::byte* memory) { Runtime::deallocate(ordinal, memory); }) {
  if (workspace_ == nullptr)
    throw DeviceFailure(fmt::format("out of device memory: cuBLAS's workspace of {} bytes", workspace_bytes));
  runtime.make_current();
  cublasHandle_t handle = nullptr;
  require(cublasCreate(&handle), "cublasCreate");
  handle_.reset(handle);
  // The stream first, since cublasSetStream takes a workspace away. Recordings need the workspace to be ours.
  require(cublasSetStream(handle, static_cast<cudaStream_t>(runtime.stream())), "cublasSetStream");
  require(cublasSetWorkspace(handle, workspace_.get(), workspace_bytes), "cublasSetWorkspace");
  // FP32 operands keep all their bits, and sums of parts of k are not rounded to 16 bits on the way.
  require(
      cublasSetMathMode(handle, static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH |
                                                          CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)),
      "cublasSetMathMode");
}

void ProductLibrary::run(const LibraryProduct& p, const std::byte* a, const std::byte* b, std::byte* d) {
  runtime_->make_current();
  // cuBLAS counts columns first: our rows are its columns, so that it is given the transpose of every matrix
  // and makes d^T (n x m) = op(b)^T op(a)^T. Its first operand is our b, and its m our n.
  const float one = 1.0f, zero = 0.0f;  // in host memory, the default: read before the call returns
  require(cublasGemmStridedBatchedEx_64(
              handle_.get(), p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
              p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, p.n, p.m, p.k, &one,       //
              b, type_of(p.operands), p.transpose_b ? p.k : p.n, p.k * p.n,         //
              a, type_of(p.operands), p.transpose_a ? p.m : p.k, p.m * p.k, &zero,  //
              d, type_of(p.out), p.n, p.m * p.n, p.batch,                           //
              p.operands == DType::f32 && tf32_ ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
              CUBLAS_GEMM_DEFAULT),
          "cublasGemmStridedBatchedEx");
}

}  // namespace fp16lab::engine::gpu
