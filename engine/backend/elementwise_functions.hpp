// The scalar functions of the elementwise verbs: one source for every back end, host and device.
//
// Every function takes and returns FP32 and does one correctly rounded operation, or is a function of
// numerics/elementary/elementary.hpp. Results that are NaN are canonical. Comparisons are written out,
// because std::max, fmaxf and SIMD max disagree about NaN and about the sign of zero:
//
//   x                    NaN     -0     +0     -inf   +inf
//   Relu(x)              NaN     +0     +0     +0     +inf
//   Sign(x)              NaN     +0     +0     -1     1
//   SelectPositive(x,b)  b       +0     +0     +0     b
//
//   a, b                 NaN, b  a, NaN  -0, +0  +0, -0  a < b  a > b
//   Maximum(a, b)        NaN     NaN     -0      +0      b      a
//   Minimum(a, b)        NaN     NaN     -0      +0      a      b
//
// 16-bit tensors widen, apply the same function and round once to nearest even. That equals rounding the
// exact result once for + - x / sqrt of two 16-bit operands (24 >= 2 * 11 + 2; Figueroa, SIGNUM Newsletter
// 30(3), 1995). So it is where BF16 results are subnormal and FP32 itself has fewer bits left: at 2^-134,
// half of BF16's smallest number, FP32 has 2^-149 as last place, where a product of two 8-bit significands
// ends, and a quotient is farther than that from every midpoint.
#pragma once

#include <cstdint>

#include "engine/backend/backend.hpp"
#include "numerics/elementary/elementary.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/platform/portability.hpp"
#include "numerics/random/philox.hpp"

namespace fp16lab::engine::functions {

/// IEEE 754-2019 squareRoot, correctly rounded: an instruction on every target.
FP16LAB_HD inline float square_root_f32(float x) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(x);
#else
  return __builtin_sqrtf(x);
#endif
}
FP16LAB_HD inline double square_root_f64(double x) {
#if defined(__CUDA_ARCH__)
  return __dsqrt_rn(x);
#else
  return __builtin_sqrt(x);
#endif
}

struct Negate {
  FP16LAB_HD float operator()(float x) const { return canonicalize(-x); }
};
struct Relu {
  FP16LAB_HD float operator()(float x) const { return canonicalize(x <= 0.0f ? 0.0f : x); }
};
struct Exp {
  FP16LAB_HD float operator()(float x) const { return exp_f32(x); }
};
struct Log {
  FP16LAB_HD float operator()(float x) const { return log_f32(x); }
};
struct Log1p {
  FP16LAB_HD float operator()(float x) const { return log1p_f32(x); }
};
struct SquareRoot {
  FP16LAB_HD float operator()(float x) const { return canonicalize(square_root_f32(x)); }
};
struct ReciprocalSquareRoot {
  FP16LAB_HD float operator()(float x) const { return rsqrt_f32(x); }
};
struct Absolute {
  FP16LAB_HD float operator()(float x) const {
    return canonicalize(float_from_bits(bits_of(x) & Binary32::magnitude_mask));
  }
};
struct Sign {
  FP16LAB_HD float operator()(float x) const {
    const float one = float_from_bits(bits_of(1.0f) | (bits_of(x) & Binary32::sign_mask));
    return is_nan(x) ? float_from_bits(Binary32::canonical_nan) : x == 0.0f ? 0.0f : one;
  }
};
/// FP32 to TF32, as an FP32 number: to nearest, ties away from zero, as cvt.rna.tf32.f32 and CUTLASS's
/// round_half_ulp_truncate have it; what rounds beyond the largest number is infinite, a NaN canonical. So
/// libraries round operands (pytorch/pytorch#49625: "rounded, not truncated"); a register that nobody rounded
/// loses its 13 low bits in the tensor core instead, as tl.dot of Triton leaves it (triton#4574), and
/// `fp16lab mma` does.
struct RoundToTf32 {
  FP16LAB_HD float operator()(float x) const {
    constexpr std::uint32_t half = 1u << (unused_bits - 1), kept = ~((1u << unused_bits) - 1);
    return is_nan(x) ? float_from_bits(Binary32::canonical_nan) : float_from_bits((bits_of(x) + half) & kept);
  }
  static constexpr int unused_bits = 13;
};
struct Sigmoid {
  FP16LAB_HD float operator()(float x) const { return sigmoid_f32(x); }
};
struct Tanh {
  FP16LAB_HD float operator()(float x) const { return tanh_f32(x); }
};
struct Erf {
  FP16LAB_HD float operator()(float x) const { return erf_f32(x); }
};
struct Gelu {
  FP16LAB_HD float operator()(float x) const { return gelu_f32(x); }
};
struct GeluTanh {
  FP16LAB_HD float operator()(float x) const { return gelu_tanh_f32(x); }
};

