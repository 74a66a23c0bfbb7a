#include "tests/numerics/elementary/elementary_oracle.hpp"

#include <mpfr.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace fp16lab::test {
namespace {

static_assert(std::numeric_limits<long double>::digits >= 64, "the oracle needs extended precision");

constexpr long double sqrt_half = 0.707106781186547524400844362104849039L;
constexpr long double sqrt_2_over_pi = 0.797884560802865355879892119868763737L;

/// An MPFR number that frees itself.
class Real {
 public:
  Real() { mpfr_init2(value_, 256); }
  Real(const Real&) = delete;
  Real& operator=(const Real&) = delete;
  ~Real() { mpfr_clear(value_); }
  mpfr_ptr get() { return value_; }

 private:
  mpfr_t value_;
};

/// 1 / (1 + e^-t)
void logistic(mpfr_ptr result, mpfr_ptr t) {
  mpfr_neg(t, t, MPFR_RNDN);
  mpfr_exp(result, t, MPFR_RNDN);
  mpfr_add_ui(result, result, 1, MPFR_RNDN);
  mpfr_ui_div(result, 1, result, MPFR_RNDN);
}

/// Both forms of gelu for |x| < 2^-60: x/2 + x^2 / sqrt(2 pi), short by less than a relative 2^-177. In
/// FP32's subnormals x/2 is a tie whenever x is odd, so MPFR is asked for millions of them, and its own exp
/// and erfc are slow there.
void gelu_near_zero(mpfr_ptr result, mpfr_ptr x, mpfr_ptr scratch) {
  mpfr_const_pi(scratch, MPFR_RNDN);
  mpfr_mul_2ui(scratch, scratch, 1, MPFR_RNDN);
  mpfr_rec_sqrt(result, scratch, MPFR_RNDN);
  mpfr_mul(result, result, x, MPFR_RNDN);
  mpfr_add_d(result, result, 0.5, MPFR_RNDN);
  mpfr_mul(result, result, x, MPFR_RNDN);
}

void evaluate(Elementary function, mpfr_ptr result, mpfr_ptr x, mpfr_ptr scratch) {
  switch (function) {
    case Elementary::exp:
      mpfr_exp(result, x, MPFR_RNDN);
      return;
    case Elementary::log:
      mpfr_log(result, x, MPFR_RNDN);
      return;
    case Elementary::log2:
      mpfr_log2(result, x, MPFR_RNDN);
      return;
    case Elementary::log1p:
      mpfr_log1p(result, x, MPFR_RNDN);
      return;
    case Elementary::tanh:
      mpfr_tanh(result, x, MPFR_RNDN);
      return;
    case Elementary::sigmoid:
      logistic(result, x);
      return;
    case Elementary::rsqrt:
      mpfr_rec_sqrt(result, x, MPFR_RNDN);
      return;
    case Elementary::erf:
      mpfr_erf(result, x, MPFR_RNDN);
      return;
    case Elementary::gelu:  // x erfc(-x / sqrt 2) / 2
      mpfr_sqrt_ui(scratch, 2, MPFR_RNDN);
      mpfr_div(scratch, x, scratch, MPFR_RNDN);
      mpfr_neg(scratch, scratch, MPFR_RNDN);
      mpfr_erfc(result, scratch, MPFR_RNDN);
      mpfr_mul(result, result, x, MPFR_RNDN);
      mpfr_div_2ui(result, result, 1, MPFR_RNDN);
      return;
    case Elementary::gelu_tanh:  // t = 2 sqrt(2/pi) (x + 0.044715 x^3)
      mpfr_sqr(scratch, x, MPFR_RNDN);
      mpfr_mul_ui(scratch, scratch, 44715, MPFR_RNDN);
      mpfr_div_ui(scratch, scratch, 1000000, MPFR_RNDN);
      mpfr_add_ui(scratch, scratch, 1, MPFR_RNDN);
      mpfr_mul(scratch, scratch, x, MPFR_RNDN);
      mpfr_const_pi(result, MPFR_RNDN);
      mpfr_ui_div(result, 8, result, MPFR_RNDN);
      mpfr_sqrt(result, result, MPFR_RNDN);
      mpfr_mul(scratch, scratch, result, MPFR_RNDN);
      logistic(result, scratch);
      mpfr_mul(result, result, x, MPFR_RNDN);
      return;
    case Elementary::sin:
      mpfr_sin(result, x, MPFR_RNDN);
      return;
    case Elementary::cos:
      mpfr_cos(result, x, MPFR_RNDN);
      return;
  }
}

}  // namespace

double library_value(Elementary function, float x) {
  const auto wide = static_cast<double>(x);
  const auto extended = static_cast<long double>(x);
  switch (function) {
    case Elementary::exp:
      return std::exp(wide);
    case Elementary::log:
      return std::log(wide);
    case Elementary::log2:
      return std::log2(wide);
    case Elementary::log1p:
      return std::log1p(wide);
    case Elementary::tanh:
      return std::tanh(wide);
    case Elementary::sigmoid:
      return 1.0 / (1.0 + std::exp(-wide));
    case Elementary::rsqrt:
      return 1.0 / std::sqrt(wide);
    case Elementary::erf:
      return std::erf(wide);
    case Elementary::gelu:
      return static_cast<double>(extended * 0.5L * std::erfc(-extended * sqrt_half));
    case Elementary::gelu_tanh: {
      if (std::fabs(x) < 0x1p-60f) return 0.5 * wide;  // the two ends that extended precision makes slow
      if (std::fabs(x) > 32) return x > 0 ? wide : -0.0;
      const long double t = 2 * sqrt_2_over_pi * extended * (1 + 0.044715L * extended * extended);
      return static_cast<double>(extended / (1 + std::exp(-t)));
    }
    case Elementary::sin:
      return std::sin(wide);
    case Elementary::cos:
      return std::cos(wide);
  }
  return 0;
}

double error_by_mpfr(Elementary function, float x, float y) {
  thread_local Real argument;
  thread_local Real exact;
  thread_local Real scratch;
  mpfr_set_flt(argument.get(), x, MPFR_RNDN);
  if ((function == Elementary::gelu || function == Elementary::gelu_tanh) && std::fabs(x) < 0x1p-60f)
    gelu_near_zero(exact.get(), argument.get(), scratch.get());
  else
    evaluate(function, exact.get(), argument.get(), scratch.get());
  if (mpfr_zero_p(exact.get()) != 0) return y == 0 ? 0 : std::numeric_limits<double>::infinity();  // log(1)
  const auto exponent = static_cast<long>(mpfr_get_exp(exact.get()));  // as frexp's
  if (std::isinf(y))
    mpfr_set_si_2exp(scratch.get(), y > 0 ? 1 : -1, 128, MPFR_RNDN);
  else
    mpfr_set_flt(scratch.get(), y, MPFR_RNDN);
  mpfr_sub(exact.get(), scratch.get(), exact.get(), MPFR_RNDN);
  mpfr_mul_2si(exact.get(), exact.get(), 24 - std::max(exponent, -125L), MPFR_RNDN);
  return std::fabs(mpfr_get_d(exact.get(), MPFR_RNDA));
}

}  // namespace fp16lab::test
