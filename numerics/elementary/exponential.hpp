// exp, log, log2, log1p, and two functions of exp alone: the logistic function and the hyperbolic tangent.
#pragma once

#include <cstdint>

#include "numerics/elementary/elementary_detail.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/platform/portability.hpp"

FP16LAB_NO_CONTRACTION_BEGIN

namespace fp16lab {

namespace elementary_detail {

struct Sigmoid {
  FP16LAB_HD static constexpr double argument(float x) {
    // 1 / (1 + e^104) < 2^-150 still rounds to zero; e^-104 is lost beside 1.
    return -static_cast<double>(clamp(x, -104.0f, 104.0f));
  }
  FP16LAB_HD static constexpr float result(float x, const Exponential& e) {
    return nan_if_nan(x, bits_of(static_cast<float>(1.0 / (1.0 + (1.0 + e.fraction_less_one) * e.power))));
  }
};
struct Tanh {
  FP16LAB_HD static constexpr double argument(float x) {
    // 1 - tanh(10) < 2^-25 still rounds to 1.
    return -2.0 * static_cast<double>(magnitude_up_to(10.0f, x));
  }
  FP16LAB_HD static constexpr float result(float x, const Exponential& e) {
    const double minus_m = e.fraction_less_one * e.power + (e.power - 1.0);
    const std::uint32_t result = bits_of(static_cast<float>(-minus_m / (2.0 + minus_m)));
    return nan_if_nan(x, (result & Binary32::magnitude_mask) | sign_of(x));
  }
};

template <class Function>
FP16LAB_HD constexpr float of_exponential(float x) {
  return Function::result(x, exponential(Function::argument(x)));
}
/// The same of n elements, in place.
template <class Function>
void of_exponential(float* x, std::int64_t n) {
  constexpr std::int64_t block = 128;
  double r[block], power[block], q[block];
  for (; n > 0; x += block, n -= block) {
    const std::int64_t count = n < block ? n : block;
    for (std::int64_t i = 0; i < count; ++i) {
      const ReducedArgument reduced = reduced_argument(Function::argument(x[i]));
      r[i] = reduced.r, power[i] = reduced.power;
    }
    for (std::int64_t i = 0; i < count; ++i) q[i] = exponential_series(r[i]);
    for (std::int64_t i = 0; i < count; ++i)
      x[i] = Function::result(x[i], exponential({r[i], power[i]}, q[i]));
  }
}

}  // namespace elementary_detail

/// e^x rounded to FP32. Error below 0.5 + 2^-27 ulp, subnormal results included.
/// exp(-0) = exp(+0) = 1, exp(-inf) = +0, exp(+inf) = +inf, overflow gives +inf, NaN gives the canonical NaN.
/// Measured: largest error 0.499999998 ulp, every result correctly rounded.
FP16LAB_HD constexpr float exp_f32(float x) {
  using namespace elementary_detail;
  // e^-104 < 2^-150 still rounds to zero and e^89 > 2^128 to infinity.
  const Exponential e = exponential(clamp(x, -104.0f, 89.0f));
  return nan_if_nan(x, bits_of(static_cast<float>((1.0 + e.fraction_less_one) * e.power)));
}

/// The logistic function 1 / (1 + e^-x) rounded to FP32. Error below 0.5 + 2^-26 ulp, subnormal results
/// included. sigmoid(-inf) = +0, sigmoid(-0) = sigmoid(+0) = 0.5, sigmoid(+inf) = 1, NaN gives the canonical
/// NaN.
///
/// Bound: e^-x has a relative error below 4u (its scaling by 2^n is exact); the sum and the quotient add one
/// rounding each: below 6u. Nothing cancels.
/// Measured: largest error 0.500000003 ulp, 66 results not correctly rounded.
FP16LAB_HD constexpr float sigmoid_f32(float x) {
  return elementary_detail::of_exponential<elementary_detail::Sigmoid>(x);
}

/// Hyperbolic tangent rounded to FP32, odd bit for bit. Error below 0.5 + 2^-26 ulp, subnormal arguments
/// included. tanh(+-0) = +-0, tanh(+-inf) = +-1 (C17, F.10.2.6), NaN gives the canonical NaN.
///
/// With m = -expm1(-2|x|), tanh|x| = m / (2 - m), and -m = 2^n (e^r - 1) + (2^n - 1), where 2^n - 1 is exact
/// as far as FP64 reaches and 0 for n = 0: small arguments lose nothing.
/// Bound: for n = 0, m has a relative error below 3u; 2 - m >= 1.7 below 1.2u; the quotient rounds once:
/// below 6u. Otherwise the error of e^r - 1 counts at most half, 0.65u, and the sum rounds by u/4 below 1/2
/// and u/2 above: relative to m >= 0.29 below 3.2u. 2 - m >= 1 has an absolute error below 1.2u plus one
/// rounding of u in [1, 2): below 2.2u; the quotient rounds once: below 7u in all.
/// Measured: largest error 0.499999991 ulp, every result correctly rounded.
FP16LAB_HD constexpr float tanh_f32(float x) {
  return elementary_detail::of_exponential<elementary_detail::Tanh>(x);
}

namespace elementary_detail {

/// A positive x as 2^n fraction with sqrt(1/2) <= fraction < sqrt(2). Negative and infinite x give a fraction
/// in that interval too.
struct BalancedBinade {
  double n;
  double fraction;
};
FP16LAB_HD constexpr BalancedBinade balanced_binade(double x) {
  constexpr std::uint64_t sqrt_half = 0x3fe6a09e667f3bcd;  // bits of sqrt(1/2) in FP64
  constexpr std::uint64_t offset = 1024;                   // keeps the shifted exponent non-negative
  const std::uint64_t n_plus_offset =
      (bits_of(x) - sqrt_half + (offset << Binary64::fraction_bits)) >> Binary64::fraction_bits;
  return {.n = double_from_bits(n_plus_offset | bits_of(0x1p52)) - (0x1p52 + static_cast<double>(offset)),
          .fraction = double_from_bits(bits_of(x) - ((n_plus_offset - offset) << Binary64::fraction_bits))};
}

/// n ln 2 + log(1 + f), an integer n and f in [sqrt(1/2) - 1, sqrt(2) - 1).
///
/// s = f / (2 + f), |s| < 0.1716; then
/// log(1 + f) = 2 atanh(s) = f - (f^2/2 - s (f^2/2 + R)), R = 2 z/3 + 2 z^2/5 + ... + 2 z^10/21, z = s^2.
/// Bound, for an exact f. Truncation: 2 s z^11/23 * 1.04 < 2^-60 |f|. With |f| <= 0.4143: f^2/2 has relative
/// error u; s has 2.1u and R less than 8u, so s (f^2/2 + R) < 0.0183 has less than 8u; the inner difference
/// is below 0.086. Summed and relative to |log(1 + f)|, which exceeds 0.82 |f|, that is less than 1.4u. For n
/// = 0 one more rounding gives 2.4u. For n != 0, |log(1 + f)| <= 0.3466 carries 1.4u of itself and one
/// rounding of 2^-55, the inner sum with n ln2_low another 2^-55: less than u in absolute terms, hence less
/// than 2.9u of a result that is at least 0.3465; n ln2_high is exact and the outer sum adds u. In all below
/// 3.9u.
FP16LAB_HD constexpr double logarithm(double n, double f) {
  const double s = f / (2.0 + f);
  const double z = s * s;
  const double r = polynomial(z, 2.0 / 3.0, 2.0 / 5.0, 2.0 / 7.0, 2.0 / 9.0, 2.0 / 11.0, 2.0 / 13.0,
                              2.0 / 15.0, 2.0 / 17.0, 2.0 / 19.0, 2.0 / 21.0) *
                   z;
  const double half_square = 0.5 * f * f;
  const double log_1_plus_f = f - (half_square - s * (half_square + r));
  return n * ln2_high + (n * ln2_low + log_1_plus_f);
}

/// `log_of(n, f)` of x = 2^n (1 + f), rounded to FP32; a logarithm's own values elsewhere.
template <class LogOf>
FP16LAB_HD constexpr float logarithm_of(float x, const LogOf& log_of) {
  const std::uint32_t bits = bits_of(x);
  const std::uint32_t magnitude = bits & Binary32::magnitude_mask;
  const BalancedBinade binade =
      balanced_binade(float_from_bits(magnitude));  // FP32 subnormals are normal there
  std::uint32_t result = bits_of(static_cast<float>(log_of(binade.n, binade.fraction - 1.0)));
  result = select(magnitude == Binary32::infinity, Binary32::infinity, result);
  result = select(bits > Binary32::infinity, Binary32::canonical_nan, result);  // NaN, or the sign bit is set
  result = select(magnitude == 0, Binary32::sign_mask | Binary32::infinity, result);
  return float_from_bits(result);
}

}  // namespace elementary_detail

/// Natural logarithm rounded to FP32. Error below 0.5 + 2^-27 ulp, subnormal arguments included.
/// log(1) = +0, log(+-0) = -inf, log(+inf) = +inf; negative arguments and NaN give the canonical NaN.
///
/// Bound: that of logarithm(), f = fraction - 1 being exact: below 4u = 2^-51, which is 2^-27 ulp.
/// Measured: largest error 0.500000001 ulp, 5 results not correctly rounded.
FP16LAB_HD constexpr float log_f32(float x) {
  return elementary_detail::logarithm_of(
      x, [](double n, double f) { return elementary_detail::logarithm(n, f); });
}

/// Binary logarithm rounded to FP32, exact for powers of two. Error below 0.5 + 2^-26 ulp, subnormal arguments included.
/// Where log_f32 has no finite result it has the same.
///
/// Bound: log(1 + f) has a relative error below 2.4u, 1/ln 2 and the product below u each: 4.4u, which counts in full for
/// n = 0, where nothing is added to it. Otherwise the product is at most half, as the result is at least, and the sum
/// rounds by u: below 6u < 2^-50, which is 2^-26 ulp.
/// Measured: largest error 0.499999995 ulp, every result correctly rounded.
FP16LAB_HD constexpr float log2_f32(float x) {
  return elementary_detail::logarithm_of(x, [](double n, double f) {
    constexpr double per_ln2 = 0x1.71547652b82fep0;
    return n + elementary_detail::logarithm(0.0, f) * per_ln2;
  });
}

/// log(1 + x) rounded to FP32. Error below 0.5 + 2^-27 ulp, subnormal arguments and results included.
/// log1p(+-0) = +-0, log1p(-1) = -inf, log1p(+inf) = +inf (C17, F.10.3.9); arguments below -1 and NaN give
/// the canonical NaN.
///
/// Where sqrt(1/2) <= 1 + x < sqrt(2), n = 0 and f is x itself: small arguments lose nothing. Elsewhere |x| >
/// 0.29 is a multiple of 2^-25, so 1 + x is exact in FP64 up to x = 2^53; beyond, it rounds by u, which
/// counts u of a logarithm above 36. Bound: that of logarithm(), 3.9u, and those u/36: below 4u = 2^-51.
/// Measured: largest error 0.500000001 ulp, 9 results not correctly rounded.
FP16LAB_HD constexpr float log1p_f32(float x) {
  using namespace elementary_detail;
  const double wide = x;
  const BalancedBinade binade = balanced_binade(1.0 + wide);
  const double f = select(binade.n == 0.0, wide, binade.fraction - 1.0);
  // The logarithm has the sign of x; only that of -0 is lost on the way.
  std::uint32_t result = bits_of(static_cast<float>(logarithm(binade.n, f))) | sign_of(x);
  const std::uint32_t bits = bits_of(x);
  constexpr std::uint32_t minus_one = bits_of(-1.0f);
  result = select(bits == Binary32::infinity, Binary32::infinity, result);
  result = select(bits == minus_one, Binary32::sign_mask | Binary32::infinity, result);
  result = select((bits > minus_one) | is_nan(x), Binary32::canonical_nan, result);
  return float_from_bits(result);
}

}  // namespace fp16lab

FP16LAB_NO_CONTRACTION_END
