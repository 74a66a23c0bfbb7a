// FP16 and BF16 array arithmetic against integers that hold every FP16 result exactly, exact rationals, and
// the scalar operations.
#include "numerics/arithmetic/array_arithmetic.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <vector>

#include "numerics/arithmetic/arithmetic.hpp"
#include "numerics/convert/convert.hpp"
#include "tests/support/exact_rounding.hpp"
#include "tests/support/instruction_sets.hpp"

namespace fp16lab {
namespace {

using testing_support::for_each_instruction_set;

template <class F>
using Array = std::vector<SmallFloat<F>>;

// ---- Oracle for FP16: all products and sums are multiples of 2^-48 below 2^34 --------------------------

__extension__ using Fixed = __int128;

/// In units of 2^-24.
Fixed value_of(std::uint16_t code) {
  const int field = (code >> 10) & 31;
  const Fixed significand = (code & 0x3ff) + (field == 0 ? 0 : 1024);
  const Fixed magnitude = significand << (std::max(field, 1) - 1);
  return code >= 0x8000 ? -magnitude : magnitude;
}

bool is_nan_code(std::uint16_t code) { return (code & 0x7fff) > 0x7c00; }
bool is_infinite_code(std::uint16_t code) { return (code & 0x7fff) == 0x7c00; }

/// The half nearest to exact * 2^-48, ties to the even code, from the definition: the codes' values are
/// searched.
std::uint16_t nearest_half(Fixed exact) {
  const Fixed magnitude = exact < 0 ? -exact : exact;
  std::uint16_t low = 0;
  for (int bit = 14; bit >= 0; --bit) {
    const auto candidate = static_cast<std::uint16_t>(low | (1 << bit));
    if (candidate <= 0x7c00 && value_of(candidate) << 24 <= magnitude)
      low = candidate;  // 0x7c00 represents 65536
  }
  if (low < 0x7c00) {
    const Fixed twice = 2 * magnitude;
    const Fixed ends = (value_of(low) + value_of(static_cast<std::uint16_t>(low + 1))) << 24;
    if (twice > ends || (twice == ends && low % 2 != 0)) ++low;
  }
  return static_cast<std::uint16_t>(low | (exact < 0 ? 0x8000 : 0));
}

/// a * b + c with IEEE 754-2019, 6.1 (infinities), 6.3 (signs of zero), and our NaN.
std::uint16_t exact_fma(std::uint16_t a, std::uint16_t b, std::uint16_t c) {
  constexpr std::uint16_t nan = 0x7fff;
  const auto sign = static_cast<std::uint16_t>((a ^ b) & 0x8000);
  const bool a_zero = (a & 0x7fff) == 0;
  const bool b_zero = (b & 0x7fff) == 0;
  if (is_nan_code(a) || is_nan_code(b) || is_nan_code(c)) return nan;
  if (is_infinite_code(a) || is_infinite_code(b)) {
    if (a_zero || b_zero) return nan;
    if (is_infinite_code(c) && (c & 0x8000) != sign) return nan;
    return sign | 0x7c00;
  }
  if (is_infinite_code(c)) return c;
  const Fixed exact = value_of(a) * value_of(b) + value_of(c) * (1 << 24);
  if (exact != 0) return nearest_half(exact);
  const bool zero_terms = (a_zero || b_zero) && (c & 0x7fff) == 0;
  return zero_terms && sign == (c & 0x8000) ? sign : 0;  // exact cancellation gives +0
}

std::uint16_t exact_add(std::uint16_t a, std::uint16_t b) { return exact_fma(a, 0x3c00, b); }
std::uint16_t exact_mul(std::uint16_t a, std::uint16_t b) {
  const auto minus_or_plus_zero =
      static_cast<std::uint16_t>((a ^ b) & 0x8000);  // keeps the sign of a zero product
  return exact_fma(a, b, minus_or_plus_zero);
}

// ---- Cases ------------------------------------------------------------------------------------------------

/// Zeros, the ends of the subnormals and normals, numbers whose sums and products tie, specials; both signs.
template <class F>
std::vector<typename F::Bits> corner_codes() {
  using Bits = typename F::Bits;
  const Bits one = static_cast<Bits>(F::bias << F::fraction_bits);
  std::vector<Bits> codes = {0,
                             1,
                             2,
                             3,
                             F::min_normal - 1,
                             F::min_normal,
                             F::min_normal + 1,
                             F::max_finite,
                             F::max_finite - 1,
                             F::infinity,
                             F::infinity + 1,
                             F::canonical_nan,
                             one,
                             Bits(one + 1),
                             Bits(one - 1),
                             Bits(one + F::fraction_mask),
                             Bits(one + F::quiet_bit)};
  for (const int exponent :
       {1, 2, F::fraction_bits, F::precision, F::precision + 1, F::bias / 2, F::bias - 1})
    for (const int sign : {-1, 1})
      for (const int fraction : {0, 1, 5, 1 << (F::fraction_bits - 1)})
        codes.push_back(static_cast<Bits>(one + sign * exponent * (1 << F::fraction_bits) + fraction));
  const std::size_t positive = codes.size();
  for (std::size_t i = 0; i < positive; ++i) codes.push_back(static_cast<Bits>(codes[i] | F::sign_mask));
  return codes;
}

template <class F>
struct Triples {
  Array<F> a, b, c;
  void add(typename F::Bits x, typename F::Bits y, typename F::Bits z) {
    a.push_back(SmallFloat<F>::from_bits(x));
    b.push_back(SmallFloat<F>::from_bits(y));
    c.push_back(SmallFloat<F>::from_bits(z));
  }
};

template <class F>
Triples<F> triples() {
  using Bits = typename F::Bits;
  Triples<F> result;
  const std::vector<Bits> corners = corner_codes<F>();
  for (const Bits x : corners)
    for (const Bits y : corners)
      for (std::size_t i = 0; i < corners.size(); i += 3)
        result.add(x, y, corners[(i + x + y) % corners.size()]);
  std::mt19937 engine(31);
  for (int i = 0; i < 300000; ++i) {
    const std::uint32_t word = static_cast<std::uint32_t>(engine());
    const auto x = static_cast<Bits>(word);
    const auto y = static_cast<Bits>(word >> 16);
    auto z = static_cast<Bits>(engine());
    // Half of the time c is near the product, so that sums cancel, or far below it, so that they tie.
    const SmallFloat<F> product = mul(SmallFloat<F>::from_bits(x), SmallFloat<F>::from_bits(y));
    if (i % 4 == 0) z = static_cast<Bits>((product.bits() ^ F::sign_mask) + i / 4 % 3 - 1);
    if (i % 4 == 1) z = static_cast<Bits>(product.bits() - ((F::precision + i / 4 % 3) << F::fraction_bits));
    result.add(x, y, z);
  }
  return result;
}

TEST(HalfArrayArithmetic, EqualsExactIntegers) {
  const Triples<Binary16> t = triples<Binary16>();
  const std::size_t n = t.a.size();
  Array<Binary16> sums(n), differences(n), products(n), fused(n);
  add<Binary16>(t.a, t.b, sums);
  sub<Binary16>(t.a, t.b, differences);
  mul<Binary16>(t.a, t.b, products);
  fma<Binary16>(t.a, t.b, t.c, fused);
  std::size_t double_roundings = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint16_t a = t.a[i].bits();
    const std::uint16_t b = t.b[i].bits();
    const std::uint16_t c = t.c[i].bits();
    const auto minus_b = static_cast<std::uint16_t>(is_nan_code(b) ? b : b ^ 0x8000);
    ASSERT_EQ(sums[i].bits(), exact_add(a, b)) << std::hex << a << " + " << b;
    ASSERT_EQ(differences[i].bits(), exact_add(a, minus_b)) << std::hex << a << " - " << b;
    ASSERT_EQ(products[i].bits(), exact_mul(a, b)) << std::hex << a << " * " << b;
    ASSERT_EQ(fused[i].bits(), exact_fma(a, b, c)) << std::hex << a << " * " << b << " + " << c;
    const float rounded_once = std::fma(widen(t.a[i]), widen(t.b[i]), widen(t.c[i]));
    double_roundings += narrow<Binary16>(rounded_once).bits() != fused[i].bits() ? 1u : 0u;
  }
  EXPECT_GE(double_roundings, 100u);  // else the cases could not separate the naive fma from the right one
}

template <class F>
class ArrayArithmetic : public testing::Test {};
using Formats = testing::Types<Binary16, BrainFloat16>;
TYPED_TEST_SUITE(ArrayArithmetic, Formats);

TYPED_TEST(ArrayArithmetic, EqualsScalarOperationsOnEveryInstructionSet) {
  using F = TypeParam;
  const Triples<F> t = triples<F>();
  const std::size_t n = t.a.size();
  Array<F> sums(n), differences(n), products(n), fused(n);
  for_each_instruction_set([&] {
    add<F>(t.a, t.b, sums);
    sub<F>(t.a, t.b, differences);
    mul<F>(t.a, t.b, products);
    fma<F>(t.a, t.b, t.c, fused);
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_EQ(sums[i].bits(), add(t.a[i], t.b[i]).bits()) << t.a[i].bits() << ' ' << t.b[i].bits();
      ASSERT_EQ(differences[i].bits(), sub(t.a[i], t.b[i]).bits()) << t.a[i].bits() << ' ' << t.b[i].bits();
      ASSERT_EQ(products[i].bits(), mul(t.a[i], t.b[i]).bits()) << t.a[i].bits() << ' ' << t.b[i].bits();
      ASSERT_EQ(fused[i].bits(), fma(t.a[i], t.b[i], t.c[i]).bits())
          << std::hex << t.a[i].bits() << ' ' << t.b[i].bits() << ' ' << t.c[i].bits();
    }
  });
}

