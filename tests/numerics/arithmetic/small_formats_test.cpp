// Arithmetic of formats without infinities, without NaN, with one zero and without a sign: every pair of
// codes, of 8 bits one pair in seven, against exact rationals rounded by a list of the format's values
// (tests/support/exact_rounding.hpp).
#include <gtest/gtest.h>

#include <optional>

#include "numerics/arithmetic/arithmetic.hpp"
#include "numerics/arithmetic/comparison.hpp"
#include "tests/support/exact_rounding.hpp"

namespace fp16lab {
namespace {

using oracle::Rational;

template <class F>
class SmallFormats : public testing::Test {
 protected:
  using Code = SmallFloat<F>;
  static constexpr std::uint64_t codes = std::uint64_t{1} << F::width;

  static Code code(std::uint64_t bits) { return Code::from_bits(static_cast<typename F::Bits>(bits)); }
  /// Written from the specifications: which codes are NaN.
  static bool is_nan(std::uint64_t bits) {
    switch (F::encoding) {
      case Encoding::fnuz:
        return bits == codes / 2;
      case Encoding::finite:
        return false;
      default:
        return (bits & (F::has_sign ? codes / 2 - 1 : codes - 1)) ==
               (F::has_sign ? codes / 2 - 1 : codes - 1);
    }
  }
  bool negative(std::uint64_t bits) const { return F::has_sign && bits >= codes / 2; }
  Rational value(std::uint64_t bits) const {
    const Rational magnitude = table_.value(F::has_sign ? bits % (codes / 2) : bits);
    return negative(bits) ? Rational(-magnitude) : magnitude;
  }
  /// What a result becomes; `zero_negative` is the sign of an exact zero.
  std::uint64_t rounded(const Rational& exact, bool zero_negative, Rounding rounding) const {
    const bool below = exact < 0 || (exact == 0 && zero_negative);
    const Rational magnitude = abs(exact);
    const bool sign = below && F::has_sign;
    return table_.code(table_.round(magnitude, sign, rounding).magnitude, sign);
  }

  const oracle::ValueTable table_ = oracle::ValueTable::of<F>();
};

using Formats = testing::Types<Fp4E2M1, Fp6E2M3, Fp6E3M2, Fp8E4M3Fnuz, Fp8E5M2Fnuz, ScaleUE4M3, ScaleE8M0>;
TYPED_TEST_SUITE(SmallFormats, Formats);

TYPED_TEST(SmallFormats, PairsRoundAsRationalsDo) {
  using F = TypeParam;
  for (std::uint64_t x = 0; x < this->codes; ++x)
    for (std::uint64_t y = this->codes > 128 ? x % 7 : 0; y<this->codes; y += this->codes> 128 ? 7 : 1) {
      if (this->is_nan(x) || this->is_nan(y)) {
        ASSERT_EQ(add(this->code(x), this->code(y)).bits(), F::canonical_nan);
        ASSERT_EQ(mul(this->code(x), this->code(y)).bits(), F::canonical_nan);
        continue;
      }
      const auto a = this->code(x), b = this->code(y);
      const Rational p = this->value(x), q = this->value(y);
      const bool minus_x = this->negative(x), minus_y = this->negative(y), other = minus_x != minus_y;
      for (const Rounding rounding : {Rounding::nearest_even, Rounding::toward_zero, Rounding::upward}) {
        ASSERT_EQ(add(a, b, rounding).bits(), this->rounded(p + q, minus_x && minus_y, rounding))
            << x << ' ' << y;
        ASSERT_EQ(mul(a, b, rounding).bits(), this->rounded(p * q, other, rounding)) << x << ' ' << y;
        if (F::has_sign) {
          ASSERT_EQ(sub(a, b, rounding).bits(), this->rounded(p - q, minus_x && !minus_y, rounding))
              << x << ' ' << y;
        }
        if (q == 0) continue;
        ASSERT_EQ(div(a, b, rounding).bits(), this->rounded(p / q, other, rounding)) << x << ' ' << y;
      }
      const Relation relation = p < q ? Relation::less : p == q ? Relation::equal : Relation::greater;
      ASSERT_EQ(compare_quiet(a, b), relation) << x << ' ' << y;
    }
}

TYPED_TEST(SmallFormats, NeighboursAreTheNextValues) {
  using F = TypeParam;
  for (std::uint64_t x = 0; x < this->codes; ++x) {
    if (this->is_nan(x)) {
      EXPECT_EQ(next_up(this->code(x)).bits(), F::canonical_nan);
      continue;
    }
    std::optional<Rational> above, below;
    for (std::uint64_t y = 0; y < this->codes; ++y) {
      if (this->is_nan(y)) continue;
      const Rational q = this->value(y);
      if (q > this->value(x) && (!above || q < *above)) above = q;
      if (q < this->value(x) && (!below || q > *below)) below = q;
    }
    EXPECT_EQ(this->value(next_up(this->code(x)).bits()), above.value_or(this->value(x))) << x;
    EXPECT_EQ(this->value(next_down(this->code(x)).bits()), below.value_or(this->value(x))) << x;
  }
}

TYPED_TEST(SmallFormats, DivisionByZeroIsWhatOverflowIs) {
  using F = TypeParam;
  if (!F::has_zero) GTEST_SKIP() << "the format has no zero";
  ExceptionFlags flags;
  const std::uint64_t overflow = this->table_.code(this->table_.infinity(), false);
  EXPECT_EQ(div(this->code(1), this->code(0), {}, &flags).bits(), overflow);
  EXPECT_TRUE(flags.divide_by_zero);
}

}  // namespace
}  // namespace fp16lab
