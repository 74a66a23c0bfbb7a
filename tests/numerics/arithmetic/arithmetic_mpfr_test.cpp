// Scalar arithmetic against MPFR, whose precision and exponent range are set to the format's and whose
// results mpfr_subnormalize rounds to its subnormals (MPFR manual, 5.14). Codes are turned into MPFR numbers
// here, from the definition of the encoding; MPFR has no nearest-away direction.
#include <gtest/gtest.h>
#include <mpfr.h>

#include <array>
#include <cstdint>
#include <random>

#include "numerics/arithmetic/arithmetic.hpp"
#include "tests/support/arithmetic_cases.hpp"

namespace fp16lab {
namespace {

/// An MPFR number with the precision of a format, or of an exact operand.
class Number {
 public:
  explicit Number(int precision) { mpfr_init2(x_, precision); }
  Number(const Number&) = delete;
  Number& operator=(const Number&) = delete;
  ~Number() { mpfr_clear(x_); }
  mpfr_ptr get() { return x_; }

 private:
  mpfr_t x_;
};

template <class F>
void set(Number& to, SmallFloat<F> from) {
  const auto field = static_cast<long>(from.magnitude() >> F::fraction_bits);
  const auto fraction = static_cast<unsigned long>(from.magnitude() & F::fraction_mask);
  const long top = (1L << F::exponent_bits) - 1;
  if (field == top && fraction != 0) {
    mpfr_set_nan(to.get());
  } else if (field == top) {
    mpfr_set_inf(to.get(), 1);
  } else {
    const unsigned long hidden = field == 0 ? 0 : 1UL << F::fraction_bits;
    const long exponent = (field == 0 ? 1 : field) - (top / 2) - F::fraction_bits;
    mpfr_set_ui_2exp(to.get(), fraction + hidden, exponent, MPFR_RNDN);
  }
  mpfr_setsign(to.get(), to.get(), from.sign() ? 1 : 0, MPFR_RNDN);
}

struct Direction {
  Rounding ours;
  mpfr_rnd_t theirs;
};
constexpr std::array directions = {
    Direction{Rounding::nearest_even, MPFR_RNDN}, Direction{Rounding::toward_zero, MPFR_RNDZ},
    Direction{Rounding::upward, MPFR_RNDU}, Direction{Rounding::downward, MPFR_RNDD}};

template <class F>
class AgainstMpfr : public ::testing::Test {
 protected:
  AgainstMpfr() {
    // MPFR's numbers are 0.1xxx * 2^e, so its exponents are one more than IEEE's.
    mpfr_set_emin(F::emin - F::fraction_bits + 1);
    mpfr_set_emax(F::emax + 1);
  }
  ~AgainstMpfr() override {
    mpfr_set_emin(mpfr_get_emin_min());
    mpfr_set_emax(mpfr_get_emax_max());
  }

  void expect_all(SmallFloat<F> a, SmallFloat<F> b, SmallFloat<F> c) {
    set(a_, a);
    set(b_, b);
    set(c_, c);
    for (const Direction& direction : directions) {
      const auto rounding = direction.theirs;
      const auto check = [&](const char* name, int ternary, auto operation) {
        ternary = mpfr_subnormalize(result_.get(), ternary, rounding);
        ExceptionFlags flags;
        const SmallFloat<F> actual = operation(ArithmeticOptions(direction.ours), &flags);
        set(actual_, actual);
        const bool nan = mpfr_nan_p(result_.get()) != 0;
        ASSERT_EQ(actual.is_nan(), nan) << name;
        if (!nan) {
          ASSERT_NE(mpfr_equal_p(actual_.get(), result_.get()), 0)
              << name << ' ' << name_of(direction.ours) << ' ' << std::hex << +a.bits() << ' ' << +b.bits()
              << ' ' << +c.bits() << " = " << +actual.bits() << ", MPFR "
              << mpfr_get_d(result_.get(), MPFR_RNDN);
          ASSERT_EQ(actual.sign(), mpfr_signbit(result_.get()) != 0) << name;
        }
        ASSERT_EQ(flags.inexact, ternary != 0) << name << ' ' << name_of(direction.ours);
      };
      mpfr_ptr r = result_.get();
      using Options = const ArithmeticOptions&;
      check("add", mpfr_add(r, a_.get(), b_.get(), rounding),
            [&](Options o, ExceptionFlags* f) { return add(a, b, o, f); });
      check("sub", mpfr_sub(r, a_.get(), b_.get(), rounding),
            [&](Options o, ExceptionFlags* f) { return sub(a, b, o, f); });
      check("mul", mpfr_mul(r, a_.get(), b_.get(), rounding),
            [&](Options o, ExceptionFlags* f) { return mul(a, b, o, f); });
      check("div", mpfr_div(r, a_.get(), b_.get(), rounding),
            [&](Options o, ExceptionFlags* f) { return div(a, b, o, f); });
      check("fma", mpfr_fma(r, a_.get(), b_.get(), c_.get(), rounding),
            [&](Options o, ExceptionFlags* f) { return fma(a, b, c, o, f); });
      check("sqrt", mpfr_sqrt(r, a_.get(), rounding),
            [&](Options o, ExceptionFlags* f) { return sqrt(a, o, f); });
      check("remainder", mpfr_remainder(r, a_.get(), b_.get(), rounding),
            [&](Options o, ExceptionFlags* f) { return remainder(a, b, o, f); });
      if (this->HasFatalFailure()) return;
    }
  }

 private:
  Number a_{F::precision}, b_{F::precision}, c_{F::precision}, result_{F::precision}, actual_{F::precision};
};

using Formats =
    ::testing::Types<Binary16, BrainFloat16, TensorFloat32, Fp8E5M2, Binary32, Binary64, Format<6, 10>>;
TYPED_TEST_SUITE(AgainstMpfr, Formats);

TYPED_TEST(AgainstMpfr, CornersAndRandomCodes) {
  using F = TypeParam;
  const auto code = [](std::uint64_t bits) {
    return SmallFloat<F>::from_bits(static_cast<typename F::Bits>(bits & (F::sign_mask | F::magnitude_mask)));
  };
  const oracle::Sizes sizes{F::exponent_bits, F::precision};
  const auto corners = cases::corner_codes(sizes);
  std::mt19937_64 engine(20);
  for (const std::uint64_t a : corners)
    for (const std::uint64_t b : corners) {
      this->expect_all(code(a), code(b), code(corners[engine() % corners.size()]));
      if (this->HasFatalFailure()) return;
    }
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t a = cases::random_code(sizes, engine, engine());
    const std::uint64_t b = cases::random_code(sizes, engine, a);
    this->expect_all(code(a), code(b), code(cases::random_code(sizes, engine, b)));
    if (this->HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace fp16lab
