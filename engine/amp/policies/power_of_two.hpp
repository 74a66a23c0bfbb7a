// 2^y for 0 <= y <= 1, the same bits on every machine.
#pragma once

namespace fp16lab::engine::amp {

namespace power_of_two_detail {

/// high + low, |low| at most half an ulp of high.
struct DoubleDouble {
  double high = 0, low = 0;
};

/// a + b exactly, |a| >= |b| (Dekker, Numerische Mathematik 18, 1971).
constexpr DoubleDouble quick_two_sum(double a, double b) {
  const double sum = a + b;
  return {sum, b - (sum - a)};
}
/// a * b exactly (the same, with Veltkamp's splitting).
constexpr DoubleDouble two_product(double a, double b) {
  constexpr double splitter = 0x1p27 + 1;
  const double a_high = splitter * a - (splitter * a - a), a_low = a - a_high;
  const double b_high = splitter * b - (splitter * b - b), b_low = b - b_high;
  const double product = a * b;
  return {product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low};
}
constexpr DoubleDouble times(const DoubleDouble& a, const DoubleDouble& b) {
  const DoubleDouble product = two_product(a.high, b.high);
  return quick_two_sum(product.high, product.low + (a.high * b.low + a.low * b.high));
}
/// 1 + x / divisor, x from 0 to 2.
constexpr DoubleDouble one_plus(const DoubleDouble& x, double divisor) {
  const double quotient = x.high / divisor;
  const DoubleDouble back = two_product(quotient, divisor);
  const double rest = ((x.high - back.high) - back.low + x.low) / divisor;
  const DoubleDouble sum = quick_two_sum(1.0, quotient);
  return quick_two_sum(sum.high, sum.low + rest);
}

}  // namespace power_of_two_detail

/// 2^y = e^(y ln 2) by Horner's rule of the Taylor series in double-double numbers. 28 terms leave less than
/// 0.7^29 / 29! < 2^-117; each step has a relative error of a few 2^-104 and counts x/k < 0.7 of the ones
/// before it. So the result is correctly rounded unless 2^y is within 2^-100 of the middle between two
/// numbers.
constexpr double power_of_two(double y) {
  using namespace power_of_two_detail;
  constexpr DoubleDouble ln2 = {0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};
  const DoubleDouble x = times(ln2, {y, 0});
  DoubleDouble sum = one_plus(x, 28);
  for (int k = 27; k >= 1; --k) sum = one_plus(times(x, sum), k);
  return sum.high;
}
static_assert(power_of_two(0) == 1 && power_of_two(1) == 2);

}  // namespace fp16lab::engine::amp
