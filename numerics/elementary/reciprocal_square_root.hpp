// 1 / sqrt(x) from multiplications alone: no square root, no division, hence constexpr in every compiler.
#pragma once

#include <cstdint>

#include "numerics/elementary/elementary_detail.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/platform/portability.hpp"

FP16LAB_NO_CONTRACTION_BEGIN

namespace fp16lab {

/// Reciprocal square root rounded to FP32. Error below 0.5 + 2^-27 ulp, subnormal arguments included.
/// rsqrt(+-0) = +-inf, rsqrt(+inf) = +0 (IEEE 754-2019, 9.2.1, rSqrt); negative arguments and NaN give the
/// canonical NaN.
///
/// Half the negated exponent and a linear piece of the significand, by one integer subtraction, give y within
/// 3.5 % (the FP64 twin of the constant in C. Lomont, "Fast inverse square root", 2003). A Newton step takes
/// a relative error d to 3/2 d^2 (1 + d/3): 1.9e-3, 5.2e-6, 4.1e-11, 2.5e-21. Bound: only the last step
/// matters, written as y + y e/2 with the residual e = 1 - (x y) y. Its two products round by u each, the
/// difference is exact (Sterbenz): e/2 is off by u, the last sum rounds by u; what y carried in is squared
/// away. Below 3u < 2^-51. Measured: largest error 0.499999997 ulp, every result correctly rounded.
FP16LAB_HD constexpr float rsqrt_f32(float x) {
  using namespace elementary_detail;
  const std::uint32_t bits = bits_of(x);
  const std::uint32_t magnitude = bits & Binary32::magnitude_mask;
  const double wide = float_from_bits(magnitude);  // FP32 subnormals are normal here
  const double half = 0.5 * wide;
  double y = double_from_bits(0x5fe6eb50c7b537a9 - (bits_of(wide) >> 1));
  y = y * (1.5 - half * y * y);
  y = y * (1.5 - half * y * y);
  y = y * (1.5 - half * y * y);
  y = y + y * (0.5 * (1.0 - wide * y * y));

  std::uint32_t result = bits_of(static_cast<float>(y));
  result = select(magnitude == Binary32::infinity, std::uint32_t{0}, result);
  result = select(bits > Binary32::infinity, Binary32::canonical_nan, result);  // NaN, or the sign bit is set
  result = select(magnitude == 0, sign_of(x) | Binary32::infinity, result);
  return float_from_bits(result);
}

}  // namespace fp16lab

FP16LAB_NO_CONTRACTION_END