TEST(BFloat16ArrayArithmetic, FmaEqualsExactRationals) {
  const oracle::ValueTable table(8, 8);
  const Triples<BrainFloat16> t = triples<BrainFloat16>();
  Array<BrainFloat16> fused(t.a.size());
  fma<BrainFloat16>(t.a, t.b, t.c, fused);
  const auto exact = [](BFloat16 x) {
    const oracle::Rational magnitude = oracle::rational(std::fabs(widen(x)));
    return x.sign() ? oracle::Rational(-magnitude) : magnitude;
  };
  for (std::size_t i = 0; i < fused.size(); i += 53) {
    if (!t.a[i].is_finite() || !t.b[i].is_finite() || !t.c[i].is_finite()) continue;
    const oracle::Rational sum = exact(t.a[i]) * exact(t.b[i]) + exact(t.c[i]);
    if (sum == 0) continue;
    const oracle::Rounded expected = table.round(abs(sum), sum < 0, Rounding::nearest_even);
    ASSERT_EQ(fused[i].magnitude(), expected.magnitude) << i;
    ASSERT_EQ(fused[i].sign(), sum < 0) << i;
  }
}

TYPED_TEST(ArrayArithmetic, OutMayBeAnOperandAndLengthsAndThreadsDoNotShow) {
  using F = TypeParam;
  const Triples<F> t = triples<F>();
  std::vector<std::size_t> lengths = {t.a.size()};
  for (std::size_t n = 0; n < 70; ++n) lengths.push_back(n);
  const SmallFloat<F> sentinel = SmallFloat<F>::from_bits(0x1234);
  for (const std::size_t n : lengths) {
    const auto a = std::span(t.a).last(n);
    const auto b = std::span(t.b).last(n);
    const auto c = std::span(t.c).last(n);
    Array<F> expected(n + 1, sentinel);
    const auto check = [&](Array<F>& in_place, const auto& operation) {
      in_place.push_back(sentinel);
      operation(std::span(in_place).first(n));
      for (std::size_t i = 0; i <= n; ++i) ASSERT_EQ(in_place[i].bits(), expected[i].bits()) << n << ' ' << i;
    };
    fma<F>(a, b, c, std::span(expected).first(n));
    Array<F> copy_a(a.begin(), a.end()), copy_b(b.begin(), b.end()), copy_c(c.begin(), c.end());
    check(copy_a, [&](std::span<SmallFloat<F>> x) { fma<F>(x, b, c, x); });
    check(copy_b, [&](std::span<SmallFloat<F>> x) { fma<F>(a, x, c, x, 2); });
    check(copy_c, [&](std::span<SmallFloat<F>> x) { fma<F>(a, b, x, x); });
    add<F>(a, b, std::span(expected).first(n));
    copy_a.assign(a.begin(), a.end());
    copy_b.assign(b.begin(), b.end());
    check(copy_a, [&](std::span<SmallFloat<F>> x) { add<F>(x, b, x, 2); });
    check(copy_b, [&](std::span<SmallFloat<F>> x) { add<F>(a, x, x); });
  }
}

TEST(ArrayArithmeticErrors, AreNamed) {
  Array<Binary16> two(2), three(3);
  EXPECT_THROW(add<Binary16>(two, three, two), std::invalid_argument);
  EXPECT_THROW(sub<Binary16>(two, two, three), std::invalid_argument);
  EXPECT_THROW(mul<Binary16>(two, two, two, 0), std::invalid_argument);
  EXPECT_THROW(fma<Binary16>(two, two, three, two), std::invalid_argument);
}

}  // namespace
}  // namespace fp16lab
