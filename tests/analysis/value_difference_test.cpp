// Two arrays compared: values typed by hand, formulas in long double, and distances that are counted one
// number at a time.
#include "analysis/value_difference.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "numerics/arithmetic/comparison.hpp"
#include "numerics/convert/convert.hpp"

namespace fp16lab::analysis {
namespace {

template <class T>
std::span<const std::byte> bytes(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

template <class A, class B>
ValueDifference compared(const std::vector<A>& a, const std::vector<B>& b, double scale_a = 1,
                         double scale_b = 1) {
  ValueComparer comparer({DTypeOf<A>::value, scale_a}, {DTypeOf<B>::value, scale_b});
  comparer.add(bytes(a), bytes(b));
  return comparer.result();
}

std::vector<Float16> halves(const std::vector<float>& values) {
  std::vector<Float16> codes;
  for (const float value : values) codes.push_back(narrow<Binary16>(value));
  return codes;
}

TEST(ValueDifference, EqualArraysDifferInNothing) {
  const std::vector<float> values{1, -2, 0, NAN, INFINITY, 1e-45f};
  const ValueDifference found = compared(values, values);
  EXPECT_EQ(found.elements, 6u);
  EXPECT_EQ(found.differing + found.beyond_cast + found.other_nonfinite + found.ulps, 0u);
  EXPECT_EQ(found.largest, 0);
  EXPECT_EQ(found.relative_l2, 0);
  EXPECT_EQ(found.cosine, 1.0);
  EXPECT_EQ(found.nonfinite_a, 2u);
  EXPECT_FALSE(found.first.has_value());
}

TEST(ValueDifference, HandWorkedNumbers) {
  // 3-4-5: |a - b| = 5, |a| = |b| = 5; a and b are at right angles.
  const ValueDifference found = compared<float, float>({3, 0, 0}, {0, 4, 3});
  EXPECT_EQ(found.differing, 3u);
  EXPECT_EQ(found.largest, 4);
  EXPECT_EQ(found.largest_at, 1u);
  EXPECT_DOUBLE_EQ(found.relative_l2, std::sqrt(34.0) / 5);
  EXPECT_EQ(found.cosine, 0.0);
  EXPECT_EQ(found.norm_a, 3);
  EXPECT_EQ(found.norm_b, 5);
  ASSERT_TRUE(found.first.has_value());
  EXPECT_EQ(found.first->index, 0u);
  EXPECT_EQ(found.first->a_bits, 0x40400000u);
  EXPECT_EQ(found.first->b_bits, 0u);
  // Zeros of both signs are other bits, and 0 ulps apart; the smallest numbers beside zero are 2 apart.
  const ValueDifference zeros = compared(halves({0, 0x1p-24f}), halves({-0.0f, -0x1p-24f}));
  EXPECT_EQ(zeros.differing, 2u);
  EXPECT_EQ(zeros.ulps, 2u);
  EXPECT_EQ(zeros.ulps_at, 1u);
  EXPECT_EQ(zeros.other_signs, 1u);
  EXPECT_EQ(found.other_signs, 0u);
  EXPECT_EQ(zeros.largest, 0x1p-23);
}

TEST(ValueDifference, ACastAloneExplainsWhatItMakes) {
  const std::vector<float> wide{1.0f / 3, 65520, 0x1p-26f, -0x1.8p-25f, NAN, 1};
  std::vector<Float16> rounded = halves(wide);
  const ValueDifference cast = compared(wide, rounded);
  EXPECT_EQ(cast.differing, 4u);
  EXPECT_EQ(cast.beyond_cast, 0u) << "65520 becomes Inf, 2^-26 becomes 0, 1.5 x 2^-25 rounds up, NaN is NaN";
  EXPECT_EQ(cast.ulps, 0u);
  EXPECT_EQ(cast.nonfinite_a, 1u);
  EXPECT_EQ(cast.nonfinite_b, 2u);
  EXPECT_EQ(cast.other_nonfinite, 0u);
  rounded[5] = Float16::from_bits(0x3c02);
  rounded[0] = Float16::from_bits(0x7c00);
  const ValueDifference more = compared(rounded, wide);
  EXPECT_EQ(more.beyond_cast, 2u);
  EXPECT_EQ(more.other_nonfinite, 1u);
  EXPECT_EQ(more.ulps, 2u) << "an Inf that no cast made is no distance";
  ASSERT_TRUE(more.first_beyond_cast.has_value());
  EXPECT_EQ(more.first_beyond_cast->index, 0u);
  EXPECT_EQ(more.first_beyond_cast->a_bits, 0x7c00u);
}

TEST(ValueDifference, ALossScaleIsTakenOut) {
  // What a scaled FP16 gradient rounded is judged where it was rounded: at 2^16 times the value.
  const std::vector<float> gradient{0x1.555554p-20f, -0x1p-41f, 3e-6f};
  std::vector<float> scaled;
  for (const float value : gradient) scaled.push_back(value * 0x1p16f);
  const std::vector<Float16> stored = halves(scaled);
  const ValueDifference found = compared(gradient, stored, 1, 0x1p16);
  EXPECT_EQ(found.differing, 3u);
  EXPECT_EQ(found.beyond_cast, 0u);
  EXPECT_LT(found.relative_l2, 0x1p-11);
  EXPECT_EQ(found.first->a, static_cast<double>(gradient[0]));
  EXPECT_EQ(found.first->b, static_cast<double>(widen(stored[0])) * 0x1p-16);
  EXPECT_EQ(compared(stored, gradient, 0x1p16, 1).beyond_cast, 0u);
  EXPECT_EQ(compared(gradient, stored, 1, 1).beyond_cast, 2u) << "not at all without the scale";
  EXPECT_EQ(compared(stored, stored, 0x1p16, 0x1p16).differing, 0u);
  EXPECT_EQ(compared(stored, stored, 3, 3).beyond_cast, 0u) << "no power of two";
}

/// Steps by next_up, one at a time.
template <class F>
std::uint64_t counted_steps(SmallFloat<F> from, SmallFloat<F> to) {
  if (less(to, from)) std::swap(from, to);
  std::uint64_t steps = 0;
  for (; less(from, to); from = next_up(from)) ++steps;
  return steps;
}

/// A number too large for E4M3, which has no Inf, is one step above its greatest number.
std::uint64_t steps_to(Float16 a, Float8E4M3 e) {
  const Float8E4M3 rounded = narrow<Fp8E4M3>(widen(a));
  if (!rounded.is_nan()) return counted_steps(rounded, e);
  const auto greatest = Float8E4M3::from_bits(a.sign() ? 0xfe : 0x7e);
  return 1 + counted_steps(greatest, e);
}

TEST(ValueDifference, UlpsAreStepsFromNumberToNumber) {
  std::mt19937 engine(7);
  for (int i = 0; i < 300; ++i) {
    const auto any = [&] {
      for (;;)
        if (const auto code = Float16::from_bits(static_cast<std::uint16_t>(engine())); code.is_finite())
          return code;
    };
    const Float16 a = any(), b = any();
    EXPECT_EQ((compared<Float16, Float16>({a}, {b}).ulps), counted_steps(a, b))
        << a.bits() << " " << b.bits();
    const auto e = Float8E4M3::from_bits(static_cast<std::uint8_t>(engine() % 127));
    EXPECT_EQ((compared<Float16, Float8E4M3>({a}, {e}).ulps), steps_to(a, e)) << a.bits() << " " << e.bits();
  }
}

TEST(ValueDifference, NormsOfAnyMagnitudeAndChunks) {
  std::mt19937_64 engine(11);
  std::normal_distribution<double> normal;
  const std::size_t count = 5000;
  std::vector<double> a(count), b(count);
  for (std::size_t i = 0; i < count; ++i) {
    a[i] = normal(engine) * std::exp2(static_cast<double>(i % 40));
    b[i] = a[i] + normal(engine);
  }
  long double aa = 0, bb = 0, ab = 0, dd = 0, largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const long double x = a[i], y = b[i];
    aa += x * x, bb += y * y, ab += x * y, dd += (x - y) * (x - y);
    largest = std::max(largest, std::fabs(x - y));
  }
  // Each sum of n products of FP64 is within (n + 1) u of the exact one; the root halves that.
  const double bound = (count + 4) * 0x1p-53;
  for (const double power : {1.0, 0x1p900, 0x1p-900}) {
    std::vector<double> x = a, y = b;
    for (std::size_t i = 0; i < count; ++i) x[i] *= power, y[i] *= power;
    ValueComparer pieces({DType::f64}, {DType::f64});
    for (std::size_t i = 0; i < count; i += 700) {
      const std::size_t part = std::min<std::size_t>(700, count - i);
      pieces.add(bytes(x).subspan(8 * i, 8 * part), bytes(y).subspan(8 * i, 8 * part));
    }
    const ValueDifference whole = compared(x, y), cut = pieces.result();
    for (const ValueDifference& found : {whole, cut}) {
      const auto expected = static_cast<double>(std::sqrt(dd) / std::max(std::sqrt(aa), std::sqrt(bb)));
      EXPECT_NEAR(found.relative_l2, expected, 3 * bound * expected);
      EXPECT_NEAR(*found.cosine, static_cast<double>(ab / std::sqrt(aa) / std::sqrt(bb)), 3 * bound);
      EXPECT_EQ(found.elements, count);
    }
    EXPECT_EQ(whole.ulps, cut.ulps);
    EXPECT_EQ(whole.ulps_at, cut.ulps_at);
    EXPECT_EQ(whole.first->index, cut.first->index);
    EXPECT_EQ(whole.differing, cut.differing);
    if (power == 1) {
      EXPECT_NEAR(whole.largest, static_cast<double>(largest), 0x1p-52 * static_cast<double>(largest));
      EXPECT_NEAR(whole.norm_a, static_cast<double>(std::sqrt(aa)), bound * whole.norm_a);
    }
    // No side is special.
    EXPECT_EQ(compared(y, x).relative_l2, whole.relative_l2);
    EXPECT_EQ(compared(y, x).ulps, whole.ulps);
  }
  // A difference far below the numbers that are equal.
  EXPECT_EQ((compared<double, double>({1, 0x1p-800}, {1, 0}).relative_l2), 0x1p-800);
}

TEST(ValueDifference, IntegersAndMisuse) {
  const ValueDifference found = compared<std::int64_t, std::int64_t>({1, -5, 7}, {1, -6, 7});
  EXPECT_EQ(found.differing, 1u);
  EXPECT_EQ(found.first->index, 1u);
  EXPECT_EQ(found.first->b, -6);
  EXPECT_THROW(ValueComparer({DType::i32}, {DType::f32}), std::invalid_argument);
  EXPECT_THROW(ValueComparer({DType::f32, 0}, {DType::f32}), std::invalid_argument);
  EXPECT_THROW(ValueComparer({DType::i32, 2}, {DType::i32}), std::invalid_argument);
  ValueComparer comparer({DType::f32}, {DType::f16});
  EXPECT_THROW(comparer.add(bytes(std::vector<float>(2)), bytes(halves({1}))), std::invalid_argument);
}

TEST(ValueDifference, TheGridIsTheOneOfFewerBits) {
  EXPECT_EQ(grid_of(DType::f32, DType::f16), DType::f16);
  EXPECT_EQ(grid_of(DType::f16, DType::bf16), DType::bf16);
  EXPECT_EQ(grid_of(DType::e5m2, DType::e4m3), DType::e5m2);
  EXPECT_EQ(grid_of(DType::f64, DType::f64), DType::f64);
}

}  // namespace
}  // namespace fp16lab::analysis
