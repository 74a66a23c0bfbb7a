#include "experiments/tensor_core_probe/device.hpp"

namespace fp16lab::probe {

std::unique_ptr<Device> open_cuda_device(std::string& reason) {
  reason = "this binary was built without CUDA (FP16LAB_CUDA)";
  return nullptr;
}

}  // namespace fp16lab::probe
