// The scalar functions of the elementwise verbs: one source for every back end, host and device.
//
// Every function takes and returns FP32 and does one correctly rounded operation, or a few in the order in
// which they are written, or is a function of numerics/elementary/elementary.hpp. Results that are NaN are
// canonical. Comparisons are written out, because std::max, fmaxf and SIMD max disagree about NaN and about
// the sign of zero:
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

#include "engine/backend/kernels.hpp"
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
/// libraries round operands (pytorch/pytorch#49625: "rounded, not truncated"); an unrounded register loses
/// its 13 low bits in the tensor core instead, as tl.dot of Triton leaves it (triton#4574), and `fp16lab mma`
/// does.
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

/// Calls `visitor` with the functor of a row.
#define FP16LAB_VISIT(row, functor) \
  case Row::row:                    \
    return visitor(functor{});
template <class Visitor>
void visit(UnaryOp op, const Visitor& visitor) {
  using Row = UnaryOp;
  switch (op) { FP16LAB_UNARY_KERNELS(FP16LAB_VISIT) }
}
template <class Visitor>
void visit(BinaryOp op, const Visitor& visitor) {
  using Row = BinaryOp;
  switch (op) { FP16LAB_BINARY_KERNELS(FP16LAB_VISIT) }
}
#undef FP16LAB_VISIT

// ---- random fills: an element from its Philox words, `words` of them ----

/// u in [0, 1); three FP32 roundings: (high - low), its product with u, the sum.
struct Uniform {
  static constexpr int words = 1;
  float low, high;
  FP16LAB_HD float operator()(const std::uint32_t* word) const {
    const float width = high - low;
    return canonicalize(low + width * uniform01(word[0]));
  }
};

/// By Box and Muller from u in (0, 1] and v in [0, 1), multiples of 2^-24: every operation rounds in FP32,
/// and so do the functions.
struct Normal {
  static constexpr int words = 2;
  float mean, deviation;
  FP16LAB_HD float operator()(const std::uint32_t* word) const {
    constexpr float two_pi = 0x1.921fb6p+2f;
    const float u = static_cast<float>((word[0] >> 8) + 1) * 0x1p-24f;
    const float radius = square_root_f32(-2.0f * log_f32(u));
    const float z = radius * cos_f32(two_pi * uniform01(word[1]));
    return canonicalize(mean + deviation * z);
  }
};

struct Bernoulli {
  static constexpr int words = 1;
  float keep, unused;
  FP16LAB_HD float operator()(const std::uint32_t* word) const {
    return uniform01(word[0]) < keep ? 1.0f : 0.0f;
  }
};

#define FP16LAB_VISIT(row, functor) \
  case Distribution::row:           \
    return visitor(functor{first, second});
template <class Visitor>
void visit(Distribution distribution, float first, float second, const Visitor& visitor) {
  switch (distribution) { FP16LAB_DISTRIBUTIONS(FP16LAB_VISIT) }
}
#undef FP16LAB_VISIT

}  // namespace fp16lab::engine::functions
