// Stands in where the build found no nvcc.
#include "engine/backend/cuda/cuda_backend.hpp"
#include "engine/backend/cuda/runtime/devices.hpp"

namespace fp16lab::engine {

CudaStatus cuda_status() {
  CudaStatus status;
  status.reason = "this binary was built without CUDA (FP16LAB_CUDA)";
  return status;
}

bool has_code_for(const CudaDevice& /*device*/) { return false; }

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& /*options*/) {
  throw DeviceUnavailable("backend.device = \"cuda\": " + cuda_status().reason +
                          "; use \"emulated\" or \"auto\"");
}

std::unique_ptr<MemoryResource> make_cuda_memory(int /*device*/) {
  throw DeviceUnavailable("device memory: " + cuda_status().reason);
}

}  // namespace fp16lab::engine
