// Data and twins of the conformance suite.
#include "tests/engine/backend/conformance.hpp"

#include <cmath>
#include <random>

namespace fp16lab::engine::test {

namespace {

template <class Draw>
auto draw_many(std::int64_t count, const Draw& draw) {
  std::vector<decltype(draw())> values;
  values.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) values.push_back(draw());
  return values;
}

/// Bits of a format with the given field widths; `kind` as in the header.
template <class Format>
typename Format::Bits draw_bits(Kind kind, std::mt19937_64& random) {
  using Bits = typename Format::Bits;
  const std::uint64_t word = random();
  const auto sign = static_cast<Bits>((word & 1) != 0 ? Format::sign_mask : 0);
  const auto fraction = static_cast<Bits>((word >> 1) & Format::fraction_mask);
  const auto with_field = [&](std::uint64_t field) {
    return static_cast<Bits>(sign | static_cast<Bits>(field << Format::fraction_bits) | fraction);
  };
  const std::uint64_t choice = word >> 40;
  if (kind == Kind::ordinary) return with_field(static_cast<std::uint64_t>(Format::bias) - 8 + choice % 16);
  if (kind == Kind::cancelling) return with_field(static_cast<std::uint64_t>(Format::bias) - 2 + choice % 2);
  if (kind == Kind::special && choice % 4 == 0) {
    switch ((choice / 4) % 6) {
      case 0:
        return static_cast<Bits>(sign | Format::infinity | fraction | 1);  // NaN, any payload
      case 1:
        return static_cast<Bits>(sign | Format::infinity);
      case 2:
        return sign;
      case 3:
        return static_cast<Bits>(sign | fraction);
      case 4:
        return static_cast<Bits>(sign | Format::max_finite);
      default:
        return static_cast<Bits>(sign | Format::min_subnormal);
    }
  }
  constexpr std::uint64_t largest_field = (std::uint64_t{1} << Format::exponent_bits) - 2;
  return with_field(choice % (largest_field + 1));
}

}  // namespace

std::vector<float> random_floats(std::int64_t count, Kind kind, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  return draw_many(count, [&] { return float_from_bits(draw_bits<Binary32>(kind, random)); });
}

std::vector<Float16> random_halves(std::int64_t count, Kind kind, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  return draw_many(count, [&] { return Float16::from_bits(draw_bits<Binary16>(kind, random)); });
}

std::vector<BFloat16> random_brains(std::int64_t count, Kind kind, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  return draw_many(count, [&] { return BFloat16::from_bits(draw_bits<BrainFloat16>(kind, random)); });
}

StepState state_in_training() {
  StepState state;
  state.set_scale(3.0 * 1024.0);
  state.learning_rate[0] = 0.1f;
  state.iteration = 7;
  state.taken_steps[0] = 5;
  state.skipped_steps[0] = 2;
  state.beta1_power[0] = 0.59049;
  state.beta2_power[0] = 0.995;
  return state;
}

float accumulate(const TensorCoreModel& model, const std::vector<Float16>& a, const std::vector<Float16>& b) {
  return fused_dot_add(model, a, b, 0.0f);
}

float accumulate(const TensorCoreModel& model, const std::vector<BFloat16>& a,
                 const std::vector<BFloat16>& b) {
  const auto words = [](const std::vector<BFloat16>& values) {
    return mapped(values, [](BFloat16 x) -> std::uint32_t { return x.bits(); });
  };
  return float_from_bits(fused_dot_add(tensor_core_model(model.name, OperandFormat::bf16),
                                       OperandFormat::bf16, words(a), OperandFormat::bf16, words(b), 0));
}

float accumulate(const TensorCoreModel&, const std::vector<float>& a, const std::vector<float>& b) {
  float sum = 0.0f;
  for (std::size_t k = 0; k < a.size(); ++k) sum = std::fma(a[k], b[k], sum);
  return canonical(sum);
}

float tree_of(ReduceOp op, const std::vector<float>& values) {
  if (op == ReduceOp::sum) {
    if (values.empty()) return 0.0f;
    return canonical(naive_tree<float>(values, [](float a, float b) { return a + b; }));
  }
  return canonical(naive_tree<float>(values, [](float a, float b) {
    if (std::isnan(a) || std::isnan(b)) return std::nanf("");
    return b > a ? b : a;  // equal zeros: the earlier one stays
  }));
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
