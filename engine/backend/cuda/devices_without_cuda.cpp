#include "engine/backend/cuda/devices.hpp"

namespace fp16lab::engine {

CudaStatus cuda_status() {
  CudaStatus status;
  status.reason = "this binary was built without CUDA (FP16LAB_CUDA)";
  return status;
}

}  // namespace fp16lab::engine
