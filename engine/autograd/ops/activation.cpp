// Functions of one value. Derivatives of 16-bit values are computed in FP32 from the stored values and
// rounded once, with the final cast to the input's dtype (a cast to the same dtype is the value itself).
#include <array>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>

#include "engine/autograd/by_shard.hpp"
#include "engine/autograd/dispatch.hpp"
#include "engine/autograd/ops.hpp"
#include "numerics/random/philox.hpp"

namespace fp16lab::engine::ops {

namespace {

Variable square(const Variable& x) { return multiply(x, x); }

}  // namespace

Variable relu(const Variable& input) {
  const auto inputs = dispatched<1>(Op::relu, {input});
  const Variable x = inputs[0];
  return recorded(Op::relu, unary_value(UnaryOp::relu, x),
                  {{x, [x](const Variable& g, const Variable&) { return select_positive(x, g); }}});
}

Variable log1p(const Variable& input) {
  const auto inputs = dispatched<1>(Op::log1p, {input});
  const Variable x = inputs[0];
  return recorded(Op::log1p, unary_value(UnaryOp::log1p, x),
                  {{x, [x](const Variable& g, const Variable&) {
                      const Variable w = wide(x);
                      return cast(divide(g, add(w, scalar_like(w, 1.0f))), x.dtype());
                    }}});
}

Variable reciprocal_square_root(const Variable& input) {
  const auto inputs = dispatched<1>(Op::reciprocal_square_root, {input});
  const Variable x = inputs[0];
  // d x^(-1/2) = -y / (2 x); halving is exact but for subnormals.
  return recorded(Op::reciprocal_square_root, unary_value(UnaryOp::reciprocal_square_root, x),
                  {{x, [x](const Variable& g, const Variable& y) {
                      return cast(scale(multiply(g, divide(wide(y), x)), -0.5f), x.dtype());
                    }}});
}

Variable absolute(const Variable& input) {
  const auto inputs = dispatched<1>(Op::absolute, {input});
  const Variable x = inputs[0];
  return recorded(Op::absolute, unary_value(UnaryOp::absolute, x),
                  {{x, [x](const Variable& g, const Variable&) { return multiply(g, sign(x)); }}});
}

Variable sign(const Variable& input) {
  const auto inputs = dispatched<1>(Op::sign, {input});
  const Variable x = inputs[0];
  return recorded(Op::sign, unary_value(UnaryOp::sign, x), {{x, {}}});
}

Variable sigmoid(const Variable& input) {
  const auto inputs = dispatched<1>(Op::sigmoid, {input});
  const Variable x = inputs[0];
  // y (1 - y); the difference is exact for y >= 1/2 (Sterbenz).
  return recorded(Op::sigmoid, unary_value(UnaryOp::sigmoid, x),
                  {{x, [x](const Variable& g, const Variable& y) {
                      const Variable w = wide(y);
                      const Variable slope = multiply(w, subtract(scalar_like(w, 1.0f), w));
                      return cast(multiply(g, slope), x.dtype());
                    }}});
}

Variable tanh(const Variable& input) {
  const auto inputs = dispatched<1>(Op::tanh, {input});
  const Variable x = inputs[0];
  // (1 - y) (1 + y): unlike 1 - y^2 it loses nothing where y is close to +-1, because one factor is exact
  // there.
  return recorded(Op::tanh, unary_value(UnaryOp::tanh, x),
                  {{x, [x](const Variable& g, const Variable& y) {
                      const Variable w = wide(y), one = scalar_like(w, 1.0f);
                      const Variable slope = multiply(subtract(one, w), add(one, w));
                      return cast(multiply(g, slope), x.dtype());
                    }}});
}

Variable erf(const Variable& input) {
  const auto inputs = dispatched<1>(Op::erf, {input});
  const Variable x = inputs[0];
  constexpr float two_over_root_pi = 1.12837916709551257390f;
  return recorded(Op::erf, unary_value(UnaryOp::erf, x),
                  {{x, [x](const Variable& g, const Variable&) {
                      const Variable bell = exp(negate(square(wide(x))));
                      return cast(multiply(g, scale(bell, two_over_root_pi)), x.dtype());
                    }}});
}

namespace {

/// Phi(x) + x phi(x), with Phi(x) = (1 + erf(x / sqrt 2)) / 2 and phi its derivative. x is f32.
Variable gelu_slope(const Variable& x) {
  constexpr float root_half = 0.70710678118654752440f, one_over_root_two_pi = 0.39894228040143267794f;
  const Variable one = scalar_like(x, 1.0f);
  const Variable distribution = scale(add(one, erf(scale(x, root_half))), 0.5f);
  const Variable density = scale(exp(scale(square(x), -0.5f)), one_over_root_two_pi);
  return add(distribution, multiply(x, density));
}

/// The derivative of x (1 + t) / 2 with t = tanh(u), u = sqrt(2 / pi) (x + 0.044715 x^3):
/// (1 + t) / 2 + x (1 - t) (1 + t) u' / 2, u' = sqrt(2 / pi) (1 + 3 * 0.044715 x^2). x is f32.
Variable gelu_tanh_slope(const Variable& x) {
  constexpr float root_two_over_pi = 0.79788456080286535588f, cubic = 0.044715f;
  const Variable one = scalar_like(x, 1.0f);
  const Variable squared = square(x);
  const Variable u = scale(multiply(x, add(one, scale(squared, cubic))), root_two_over_pi);
  const Variable t = tanh(u);
  const Variable u_slope = scale(add(one, scale(squared, 3.0f * cubic)), root_two_over_pi);
  const Variable above = add(one, t);
  return scale(add(above, multiply(multiply(x, multiply(subtract(one, t), above)), u_slope)), 0.5f);
}

}  // namespace

Variable gelu(const Variable& input, GeluKind kind) {
  const auto inputs = dispatched<1>(Op::gelu, {input});
  const Variable x = inputs[0];
  const bool exact = kind == GeluKind::exact;
  return recorded(Op::gelu, unary_value(exact ? UnaryOp::gelu : UnaryOp::gelu_tanh, x),
                  {{x, [x, exact](const Variable& g, const Variable&) {
                      const Variable w = wide(x);
                      const Variable slope = exact ? gelu_slope(w) : gelu_tanh_slope(w);
                      return cast(multiply(g, slope), x.dtype());
                    }}});
}

namespace {

/// round(x * mask * factor): the product with the mask is exact, so one rounding. Its own adjoint. `mask`
/// holds zeros and ones in x's shape and dtype; a vjp keeps it, and releases it with the node.
Variable masked(const Variable& x, const Tensor& mask, float factor) {
  Backend& backend = x.tape().backend();
  Tensor out = backend.empty(x.shape(), x.dtype());
  backend.binary(BinaryOp::multiply, x.tensor(), mask, out);
  const Tape& tape = x.tape();
  if (x.dtype() != DType::f32 && (tape.probe() != nullptr || tape.rounds_stochastically())) {
    const Tensor kept = wide_copy(backend, out);
    out = rounded_result(x.tape(), x.shape(), x.dtype(), [&](Tensor& result, CastProbe* probe) {
      Tensor wide = result.dtype() == DType::f32 ? result : backend.empty(x.shape(), DType::f32);
      backend.scale(kept, factor, wide);
      if (result.dtype() != DType::f32) backend.cast(wide, result, probe);
    });
  } else {
    backend.scale(out, factor, out);
  }
  offer_wide_of(
      x.tape(), out,
      [factor](Backend& on, Tensor& product, const Tensor& value, const Tensor& kept) {
        on.binary(BinaryOp::multiply, value, kept, product);
        on.scale(product, factor, product);
      },
      x.tensor(), mask);
  return recorded(
      Op::dropout, out,
      {{x, [mask, factor](const Variable& g, const Variable&) { return masked(g, mask, factor); }}});
}

}  // namespace

Variable dropout(const Variable& input, float p, std::string_view path) {
  const auto inputs = dispatched<1>(Op::dropout, {input});
  const Variable x = inputs[0];
  Tape& tape = x.tape();
  if (!(p >= 0.0f && p < 1.0f)) {
    reject(Op::dropout, std::string(path) + ": p = " + std::to_string(p) + ": must be in [0, 1)");
  }
  const StepContext& context = tape.context();
  if (!context.training || p == 0.0f) return handed_on(Op::dropout, x);
  if (!context.step.defined()) {
    throw std::logic_error(std::string(name_of(Op::dropout)) + " " + std::string(path) +
                           ": training needs the state of the step; set it with Tape::set_context");
  }
  const float keep = 1.0f - p;
  Tensor mask = tape.backend().empty(x.shape(), x.dtype());
  const PhiloxStream stream{
      .seed = context.seed, .stream = stream_id(path), .iteration = 0, .micro_batch = context.micro_batch};
  const auto fill = [&](Tensor& out, const PhiloxStream& part) {
    tape.backend().fill_bernoulli(out, part, keep, context.step);
  };
  fill_rows(tape, mask, stream, 1, std::ref(fill));  // by reference: no allocation
  return masked(x, mask, 1.0f / keep);
}

}  // namespace fp16lab::engine::ops
