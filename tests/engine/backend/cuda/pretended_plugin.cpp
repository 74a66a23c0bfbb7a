// libfp16lab_cuda.so without a GPU and without nvcc: the emulated back end after the entry that the device's
// library has, so that tests train across that border.
#include <cstdlib>
#include <string>

#include "engine/backend/cuda/runtime/no_device.hpp"
#include "engine/backend/cuda/runtime/plugin.hpp"
#include "engine/backend/emulated/emulated_backend.hpp"
#include "engine/tensor/storage.hpp"
#include "fp16lab_seam.h"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::engine {

namespace {

/// The device's generation: FP16LAB_PRETENDED_TENSOR_CORE, else hopper. volta: a device that is too old.
std::string pretended() {
  const char* const name = std::getenv("FP16LAB_PRETENDED_TENSOR_CORE");
  return name == nullptr ? "hopper" : name;
}

/// The environment's FP16LAB_PRETENDED_DEVICES sets the number.
CudaStatus pretended_devices() {
  CudaStatus status;
  status.built = true;
  status.driver_version = status.runtime_version = 13000;
  CudaDevice device;
  device.name = "a pretended GPU";
  device.capability_major = pretended() == "hopper" ? 9 : 7;
  device.capability_minor = pretended() == "turing" ? 5 : 0;
  const char* const count = std::getenv("FP16LAB_PRETENDED_DEVICES");
  for (; device.ordinal < (count == nullptr ? 1 : std::atoi(count)); ++device.ordinal)
    status.devices.push_back(device);
  return status;
}

std::unique_ptr<Backend> make_backend(const CudaOptions& options) {
  if (const std::string why = unusable_device_text(pretended_devices().devices.front(), true, "");
      !why.empty())
    throw DeviceUnavailable(why);
  return make_emulated_backend(
      tensor_core_model(options.tensor_core == "auto" ? pretended() : options.tensor_core), 1);
}

constexpr CudaPlugin offered {
#if defined(FP16LAB_OTHER_SEAM)
  .seam = "0123456789abcdef",
#else
  .seam = FP16LAB_SEAM,
#endif
  .status = &pretended_devices, .has_code_for = [](const CudaDevice&) { return true; },
  .make_backend = &make_backend, .make_memory = [](int) { return make_host_memory(); },
  .count_on_stream = [](const void*, std::size_t, DType, std::uint64_t*, void*) {
    throw DeviceUnavailable("a pretended GPU has no streams of others");
  }
};

}  // namespace

extern "C" const CudaPlugin* fp16lab_cuda_plugin() { return &offered; }

}  // namespace fp16lab::engine
