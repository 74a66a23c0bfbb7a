// What CUDA devices this machine has. Works in every build: without CUDA the list is empty and says why.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace fp16lab::engine {

struct CudaDevice {
  int ordinal = 0;
  std::string name;          ///< "NVIDIA H200"
  int capability_major = 0;  ///< compute capability, 9.0 for sm_90
  int capability_minor = 0;
  std::size_t memory_bytes = 0;
  int multiprocessors = 0;
};

/// What the kernels need: mma.sync with BF16 operands and cp.async begin with it.
inline constexpr std::string_view least_compute_capability = "8.0 (sm_80)";
constexpr bool is_too_old(const CudaDevice& device) { return device.capability_major < 8; }

struct CudaStatus {
  bool built = false;      ///< was this binary compiled with CUDA?
  int driver_version = 0;  ///< as CUDA counts: 13000 for 13.0; 0 without a driver
  int runtime_version = 0;
  std::vector<CudaDevice> devices;
  std::string reason;  ///< why `devices` is empty; empty otherwise
};

/// Has this binary kernels for the device (or code that its driver can translate)? Takes some of the device's
/// memory as long as the process lives.
bool has_code_for(const CudaDevice& device);

/// Asks the CUDA runtime. Never throws for a missing driver or device: that is what `reason` is for.
CudaStatus cuda_status();

}  // namespace fp16lab::engine
