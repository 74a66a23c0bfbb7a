// The plain FP16 instructions of NVIDIA GPUs (HADD, HMUL, HFMA and cvt), where they say more than IEEE 754.
//
// Source: PTX ISA, "Half Precision Floating Point Instructions" (add, sub, mul, fma .f16) and "cvt"; the host
// functions of CUDA's cuda_fp16.hpp. The instructions round once, to nearest even, fuse the fma, and support
// subnormals. Beside that:
//   .ftz  subnormal inputs and results become zeros of their sign
//   .sat  results are clamped to [0, 1], NaN to +0
// What PTX leaves open, and the choice made here:
//   NaN results       "unspecified NaN": 0x7fff, which cuda_fp16's host functions return too
//   .ftz near 2^-14   whether a result counts as subnormal before or after rounding: after, as round_pack
//                     does
//   .sat of -0        +0, as cuda_fp16's host functions (maximum with +0) give
// PTX's min.f16 and max.f16 are minimum_number and maximum_number of numerics/arithmetic/comparison.hpp, with
// .NaN minimum and maximum.
#pragma once

#include <cstdint>

#include "numerics/arithmetic/arithmetic.hpp"
#include "numerics/arithmetic/comparison.hpp"
#include "numerics/convert/convert.hpp"

namespace fp16lab::ptx {

/// The suffixes of an instruction.
struct Modifiers {
  bool ftz = false;
  bool sat = false;
};

FP16LAB_HD constexpr ArithmeticOptions options_of(Modifiers modifiers, Rounding rounding) {
  ArithmeticOptions options(rounding);
  options.flush_inputs = modifiers.ftz;
  options.flush_results = modifiers.ftz;
  return options;
}

FP16LAB_HD constexpr Float16 saturated(Float16 x, Modifiers modifiers) {
  if (!modifiers.sat) return x;
  constexpr Float16 zero = Float16::from_bits(0);
  constexpr Float16 one = Float16::from_bits(Binary16::bias << Binary16::fraction_bits);
  if (x.is_nan()) return zero;
  return minimum(maximum(x, zero), one);
}

/// add{.ftz}{.sat}.f16
FP16LAB_HD constexpr Float16 add(Float16 a, Float16 b, Modifiers modifiers = {}) {
  return saturated(fp16lab::add(a, b, options_of(modifiers, Rounding::nearest_even)), modifiers);
}

/// sub{.ftz}{.sat}.f16
FP16LAB_HD constexpr Float16 sub(Float16 a, Float16 b, Modifiers modifiers = {}) {
  return saturated(fp16lab::sub(a, b, options_of(modifiers, Rounding::nearest_even)), modifiers);
}

/// mul{.ftz}{.sat}.f16
FP16LAB_HD constexpr Float16 mul(Float16 a, Float16 b, Modifiers modifiers = {}) {
  return saturated(fp16lab::mul(a, b, options_of(modifiers, Rounding::nearest_even)), modifiers);
}

/// fma.rn{.ftz}{.sat}.f16
FP16LAB_HD constexpr Float16 fma(Float16 a, Float16 b, Float16 c, Modifiers modifiers = {}) {
  return saturated(fp16lab::fma(a, b, c, options_of(modifiers, Rounding::nearest_even)), modifiers);
}

/// cvt.{rn,rz,rm,rp}{.ftz}{.sat}.f16.f32: __float2half_rn, _rz, _rd, _ru. NaN gives 0x7fff, sign and payload
/// dropped; Inf keeps its sign. `.ftz` flushes FP32 subnormals only: the result may be an FP16 subnormal.
FP16LAB_HD constexpr Float16 cvt_f16_f32(float x, Rounding rounding = Rounding::nearest_even,
                                         Modifiers modifiers = {}) {
  ArithmeticOptions options(rounding);
  options.flush_inputs = modifiers.ftz;
  return saturated(narrow<Binary16>(x, options), modifiers);
}

/// cvt.f32.f16: __half2float, exact, subnormals included. NaN gives 0x7fffffff (the host function; the
/// pattern that the device makes is not documented).
FP16LAB_HD constexpr float cvt_f32_f16(Float16 x) { return widen(x); }

}  // namespace fp16lab::ptx
