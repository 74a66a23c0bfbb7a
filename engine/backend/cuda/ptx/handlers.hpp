// Handlers that depend on more than an instruction's spelling.
#pragma once

#include "engine/backend/cuda/ptx/instruction.hpp"

namespace fp16lab::engine::ptx {

/// ld and st between this type in memory and registers of so many bits; null if these are too few.
Handler memory_handler(bool stores, Space space, Type type, int register_bits);
/// cvt between integers where a register is wider than its type.
Handler integer_conversion_handler();
/// cp.async: operands 3 and 4 are no registers but displacements.
Handler copy_handler();
/// bar.red: its result is set when the block goes on.
Handler barrier_or_handler();

}  // namespace fp16lab::engine::ptx
