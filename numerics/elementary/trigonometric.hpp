// sin and cos of any FP32 argument in radians, the largest included.
#pragma once

#include <cstdint>

#include "numerics/elementary/elementary_detail.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/platform/portability.hpp"

FP16LAB_NO_CONTRACTION_BEGIN

namespace fp16lab {

namespace elementary_detail {

/// x = quadrant * pi/2 + r modulo 2 pi, |r| <= pi/4 (1 + 2^-20).
struct ReducedAngle {
  double r;
  std::uint32_t quadrant;  ///< modulo 4
};

/// For 0 <= x < 2^20, after W. J. Cody and W. Waite, Software Manual for the Elementary Functions, 1980.
///
/// pi/2 = c1 + c2 + c3 to 2^-122, c1 and c2 with 33 bits each, so n c1 and n c2 are exact for n < 2^20. So is
/// x - n c1: with n != 0 a multiple of 2^-32 below 1. Each of the two further differences rounds once, below
/// u of r; n c3 <= 2^-48 is off by 2^-100, and |r| > 2^-28 for every FP32 number here with n != 0 (found by
/// trying them all). Relative error of r below 3u.
FP16LAB_HD constexpr ReducedAngle reduce_moderate_angle(float x) {
  constexpr double two_over_pi = 0x1.45f306dc9c883p-1;
  constexpr double c1 = 0x1.921fb54400000p+0;
  constexpr double c2 = 0x1.0b4611a600000p-34;
  constexpr double c3 = 0x1.3198a2e037073p-69;
  const double wide = x;
  const double shifted = wide * two_over_pi + integer_rounder;
  const double n = shifted - integer_rounder;
  return {.r = ((wide - n * c1) - n * c2) - n * c3, .quadrant = static_cast<std::uint32_t>(bits_of(shifted))};
}

/// For x >= 2^20, after M. Payne and R. Hanek, "Radian reduction for trigonometric functions", ACM SIGNUM
/// Newsletter 18(1), 1983. Integers only, but for the last line.
///
/// x = m 2^e, m < 2^24. Bits of 2/pi of weight 2^(2-e) and above contribute multiples of 4 quadrants. A
/// window of 128 bits after them times m, modulo 2^128, is x / 2pi modulo 1 as a fraction, short by less than
/// 2^-104. |r| > 2^-29.3 for every FP32 number (16367173 * 2^72 comes closest, found by trying them all), so
/// that costs 2^-72 of it. Converting its upper and lower half and adding them rounds by u each, pi/2 and the
/// product too: relative error of r below 5u.
FP16LAB_HD constexpr ReducedAngle reduce_huge_angle(float x) {
  // floor(2^248 * 2/pi): eight zero bits first, so that the shift below is never negative.
  constexpr std::uint64_t word0 = 0x00a2f9836e4e4415;
  constexpr std::uint64_t word1 = 0x29fc2757d1f534dd;
  constexpr std::uint64_t word2 = 0xc0db6295993c4390;
  constexpr std::uint64_t word3 = 0x41fe5163abdebbc5;
  constexpr double half_pi = 0x1.921fb54442d18p+0;

  const std::uint32_t bits = bits_of(x);
  const std::uint64_t m = (bits & Binary32::fraction_mask) | Binary32::min_normal;
  // e = exponent field - 150, and the window starts e - 2 bits after the binary point: 3 to 111 bits to skip.
  const std::uint32_t skip = (bits >> Binary32::fraction_bits) - 144;
  const bool second_word = skip >= 64;
  const std::uint32_t shift = skip & 63;
  const std::uint64_t high = select(second_word, word1, word0);
  const std::uint64_t middle = select(second_word, word2, word1);
  const std::uint64_t low = select(second_word, word3, word2);
  const std::uint64_t window_high = (high << shift) | ((middle >> 1) >> (63 - shift));
  const std::uint64_t window_low = (middle << shift) | ((low >> 1) >> (63 - shift));

  // m * window modulo 2^128. m has 24 bits, so its product with half a word fits in one.
  const std::uint64_t carry = (m * (window_low >> 32) + ((m * (window_low & 0xffffffff)) >> 32)) >> 32;
  const std::uint64_t turns_high = m * window_high + carry;
  const std::uint64_t turns_low = m * window_low;

  const std::uint64_t quadrant = (turns_high + (std::uint64_t{1} << 61)) >> 62;
  const auto rest = static_cast<double>(static_cast<std::int64_t>(turns_high - (quadrant << 62)));
  return {.r = (rest + static_cast<double>(turns_low) * 0x1p-64) * 0x1p-62 * half_pi,
          .quadrant = static_cast<std::uint32_t>(quadrant)};
}

/// sin(quadrant * pi/2 + r) rounded to FP32.
///
/// Taylor series: sin up to r^15, short by r^17/17! < 2^-53.9 |r|; cos up to r^16, short by r^18/18! < 2^-58.
/// Bound for sin r, relative: the error of r counts at most once, 5u. r^3 S(r^2), at most 0.11 |r|, is off by
/// less than 6u of itself, and the truncation by 0.54u |r|: 1.4u of |sin r| >= 0.9 |r|. The sum rounds by u.
/// Below 8u.
/// Bound for cos r: the error of r counts r tan r <= 0.79 times, 4u. Beside 1, the two sums round by u/2
/// each, r^2/2 <= 0.31 by 2u of itself, r^4 C(r^2) <= 0.016 by 6u of itself: below 1.8u of cos r >= 0.707,
/// that is 2.5u. Below 8u.
FP16LAB_HD constexpr float sine_of(ReducedAngle angle) {
  const double r = angle.r;
  const double z = r * r;
  const double sine_tail = polynomial(z, -1.0 / 6.0, 1.0 / 120.0, -1.0 / 5040.0, 1.0 / 362880.0,
                                      -1.0 / 39916800.0, 1.0 / 6227020800.0, -1.0 / 1307674368000.0);
  const double cosine_tail = polynomial(z, 1.0 / 24.0, -1.0 / 720.0, 1.0 / 40320.0, -1.0 / 3628800.0,
                                        1.0 / 479001600.0, -1.0 / 87178291200.0, 1.0 / 20922789888000.0);
  const double sine = r + r * z * sine_tail;
  const double cosine = (1.0 - 0.5 * z) + z * z * cosine_tail;
  const auto result = static_cast<float>(select((angle.quadrant & 1) != 0, cosine, sine));
  return float_from_bits(bits_of(result) ^ ((angle.quadrant & 2) << 30));
}

/// The only branch of the elementary functions: the rare huge argument would cost every other one 40 integer
/// operations.
FP16LAB_HD constexpr ReducedAngle reduce_angle(float magnitude) {
  return magnitude < 0x1p20f ? reduce_moderate_angle(magnitude) : reduce_huge_angle(magnitude);
}

}  // namespace elementary_detail

/// Sine of x radians rounded to FP32, odd bit for bit. Error below 0.5 + 2^-26 ulp, huge and subnormal
/// arguments included. sin(+-0) = +-0 (C17, F.10.1.6); infinities (IEEE 754-2019, 9.2, invalid) and NaN give
/// the canonical NaN.
/// Measured: largest error 0.500000001 ulp, 2 results not correctly rounded.
FP16LAB_HD constexpr float sin_f32(float x) {
  using namespace elementary_detail;
  const std::uint32_t result = bits_of(sine_of(reduce_angle(magnitude_of(x)))) ^ sign_of(x);
  const bool finite = bits_of(magnitude_of(x)) < Binary32::infinity;
  return float_from_bits(select(finite, result, Binary32::canonical_nan));
}

/// Cosine of x radians rounded to FP32, even bit for bit. Error below 0.5 + 2^-26 ulp, huge arguments
/// included. cos(+-0) = 1 (C17, F.10.1.5); infinities (IEEE 754-2019, 9.2, invalid) and NaN give the
/// canonical NaN.
/// Measured: largest error 0.500000001 ulp, 4 results not correctly rounded.
FP16LAB_HD constexpr float cos_f32(float x) {
  using namespace elementary_detail;
  ReducedAngle angle = reduce_angle(magnitude_of(x));
  ++angle.quadrant;
  const bool finite = bits_of(magnitude_of(x)) < Binary32::infinity;
  return float_from_bits(select(finite, bits_of(sine_of(angle)), Binary32::canonical_nan));
}

}  // namespace fp16lab

FP16LAB_NO_CONTRACTION_END
