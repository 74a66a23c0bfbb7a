#include "engine/backend/cuda/ptx/arithmetic.hpp"

#include <stdexcept>

#include "engine/backend/cuda/ptx/handlers.hpp"
#include "engine/backend/cuda/ptx/warp.hpp"

namespace fp16lab::engine::ptx {

namespace {

std::uint64_t read(Warp& warp, std::uint32_t operand, int bits, int lane) {
  if (operand == no_operand) return 0;
  if (bits == 16) return warp.values<std::uint16_t>(operand)[lane];
  if (bits == 32) return warp.values<std::uint32_t>(operand)[lane];
  return warp.values<std::uint64_t>(operand)[lane];
}

void write(Warp& warp, std::uint32_t operand, int bits, int lane, std::uint64_t value) {
  if (bits == 16) warp.values<std::uint16_t>(operand)[lane] = static_cast<std::uint16_t>(value);
  if (bits == 32) warp.values<std::uint32_t>(operand)[lane] = static_cast<std::uint32_t>(value);
  if (bits == 64) warp.values<std::uint64_t>(operand)[lane] = value;
}

}  // namespace

std::string_view name_of(FloatOperation operation) {
  constexpr std::string_view names[] = {"none", "add", "sub", "mul", "fma",     "div",    "sqrt",
                                        "rcp",  "min", "max", "neg", "convert", "compare"};
  return names[static_cast<std::size_t>(operation)];
}

void compute_on_terms(Warp& warp, const Instruction& instruction) {
  const bool compares = instruction.operation == FloatOperation::compare;
  const Type to = compares ? Type{'p', 1} : instruction.to, from = instruction.from;
  const auto& operands = instruction.operands;
  std::uint32_t choices = 0;
  for_each_lane(warp.active, [&](int lane) {
    try {
      const std::uint64_t result = warp.block->options->arithmetic->operate(
          instruction.operation, to, from, read(warp, operands[1], from.bits, lane),
          read(warp, operands[2], from.bits, lane), read(warp, operands[3], from.bits, lane));
      choices |= static_cast<std::uint32_t>(result & 1) << lane;
      write(warp, operands[0], to.bits, lane, result);
    } catch (const std::invalid_argument& error) {
      warp.fail(FaultKind::instruction, lane, error.what());
    }
  });
  if (compares) warp.assign_predicate(operands[0], choices);
}

}  // namespace fp16lab::engine::ptx
