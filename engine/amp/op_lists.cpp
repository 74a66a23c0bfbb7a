#include "engine/amp/op_lists.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

namespace fp16lab::engine::amp {

namespace {

// torch autocast on CUDA (aten/src/ATen/autocast_mode.h): matmul and linear are "lower_precision_fp"; exp,
// log and the losses are "fp32"; sum is "fp32_set_opt_dtype". torch lists no mean, whose FP16 kernel
// accumulates in FP32; here it is a sum and a division of which each rounds, so it belongs with sum.
constexpr std::array torch_lists = {
    OpListRow{Op::matmul, OpList::white},   OpListRow{Op::linear, OpList::white},
    OpListRow{Op::exp, OpList::black},      OpListRow{Op::log, OpList::black},
    OpListRow{Op::sum, OpList::black},      OpListRow{Op::mean, OpList::black},
    OpListRow{Op::mse_loss, OpList::black}, OpListRow{Op::softmax_cross_entropy, OpList::black},
};

}  // namespace

std::span<const OpListRow> op_lists(Dialect dialect) {
  switch (dialect) {
    case Dialect::torch:
      return torch_lists;
  }
  return {};
}

OpList list_of(Dialect dialect, Op op) {
  const auto rows = op_lists(dialect);
  const auto row =
      std::find_if(rows.begin(), rows.end(), [op](const OpListRow& candidate) { return candidate.op == op; });
  return row == rows.end() ? OpList::follows : row->list;
}

std::string_view name_of(Dialect dialect) {
  switch (dialect) {
    case Dialect::torch:
      return "torch";
  }
  return "?";
}

std::string_view name_of(OpList list) {
  switch (list) {
    case OpList::white:
      return "white";
    case OpList::black:
      return "black";
    case OpList::follows:
      return "follows";
  }
  return "?";
}

Dialect dialect_from_name(std::string_view name) {
  if (name == name_of(Dialect::torch)) return Dialect::torch;
  throw std::invalid_argument("amp.dialect = \"" + std::string(name) + "\": known is torch");
}

}  // namespace fp16lab::engine::amp
