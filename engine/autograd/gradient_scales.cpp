#include "engine/autograd/gradient_scales.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "numerics/formats/format_range.hpp"

namespace fp16lab::engine {

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
  const double threshold = range_of(dtype).overflow_threshold();
  // Ends: every step halves the sum, which is finite in FP64 (exponents differ by a few hundred at most).
  while (std::ldexp(magnitude_a, exponent - exponent_a) + std::ldexp(magnitude_b, exponent - exponent_b) >=
         threshold)
    --exponent;
  return exponent;
}

Tensor times_power_of_two(Backend& backend, const Tensor& x, int exponent) {
  constexpr int largest = Binary32::emax - 1;  // of a factor that is normal, as is its reciprocal
  Tensor out = backend.empty(x.shape(), x.dtype());
  int step = std::clamp(exponent, -largest, largest);
  backend.scale(x, std::ldexp(1.0f, step), out);
  for (int rest = exponent - step; rest != 0; rest -= step) {
    step = std::clamp(rest, -largest, largest);
    backend.scale(out, std::ldexp(1.0f, step), out);
  }
  return out;
}

}  // namespace fp16lab::engine
