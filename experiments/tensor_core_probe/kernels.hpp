// Launching the probe's kernels. All pointers are device memory; the caller checks cudaGetLastError().
#pragma once

#include <cstdint>

#include "experiments/tensor_core_probe/device.hpp"

namespace fp16lab::probe {

/// Rows of A and columns of B are packed bytes along k; C and D are one word an element.
struct DeviceTiles {
  int count = 0;
  const std::uint32_t* a = nullptr;
  const std::uint32_t* b = nullptr;
  const std::uint32_t* c = nullptr;
  std::uint32_t* d = nullptr;
};

/// Architecture that the kernels behind mma and wmma were compiled for, as the device runs them: 75, 80, 89,
/// 90; 0 if none fits. FP8 needs 89; 75 has m16n8k8 and wmma of FP16 alone.
int mma_kernel_architecture();
/// Whether this compiler knew FP8 mma (PTX 8.4, CUDA 12.4).
bool mma_kernels_have_fp8();
/// Whether this compiler knew FP8 mma with FP16 accumulation (PTX 8.7, CUDA 12.8).
bool mma_kernels_have_fp8_f16();
void launch_mma(Opcode opcode, const DeviceTiles& tiles);
void launch_wmma(Opcode opcode, const DeviceTiles& tiles);

/// Compiled for sm_90a only: call on compute capability 9.0 alone.
void launch_wgmma(Opcode opcode, const DeviceTiles& tiles, bool scale_d);

void launch_half(const HalfInstruction& instruction, const std::uint32_t* x, const std::uint32_t* y,
                 const std::uint32_t* z, std::uint32_t* result, std::uint32_t count);

}  // namespace fp16lab::probe
