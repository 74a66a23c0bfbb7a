// CUDA Runtime API: "Execution Control", "Occupancy", and what nvcc's host code calls (crt/host_runtime.h):
// the registration of kernels, and the launch under <<<...>>>. A kernel's handle is its host function.
#include <cuda_runtime_api.h>

#include "tests/machines/ptx/cudart/simulation.hpp"

using namespace fp16lab::engine::ptx::cudart;
using fp16lab::engine::ptx::Grid;
using fp16lab::engine::ptx::KernelFacts;

namespace {

void launch(Simulation& simulation, Device& device, const void* kernel, dim3 grid, dim3 block,
            void** parameters, std::size_t shared_bytes, cudaStream_t stream) {
  const std::shared_ptr<Stream> queue = simulation.stream(stream);
  require(&queue->device() == &device, cudaErrorInvalidResourceHandle);
  const KernelFacts& facts = simulation.kernel(kernel);
  const Grid shape{grid.x, grid.y, grid.z, block.x, block.y, block.z, shared_bytes};
  device.check(facts, shape);
  queue->add(device.prepare(facts, shape, parameters));
}

}  // namespace

extern "C" {

// Only headers that nvcc reads have their prototypes.
void** __cudaRegisterFatBinary(void* binary);
void __cudaRegisterFatBinaryEnd(void** handle);
void __cudaUnregisterFatBinary(void** handle);
char __cudaInitModule(void** handle);
void __cudaRegisterFunction(void** handle, const char* host_function, char* device_function,
                            const char* device_name, int thread_limit, uint3* thread, uint3* block,
                            dim3* block_extent, dim3* grid_extent, int* warp_size);
void __cudaRegisterVar(void** handle, char* host_variable, char* device_address, const char* device_name,
                       int is_extern, std::size_t bytes, int constant, int global);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared_bytes, CUstream_st* stream);
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared_bytes, void* stream);
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host_function);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** parameters,
                               std::size_t shared_bytes, cudaStream_t stream);

void** __cudaRegisterFatBinary(void* binary) { return static_cast<void**>(binary); }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void** handle) {
  answer("__cudaUnregisterFatBinary", [handle](Simulation& simulation) {
    std::erase_if(simulation.registered, [handle](const auto& one) { return one.second.unit == handle; });
    return cudaSuccess;
  });
}
char __cudaInitModule(void**) { return 1; }

void __cudaRegisterFunction(void** handle, const char* host_function, char*, const char* device_name, int,
                            uint3*, uint3*, dim3*, dim3*, int*) {
  answer("__cudaRegisterFunction", [=](Simulation& simulation) {
    simulation.registered[host_function] = {device_name, handle};
    return cudaSuccess;
  });
}

/// No program copies to or from a variable of a module: the functions that would are not here.
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared_bytes, CUstream_st* stream) {
  Simulation::thread().configurations.push_back({grid, block, shared_bytes, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared_bytes, void* stream) {
  auto& configurations = Simulation::thread().configurations;
  if (configurations.empty()) return Simulation::thread().last = cudaErrorMissingConfiguration;
  const LaunchConfiguration last = configurations.back();
  configurations.pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared_bytes = last.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = last.stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host_function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(host_function));
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** parameters,
                             std::size_t shared_bytes, cudaStream_t stream) {
  return on_device("cudaLaunchKernel", [=](Simulation& simulation, Device& device) {
    launch(simulation, device, kernel, grid, block, parameters, shared_bytes, stream);
  });
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** parameters,
                               std::size_t shared_bytes, cudaStream_t stream) {
  return cudaLaunchKernel(kernel, grid, block, parameters, shared_bytes, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** parameters) {
  return on_device("cudaLaunchKernelExC", [=](Simulation& simulation, Device& device) {
    for (unsigned i = 0; i < config->numAttrs; ++i) {
      // It allows a kernel to begin early; one that begins late complies.
      if (config->attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization) continue;
      say("cudaLaunchKernelExC: attribute " + std::to_string(static_cast<int>(config->attrs[i].id)) +
          " is not modelled");
      throw Refusal{cudaErrorNotSupported};
    }
    launch(simulation, device, kernel, config->gridDim, config->blockDim, parameters,
           config->dynamicSmemBytes, config->stream);
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  return on_device("cudaFuncGetAttributes", [=](Simulation& simulation, Device& device) {
    const KernelFacts& facts = simulation.kernel(kernel);
    *attributes = {};
    attributes->sharedSizeBytes = facts.static_shared_bytes;
    attributes->localSizeBytes = facts.local_bytes;
    attributes->maxThreadsPerBlock = static_cast<int>(facts.max_threads);
    attributes->maxDynamicSharedSizeBytes = static_cast<int>(device.dynamic_limit(facts));
    attributes->ptxVersion = device.kernel_architecture();
    attributes->binaryVersion = device.settings().architecture;
  });
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  return on_device("cudaFuncSetAttribute", [=](Simulation& simulation, Device& device) {
    const KernelFacts& facts = simulation.kernel(kernel);
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return;  // a hint
    require(attribute == cudaFuncAttributeMaxDynamicSharedMemorySize, cudaErrorNotSupported);
    device.set_dynamic_limit(facts, value);
  });
}

/// Registers limit nothing here: how many a kernel takes is ptxas's.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* kernel,
                                                                   int threads, std::size_t shared_bytes,
                                                                   unsigned) {
  return on_device("cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", [=](Simulation& simulation,
                                                                                 const Device& device) {
    *blocks = device.blocks_of_multiprocessor(simulation.kernel(kernel), threads, shared_bytes);
  });
}

}  // extern "C"
