// The differentiable operations: each is a forward computation on the Backend and a backward written in
// operations, so that every one can be differentiated twice.
//
// Inputs of one call belong to one tape. Under a cast policy every floating input is first cast to the
// policy's dtype for the op. Without one, elementwise operations promote to the widest input; products need
// equal dtypes. Shapes or dtypes that do not fit throw std::invalid_argument naming the op and the shapes.
//
// Backward rules of 16-bit results: a derivative that needs more than one operation is computed in FP32 from
// the stored 16-bit values and rounded once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "engine/autograd/tape.hpp"
#include "engine/autograd/variable.hpp"

namespace fp16lab::engine::ops {

// ---- products (ops/product.cpp, ops/convolution.cpp) ----------------------------------------------
struct Transpose {
  bool a = false;  ///< a is stored (k x m)
  bool b = false;  ///< b is stored (n x k)
};
/// (m x k) * (k x n) -> (m x n): one gemm. Both may carry one leading batch axis of equal extent.
Variable matmul(const Variable& a, const Variable& b, Transpose transpose = {});
/// x (..., in), weight (out, in), bias (out) or undefined -> (..., out): one gemm over all leading axes, bias
/// in its epilogue. Its gradients are observed as "input", "weight" and "bias" of the module scope.
Variable linear(const Variable& x, const Variable& weight, const Variable& bias);
/// x (N, C, H, W), weight (K, C / groups, R, S), bias (K) or undefined -> (N, K, P, Q); in NHWC the
/// activations are (N, H, W, C) and (N, P, Q, K). Observed as linear.
Variable conv2d(const Variable& x, const Variable& weight, const Variable& bias,
                const Conv2dGeometry& geometry);
/// The transposed convolution, as torch.nn.ConvTranspose2d: the input gradient of the convolution with this
/// geometry, read forward. x (N, C_in, H, W), weight (C_in, C_out / groups, R, S), bias (C_out) or undefined
/// -> (N, C_out, H', W') with H' = (H - 1) stride - 2 padding + dilation (R - 1) + output_padding + 1; in
/// NHWC with channels last. 0 <= output_padding < stride (torch also takes one below the dilation).
/// std::invalid_argument for shapes that do not fit. Observed as linear.
Variable conv_transpose2d(const Variable& x, const Variable& weight, const Variable& bias,
                          const Conv2dGeometry& geometry,
                          const std::array<std::int64_t, 2>& output_padding = {0, 0});
/// The two bilinear maps that conv2d's backward is made of, and each other's.
Variable conv2d_input_gradient(const Variable& gradient, const Variable& weight, const Shape& input_shape,
                               const Conv2dGeometry& geometry);
Variable conv2d_weight_gradient(const Variable& x, const Variable& gradient, const Shape& weight_shape,
                                const Conv2dGeometry& geometry);

// ---- recurrence (ops/lstm.cpp) --------------------------------------------------------------------
/// Module scopes inside the present one, by whose names the parts of a recurrence are observed.
struct LstmScopes {
  std::string_view hidden;  ///< "weight", "bias": those of the state product; "input": its h
  std::string_view gates;   ///< "input": the gates' sums, before sigmoid and tanh
  std::string_view cell;    ///< "input": c, as the step before gets it
};
/// The recurrent part of an LSTM layer (Hochreiter & Schmidhuber 1997, forget gates), one op for all steps.
/// products (T B, 4 H), time-major: x W_ih^T + b_ih, gates (i, f, g, o) side by side; weight W_hh (4 H, H);
/// bias b_hh (4 H); h and c begin as zeros. Gives h of all steps, (T B, H):
///   gates = products + (h W_hh^T + b_hh);  c = sigmoid(f) c + sigmoid(i) tanh(g);  h = sigmoid(o) tanh(c)
/// T state products, and Backend::lstm_cell between them: its results, the state product and their gradients
/// have 16 bits, each rounded once. The gradients of W_hh and b_hh are one gemm and one sum over all (t, b)
/// ascending, in which the h before step 0 is +0. A recorded backward pass (create_graph) differentiates the
/// same steps, unrolled as operations in FP32.
Variable lstm(const Variable& products, const Variable& weight, const Variable& bias, std::int64_t steps,
              const LstmScopes& scopes);

// ---- pooling (ops/convolution.cpp) ----------------------------------------------------------------
Variable max_pool2d(const Variable& x, const Pool2dGeometry& geometry);
Variable average_pool2d(const Variable& x, const Pool2dGeometry& geometry);

// ---- elementwise (ops/elementwise.cpp, ops/activation.cpp) ------------------------------------------
Variable add(const Variable& a, const Variable& b);  ///< NumPy broadcasting, as all with two inputs
Variable subtract(const Variable& a, const Variable& b);
Variable multiply(const Variable& a, const Variable& b);
Variable divide(const Variable& a, const Variable& b);
/// Where a == b both get half of the gradient (as torch.maximum).
Variable maximum(const Variable& a, const Variable& b);
Variable minimum(const Variable& a, const Variable& b);
/// (a <= 0) ? +0 : b. No gradient flows into a (it is zero almost everywhere).
Variable select_positive(const Variable& a, const Variable& b);
Variable scale(const Variable& x, float factor);
Variable divide_constant(const Variable& x, float divisor);  ///< not the same bits as scale(x, 1 / divisor)
Variable negate(const Variable& x);
Variable relu(const Variable& x);  ///< derivative 0 at 0
Variable exp(const Variable& x);
Variable log(const Variable& x);
Variable log1p(const Variable& x);
Variable square_root(const Variable& x);
Variable reciprocal_square_root(const Variable& x);
Variable absolute(const Variable& x);  ///< derivative 0 at 0
Variable sign(const Variable& x);      ///< derivative 0
Variable sigmoid(const Variable& x);
Variable tanh(const Variable& x);
Variable erf(const Variable& x);
enum class GeluKind { exact, tanh };
Variable gelu(const Variable& x, GeluKind kind = GeluKind::exact);
/// y = scale(x * mask, 1 / keep), mask from Backend::fill_bernoulli with the tape's forward context and the
/// stream of `path`. The identity unless the context is training. keep = 1 - p in (0, 1].
/// std::logic_error if the tape has no step context while training.
Variable dropout(const Variable& x, float p, std::string_view path);
/// One rounding where it narrows. Backward: a cast to x's dtype. Same dtype: x itself.
Variable cast(const Variable& x, DType dtype);
/// A cast whose result is already known (a cached one): recorded, not computed. `value`: shape of x.
Variable cast_as(const Variable& x, const Tensor& value);
/// The same value without a gradient.
Variable detach(const Variable& x);
/// The same value under a new id, whose gradient is observed as `label` of the module scope: with its
/// rounding where one operation gives all of it, else as stored. So put it right before the operation that
/// takes the value.
Variable watch(const Variable& x, SlotLabel label);

// ---- reductions and shapes (ops/reduce.cpp, ops/shape.cpp) ------------------------------------------
Variable sum(const Variable& x);  ///< over all elements in row-major order: a scalar, shape ()
Variable sum(const Variable& x, int axis, bool keep_axis = false);
/// Over several axes: one TREE in row-major order of those axes (never a sum of sums).
Variable sum(const Variable& x, std::span<const int> axes, bool keep_axes = false);
Variable max(const Variable& x);
/// Backward shares the gradient evenly among equal maxima (as torch.amax).
Variable max(const Variable& x, int axis, bool keep_axis = false);
/// FP32 sum, then division by the element count, one rounding to 16 bits; so backward = div_rn(dL, n).
Variable mean(const Variable& x);
Variable mean(const Variable& x, int axis, bool keep_axis = false);
Variable mean(const Variable& x, std::span<const int> axes, bool keep_axes = false);
Variable reshape(const Variable& x, const Shape& shape);
Variable broadcast_to(const Variable& x, const Shape& shape);
/// The adjoint of broadcast_to: sums over the axes that broadcasting stretched, one TREE, one rounding.
Variable sum_to(const Variable& x, const Shape& shape);
/// Axis i of the result is axis axes[i] of x.
Variable permute(const Variable& x, std::span<const int> axes);
Variable transpose(const Variable& x, int axis_a, int axis_b);
/// x[..., begin : begin + extent, ...]
Variable slice(const Variable& x, int axis, std::int64_t begin, std::int64_t extent);
/// The adjoint of slice: zeros with `extent` along `axis`, but for x from `begin` on.
Variable place_slice(const Variable& x, int axis, std::int64_t begin, std::int64_t extent);
Variable concat(std::span<const Variable> parts, int axis);
/// Fills `parts` (at least one) with equal parts along `axis`, whose extent their number must divide. Splits
/// by halves, so that the backward pass moves each element log2(parts.size()) times and not parts.size()
/// times.
void split(const Variable& x, int axis, std::span<Variable> parts);
template <std::size_t count>
std::array<Variable, count> split(const Variable& x, int axis) {
  std::array<Variable, count> parts;
  split(x, axis, parts);
  return parts;
}

// ---- indexing (ops/index.cpp) -----------------------------------------------------------------------
/// x (rows, columns), index i32 (rows): x[r, index[r]], shape (rows).
Variable pick(const Variable& x, const Tensor& index);
/// The adjoint of pick: zeros (rows, columns) but for [r, index[r]] = x[r].
Variable place(const Variable& x, const Tensor& index, std::int64_t columns);
/// table (V, E), index i32 of shape s in [0, V): (s..., E). The table's gradient is observed as "weight".
Variable embedding(const Variable& table, const Tensor& index);
/// The adjoint of embedding: row v is the TREE sum of the rows of x (s..., E) whose index is v.
Variable scatter_rows(const Variable& x, const Tensor& index, std::int64_t rows);

// ---- normalisation (ops/normalization.cpp) ----------------------------------------------------------
// Arithmetic is FP32 whatever enters; a 16-bit result (outside autocast, or where the lists do not say FP32)
// is rounded once. The norms' parameters are taken as they are stored: x alone decides the dtype of the
// result. Gradients are observed as "input", "weight" and "bias".
Variable softmax(const Variable& x, int axis);  ///< exp(x - max) / sum: rows of only -inf give NaN
Variable log_softmax(const Variable& x, int axis);
/// Over the last axis: (x - mean) / sqrt(variance + epsilon) * weight + bias, biased variance. weight and
/// bias (E), both or neither undefined.
Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias, float epsilon);
/// Over the last axis (Zhang & Sennrich 2019, as torch.nn.functional.rms_norm): x / sqrt(mean(x^2) + epsilon)
/// * weight; weight (E) or undefined.
Variable rms_norm(const Variable& x, const Variable& weight, float epsilon);
/// Wu & He 2018, as torch.nn.functional.group_norm: the channels of x (N, C, ...), or (N, ..., C) in NHWC,
/// cut into `groups` equal parts; each part of each n is normalised by its own mean and biased variance, one
/// TREE in the order (c, ...) in both layouts. weight and bias (C), both or neither undefined.
Variable group_norm(const Variable& x, std::int64_t groups, const Variable& weight, const Variable& bias,
                    float epsilon, Layout layout = Layout::nchw);
