// The CPU back end: every FP16 rounding and every tensor-core accumulation, bit by bit.
#pragma once

#include <memory>

#include "engine/backend/backend.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::engine {

/// What an FP16 result beyond 65504 is.
enum class FloatOverflow {
  infinity,  ///< as IEEE 754 has it
  /// Ascend's saturating mode (emulated/saturating.cpp): 65504 with its sign, and a NaN is +0. Either one in
  /// a step sets found_inf of every optimizer that unscales, whatever its gradients are.
  saturate,
};

/// In which order over K products of 16-bit and FP8 operands are summed: a name of library_plans(), and how
/// many threads the library has, which is part of what it computes. "instruction": in one chain.
struct LibraryOrder {
  std::string_view plan = "instruction";
  int threads = 1;
};

/// FP16 products follow `model` (copied): where it accumulates in FP16, their sums are FP16 numbers, to which
/// biases are added as to all sums, in FP32; other operands have the row of the same name with FP32 sums.
/// `threads` >= 1 changes speed, never bits. Tensors are in host memory. std::invalid_argument for threads <
/// 1 and an unknown plan; std::runtime_error if a worker thread flushes subnormals. Under a plan of a library
/// a product without a known order, a convolution and an LSTM's cell throw std::invalid_argument; products of
/// FP32 operands follow none.
std::unique_ptr<Backend> make_emulated_backend(const TensorCoreModel& model, int threads,
                                               FloatOverflow overflow = FloatOverflow::infinity,
                                               const LibraryOrder& library = {});
/// The same of a generation or a chip, by its name: with its row of FP16 that accumulates so, or where it
/// multiplies no FP16, with its first row that does.
std::unique_ptr<Backend> make_emulated_backend(std::string_view tensor_core, DType accumulator, int threads,
                                               FloatOverflow overflow = FloatOverflow::infinity,
                                               const LibraryOrder& library = {});

}  // namespace fp16lab::engine
