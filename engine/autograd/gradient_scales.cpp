// Scales of layers: the arithmetic, and what a backward pass does with it.
#include "engine/autograd/gradient_scales.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <stdexcept>

#include "engine/autograd/backward_pass.hpp"
#include "numerics/formats/format_range.hpp"

namespace fp16lab::engine {

namespace {

constexpr bool is_scaled(Op op) {
  return op == Op::linear || op == Op::matmul || op == Op::conv2d || op == Op::conv_transpose2d ||
         op == Op::lstm;
}

}  // namespace

double largest_magnitude(Backend& backend, const Tensor& x) {
  if (x.element_count() == 0) return 0.0;
  Tensor magnitudes = backend.empty({1, x.element_count()}, x.dtype());
  backend.unary(UnaryOp::absolute, x.reshaped(magnitudes.shape()), magnitudes);
  Tensor largest = backend.empty({1}, x.dtype());
  backend.reduce(ReduceOp::max, magnitudes, 1, largest);
  Tensor wide = backend.empty({1}, DType::f32);
  backend.cast(largest, wide);
  std::array<float, 1> value{};
  backend.download(wide, std::as_writable_bytes(std::span(value)));
  return static_cast<double>(value.front());
}

int joined_exponent(double magnitude_a, int exponent_a, double magnitude_b, int exponent_b, DType dtype) {
  int exponent = std::max(exponent_a, exponent_b);
  if (!std::isfinite(magnitude_a) || !std::isfinite(magnitude_b)) return exponent;
  const FormatRange range = range_of(dtype);
  // Ends: every step halves the sum, which is finite in FP64 (exponents differ by a few hundred at most).
  while (range.overflows(std::ldexp(magnitude_a, exponent - exponent_a) +
                         std::ldexp(magnitude_b, exponent - exponent_b)))
    --exponent;
  return exponent;
}

Tensor times_power_of_two(Backend& backend, const Tensor& x, int exponent) {
  constexpr int largest = Binary32::emax - 1;  // for a factor that is normal, as is its reciprocal
  Tensor out = backend.empty(x.shape(), x.dtype());
  int step = std::clamp(exponent, -largest, largest);
  backend.scale(x, std::ldexp(1.0f, step), out);
  for (int rest = exponent - step; rest != 0; rest -= step) {
    step = std::clamp(rest, -largest, largest);
    backend.scale(out, std::ldexp(1.0f, step), out);
  }
  return out;
}

void BackwardPass::rescale(std::uint32_t id) {
  const Tape::Node& node = tape_.nodes_[id];
  if (!is_scaled(node.op)) return;
  const auto slots = tape_.slots_of(node);
  Entry& entry = entries_[id];
  const Parameter* weight = nullptr;
  for (std::size_t slot = 2; slot-- > 0 && weight == nullptr;)
    weight = tape_.cast_parameter_of(tape_.handle(slots[slot].input));
  const int exponent = scales_->exponent_at({.scope = tape_.scopes_[node.scope].path,
                                             .op = node.op,
                                             .weight = weight,
                                             .cotangent = entry.cotangent,
                                             .operand = tape_.nodes_[slots[1].input].value,
                                             .exponent = entry.exponent});
  const int change = exponent - entry.exponent;
  if (change == 0) return;
  const Tensor cotangent_scaled = scaled(id, entry.cotangent, change, exponent);
  if (tape_.follows_values()) {  // it may have overflowed
    const Variable cotangent = gradient(id);
    const BackwardSite site{
        .op = node.op, .scope = node.scope, .node = id, .input = id, .cotangent = cotangent.id()};
    const SiteGuard here(tape_, site);
    tape_.offer_wide(cotangent_scaled, [&] {
      return times_power_of_two(tape_.backend(), converted(cotangent.tensor(), DType::f32), change);
    });
    const Variable recorded = tape_.record(Op::scale, cotangent_scaled, {{cotangent, {}}});
    tape_.tell(GradientReplaced{tape_, recorded, id});
  }
  entry.cotangent = cotangent_scaled;
  entry.exponent = exponent;
}

Tensor BackwardPass::scaled(std::uint32_t id, const Tensor& gradient, int change, int exponent) {
  Tensor result = times_power_of_two(tape_.backend(), gradient, change);
  tape_.tell(GradientScaled{tape_, id, gradient, change, exponent});
  return result;
}

void BackwardPass::meet(std::uint32_t id, Tensor& contribution, int exponent) {
  Entry& entry = entries_[id];
  Backend& backend = tape_.backend();
  const int joined =
      joined_exponent(largest_magnitude(backend, entry.cotangent), entry.exponent,
                      largest_magnitude(backend, contribution), exponent, contribution.dtype());
  if (joined != entry.exponent)
    entry.cotangent = scaled(id, entry.cotangent, joined - entry.exponent, joined);
  if (joined != exponent) contribution = scaled(id, contribution, joined - exponent, joined);
  entry.exponent = joined;
}

Tensor BackwardPass::unscaled(const Parameter& parameter, const Tensor& gradient, int exponent) const {
  if (gradient.dtype() != DType::f32) {
    throw std::logic_error(
        "Tape::backward: the gradient of " + parameter.name + " is kept in " +
        std::string(name_of(gradient.dtype())) + " and carries a layer's scale of 2^" +
        std::to_string(exponent) +
        ": dividing by it would round. Let gradients add up in f32 (ParameterDTypes::gradient; "
        "amp.master_gradients = true, or level O1)");
  }
  return times_power_of_two(tape_.backend(), gradient, -exponent);
}

}  // namespace fp16lab::engine
