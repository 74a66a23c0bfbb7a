#include "tests/engine/amp/support.hpp"

#include <stdexcept>

namespace fp16lab::engine::test {

namespace {

#define CALL(expression)                                               \
  []([[maybe_unused]] Backend& on, [[maybe_unused]] const Variable& x, \
     [[maybe_unused]] const Variable& y) -> Variable { return expression; }

constexpr std::array<int, 2> swapped{1, 0};

/// A parameter of a norm over two features: FP32, as autocast finds it.
Variable two(const Variable& like) {
  Tape& tape = like.tape();
  return tape.constant(filled(tape.backend(), {2}, DType::f32));
}

/// One unit, one step: products (2, 4), W_hh (4, 1).
Variable recurrence(const Variable& products, const Variable& weight) {
  Tape& tape = products.tape();
  const Variable bias = tape.constant(filled(tape.backend(), {4}, products.dtype()));
  return ops::lstm(products, weight, bias, 1, {.hidden = "hh", .gates = "gates", .cell = "cell"});
}

const std::vector<OpCall>& calls() {
  const Shape square{2, 2}, image{1, 1, 2, 2}, pixel{1, 1, 1, 1};
  static const std::vector<OpCall> all = {
      {Op::matmul, square, square, CALL(ops::matmul(x, y))},
      {Op::linear, square, square, CALL(ops::linear(x, y, {}))},
      {Op::conv2d, image, image, CALL(ops::conv2d(x, y, {}, {}))},
      {Op::conv2d_input_gradient, pixel, image, CALL(ops::conv2d_input_gradient(x, y, {1, 1, 2, 2}, {}))},
      {Op::conv2d_weight_gradient, image, pixel, CALL(ops::conv2d_weight_gradient(x, y, {1, 1, 2, 2}, {}))},
      {Op::conv_transpose2d, image, image, CALL(ops::conv_transpose2d(x, y, {}, {}))},
      {Op::lstm, Shape{2, 4}, Shape{4, 1}, CALL(recurrence(x, y))},
      {Op::max_pool2d, image, {}, CALL(ops::max_pool2d(x, {}))},
      {Op::average_pool2d, image, {}, CALL(ops::average_pool2d(x, {}))},
      {Op::add, square, square, CALL(ops::add(x, y))},
      {Op::subtract, square, square, CALL(ops::subtract(x, y))},
      {Op::multiply, square, square, CALL(ops::multiply(x, y))},
      {Op::divide, square, square, CALL(ops::divide(x, y))},
      {Op::maximum, square, square, CALL(ops::maximum(x, y))},
      {Op::minimum, square, square, CALL(ops::minimum(x, y))},
      {Op::select_positive, square, square, CALL(ops::select_positive(x, y))},
      {Op::scale, square, {}, CALL(ops::scale(x, 0.5f))},
      {Op::divide_constant, square, {}, CALL(ops::divide_constant(x, 3.0f))},
      {Op::negate, square, {}, CALL(ops::negate(x))},
      {Op::relu, square, {}, CALL(ops::relu(x))},
      {Op::exp, square, {}, CALL(ops::exp(x))},
      {Op::log, square, {}, CALL(ops::log(x))},
      {Op::log1p, square, {}, CALL(ops::log1p(x))},
      {Op::square_root, square, {}, CALL(ops::square_root(x))},
      {Op::reciprocal_square_root, square, {}, CALL(ops::reciprocal_square_root(x))},
      {Op::absolute, square, {}, CALL(ops::absolute(x))},
      {Op::sign, square, {}, CALL(ops::sign(x))},
      {Op::sigmoid, square, {}, CALL(ops::sigmoid(x))},
      {Op::tanh, square, {}, CALL(ops::tanh(x))},
      {Op::erf, square, {}, CALL(ops::erf(x))},
      {Op::gelu, square, {}, CALL(ops::gelu(x))},
      {Op::sum, square, {}, CALL(ops::sum(x))},
      {Op::max, square, {}, CALL(ops::max(x, 1))},
      {Op::mean, square, {}, CALL(ops::mean(x))},
      {Op::reshape, square, {}, CALL(ops::reshape(x, Shape{4}))},
      {Op::broadcast_to, square, {}, CALL(ops::broadcast_to(x, Shape{3, 2, 2}))},
      {Op::permute, square, {}, CALL(ops::permute(x, swapped))},
      {Op::slice, square, {}, CALL(ops::slice(x, 0, 1, 1))},
      {Op::place_slice, square, {}, CALL(ops::place_slice(x, 0, 1, 4))},
      {Op::concat, square, square, CALL(ops::concat(std::vector{x, y, x}, 0))},
      {Op::pick, square, {}, CALL(ops::pick(x, index_of(on, {0, 1})))},
      {Op::place, Shape{2}, {}, CALL(ops::place(x, index_of(on, {0, 1}), 3))},
      {Op::embedding, square, {}, CALL(ops::embedding(x, index_of(on, {0, 1, 1})))},
      {Op::scatter_rows, square, {}, CALL(ops::scatter_rows(x, index_of(on, {0, 0}), 3))},
      {Op::dropout, square, {}, CALL(ops::dropout(x, 0.5f, "drop"))},
      {Op::softmax, square, {}, CALL(ops::softmax(x, 1))},
      {Op::log_softmax, square, {}, CALL(ops::log_softmax(x, 1))},
      // A norm looks at x only, whatever its parameters are.
      {Op::layer_norm, square, {}, CALL(ops::layer_norm(x, two(x), two(x), 1e-5f))},
      {Op::rms_norm, square, {}, CALL(ops::rms_norm(x, two(x), 1e-5f))},
      {Op::group_norm, square, {}, CALL(ops::group_norm(x, 1, two(x), two(x), 1e-5f))},
      {Op::batch_norm, square, {}, CALL(ops::batch_norm(x, two(x), two(x), 1e-5f).y)},
      {Op::softmax_cross_entropy, square, square, CALL(ops::softmax_cross_entropy(x, y))},
      {Op::mse_loss, square, square, CALL(ops::mse_loss(x, y))},
      {Op::l1_loss, square, square, CALL(ops::l1_loss(x, y))},
      {Op::huber_loss, square, square, CALL(ops::huber_loss(x, y))},
      {Op::binary_cross_entropy, square, square, CALL(ops::binary_cross_entropy(x, y))},
      {Op::binary_cross_entropy_with_logits, square, square,
       CALL(ops::binary_cross_entropy_with_logits(x, y))},
  };
  return all;
}
#undef CALL

constexpr std::array columns = {
    DialectLevel{amp::Dialect::torch, amp::Level::O1},
    DialectLevel{amp::Dialect::paddle, amp::Level::OD},
    DialectLevel{amp::Dialect::paddle, amp::Level::O1},
    DialectLevel{amp::Dialect::paddle, amp::Level::O2},
    DialectLevel{amp::Dialect::mindspore, amp::Level::O1},
    DialectLevel{amp::Dialect::mindspore, amp::Level::O2},
    DialectLevel{amp::Dialect::mindspore, amp::Level::O3},
    DialectLevel{amp::Dialect::mindspore, amp::Level::automatic},
    DialectLevel{amp::Dialect::apex, amp::Level::O1},
    DialectLevel{amp::Dialect::apex, amp::Level::O2},
    DialectLevel{amp::Dialect::apex, amp::Level::O3},
};

struct Row {
  Op op;
  std::string_view letters;  ///< one for each column, a space between frameworks
};
// Typed from the frameworks' sources, read op by op, not from engine/amp/levels/op_lists.cpp:
//   torch      aten/src/ATen/autocast_mode.h, .cpp (CUDA lists)
//   paddle     python/paddle/amp/amp_lists.py: FP16_WHITE_LIST, FP16_BLACK_LIST, EXTRA_BLACK_LIST; the
//              decision itself in paddle/fluid/eager/amp_utils.h. conv2d_transpose, pool2d, log1p,
//              rms_norm and bce_loss are in none of them; mse_loss and l1_loss end in reduce_mean, which is
//              black at O1. Linear is matmul_v2 and elementwise_add.
//   mindspore  mindspore/train/amp.py: AMP_WHITE_LIST (with casts around each cell), AMP_BLACK_LIST
//              (_OutputTo16); auto: AMP_AUTO_WHITE_LIST, AMP_AUTO_BLACK_LIST of 2.10, where nn.Dense is
//              MatMul and BiasAdd. sum is SumExt, the losses are LogSoftmax and NLLLoss, MSELossExt,
//              L1LossExt, SmoothL1Loss and BCEWithLogitsLoss.
//   apex       apex/amp/lists/*.py (commit cb65b8ed^); O2 and O3 patch no functions
// Two rows that no framework has: conv2d_weight_gradient is never called under autocast (conv2d's company in
// torch and apex); mean is FP32 in our torch (its FP16 kernel accumulates in FP32, which is that but for a
// rounding). Columns: torch 1, paddle D12, mindspore 123a, apex 123.
constexpr std::array rows = {
    Row{Op::matmul, "W WWW wMMW WMM"},
    Row{Op::linear, "W --- wMM- WMM"},
    Row{Op::conv2d, "W WWW wMMW WMM"},
    Row{Op::conv2d_input_gradient, "W BFM wMMF WMM"},
    Row{Op::conv2d_weight_gradient, "W BFM FMMF WMM"},
    Row{Op::conv_transpose2d, "W BFM wMMW WMM"},
    Row{Op::lstm, "W BFM wMMF WMM"},
    Row{Op::max_pool2d, "F BFF FFFF FFF"},
    Row{Op::average_pool2d, "F BFF FFFF FFF"},
    Row{Op::add, "F BFF FFFF FFF"},
    Row{Op::subtract, "F BFF FFFF FFF"},
    Row{Op::multiply, "F BFF FFFF FFF"},
    Row{Op::divide, "F BFF FFFF FFF"},
    Row{Op::maximum, "F BFF FFFF FFF"},
    Row{Op::minimum, "F BFF FFFF FFF"},
    Row{Op::select_positive, "F BFF FFFF FFF"},
    Row{Op::scale, "F BFF FFFF FFF"},
    Row{Op::divide_constant, "F BFF FFFF FFF"},
    Row{Op::negate, "F BFF FFFF FFF"},
    Row{Op::relu, "F BFF wFFF FFF"},
    Row{Op::exp, "B BBF FFFB BFF"},
    Row{Op::log, "B BBF FFFB BFF"},
    Row{Op::log1p, "B BFF FFFB FFF"},
    Row{Op::square_root, "F BFF FFFF FFF"},
    Row{Op::reciprocal_square_root, "B BBF FFFB BFF"},
    Row{Op::absolute, "F BFF FFFF FFF"},
    Row{Op::sign, "F BFF FFFF FFF"},
    Row{Op::sigmoid, "F BFF FFFF FFF"},
    Row{Op::tanh, "F BFF FFFF FFF"},
    Row{Op::erf, "F BFF FFFF FFF"},
    Row{Op::gelu, "F BFF FFFF BFF"},
    Row{Op::sum, "B BBF FFFB BFF"},
    Row{Op::max, "F BFF FFFF FFF"},
    Row{Op::mean, "B BBF FFFF FFF"},
    Row{Op::reshape, "F BFF FFFF FFF"},
    Row{Op::broadcast_to, "F BFF FFFF FFF"},
    Row{Op::permute, "F BFF FFFF FFF"},
    Row{Op::slice, "F BFF FFFF FFF"},
    Row{Op::place_slice, "F BFF FFFF FFF"},
    Row{Op::concat, "F BFF FFFF FFF"},
    Row{Op::pick, "F BFF FFFF FFF"},
    Row{Op::place, "F BFF FFFF FFF"},
    Row{Op::embedding, "F BBB FFFF FFF"},
    Row{Op::scatter_rows, "F BBB FFFF FFF"},
    Row{Op::dropout, "F BFF FFFF FFF"},
    Row{Op::softmax, "B BBF FFFB BFF"},
    Row{Op::log_softmax, "B BBF FFFB BFF"},
    Row{Op::layer_norm, "B BBF FbFB BFF"},
    Row{Op::rms_norm, "B BFF FFFF FFF"},
    Row{Op::group_norm, "B BBF FFFB BFF"},
    Row{Op::batch_norm, "F BFF FbFB FFF"},
    Row{Op::softmax_cross_entropy, "B BBF FFFB BFF"},
    Row{Op::mse_loss, "B BBF FFFB BFF"},
    Row{Op::l1_loss, "B BBF FFFB BFF"},
    Row{Op::huber_loss, "B BBF FFFB BFF"},
    Row{Op::binary_cross_entropy, "R BFF FFFF RFF"},
    Row{Op::binary_cross_entropy_with_logits, "B BBF FFFB BFF"},
};

}  // namespace

std::span<const OpCall> op_calls() { return calls(); }
std::span<const DialectLevel> dialect_levels() { return columns; }

char expected_of(Op op, std::size_t column) {
  for (const Row& row : rows) {
    if (row.op != op) continue;
    for (const char letter : row.letters)
      if (letter != ' ' && column-- == 0) return letter;
  }
  throw std::out_of_range("no row for " + std::string(name_of(op)));
}

}  // namespace fp16lab::engine::test
