// What every operation does first: check its inputs and bring them to one dtype. Internal to engine/autograd.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "engine/autograd/ops.hpp"
#include "engine/autograd/tape.hpp"

namespace fp16lab::engine {

/// The inputs of `op` as it computes them: on one tape, alive, in one floating dtype. The tape's cast policy
/// decides; without one they promote to the widest. `inputs` is overwritten.
void dispatch(Op op, std::span<Variable> inputs);

template <std::size_t count>
std::array<Variable, count> dispatched(Op op, std::array<Variable, count> inputs) {
  dispatch(op, inputs);
  return inputs;
}

/// The shape that NumPy broadcasting gives; std::invalid_argument naming `op` and both shapes if there is
/// none.
Shape broadcast_shape(Op op, const Shape& a, const Shape& b);

/// `axis` counted from the front; std::invalid_argument naming `op` if x has no such axis.
int normalized_axis(Op op, const Variable& x, int axis);

/// `shape` without `axis`, or with extent 1 there.
Shape reduced_shape(const Shape& shape, int axis, bool keep_axis);

/// Throws std::invalid_argument "<op>: <what>".
[[noreturn]] void reject(Op op, const std::string& what);

/// "f16 (64, 784)"
std::string describe(const Variable& x);

}  // namespace fp16lab::engine
