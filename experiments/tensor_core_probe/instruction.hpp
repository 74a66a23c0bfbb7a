// The tensor-core instructions that the probe executes, and which row of the model table claims to describe
// each.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::probe {

/// The way into the tensor core. PTX promises the same results for none of them.
enum class Unit : std::uint8_t { mma, wmma, wgmma };

enum class Opcode : std::uint8_t {
  mma_m8n8k4_f16_f32,
  mma_m8n8k4_f16_f16,
  mma_m16n8k8_f16_f32,
  mma_m16n8k8_f16_f16,
  mma_m16n8k16_f16_f32,
  mma_m16n8k16_f16_f16,
  mma_m16n8k8_bf16_f32,
  mma_m16n8k16_bf16_f32,
  mma_m16n8k4_tf32_f32,
  mma_m16n8k8_tf32_f32,
  mma_m16n8k32_e4m3_f32,
  mma_m16n8k32_e5m2_f32,
  mma_m16n8k32_e4m3_f16,
  mma_m16n8k32_e5m2_f16,
  wmma_m16n16k16_f16_f32,
  wmma_m16n16k16_bf16_f32,
  wmma_m16n16k8_tf32_f32,
  wgmma_m64n8k16_f16_f32,
  wgmma_m64n8k16_f16_f16,
  wgmma_m64n8k16_bf16_f32,
  wgmma_m64n8k8_tf32_f32,
  wgmma_m64n8k32_e4m3_f32,
  wgmma_m64n8k32_e5m2_f32,
  wgmma_m64n8k32_e4m3_f16,
  wgmma_m64n8k32_e5m2_f16,
};

/// D (m x n) = C (+) A (m x k) * B (k x n), all in one instruction.
struct Instruction {
  Opcode opcode;
  std::string_view name;  ///< "mma.m16n8k16.f32.f16": unit, shape, accumulator, operands
  Unit unit;
  int m, n, k;
  DType operands;  ///< of A and of B
  DType accumulator;
};

/// All of them, in the order of Opcode.
std::span<const Instruction> instructions();
const Instruction& instruction(Opcode opcode);
/// The instruction of this name; null if there is none.
const Instruction* find_instruction(std::string_view name);

/// Compute capability of a device: 9.0 is {9, 0}.
struct Capability {
  int major = 0;
  int minor = 0;
};

/// The generation whose rows describe mma.sync and wmma of a device: "hopper" for 9.0. Empty for a capability
/// that the table does not know.
std::string_view generation_of(Capability capability);

/// The row that should describe `instruction` on the device, with `generation` in place of
/// generation_of(capability) where it is not empty. wgmma has a generation of its own. No value where the
/// table has no such row, or where tensor cores of the capability do not execute the instruction: m8n8k4 is
/// Volta's, m16n8k8 came with sm_75 and m16n8k16 with sm_80.
std::optional<TensorCoreModel> row_for(const Instruction& instruction, Capability capability,
                                       std::string_view generation = {});

}  // namespace fp16lab::probe
