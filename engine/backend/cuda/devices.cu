#include <cuda_runtime_api.h>

#include "engine/backend/cuda/devices.hpp"

namespace fp16lab::engine {

CudaStatus cuda_status() {
  CudaStatus status;
  status.built = true;
  cudaRuntimeGetVersion(&status.runtime_version);
  cudaDriverGetVersion(&status.driver_version);

  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess || count == 0) {
    status.reason = error == cudaSuccess ? "no CUDA device" : cudaGetErrorString(error);
    cudaGetLastError();  // the runtime keeps the error until it is asked for
    return status;
  }
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, ordinal) != cudaSuccess) continue;
    status.devices.push_back({.ordinal = ordinal,
                              .name = properties.name,
                              .capability_major = properties.major,
                              .capability_minor = properties.minor,
                              .memory_bytes = properties.totalGlobalMem,
                              .multiprocessors = properties.multiProcessorCount});
  }
  return status;
}

}  // namespace fp16lab::engine
