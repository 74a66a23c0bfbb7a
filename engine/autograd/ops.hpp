// The differentiable operations: each is a forward computation on the Backend and a backward written in
// operations.
//
// Inputs of one call live on one tape. Under a cast policy every floating input is first cast to the policy's
// dtype for the op. Without one, elementwise operations promote to the widest input; products need equal
// dtypes. Shapes or dtypes that do not fit throw std::invalid_argument naming the op and the shapes.
#pragma once

#include "engine/autograd/tape.hpp"
#include "engine/autograd/variable.hpp"

namespace fp16lab::engine::ops {

// ---- products -----------------------------------------------------------------------------------
struct Transpose {
  bool a = false;  ///< a is stored (k x m)
  bool b = false;  ///< b is stored (n x k)
};
/// (m x k) * (k x n) -> (m x n): one gemm.
Variable matmul(const Variable& a, const Variable& b, Transpose transpose = {});
/// x (batch, in), weight (out, in), bias (out) or undefined -> (batch, out): one gemm, bias in its epilogue.
/// Its gradients are observed as "input", "weight" and "bias" of the module scope.
Variable linear(const Variable& x, const Variable& weight, const Variable& bias);

// ---- elementwise --------------------------------------------------------------------------------
Variable add(const Variable& a, const Variable& b);  ///< NumPy broadcasting, as the three below
Variable subtract(const Variable& a, const Variable& b);
Variable multiply(const Variable& a, const Variable& b);
Variable divide(const Variable& a, const Variable& b);
/// (a <= 0) ? +0 : b. No gradient flows into a (it is zero almost everywhere).
Variable select_positive(const Variable& a, const Variable& b);
Variable scale(const Variable& x, float factor);
Variable divide_constant(const Variable& x, float divisor);  ///< not the same bits as scale(x, 1 / divisor)
Variable negate(const Variable& x);
Variable relu(const Variable& x);  ///< derivative 0 at 0
Variable exp(const Variable& x);
Variable log(const Variable& x);
Variable square_root(const Variable& x);
/// One rounding where it narrows. Backward: a cast to x's dtype. Same dtype: x itself.
Variable cast(const Variable& x, DType dtype);
/// A cast whose result is already known (a cached one): recorded, not computed. `value`: shape of x.
Variable cast_as(const Variable& x, const Tensor& value);
/// The same value without a gradient.
Variable detach(const Variable& x);

// ---- reductions and shapes ----------------------------------------------------------------------
Variable sum(const Variable& x);  ///< over all elements in row-major order: a scalar, shape ()
Variable sum(const Variable& x, int axis, bool keep_axis = false);
Variable max(const Variable& x);
/// Backward shares the gradient evenly among equal maxima (as torch.amax).
Variable max(const Variable& x, int axis, bool keep_axis = false);
Variable mean(const Variable& x);  ///< sum, then division by the element count; so backward = div_rn(dL, n)
Variable mean(const Variable& x, int axis, bool keep_axis = false);
Variable reshape(const Variable& x, const Shape& shape);
Variable broadcast_to(const Variable& x, const Shape& shape);
/// The adjoint of broadcast_to: sums over the axes that broadcasting stretched, in one rounding.
Variable sum_to(const Variable& x, const Shape& shape);
/// x (rows, columns), index i32 (rows): x[r, index[r]], shape (rows).
Variable pick(const Variable& x, const Tensor& index);
/// The adjoint of pick: zeros (rows, columns) but for [r, index[r]] = x[r].
Variable place(const Variable& x, const Tensor& index, std::int64_t columns);

// ---- losses -------------------------------------------------------------------------------------
/// Mean over rows of log(sum(exp(x))) - x[target], with the (detached) row maximum subtracted first. logits
/// (rows, classes), target i32 (rows). A scalar. Observed as "prediction".
Variable softmax_cross_entropy(const Variable& logits, const Tensor& target);
/// Mean over batch *and* outputs of (prediction - target)^2. Equal shapes. A scalar. Observed as
/// "prediction".
Variable mse_loss(const Variable& prediction, const Variable& target);

}  // namespace fp16lab::engine::ops
