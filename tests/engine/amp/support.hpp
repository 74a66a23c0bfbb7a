// What the tests of engine/amp share: a call of every op, and the table of what each dialect does with it.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/amp/levels/level.hpp"
#include "engine/autograd/op.hpp"
#include "tests/engine/autograd/support.hpp"

namespace fp16lab::engine::test {

/// One op on x, or on x and y. Inputs are ones.
struct OpCall {
  Op op;
  Shape x;
  std::optional<Shape> y;
  Variable (*call)(Backend& on, const Variable& x, const Variable& y);
};

/// Every op that a network can call under autocast, but for `custom`, which names its dtype itself. Not
/// there: leaf, identity and cast, which have no dtype of their own, and pool_pick, pool_place and
/// average_pool2d_transposed, the steps of pooling's backward.
std::span<const OpCall> op_calls();

/// What a level does with an op.
///   W  computes in low and hands that on, whatever comes        w  computes in low, hands on FP32
///   B  computes in FP32 and hands that on                       b  computes in FP32, hands on low
///   F  follows its inputs: low if all of them are, else FP32    M  likewise, but low if they differ
///   R  refused                                                  -  never called: something else takes its
///                                                                  place
struct DialectLevel {
  amp::Dialect dialect;
  amp::Level level;
};
/// The columns of the table: every level but O0.
std::span<const DialectLevel> dialect_levels();
/// The letter of an op in column `column`.
char expected_of(Op op, std::size_t column);

inline Tensor filled(Backend& backend, const Shape& shape, DType dtype, double value = 1.0) {
  Tensor tensor = backend.empty(shape, dtype);
  backend.fill(tensor, value);
  return tensor;
}

}  // namespace fp16lab::engine::test
