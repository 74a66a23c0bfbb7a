// What tests on a device share: a GPU where there is one, or the PTX machine (CTest's entries NAME_ptx).
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "engine/backend/cuda/cuda_backend.hpp"
#include "engine/backend/cuda/runtime/devices.hpp"
#include "engine/backend/emulated/emulated_backend.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::engine::test {

/// The device, its products by our own kernels.
inline std::unique_ptr<Backend> device_backend() { return make_cuda_backend({.gemm = GemmRoute::mma}); }

/// The generation of the device's tensor cores.
inline const std::string& device_row() {
  static const std::string row(device_backend()->tensor_core());
  return row;
}

/// The emulated back end with the device's tensor cores.
inline std::unique_ptr<Backend> emulated_twin() {
  return make_emulated_backend(tensor_core_model(device_row()), 1);
}

inline bool device_multiplies_bf16_and_tf32() {
  return multiplies_bf16_and_tf32(cuda_status().devices.front());
}

/// Skipped where there is no device.
class OnDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (const CudaStatus status = cuda_status(); status.devices.empty()) GTEST_SKIP() << status.reason;
  }
};

}  // namespace fp16lab::engine::test
