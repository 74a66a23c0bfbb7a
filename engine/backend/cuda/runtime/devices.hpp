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
  std::size_t shared_per_block = 0;           ///< bytes of shared memory, at most, where a kernel opts in
  std::size_t shared_per_multiprocessor = 0;  ///< bytes, of which each block takes 1 KB more than it asks for
};

/// What the kernels need: mma.sync.m16n8k8 and ldmatrix begin with it.
inline constexpr std::string_view least_compute_capability = "7.5 (sm_75)";
/// That in a sentence, for messages.
inline constexpr std::string_view needed_compute_capability =
    "V100 is emulated; this program runs on 7.5 and newer";
constexpr bool is_too_old(const CudaDevice& device) {
  return device.capability_major < 7 || (device.capability_major == 7 && device.capability_minor < 5);
}
/// Do its tensor cores multiply BF16 and TF32? From 8.0 on; 7.5 has FP16 alone.
constexpr bool multiplies_bf16_and_tf32(const CudaDevice& device) { return device.capability_major >= 8; }

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