struct Add {
  FP16LAB_HD float operator()(float a, float b) const { return canonicalize(a + b); }
};
struct Subtract {
  FP16LAB_HD float operator()(float a, float b) const { return canonicalize(a - b); }
};
struct Multiply {
  FP16LAB_HD float operator()(float a, float b) const { return canonicalize(a * b); }
};
struct Divide {
  FP16LAB_HD float operator()(float a, float b) const { return canonicalize(a / b); }
};
struct SelectPositive {
  FP16LAB_HD float operator()(float a, float b) const { return canonicalize(a <= 0.0f ? 0.0f : b); }
};
// `a` stays where it is not beaten or is a NaN; a NaN in b loses no comparison and so comes out.
struct Maximum {
  FP16LAB_HD float operator()(float a, float b) const { return canonicalize(((a >= b) | is_nan(a)) ? a : b); }
};
struct Minimum {
  FP16LAB_HD float operator()(float a, float b) const { return canonicalize(((a <= b) | is_nan(a)) ? a : b); }
};

/// Calls `visitor` with the function object of `op`.
template <class Visitor>
void visit(UnaryOp op, const Visitor& visitor) {
  switch (op) {
    case UnaryOp::negate:
      return visitor(Negate{});
    case UnaryOp::relu:
      return visitor(Relu{});
    case UnaryOp::exp:
      return visitor(Exp{});
    case UnaryOp::log:
      return visitor(Log{});
    case UnaryOp::log1p:
      return visitor(Log1p{});
    case UnaryOp::square_root:
      return visitor(SquareRoot{});
    case UnaryOp::reciprocal_square_root:
      return visitor(ReciprocalSquareRoot{});
    case UnaryOp::absolute:
      return visitor(Absolute{});
    case UnaryOp::sign:
      return visitor(Sign{});
    case UnaryOp::sigmoid:
      return visitor(Sigmoid{});
    case UnaryOp::tanh:
      return visitor(Tanh{});
    case UnaryOp::erf:
      return visitor(Erf{});
    case UnaryOp::gelu:
      return visitor(Gelu{});
    case UnaryOp::gelu_tanh:
      return visitor(GeluTanh{});
  }
}

template <class Visitor>
void visit(BinaryOp op, const Visitor& visitor) {
  switch (op) {
    case BinaryOp::add:
      return visitor(Add{});
    case BinaryOp::subtract:
      return visitor(Subtract{});
    case BinaryOp::multiply:
      return visitor(Multiply{});
    case BinaryOp::divide:
      return visitor(Divide{});
    case BinaryOp::select_positive:
      return visitor(SelectPositive{});
    case BinaryOp::maximum:
      return visitor(Maximum{});
    case BinaryOp::minimum:
      return visitor(Minimum{});
  }
}

/// fill_uniform: three FP32 roundings, (high - low), its product with u in [0, 1), the sum.
FP16LAB_HD inline float uniform_between(float low, float high, float u) {
  const float width = high - low;
  return canonicalize(low + width * u);
}

/// The uniform numbers that fill_normal takes from two words: u in (0, 1], v in [0, 1), multiples of 2^-24.
FP16LAB_HD constexpr float uniform_above_zero(std::uint32_t word) {
  return static_cast<float>((word >> 8) + 1) * 0x1p-24f;
}
/// fill_normal, from one pair of words: every operation rounds in FP32, the functions too.
FP16LAB_HD inline float normal_from(float mean, float deviation, std::uint32_t first, std::uint32_t second) {
  constexpr float two_pi = 0x1.921fb6p+2f;
  const float radius = square_root_f32(-2.0f * log_f32(uniform_above_zero(first)));
  const float z = radius * cos_f32(two_pi * uniform01(second));
  return canonicalize(mean + deviation * z);
}

/// clip_by_value: Minimum(Maximum(x, -limit), limit) for a limit > 0. On bit patterns, which order
/// magnitudes, because compilers turn the two comparisons into branches.
FP16LAB_HD inline float limited(float x, float limit) {
  const std::uint32_t bits = bits_of(x);
  const std::uint32_t magnitude = bits & Binary32::magnitude_mask;
  const std::uint32_t smaller = magnitude < bits_of(limit) ? magnitude : bits_of(limit);
  const std::uint32_t result = smaller | (bits & Binary32::sign_mask);
  return float_from_bits(magnitude > Binary32::infinity ? Binary32::canonical_nan : result);
}

}  // namespace fp16lab::engine::functions
