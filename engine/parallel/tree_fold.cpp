#include "engine/parallel/tree_fold.hpp"

#include <cmath>

#include "numerics/platform/vector_clones.hpp"

namespace fp16lab::engine::parallel {

namespace {

FP16LAB_VECTOR_CLONES
void add(const float* a, const float* b, float* sum, std::size_t n) {
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < n; ++i) sum[i] = canonicalize(a[i] + b[i]);
}

FP16LAB_VECTOR_CLONES
void multiply(const float* values, float factor, float* out, std::size_t n) {
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < n; ++i) out[i] = canonicalize(values[i] * factor);
}

FP16LAB_VECTOR_CLONES
void divide(const float* values, float divisor, float* out, std::size_t n) {
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::size_t i = 0; i < n; ++i) out[i] = canonicalize(values[i] / divisor);
}

}  // namespace

void add_rows(std::span<const float> a, std::span<const float> b, std::span<float> sum) {
  add(a.data(), b.data(), sum.data(), sum.size());
}

void divide_row(std::span<const float> values, float divisor, std::span<float> out) {
  int exponent = 0;
  if (std::frexp(divisor, &exponent) ==
      0.5F)  // 1 / divisor is exact, and both are one rounding of one number
    multiply(values.data(), 1 / divisor, out.data(), out.size());
  else
    divide(values.data(), divisor, out.data(), out.size());
}

}  // namespace fp16lab::engine::parallel
