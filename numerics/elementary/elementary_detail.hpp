// What the elementary functions share: selects without branches, polynomials, the core of the exponential.
//
// Throughout, u = 2^-53 is the FP64 unit roundoff. One FP32 ulp is at least 2^-24 of the value, so an FP64
// relative error e adds at most 2^24 e ulp to the half ulp of the one rounding to FP32; in subnormal results
// it adds less.
#pragma once

#include <cstdint>

#include "numerics/formats/bits.hpp"
#include "numerics/platform/portability.hpp"

FP16LAB_NO_CONTRACTION_BEGIN

namespace fp16lab::elementary_detail {

// Adding and subtracting 1.5 * 2^52 rounds to an integer, which is then in the low bits of the sum.
inline constexpr double integer_rounder = 0x1.8p52;

/// condition ? yes : no by masks. Compilers turn the conditional operator back into a branch around the
/// arithmetic, which they then cannot vectorise because floating-point operations may raise flags.
FP16LAB_HD constexpr std::uint32_t select(bool condition, std::uint32_t yes, std::uint32_t no) {
  const std::uint32_t mask = std::uint32_t{0} - static_cast<std::uint32_t>(condition);
  return (yes & mask) | (no & ~mask);
}
FP16LAB_HD constexpr std::uint64_t select(bool condition, std::uint64_t yes, std::uint64_t no) {
  const std::uint64_t mask = std::uint64_t{0} - static_cast<std::uint64_t>(condition);
  return (yes & mask) | (no & ~mask);
}
FP16LAB_HD constexpr double select(bool condition, double yes, double no) {
  return double_from_bits(select(condition, bits_of(yes), bits_of(no)));
}

/// x limited to [lowest, highest], lowest < 0 < highest. Compares bit patterns as integers, because that
/// needs no floating-point comparison and maps NaNs to something harmless: positive ones to `highest`,
/// negative ones to `lowest`.
FP16LAB_HD constexpr float clamp(float x, float lowest, float highest) {
  const std::uint32_t bits = bits_of(x);
  const std::uint32_t below_highest = select(
      static_cast<std::int32_t>(bits) > static_cast<std::int32_t>(bits_of(highest)), bits_of(highest), bits);
  return float_from_bits(select(below_highest > bits_of(lowest), bits_of(lowest), below_highest));
}

FP16LAB_HD constexpr float magnitude_of(float x) {
  return float_from_bits(bits_of(x) & Binary32::magnitude_mask);
}
/// The smaller of |x| and `limit`; `limit` for NaN.
FP16LAB_HD constexpr float magnitude_up_to(float limit, float x) {
  const std::uint32_t magnitude = bits_of(x) & Binary32::magnitude_mask;
  return float_from_bits(select(magnitude > bits_of(limit), bits_of(limit), magnitude));
}
FP16LAB_HD constexpr std::uint32_t sign_of(float x) { return bits_of(x) & Binary32::sign_mask; }

/// `result`, but the canonical NaN where the argument x is a NaN.
FP16LAB_HD constexpr float nan_if_nan(float x, std::uint32_t result) {
  return float_from_bits(select(is_nan(x), Binary32::canonical_nan, result));
}

/// c0 + c1 x + c2 x^2 + ... by Horner's rule: one rounding a product and one a sum.
FP16LAB_HD constexpr double polynomial(double /*x*/, double c0) { return c0; }
template <class... Coefficients>
FP16LAB_HD constexpr double polynomial(double x, double c0, Coefficients... higher) {
  return polynomial(x, higher...) * x + c0;
}

// ln 2 = ln2_high + ln2_low to 2^-86. ln2_high has 32 significant bits, so n * ln2_high is exact for |n| <
// 2^21.
inline constexpr double ln2_high = 0x1.62e42feep-1;
inline constexpr double ln2_low = 0x1.a39ef35793c76p-33;
inline constexpr double reciprocal_ln2 = 0x1.71547652b82fep+0;

/// e^x = (1 + fraction_less_one) * power, power = 2^n.
struct Exponential {
  double fraction_less_one;  ///< e^r - 1 for the r of exponential()
  double power;
};

/// The parts of exponential(). Operations of one wait for each other, so that loops over arrays that hold one
/// part each overlap more elements than one loop.
struct ReducedArgument {
  double r, power;  ///< x = n ln2 + r, power = 2^n
};
FP16LAB_HD constexpr ReducedArgument reduced_argument(double x) {
  const double shifted = x * reciprocal_ln2 + integer_rounder;
  const double n = shifted - integer_rounder;
  // The low 12 bits of `shifted` are n modulo 4096, so adding the bias and shifting gives the bits of 2^n.
  return {.r = (x - n * ln2_high) - n * ln2_low,
          .power = double_from_bits((bits_of(shifted) + Binary64::bias) << Binary64::fraction_bits)};
}
FP16LAB_HD constexpr double exponential_series(double r) {
  return polynomial(r, 0.5, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0, 1.0 / 720.0, 1.0 / 5040.0, 1.0 / 40320.0,
                    1.0 / 362880.0, 1.0 / 3628800.0, 1.0 / 39916800.0, 1.0 / 479001600.0, 1.0 / 6227020800.0);
}
FP16LAB_HD constexpr Exponential exponential(const ReducedArgument& x, double q) {
  return {.fraction_less_one = x.r + (x.r * x.r) * q, .power = x.power};
}

/// The core of every function that needs e^x, for |x| <= 700.
///
/// x = n ln2 + r with |r| <= 0.3466, and e^r - 1 = r + r^2 q(r), q the Taylor series up to r^13 of e^r.
/// Bound: truncation r^14/14! * 1.42 < 2^-57. n ln2_high is exact; so is its difference from x, because with
/// n != 0 both are multiples of 2^-54 (x of its own ulp) and the difference is below 1/2. Hence r carries one
/// rounding, <= 2^-55 = u/4; for n = 0 it is exact. r^2 q <= 0.07 has a relative error < 8u: < 0.6u absolute;
/// r + r^2 q rounds once, <= u/4. So fraction_less_one, which is in (-0.293, 0.415), has
///   an absolute error below 1.3u (1.4 * u/4 + 0.6u + u/4 + 2^-57), and
///   for n = 0 a relative one below 3u (r^2 q is at most 0.21 of the sum).
/// 1 + fraction_less_one >= 0.707 then has a relative error below 4u = 2^-51 with the rounding of that sum.
FP16LAB_HD constexpr Exponential exponential(double x) {
  const ReducedArgument reduced = reduced_argument(x);
  return exponential(reduced, exponential_series(reduced.r));
}

}  // namespace fp16lab::elementary_detail

FP16LAB_NO_CONTRACTION_END
