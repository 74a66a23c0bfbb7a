// The device back end is a library of its own, libfp16lab_cuda.so: a program loads it when it needs a device.
//
// It holds the kernels and needs cuBLAS, some 200 MB of a process. A program without it starts in
// milliseconds, and is built without nvcc. What crosses the border are the classes of
// engine/backend/backend.hpp and engine/tensor/, compiled by the same compiler from the same sources: `seam`
// says whether that is so.
#pragma once

#include <memory>
#include <string_view>

#include "engine/backend/cuda/cuda_backend.hpp"
#include "engine/backend/cuda/runtime/devices.hpp"
#include "engine/backend/cuda/stream_histogram.hpp"

namespace fp16lab::engine {

/// What the library offers: the functions of cuda_backend.hpp, devices.hpp and stream_histogram.hpp.
struct CudaPlugin {
  const char* seam;  ///< plugin_seam() of its build
  CudaStatus (*status)();
  bool (*has_code_for)(const CudaDevice&);
  std::unique_ptr<Backend> (*make_backend)(const CudaOptions&);
  std::unique_ptr<MemoryResource> (*make_memory)(int device);
  void (*count_on_stream)(const void* values, std::size_t count, DType dtype, std::uint64_t* row,
                          void* stream);
};

/// The name of its one exported function, `const CudaPlugin* fp16lab_cuda_plugin()`.
inline constexpr char plugin_entry[] = "fp16lab_cuda_plugin";

/// A digest of the headers whose classes cross the border, and the compiler: equal where objects fit
/// together.
std::string_view plugin_seam();

}  // namespace fp16lab::engine
