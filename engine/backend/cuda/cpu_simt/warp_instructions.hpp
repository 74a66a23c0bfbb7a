// ldmatrix and mma.sync of the host machine, by their definitions
// (engine/backend/cuda/runtime/instructions.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::engine::cpu_simt {

/// The generation whose tensor core this thread's machine has: "hopper" unless set.
void set_tensor_core(std::string_view name);
std::string_view tensor_core();

/// What else the GPU of that generation has, which this thread's machine pretends to be (CUDA C++ Programming
/// Guide, "Technical Specifications per Compute Capability").
struct PretendedGpu {
  int major, minor;                       ///< compute capability
  std::size_t shared_per_block;           ///< bytes of static and dynamic shared memory together
  std::size_t shared_per_multiprocessor;  ///< bytes
};
PretendedGpu pretended_gpu();
/// sm_75 has m16n8k8 and no cp.async: instructions.hpp takes the way that it has there.
bool pretends_to_be_sm_75();

void load_matrices_x4_on_host(std::uint32_t (&registers)[4], const void* row, bool transposed);
/// Of operands f16, bf16 or tf32; `bytes` of k take part: 32, or the first 16.
void multiply_on_host(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], DType operands,
                      int bytes);

/// FP32 fma, correctly rounded; not libm's, which may be slow or wrong.
float fma_of_host(float a, float b, float c);

}  // namespace fp16lab::engine::cpu_simt
