// Handlers that are more than one lane after the other, by file, and binders of those that depend on types.
#pragma once

#include "engine/backend/cuda/ptx/instruction.hpp"

namespace fp16lab::engine::ptx {

// data_handlers.cpp
Handler bind_load(Instruction& instruction);
Handler bind_store(Instruction& instruction);
Handler bind_pack(Instruction& instruction);
Handler bind_unpack(Instruction& instruction);
Handler bind_integer_conversion(Instruction& instruction);

// copy_handlers.cpp
template <int least_bytes>
Handler bind_copy(Instruction& instruction);
void commit_copies(Warp& warp, const Instruction& instruction);
void wait_for_groups(Warp& warp, const Instruction& instruction);
void wait_for_all_copies(Warp& warp, const Instruction& instruction);

// exchange_handlers.cpp
void nothing(Warp& warp, const Instruction& instruction);
void trap(Warp& warp, const Instruction& instruction);
void leave(Warp& warp, const Instruction& instruction);
void block_barrier(Warp& warp, const Instruction& instruction);
void warp_barrier(Warp& warp, const Instruction& instruction);
template <bool is_uniform>
void branch(Warp& warp, const Instruction& instruction);
enum class Shuffle : std::uint8_t { up, down, butterfly, index };
template <Shuffle mode>
void shuffle(Warp& warp, const Instruction& instruction);
enum class Vote : std::uint8_t { ballot, any, all };
template <Vote mode>
void vote(Warp& warp, const Instruction& instruction);

// matrix_handlers.cpp. Element: Float16, BFloat16, or float for TF32.
template <bool is_transposed>
void load_matrices(Warp& warp, const Instruction& instruction);
template <class Element, int k>
void multiply(Warp& warp, const Instruction& instruction);

// arithmetic.cpp: an instruction of floating point by Machine::Options::arithmetic.
void compute_on_terms(Warp& warp, const Instruction& instruction);

}  // namespace fp16lab::engine::ptx
