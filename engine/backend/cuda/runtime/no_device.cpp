#include "engine/backend/cuda/runtime/no_device.hpp"

#include <fmt/format.h>

namespace fp16lab::engine {

namespace {

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

}  // namespace

std::string no_device_text(int driver_version, int runtime_version, std::string_view cuda_words) {
  if (driver_version == 0) return "CUDA finds no NVIDIA driver on this machine";
  if (driver_version < runtime_version)
    return fmt::format(
        "the NVIDIA driver runs CUDA {} at most, and this program was built with CUDA {}; update the "
        "driver, or build with an older toolkit",
        version_text(driver_version), version_text(runtime_version));
  if (cuda_words.empty()) return "CUDA finds no GPU with the NVIDIA driver";
  return std::string(cuda_words);
}

std::string unusable_device_text(const CudaDevice& device, bool has_code, std::string_view architectures) {
  const int major = device.capability_major, minor = device.capability_minor;
  if (is_too_old(device))
    return fmt::format("{} has compute capability {}.{}: {}; use backend.device = \"emulated\"", device.name,
                       major, minor, needed_compute_capability);
  if (has_code) return "";
  return fmt::format(
      "{} has compute capability {}.{}, but this program was built for {}; configure with "
      "-DCMAKE_CUDA_ARCHITECTURES={}{}, or use backend.device = \"emulated\"",
      device.name, major, minor, architectures, major, minor);
}

std::string missing_products_text(const CudaDevice& device, DType operands) {
  const bool low = operands == DType::bf16 || operands == DType::tf32;
  if (!low || is_too_old(device) || multiplies_bf16_and_tf32(device)) return "";
  return fmt::format(
      "{} has compute capability {}.{}, whose tensor cores multiply FP16 alone; {} products on a device need "
      "8.0 (sm_80) or newer",
      device.name, device.capability_major, device.capability_minor,
      operands == DType::tf32 ? "TF32" : "BF16");
}

std::string lacking_text(const CudaDevice& device, DType operands) {
  return is_too_old(device) ? unusable_device_text(device, false, "")
                            : missing_products_text(device, operands);
}

}  // namespace fp16lab::engine
