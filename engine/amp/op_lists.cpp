#include "engine/amp/op_lists.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

namespace fp16lab::engine::amp {

namespace {

// torch's autocast on CUDA, as its source lists it (aten/src/ATen/autocast_mode.h and .cpp, torch 2.x):
//   AT_FORALL_LOWER_PRECISION_FP: matmul, bmm, linear, conv2d and conv_transpose2d, which is the input gradient of
//     conv2d as an operation; convolution_backward never runs under autocast, and keeps it company here.
//   AT_FORALL_FP32: exp, log, log1p, rsqrt, layer_norm, mse_loss, l1_loss, huber_loss, nll_loss (the second half
//     of cross_entropy, whose first half, log_softmax, is next), binary_cross_entropy_with_logits.
//   AT_FORALL_FP32_SET_OPT_DTYPE: sum, softmax, log_softmax.
//   Banned in autocast_mode.cpp: binary_cross_entropy.
// It lists no mean, whose FP16 kernel accumulates in FP32; here it is a sum and a division of which each rounds,
// so it belongs with sum. No row, so they follow their inputs: + - * /, maximum, minimum, sqrt, abs, sign, relu,
// gelu, tanh, sigmoid, erf (erfinv only is listed), dropout, pooling, embedding, batch_norm, cat (it promotes by
// itself) and all that moves elements.
constexpr std::array torch_lists = {
    OpListRow{Op::matmul, OpList::white},
    OpListRow{Op::linear, OpList::white},
    OpListRow{Op::conv2d, OpList::white},
    OpListRow{Op::conv2d_input_gradient, OpList::white},
    OpListRow{Op::conv2d_weight_gradient, OpList::white},
    OpListRow{Op::exp, OpList::black},
    OpListRow{Op::log, OpList::black},
    OpListRow{Op::log1p, OpList::black},
    OpListRow{Op::reciprocal_square_root, OpList::black},
    OpListRow{Op::sum, OpList::black},
    OpListRow{Op::mean, OpList::black},
    OpListRow{Op::softmax, OpList::black},
    OpListRow{Op::log_softmax, OpList::black},
    OpListRow{Op::layer_norm, OpList::black},
    OpListRow{Op::softmax_cross_entropy, OpList::black},
    OpListRow{Op::mse_loss, OpList::black},
    OpListRow{Op::l1_loss, OpList::black},
    OpListRow{Op::huber_loss, OpList::black},
    OpListRow{Op::binary_cross_entropy_with_logits, OpList::black},
    OpListRow{Op::binary_cross_entropy, OpList::banned,
              "a probability that was rounded to 16 bits is 0 or 1 where it is neither in FP32, and its "
              "logarithm infinite",
              Op::binary_cross_entropy_with_logits},
};

}  // namespace

std::span<const OpListRow> op_lists(Dialect dialect) {
  switch (dialect) {
    case Dialect::torch:
      return torch_lists;
  }
  return {};
}

OpListRow row_of(Dialect dialect, Op op) {
  const auto rows = op_lists(dialect);
  const auto row =
      std::find_if(rows.begin(), rows.end(), [op](const OpListRow& candidate) { return candidate.op == op; });
  return row == rows.end() ? OpListRow{op, OpList::follows} : *row;
}

OpList list_of(Dialect dialect, Op op) { return row_of(dialect, op).list; }

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
    case OpList::banned:
      return "banned";
  }
  return "?";
}

Dialect dialect_from_name(std::string_view name) {
  if (name == name_of(Dialect::torch)) return Dialect::torch;
  throw std::invalid_argument("amp.dialect = \"" + std::string(name) + "\": known is torch");
}

}  // namespace fp16lab::engine::amp
