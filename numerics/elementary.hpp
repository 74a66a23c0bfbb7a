// Elementary functions whose bits are ours: one source for the host and the device, no libm.
//
// Libraries do not agree on the last bit of exp and log (IEEE 754-2019, 9.2 only recommends correct
// rounding), so a result that two back ends must share cannot come from them. Here an FP32 result is computed
// in FP64 with + - * /, bit casts and integer selects only, and rounded once to FP32. Neither function
// branches, so loops over them vectorise. All floating-point code of the project is compiled without
// contraction; then no operation below depends on whether the machine has a fused multiply-add.
//
// Error bounds. u = 2^-53 is the FP64 unit roundoff; one FP32 ulp is at least 2^-24 of the value, so an FP64
// relative error e adds at most 2^24 e ulp to the half ulp of the final rounding. In subnormal results it
// adds less.
//
// Measured over all 2^32 arguments (full_sweep_elementary, against 64-bit extended precision): see the
// functions.
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/portability.hpp"

namespace fp16lab {

namespace elementary_detail {

// ln 2 = ln2_high + ln2_low to 2^-86. ln2_high has 32 significant bits, so n * ln2_high is exact for |n| <
// 2^21.
inline constexpr double ln2_high = 0x1.62e42feep-1;
inline constexpr double ln2_low = 0x1.a39ef35793c76p-33;
inline constexpr double reciprocal_ln2 = 0x1.71547652b82fep+0;

// Adding and subtracting 1.5 * 2^52 rounds to an integer, which then lies in the low bits of the sum.
inline constexpr double integer_rounder = 0x1.8p52;

/// condition ? yes : no by masks. Compilers turn the conditional operator back into a branch around the
/// arithmetic, which they then cannot vectorise because floating-point operations may raise flags.
FP16LAB_HD constexpr std::uint32_t select(bool condition, std::uint32_t yes, std::uint32_t no) {
  const std::uint32_t mask = std::uint32_t{0} - static_cast<std::uint32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

}  // namespace elementary_detail

/// e^x rounded to FP32. Error below 0.5 + 2^-27 ulp, subnormal results included.
/// exp(-0) = exp(+0) = 1, exp(-inf) = +0, exp(+inf) = +inf, overflow gives +inf, NaN gives the canonical NaN.
///
/// x = n ln2 + r with |r| <= 0.3466, and e^r = 1 + (r + r^2 q(r)), q the Taylor series up to r^13 of e^r.
/// Bound: truncation r^14/14! * 1.42 < 2^-57; r itself carries one rounding, <= 2^-55 (n ln2_high and the
/// first difference are exact); r^2 q <= 0.07 with relative error < 8u: < 2^-53; r + r^2 q one rounding, <=
/// 2^-55; 1 + (...) one rounding, <= u. Sum < 2.7u absolute on a value >= 0.7071, so the relative error is
/// below 4u = 2^-51, which is 2^-27 ulp. Scaling by 2^n is exact in FP64.
FP16LAB_HD constexpr float exp_f32(float x) {
  using namespace elementary_detail;
  const std::uint32_t bits = bits_of(x);
  // Clamp to [-104, 89]: e^-104 < 2^-150 still rounds to zero and e^89 > 2^128 to infinity. As integers,
  // because that needs no floating-point comparison and also maps infinities and NaNs to something harmless.
  constexpr std::uint32_t highest = bits_of(89.0f);
  constexpr std::uint32_t lowest = bits_of(-104.0f);
  const std::uint32_t below_highest =
      select(static_cast<std::int32_t>(bits) > static_cast<std::int32_t>(highest), highest, bits);
  const double clamped = float_from_bits(select(below_highest > lowest, lowest, below_highest));

  const double shifted = clamped * reciprocal_ln2 + integer_rounder;
  const double n = shifted - integer_rounder;
  const double r = (clamped - n * ln2_high) - n * ln2_low;

  double q = 1.0 / 6227020800.0;  // 1/13!
  q = q * r + 1.0 / 479001600.0;
  q = q * r + 1.0 / 39916800.0;
  q = q * r + 1.0 / 3628800.0;
  q = q * r + 1.0 / 362880.0;
  q = q * r + 1.0 / 40320.0;
  q = q * r + 1.0 / 5040.0;
  q = q * r + 1.0 / 720.0;
  q = q * r + 1.0 / 120.0;
  q = q * r + 1.0 / 24.0;
  q = q * r + 1.0 / 6.0;
  q = q * r + 0.5;
  const double exp_r = 1.0 + (r + (r * r) * q);

  // The low 12 bits of `shifted` are n modulo 4096, so adding the bias and shifting gives the bits of 2^n.
  const double power = double_from_bits((bits_of(shifted) + Binary64::bias) << Binary64::fraction_bits);
  const std::uint32_t result = bits_of(static_cast<float>(exp_r * power));
  return float_from_bits(select(is_nan(x), Binary32::canonical_nan, result));
}

/// Natural logarithm rounded to FP32. Error below 0.5 + 2^-27 ulp, subnormal arguments included.
/// log(1) = +0, log(+-0) = -inf, log(+inf) = +inf; negative arguments and NaN give the canonical NaN.
///
/// x = 2^n (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2); s = f / (2 + f), |s| < 0.1716; then
/// log(1 + f) = 2 atanh(s) = f - (f^2/2 - s (f^2/2 + R)), R = 2 z/3 + 2 z^2/5 + ... + 2 z^10/21, z = s^2.
/// Bound: f is exact. Truncation: 2 s z^11/23 * 1.04 < 2^-60 |f|. With |f| <= 0.4143: f^2/2 has relative
/// error u; s has 2.1u and R less than 8u, so s (f^2/2 + R) < 0.0183 has less than 8u; the inner difference
/// is below 0.086. Summed and relative to |log(1 + f)|, which exceeds 0.82 |f|, that is less than 1.4u. For n
/// = 0 one more rounding gives 2.4u. For n != 0, |log(1 + f)| <= 0.3466 carries 1.4u of itself and one
/// rounding of 2^-55, the inner sum with n ln2_low another 2^-55: less than u in absolute terms, hence less
/// than 2.9u of a result that is at least 0.3465; n ln2_high is exact and the outer sum adds u. In all below
/// 4u = 2^-51, which is 2^-27 ulp.
FP16LAB_HD constexpr float log_f32(float x) {
  using namespace elementary_detail;
  const std::uint32_t bits = bits_of(x);
  const double wide = float_from_bits(bits & Binary32::magnitude_mask);  // FP32 subnormals are normal here

  constexpr std::uint64_t sqrt_half = 0x3fe6a09e667f3bcd;  // bits of sqrt(1/2) in FP64
  constexpr std::uint64_t offset = 1024;                   // keeps the shifted exponent non-negative
  const std::uint64_t n_plus_offset =
      (bits_of(wide) - sqrt_half + (offset << Binary64::fraction_bits)) >> Binary64::fraction_bits;
  const double n = double_from_bits(n_plus_offset | bits_of(0x1p52)) - (0x1p52 + static_cast<double>(offset));
  const double f =
      double_from_bits(bits_of(wide) - ((n_plus_offset - offset) << Binary64::fraction_bits)) - 1.0;

  const double s = f / (2.0 + f);
  const double z = s * s;
  double r = 2.0 / 21.0;
  r = r * z + 2.0 / 19.0;
  r = r * z + 2.0 / 17.0;
  r = r * z + 2.0 / 15.0;
  r = r * z + 2.0 / 13.0;
  r = r * z + 2.0 / 11.0;
  r = r * z + 2.0 / 9.0;
  r = r * z + 2.0 / 7.0;
  r = r * z + 2.0 / 5.0;
  r = r * z + 2.0 / 3.0;
  r = r * z;
  const double half_square = 0.5 * f * f;
  const double log_1_plus_f = f - (half_square - s * (half_square + r));

  std::uint32_t result = bits_of(static_cast<float>(n * ln2_high + (n * ln2_low + log_1_plus_f)));
  const std::uint32_t magnitude = bits & Binary32::magnitude_mask;
  result = select(magnitude == Binary32::infinity, Binary32::infinity, result);
  result = select(bits > Binary32::infinity, Binary32::canonical_nan, result);  // NaN, or the sign bit is set
  result = select(magnitude == 0, Binary32::sign_mask | Binary32::infinity, result);
  return float_from_bits(result);
}

}  // namespace fp16lab
