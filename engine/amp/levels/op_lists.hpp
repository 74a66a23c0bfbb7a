// Which operations compute in 16 bits and which in FP32: tables, one per dialect.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "engine/amp/levels/level.hpp"
#include "engine/autograd/op.hpp"
#include "numerics/formats/dtype.hpp"

namespace fp16lab::engine::amp {

enum class OpList {
  white,    ///< always in the low-precision dtype
  black,    ///< always in FP32
  follows,  ///< as the level says of unlisted ops
  banned,   ///< refused: wrong results in 16 bits, and a safe op in its place
};
constexpr std::array<std::string_view, 4> names_of(OpList) { return {"white", "black", "follows", "banned"}; }

struct OpListRow {
  Op op;
  OpList list;
  std::string_view name = {};    ///< the framework's name for it: "elementwise_add", "MatMul", "addmm"
  std::string_view reason = {};  ///< banned: why
  Op remedy = Op::leaf;          ///< banned: the op to use
};

/// The rows of a dialect's lists for 16-bit dtype `low` at a level (paddle's OD has no black list, O2 a short
/// one; mindspore's O2 lists cells to keep; no dialect distinguishes f16 from bf16 among the ops here); an op
/// without a row is unlisted. Several rows, with the same list, may name one op. Rows with `follows` give an
/// unlisted op the framework's name; rows without a name are ours (the table says why).
std::span<const OpListRow> op_lists(Dialect dialect, Level level = Level::O1, DType low = DType::f16);
/// The row of `op`; {op, follows} where there is none.
OpListRow row_of(Dialect dialect, Level level, DType low, Op op);

/// The op that has this name in the dialect at any level, or in ours; nothing for an unknown one.
std::optional<Op> op_from_name(Dialect dialect, std::string_view name);

}  // namespace fp16lab::engine::amp
