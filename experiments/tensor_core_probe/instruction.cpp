#include "experiments/tensor_core_probe/instruction.hpp"

namespace fp16lab::probe {

DType dtype_of(const Format& format) { return format == f32 ? DType::f32 : operand_format(format.name); }

std::string_view generation_of(Capability capability) {
  return tensor_core_of(capability.major, capability.minor);
}

std::optional<TensorCoreModel> row_for(const Instruction& in, Capability capability,
                                       std::string_view generation) {
  const int architecture = capability.architecture();
  if (in.unit != Unit::wgmma && (architecture < in.first || architecture > in.last)) return std::nullopt;
  if (generation.empty()) generation = generation_of(capability);
  if (in.unit == Unit::wgmma) generation = "hopper-wgmma";
  // The sm_120 family multiplies FP8 natively, with the numbers of tcgen05.
  if (generation == "blackwell" && capability.major == 12 && in.operands.bytes == 1)
    generation = "blackwell-tcgen05";
  for (const TensorCoreModel& row : tensor_core_models())
    if (row.name == generation && row.operands.contains(dtype_of(in.operands)) &&
        row.accumulator() == dtype_of(in.accumulator))
      return row;
  return std::nullopt;
}

DotProduct dot_product_of(const TensorCoreModel& row, const Format& operands) {
  return [row, format = dtype_of(operands)](std::span<const std::uint32_t> a,
                                            std::span<const std::uint32_t> b, std::uint32_t c) {
    return fused_dot_add(row, format, a, format, b, c);
  };
}

}  // namespace fp16lab::probe