struct BatchNormResult {
  Variable y;
  Tensor mean;              ///< f32 (C), the batch's where StepContext::synchronises; else each local shard's
  Tensor variance;          ///< likewise, biased
  std::int64_t values = 0;  ///< values of the channel that each of these belongs to
};
/// x (N, C) or 4-d in `layout`; statistics per channel over all other axes, one TREE each. weight and bias
/// (C) or undefined.
BatchNormResult batch_norm(const Variable& x, const Variable& weight, const Variable& bias, float epsilon,
                           Layout layout = Layout::nchw);
/// The same with given statistics, f32 (C).
Variable batch_norm_inference(const Variable& x, const Tensor& mean, const Tensor& variance,
                              const Variable& weight, const Variable& bias, float epsilon,
                              Layout layout = Layout::nchw);

// ---- losses (ops/loss.cpp) --------------------------------------------------------------------------
// Computed in FP32 under autocast. The gradient of the prediction is observed as "prediction" where it is
// rounded to the prediction's dtype. `none` keeps one loss an element (cross-entropy: a row).
enum class Reduction { none, mean, sum };
/// log(sum(exp(x))) - x[target], with the (detached) row maximum subtracted first. logits (rows, classes),
/// target i32 (rows).
Variable softmax_cross_entropy(const Variable& logits, const Tensor& target,
                               Reduction reduction = Reduction::mean);
