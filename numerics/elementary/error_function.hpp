// erf, and the two forms of gelu that frameworks call "none" and "tanh".
#pragma once

#include <cstdint>

#include "numerics/elementary/elementary_detail.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/platform/portability.hpp"

FP16LAB_NO_CONTRACTION_BEGIN

namespace fp16lab {

namespace elementary_detail {

/// The upper tail of the normal distribution, Phi(-y) = erfc(y / sqrt 2) / 2, for a float 0 <= y <= 15.
///
/// Phi(-y) = e^(-y^2/2) R(y); y^2/2 is exact in FP64. R, which falls smoothly like 1/y, is the minimax
/// rational function of type (7, 8) on [0, 15] for the relative error, 2^-45.89, found by Remez exchange in
/// 60 decimal digits. All its coefficients are positive, so nothing cancels: a step of Horner's rule adds at
/// most 2u, a coefficient u, that is 15u for the numerator and 17u for the denominator. With the exponential
/// (4u), the quotient and the product: 38u. In all below 2^-45.5.
FP16LAB_HD constexpr double normal_tail(float y) {
  const double wide = y;
  const double numerator =
      polynomial(wide, 0x1.fffffffffff76p-2, 0x1.4397fb6280dafp-1, 0x1.944381bda708ap-2, 0x1.37ebadcd997d2p-3,
                 0x1.3d4e0ed3e3a05p-5, 0x1.a87686d170b59p-8, 0x1.5b639e89bd52dp-11, 0x1.10525279297ddp-15);
  const double denominator = polynomial(wide, 1.0, 0x1.07ed12808ffd0p+1, 0x1.ef4c026a89034p+0,
                                        0x1.15547adb93d6fp+0, 0x1.976526df1a34cp-2, 0x1.947c2f5889c7cp-4,
                                        0x1.0b537757448c0p-6, 0x1.b3633f80e78f5p-10, 0x1.554df261e11d0p-14);
  const Exponential e = exponential(-0.5 * wide * wide);
  return (1.0 + e.fraction_less_one) * e.power * (numerator / denominator);
}

}  // namespace elementary_detail

/// Error function rounded to FP32, odd bit for bit. Error below 0.5 + 2^-23 ulp, subnormal arguments and
/// results included. erf(+-0) = +-0, erf(+-inf) = +-1 (C17, F.10.5.1), NaN gives the canonical NaN.
///
/// erf(x) = x R(x^2); x^2 is exact in FP64. R is the minimax rational function of type (9, 9) on [0, 16] for
/// the relative error, 2^-49.65, found by Remez exchange in 60 decimal digits. All its coefficients are
/// positive, so nothing cancels: a step of Horner's rule adds at most 2u, a coefficient u: 19u each for
/// numerator and denominator. With the quotient and the product: 40u. In all below 2^-47.3.
/// Measured: largest error 0.500000008 ulp, 8 results not correctly rounded.
FP16LAB_HD constexpr float erf_f32(float x) {
  using namespace elementary_detail;
  const double m = magnitude_up_to(4.0f, x);  // 1 - erf(4) < 2^-25 still rounds to 1
  const double z = m * m;
  const double numerator =
      polynomial(z, 0x1.20dd750429b67p+0, 0x1.9d9451882c927p-3, 0x1.f019030abfb61p-5, 0x1.65ff024e183a1p-8,
                 0x1.4de8836811ae3p-11, 0x1.18fedfb9c17a4p-15, 0x1.f4c475ed510b9p-20, 0x1.b0e732b0d3c2cp-25,
                 0x1.154edadd31c1ap-30, 0x1.702703f61c3adp-39);
  const double denominator =
      polynomial(z, 1.0, 0x1.064c471893a3ep-1, 0x1.fdb0550214402p-4, 0x1.35a4ae18e59d0p-6,
                 0x1.04a504015c2e6p-9, 0x1.3d14c0fe24bf2p-13, 0x1.18452f1dc2636p-17, 0x1.5beca13abec43p-22,
                 0x1.0f8c825094c9fp-27, 0x1.57bab7c64c2cbp-34);
  const std::uint32_t result = bits_of(static_cast<float>(m * (numerator / denominator)));
  return nan_if_nan(x, result | sign_of(x));
}

/// Gaussian error linear unit x Phi(x) = x (1 + erf(x / sqrt 2)) / 2 rounded to FP32. Error below 0.5 + 2^-21
/// ulp down to the last subnormal of the negative tail, at x = -14.4. gelu(+-0) = +-0, gelu(+inf) = +inf, NaN
/// gives the canonical NaN. gelu(-inf) = -0, the limit (a program that multiplies -inf by 0 gives NaN there).
///
/// Source: D. Hendrycks, K. Gimpel, arXiv:1606.08415, section 2.
/// Bound: 1 - Phi(-x) for x > 0 is at least 1/2 and its tail no more, so the tail's 2^-45.5 counts at most
/// once; the difference and the product add a rounding each: below 2^-45.
/// Measured: largest error 0.500000194 ulp, 82 results not correctly rounded.
FP16LAB_HD constexpr float gelu_f32(float x) {
  using namespace elementary_detail;
  constexpr float infinity = float_from_bits(Binary32::infinity);
  const double tail = normal_tail(magnitude_up_to(15.0f, x));
  const double phi = select(sign_of(x) != 0, tail, 1.0 - tail);
  // 15 Phi(-15) < 2^-150 still rounds to -0.
  return nan_if_nan(x, bits_of(static_cast<float>(static_cast<double>(clamp(x, -15.0f, infinity)) * phi)));
}

/// The approximation x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2 of gelu, "tanh" in frameworks, rounded
/// to FP32. Error against that formula in real numbers below 0.5 + 2^-19 ulp, subnormal results included.
/// gelu_tanh(+-0) = +-0, gelu_tanh(+inf) = +inf, gelu_tanh(-inf) = -0 (the limit), NaN gives the canonical
/// NaN.
///
/// Source: D. Hendrycks, K. Gimpel, arXiv:1606.08415, section 2. (1 + tanh(t/2)) / 2 = 1 / (1 + e^-t).
/// Bound: t = x (c1 + c2 x^2) has a relative error below 6u (two coefficients, four roundings; x^2 is exact).
/// Where the result is not zero, t > -108, so e^-t is off by at most 648u + 4u; sum and quotient add 2u:
/// below 2^-43.6 in all. Where t > 0 it counts less.
/// Measured: largest error 0.500000001 ulp; not correctly rounded are 8.4 million results, nearly all
/// of them x/2 of a subnormal x, which is a tie but for 2^-126 of itself.
FP16LAB_HD constexpr float gelu_tanh_f32(float x) {
  using namespace elementary_detail;
  constexpr float infinity = float_from_bits(Binary32::infinity);
  constexpr double c1 = 0x1.9884533d43651p+0;        // 2 sqrt(2/pi)
  constexpr double c2 = 0x1.2444f2a4d8b4bp-4;        // 2 sqrt(2/pi) 0.044715
  const double near_zero = clamp(x, -16.0f, 16.0f);  // beyond, the result is -0 or x; |t| < 320
  const Exponential e = exponential(-near_zero * (c1 + c2 * (near_zero * near_zero)));
  const double result =
      static_cast<double>(clamp(x, -16.0f, infinity)) / (1.0 + (1.0 + e.fraction_less_one) * e.power);
  return nan_if_nan(x, bits_of(static_cast<float>(result)));
}

}  // namespace fp16lab

FP16LAB_NO_CONTRACTION_END
