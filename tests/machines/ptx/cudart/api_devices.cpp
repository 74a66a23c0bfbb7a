// CUDA Runtime API: "Device Management", "Error Handling", "Version Management".
#include <cuda_runtime_api.h>

#include <cstring>
#include <utility>

#include "tests/machines/ptx/cudart/simulation.hpp"

using namespace fp16lab::engine::ptx::cudart;

namespace {

std::size_t ordinal_of(const Simulation& simulation, int device) {
  require(!simulation.devices.empty(), cudaErrorNoDevice);
  require(device >= 0 && static_cast<std::size_t>(device) < simulation.devices.size(),
          cudaErrorInvalidDevice);
  return static_cast<std::size_t>(device);
}

cudaDeviceProp properties_of(const Device& device) {
  const Capability& capability = device.capability();
  cudaDeviceProp properties{};
  const std::string name = device.name();
  std::memcpy(properties.name, name.c_str(), name.size() + 1);
  properties.major = capability.major;
  properties.minor = capability.minor;
  properties.totalGlobalMem = device.settings().memory_bytes;
  properties.multiProcessorCount = device.settings().multiprocessors;
  properties.sharedMemPerBlock = default_shared_bytes;
  properties.sharedMemPerBlockOptin = capability.shared_opt_in;
  properties.sharedMemPerMultiprocessor = capability.shared_of_multiprocessor;
  properties.reservedSharedMemPerBlock = capability.shared_reserved;
  properties.regsPerBlock = properties.regsPerMultiprocessor = 65536;
  properties.warpSize = 32;
  properties.maxThreadsPerBlock = 1024;
  properties.maxThreadsPerMultiProcessor = capability.threads_of_multiprocessor;
  properties.maxBlocksPerMultiProcessor = capability.blocks_of_multiprocessor;
  properties.maxThreadsDim[0] = properties.maxThreadsDim[1] = 1024;
  properties.maxThreadsDim[2] = 64;
  properties.maxGridSize[0] = 0x7fffffff;
  properties.maxGridSize[1] = properties.maxGridSize[2] = 65535;
  properties.totalConstMem = 65536;
  properties.unifiedAddressing = 1;
  return properties;
}

int attribute_of(const Device& device, cudaDeviceAttr attribute) {
  const cudaDeviceProp properties = properties_of(device);
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      return properties.major;
    case cudaDevAttrComputeCapabilityMinor:
      return properties.minor;
    case cudaDevAttrMultiProcessorCount:
      return properties.multiProcessorCount;
    case cudaDevAttrWarpSize:
      return properties.warpSize;
    case cudaDevAttrMaxThreadsPerBlock:
      return properties.maxThreadsPerBlock;
    case cudaDevAttrMaxGridDimX:
      return properties.maxGridSize[0];
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return static_cast<int>(properties.sharedMemPerBlock);
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return static_cast<int>(properties.sharedMemPerBlockOptin);
    case cudaDevAttrReservedSharedMemoryPerBlock:
      return static_cast<int>(properties.reservedSharedMemPerBlock);
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return static_cast<int>(properties.sharedMemPerMultiprocessor);
    case cudaDevAttrUnifiedAddressing:
      return 1;
    case cudaDevAttrPageableMemoryAccess:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrMemoryPoolsSupported:
      return 0;
    default:
      say("cudaDeviceGetAttribute: nothing is known of attribute " +
          std::to_string(static_cast<int>(attribute)));
      throw Refusal{cudaErrorNotSupported};
  }
}

}  // namespace

extern "C" {

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  return answer("cudaGetDeviceCount", [count](const Simulation& simulation) {
    for (const auto& device : simulation.devices) simulation.require_texts_of_the_program(*device);
    *count = static_cast<int>(simulation.devices.size());
    return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return answer("cudaGetDeviceProperties", [=](const Simulation& simulation) {
    *properties = properties_of(*simulation.devices[ordinal_of(simulation, device)]);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return answer("cudaDeviceGetAttribute", [=](const Simulation& simulation) {
    *value = attribute_of(*simulation.devices[ordinal_of(simulation, device)], attribute);
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return answer("cudaSetDevice", [device](const Simulation& simulation) {
    const Device& chosen = *simulation.devices[ordinal_of(simulation, device)];
    Simulation::thread().device = device;
    return chosen.failure();
  });
}

cudaError_t cudaGetDevice(int* device) {
  return answer("cudaGetDevice", [device](const Simulation& simulation) {
    require(!simulation.devices.empty(), cudaErrorNoDevice);
    *device = Simulation::thread().device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetLastError() { return std::exchange(Simulation::thread().last, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return Simulation::thread().last; }
const char* cudaGetErrorName(cudaError_t error) { return name_of(error); }
const char* cudaGetErrorString(cudaError_t error) { return words_of(error); }

}  // extern "C"
