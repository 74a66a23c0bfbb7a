// The CUDA back end: every verb of engine/backend/backend.hpp on a GPU, with the bits of the emulated one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/backend/backend.hpp"
#include "engine/backend/cuda/runtime/device_errors.hpp"

namespace fp16lab::engine {

/// Who multiplies matrices (`backend.gemm`).
enum class GemmRoute : std::uint8_t {
  mma,     ///< our own kernels, whose bits are the emulated back end's
  cublas,  ///< unchanged cuBLAS, FP32 products too: in an order of its own, outside of the equality contract.
           ///< TF32 products (GemmCall::tf32), empty sums and convolutions stay with our own kernels
};

struct CudaOptions {
  int device = 0;
  /// "auto", or the row that the device's tensor cores follow; anything else is DeviceUnavailable naming
  /// both.
  std::string tensor_core = "auto";
  GemmRoute gemm = GemmRoute::mma;
  /// With cublas: FP32 operands are rounded to TF32. For benchmarks; no configuration asks for it.
  bool tf32 = false;
  /// Counts the products that cuBLAS computes, a recording at each replay; null: none are counted. Only the
  /// thread that calls the verbs may read it.
  std::shared_ptr<std::uint64_t> library_products = {};
};

/// DeviceUnavailable, one line with reason and remedy, where it cannot run.
std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options = {});
/// Device memory, for tensors that the back end did not make itself. DeviceUnavailable if there is none.
std::unique_ptr<MemoryResource> make_cuda_memory(int device = 0);

}  // namespace fp16lab::engine
