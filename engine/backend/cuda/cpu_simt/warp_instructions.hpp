// ldmatrix and mma.sync of the host machine, by their definitions
// (engine/backend/cuda/runtime/instructions.hpp).
#pragma once

#include <cstdint>

#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::engine::cpu_simt {

/// The generation whose tensor core this thread's machine has: "hopper" unless set.
void set_tensor_core(std::string_view name);
std::string_view tensor_core();

void load_matrices_x4_on_host(std::uint32_t (&registers)[4], const void* row, bool transposed);
/// f16: operands are FP16, else BF16.
void multiply_16x8x16_on_host(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                              bool f16);
/// The first 8 of k only.
void multiply_16x8x8_on_host(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                             bool f16);

/// FP32 fma, correctly rounded; not libm's, which may be slow or wrong.
float fma_of_host(float a, float b, float c);

}  // namespace fp16lab::engine::cpu_simt