/// What the gradient of the logits is where the probabilities of a row do not add up to 1.
enum class SoftmaxGradient {
  formula,  ///< sum(p) softmax(x) - p, the formula's own, and so 0 where p is (torch)
  fused,    ///< softmax(x) - p whatever the sum, as kernels of Paddle (cross_entropy_with_softmax_grad with
            ///< soft_label) and MindSpore (SoftmaxCrossEntropyWithLogits) compute it
};
/// -sum over classes of p * log_softmax(x), with p (rows, classes) >= 0; mean: over rows, those of zeros too.
Variable softmax_cross_entropy(const Variable& logits, const Variable& probabilities,
                               Reduction reduction = Reduction::mean,
                               SoftmaxGradient gradient = SoftmaxGradient::formula);
/// (prediction - target)^2; mean over *all* elements. Equal shapes, as the four below.
Variable mse_loss(const Variable& prediction, const Variable& target, Reduction reduction = Reduction::mean);
Variable l1_loss(const Variable& prediction, const Variable& target, Reduction reduction = Reduction::mean);
/// e^2 / 2 where |e| <= delta, else delta (|e| - delta / 2); delta > 0.
Variable huber_loss(const Variable& prediction, const Variable& target, float delta = 1.0f,
                    Reduction reduction = Reduction::mean);
/// -(t log p + (1 - t) log(1 - p)), logarithms clamped at -100 (as torch). Refused under autocast in 16 bits
/// (AutogradError::Kind::unsafe_under_autocast): p = sigmoid(x) in FP16 is 0 or 1 where FP32 is not, and its
/// logarithm infinite; the message names binary_cross_entropy_with_logits.
Variable binary_cross_entropy(const Variable& probability, const Variable& target,
                              Reduction reduction = Reduction::mean);
/// max(x, 0) - x t + log1p(exp(-|x|))
Variable binary_cross_entropy_with_logits(const Variable& logits, const Variable& target,
                                          Reduction reduction = Reduction::mean);

}  // namespace fp16lab::engine::ops
