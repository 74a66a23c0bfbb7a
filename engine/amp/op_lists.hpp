// Which operations compute in 16 bits and which in FP32: tables, one per dialect.
#pragma once

#include <span>
#include <string_view>

#include "engine/autograd/op.hpp"

namespace fp16lab::engine::amp {

/// Whose lists: the framework that a table follows.
enum class Dialect { torch };

enum class OpList {
  white,    ///< always in the low-precision dtype
  black,    ///< always in FP32
  follows,  ///< in the dtype of its inputs; mixed inputs promote to the widest
  banned,   ///< refused: wrong results in 16 bits, and a safe op in its place
};

struct OpListRow {
  Op op;
  OpList list;
  std::string_view reason = {};  ///< banned: why
  Op remedy = Op::leaf;          ///< banned: the op to use
};

/// The rows of a dialect; an op without a row follows its inputs.
std::span<const OpListRow> op_lists(Dialect dialect);
OpList list_of(Dialect dialect, Op op);
/// The row of `op`; {op, follows} where there is none.
OpListRow row_of(Dialect dialect, Op op);

std::string_view name_of(Dialect dialect);
std::string_view name_of(OpList list);
/// std::invalid_argument naming the known dialects otherwise.
Dialect dialect_from_name(std::string_view name);

}  // namespace fp16lab::engine::amp
