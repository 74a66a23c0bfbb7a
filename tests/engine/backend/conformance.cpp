// Twins of the conformance suite.
#include "tests/engine/backend/conformance.hpp"

#include <cmath>
#include <stdexcept>

namespace fp16lab::engine::test {

namespace {

template <class Half>
std::vector<std::uint32_t> words_of(const std::vector<Half>& values) {
  return mapped(values, [](Half x) -> std::uint32_t { return x.bits(); });
}

}  // namespace

float accumulate(const TensorCoreModel& model, const std::vector<Float16>& a, const std::vector<Float16>& b) {
  if (model.accumulator() == DType::f32) return fused_dot_add(model, a, b, 0.0f);
  const std::uint32_t sum = fused_dot_add(model, DType::f16, words_of(a), DType::f16, words_of(b), 0);
  return canonical(wide(Float16::from_bits(static_cast<std::uint16_t>(sum))));  // as FP32 stores it
}

float accumulate(const TensorCoreModel& model, const std::vector<BFloat16>& a,
                 const std::vector<BFloat16>& b) {
  return float_from_bits(fused_dot_add(tensor_core_model(model.name, DType::bf16), DType::bf16, words_of(a),
                                       DType::bf16, words_of(b), 0));
}

float accumulate(const TensorCoreModel&, const std::vector<float>& a, const std::vector<float>& b) {
  float sum = 0.0f;
  for (std::size_t k = 0; k < a.size(); ++k) sum = std::fma(a[k], b[k], sum);
  return canonical(sum);
}

float accumulate_tf32(const TensorCoreModel& model, const std::vector<float>& a,
                      const std::vector<float>& b) {
  const TensorCoreModel& row = tensor_core_model(model.name, DType::tf32);
  std::vector<std::uint32_t> words[2];
  for (const auto& [values, to] : {std::pair{&a, &words[0]}, std::pair{&b, &words[1]}})
    for (const float x : *values)
      to->push_back(std::uint32_t{narrow<TensorFloat32>(x, Rounding::nearest_away).bits()} << 13);
  return canonical(float_from_bits(fused_dot_add(row, DType::tf32, words[0], DType::tf32, words[1], 0)));
}

float tree_of(ReduceOp op, const std::vector<float>& values) {
  switch (op) {
    case ReduceOp::sum:
      if (values.empty()) return 0.0f;
      return canonical(naive_tree<float>(values, [](float a, float b) { return a + b; }));
    case ReduceOp::max:
      return canonical(naive_tree<float>(values, [](float a, float b) {
        if (std::isnan(a) || std::isnan(b)) return std::nanf("");
        return b > a ? b : a;  // equal zeros: the earlier one stays
      }));
  }
  throw std::logic_error("tree_of: an operation that this oracle does not know");
}

ExponentHistogram naive_histogram(const std::vector<float>& values) {
  std::vector<double> power_of_two;  // 2^-150 ... 2^128
  power_of_two.reserve(ExponentHistogram::bin_count + 1);
  for (int e = ExponentHistogram::min_exponent; e <= ExponentHistogram::max_exponent + 1; ++e)
    power_of_two.push_back(std::ldexp(1.0, e));
  ExponentHistogram histogram;
  double smallest = INFINITY, greatest = 0;
  for (const float value : values) {
    const double magnitude = std::fabs(static_cast<double>(value));
    if (std::isnan(value)) {
      ++histogram.nan;
    } else if (std::isinf(value)) {
      ++histogram.infinite;
    } else if (magnitude == 0.0) {
      ++histogram.zero;
    } else {
      int exponent = ExponentHistogram::min_exponent;
      while (magnitude >
             power_of_two[static_cast<std::size_t>(exponent + 1 - ExponentHistogram::min_exponent)])
        ++exponent;
      ++histogram.bins[static_cast<std::size_t>(exponent - ExponentHistogram::min_exponent)];
      smallest = std::min(smallest, magnitude);
      greatest = std::max(greatest, magnitude);
    }
  }
  if (greatest > 0) {
    histogram.smallest = bits_of(static_cast<float>(smallest));
    histogram.greatest = bits_of(static_cast<float>(greatest));
  }
  return histogram;
}

ExponentHistogram naive_histogram(const std::vector<Float16>& values) {
  return naive_histogram(mapped(values, [](Float16 x) { return widen(x); }));
}

ExponentHistogram naive_histogram(const std::vector<BFloat16>& values) {
  return naive_histogram(
      mapped(values, [](BFloat16 x) { return float_from_bits(std::uint32_t{x.bits()} << 16); }));
}

}  // namespace fp16lab::engine::test
