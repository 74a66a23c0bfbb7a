// launch: a kernel on a Runtime's stream. For .cu files.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "engine/backend/cuda/runtime/device_errors.hpp"
#include "engine/backend/cuda/runtime/runtime.hpp"

namespace fp16lab::engine::gpu {

/// Blocks of `threads` threads (at most 1024), in a grid of x * y * z blocks (y and z at most 65535), and so
/// many bytes of dynamic shared memory for each block. A grid without blocks launches nothing.
struct LaunchShape {
  std::uint32_t x = 1, y = 1, z = 1;
  std::uint32_t threads = 256;
  std::size_t shared_bytes = 0;
};

/// No grid of blocks_for has more.
inline constexpr std::int64_t largest_grid = std::int64_t{1} << 20;

/// Blocks that cover `count` items by `per_block`; at most `limit` of them: kernels walk on by grid strides.
constexpr std::uint32_t blocks_for(std::int64_t count, std::int64_t per_block,
                                   std::int64_t limit = largest_grid) {
  const std::int64_t blocks = (count + per_block - 1) / per_block,
                     most = limit < largest_grid ? limit : largest_grid;
  return static_cast<std::uint32_t>(blocks < most ? blocks : most);
}

/// Must the caller announce a launch's dynamic shared memory (cudaFuncSetAttribute) for a kernel with so much
/// static shared memory? Without that a block has 48 KiB of both together (CUDA C++ Programming Guide,
/// "Shared Memory").
constexpr bool needs_opt_in(std::size_t static_bytes, std::size_t dynamic_bytes) {
  return static_bytes + dynamic_bytes > 48 * 1024;
}

/// launch(runtime, "name", kernel, shape, arguments...). DeviceFailure naming the kernel if the launch is
/// refused.
template <class... Parameters>
void launch(Runtime& runtime, const char* name, void (*kernel)(Parameters...), const LaunchShape& shape,
            std::type_identity_t<Parameters>... arguments) {
  static_assert((sizeof(Parameters) + ... + 0) <= 4096, "kernel parameters take at most 4 KB");
  if (shape.x == 0 || shape.y == 0 || shape.z == 0) return;
  void* const stream = runtime.stream();  // and its device is the thread's current one
  cudaError_t error = cudaSuccess;
  if (shape.shared_bytes > 0) {
    cudaFuncAttributes compiled{};
    error = cudaFuncGetAttributes(&compiled, kernel);
    if (error == cudaSuccess && needs_opt_in(compiled.sharedSizeBytes, shape.shared_bytes))
      error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(shape.shared_bytes));
  }
  if (error == cudaSuccess) {
    // clang-format off
    kernel<<<dim3(shape.x, shape.y, shape.z), shape.threads, shape.shared_bytes,
             static_cast<cudaStream_t>(stream)>>>(arguments...);
    // clang-format on
    error = cudaGetLastError();
  }
  if (error != cudaSuccess)
    throw DeviceFailure(std::string("kernel ") + name + ": " + cudaGetErrorString(error));
}

}  // namespace fp16lab::engine::gpu
