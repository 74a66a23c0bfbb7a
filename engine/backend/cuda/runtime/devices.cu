#include <cuda_runtime_api.h>

#include "engine/backend/cuda/runtime/devices.hpp"
#include "engine/backend/cuda/runtime/no_device.hpp"
#include "engine/backend/cuda/runtime/runtime.hpp"

namespace fp16lab::engine {

bool has_code_for(const CudaDevice& device) {
  if (cudaSetDevice(device.ordinal) == cudaSuccess) return gpu::has_code_for_current_device();
  cudaGetLastError();  // the runtime keeps the error until it is read
  return false;
}

CudaStatus cuda_status() {
  CudaStatus status;
  status.built = true;
  cudaRuntimeGetVersion(&status.runtime_version);
  cudaDriverGetVersion(&status.driver_version);

  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess || count == 0) {
    status.reason = no_device_text(status.driver_version, status.runtime_version,
                                   error == cudaSuccess ? "" : cudaGetErrorString(error));
    cudaGetLastError();  // the runtime keeps the error until it is read
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
                              .multiprocessors = properties.multiProcessorCount,
                              .shared_per_block = properties.sharedMemPerBlockOptin,
                              .shared_per_multiprocessor = properties.sharedMemPerMultiprocessor});
  }
  return status;
}

}  // namespace fp16lab::engine
