#include <array>

#include "engine/autograd/dispatch.hpp"
#include "engine/autograd/ops.hpp"

namespace fp16lab::engine::ops {

namespace {

/// The prediction in the dtype of the loss, through one node whose vjp is where dL/dy is rounded to the
/// prediction's dtype. Where the dtypes agree that node is an identity, so that dL/dy has a name at every
/// level.
Variable enter_loss(Op loss, const Variable& prediction) {
  Tape& tape = prediction.tape();
  Tensor value;
  {
    const GradModeGuard off(tape, false);
    value = dispatched<1>(loss, {prediction})[0].tensor();
  }
  const Op op = value.dtype() == prediction.dtype() ? Op::identity : Op::cast;
  return tape.record(
      op, value,
      {{prediction,
        [dtype = prediction.dtype()](const Variable& g, const Variable&) { return cast(g, dtype); },
        SlotLabel::prediction}});
}

}  // namespace

Variable softmax_cross_entropy(const Variable& logits, const Tensor& target) {
  const Variable x = enter_loss(Op::softmax_cross_entropy, logits);
  if (x.shape().rank() != 2)
    reject(Op::softmax_cross_entropy, "logits must be (rows, classes), not " + describe(x));
  // log(sum(exp(x - m))) + m - x[t] does not depend on m: its gradient is the same with m held constant.
  const Variable shifted = subtract(x, detach(max(detach(x), 1, true)));
  const Variable log_sum = log(sum(exp(shifted), 1));
  return mean(subtract(log_sum, pick(shifted, target)));
}

Variable mse_loss(const Variable& prediction, const Variable& target) {
  const Variable y = enter_loss(Op::mse_loss, prediction);
  const auto [t] = dispatched<1>(Op::mse_loss, {target});
  if (!(y.shape() == t.shape())) {
    reject(Op::mse_loss, "prediction " + describe(y) + " and target " + describe(t) + " differ in shape");
  }
  const Variable error = subtract(y, t);
  return mean(multiply(error, error));
}

}  // namespace fp16lab::engine::ops
