#include "experiments/tensor_core_probe/instruction.hpp"

#include <array>

#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::probe {
namespace {

using enum DType;
using enum Opcode;
constexpr DType single = DType::f32;
constexpr DType half = DType::f16;

constexpr std::array table{
    Instruction{mma_m8n8k4_f16_f32, "mma.m8n8k4.f32.f16", Unit::mma, 8, 8, 4, f16, single},
    Instruction{mma_m8n8k4_f16_f16, "mma.m8n8k4.f16.f16", Unit::mma, 8, 8, 4, f16, half},
    Instruction{mma_m16n8k8_f16_f32, "mma.m16n8k8.f32.f16", Unit::mma, 16, 8, 8, f16, single},
    Instruction{mma_m16n8k8_f16_f16, "mma.m16n8k8.f16.f16", Unit::mma, 16, 8, 8, f16, half},
    Instruction{mma_m16n8k16_f16_f32, "mma.m16n8k16.f32.f16", Unit::mma, 16, 8, 16, f16, single},
    Instruction{mma_m16n8k16_f16_f16, "mma.m16n8k16.f16.f16", Unit::mma, 16, 8, 16, f16, half},
    Instruction{mma_m16n8k8_bf16_f32, "mma.m16n8k8.f32.bf16", Unit::mma, 16, 8, 8, bf16, single},
    Instruction{mma_m16n8k16_bf16_f32, "mma.m16n8k16.f32.bf16", Unit::mma, 16, 8, 16, bf16, single},
    Instruction{mma_m16n8k4_tf32_f32, "mma.m16n8k4.f32.tf32", Unit::mma, 16, 8, 4, tf32, single},
    Instruction{mma_m16n8k8_tf32_f32, "mma.m16n8k8.f32.tf32", Unit::mma, 16, 8, 8, tf32, single},
    Instruction{mma_m16n8k32_e4m3_f32, "mma.m16n8k32.f32.e4m3", Unit::mma, 16, 8, 32, e4m3, single},
    Instruction{mma_m16n8k32_e5m2_f32, "mma.m16n8k32.f32.e5m2", Unit::mma, 16, 8, 32, e5m2, single},
    Instruction{mma_m16n8k32_e4m3_f16, "mma.m16n8k32.f16.e4m3", Unit::mma, 16, 8, 32, e4m3, half},
    Instruction{mma_m16n8k32_e5m2_f16, "mma.m16n8k32.f16.e5m2", Unit::mma, 16, 8, 32, e5m2, half},
    Instruction{wmma_m16n16k16_f16_f32, "wmma.m16n16k16.f32.f16", Unit::wmma, 16, 16, 16, f16, single},
    Instruction{wmma_m16n16k16_bf16_f32, "wmma.m16n16k16.f32.bf16", Unit::wmma, 16, 16, 16, bf16, single},
    Instruction{wmma_m16n16k8_tf32_f32, "wmma.m16n16k8.f32.tf32", Unit::wmma, 16, 16, 8, tf32, single},
    Instruction{wgmma_m64n8k16_f16_f32, "wgmma.m64n8k16.f32.f16", Unit::wgmma, 64, 8, 16, f16, single},
    Instruction{wgmma_m64n8k16_f16_f16, "wgmma.m64n8k16.f16.f16", Unit::wgmma, 64, 8, 16, f16, half},
    Instruction{wgmma_m64n8k16_bf16_f32, "wgmma.m64n8k16.f32.bf16", Unit::wgmma, 64, 8, 16, bf16, single},
    Instruction{wgmma_m64n8k8_tf32_f32, "wgmma.m64n8k8.f32.tf32", Unit::wgmma, 64, 8, 8, tf32, single},
    Instruction{wgmma_m64n8k32_e4m3_f32, "wgmma.m64n8k32.f32.e4m3", Unit::wgmma, 64, 8, 32, e4m3, single},
    Instruction{wgmma_m64n8k32_e5m2_f32, "wgmma.m64n8k32.f32.e5m2", Unit::wgmma, 64, 8, 32, e5m2, single},
    Instruction{wgmma_m64n8k32_e4m3_f16, "wgmma.m64n8k32.f16.e4m3", Unit::wgmma, 64, 8, 32, e4m3, half},
    Instruction{wgmma_m64n8k32_e5m2_f16, "wgmma.m64n8k32.f16.e5m2", Unit::wgmma, 64, 8, 32, e5m2, half},
};

static_assert(
    [] {
      for (std::size_t i = 0; i < table.size(); ++i)
        if (table[i].opcode != static_cast<Opcode>(i)) return false;
      return true;
    }(),
    "the table is indexed by Opcode");

/// Does the tensor core of this capability have the shape?
bool has_shape(Capability capability, const Instruction& in) {
  const int architecture = 10 * capability.major + capability.minor;
  if (in.unit != Unit::mma) return true;
  if (in.m == 8) return architecture < 75;
  return architecture >= (in.operands == f16 && in.k == 8 ? 75 : 80);
}

}  // namespace

std::span<const Instruction> instructions() { return table; }
const Instruction& instruction(Opcode opcode) { return table.at(static_cast<std::size_t>(opcode)); }

const Instruction* find_instruction(std::string_view name) {
  for (const Instruction& in : table)
    if (in.name == name) return &in;
  return nullptr;
}

std::string_view generation_of(Capability capability) {
  return tensor_core_of(capability.major, capability.minor);
}

std::optional<TensorCoreModel> row_for(const Instruction& instruction, Capability capability,
                                       std::string_view generation) {
  if (!has_shape(capability, instruction)) return std::nullopt;
  if (generation.empty()) generation = generation_of(capability);
  if (instruction.unit == Unit::wgmma) generation = "hopper-wgmma";
  // The sm_120 family multiplies FP8 natively, with the numbers of tcgen05.
  if (generation == "blackwell" && capability.major == 12 && is_fp8(instruction.operands))
    generation = "blackwell-tcgen05";
  for (const TensorCoreModel& row : tensor_core_models())
    if (row.name == generation && row.operands.contains(instruction.operands) &&
        row.accumulator() == instruction.accumulator)
      return row;
  return std::nullopt;
}

}  // namespace fp16lab::probe
