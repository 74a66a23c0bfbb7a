// The CUDA back end: every verb of engine/backend/backend.hpp on a GPU, with the bits of the emulated one.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "engine/backend/backend.hpp"
#include "engine/backend/cuda/runtime/device_errors.hpp"

namespace fp16lab::engine {

/// How FP16 and BF16 products are computed (`backend.gemm`).
enum class GemmRoute : std::uint8_t {
  automatic,  ///< as cublas; products too small for the library to pay go to our own kernel without asking
  mma,        ///< our own kernel of mma.sync instructions, always
  cublas,     ///< cuBLASLt where its algorithm has been pinned for the shape, else our own kernel, said once
  cublas_any_order,  ///< what cuBLAS likes best, FP32 products too: fast, and outside the equality contract
};

struct CudaOptions {
  int device = 0;
  /// "auto", or the row that the device's tensor cores follow; anything else is DeviceUnavailable naming
  /// both.
  std::string tensor_core = "auto";
  GemmRoute gemm = GemmRoute::automatic;
  /// With cublas_any_order: FP32 operands are rounded to TF32. For benchmarks; no configuration asks for it.
  bool tf32 = false;
  /// Where the outcomes of pinning are kept between runs (engine/backend/cuda/library/algorithm_cache.hpp);
  /// "": nowhere.
  std::string algorithm_cache_file = {};
  /// Told, once a shape, why it does not take the library's route; empty: one line on stderr.
  std::function<void(std::string_view)> report = {};
};

/// DeviceUnavailable, one line with reason and remedy, where it cannot run.
std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options = {});
/// Device memory, for tensors that the back end did not make itself. DeviceUnavailable where there is none.
std::unique_ptr<MemoryResource> make_cuda_memory(int device = 0);

}  // namespace fp16lab::engine
