// The scalar functions of the elementwise verbs: one source for every back end, host and device.
//
// Every function takes and returns FP32 and does one correctly rounded operation. Results that are NaN are
// canonical. Comparisons are written out, because std::max, fmaxf and SIMD max disagree about NaN and about
// the sign of zero:
//
//   x                    NaN     -0     +0     -inf   +inf
//   Relu(x)              NaN     +0     +0     +0     +inf
//   SelectPositive(x,b)  b       +0     +0     +0     b
//
// 16-bit tensors widen, apply the same function and round once to nearest even. That equals rounding the
// exact result once for + - x / sqrt of two 16-bit operands (24 >= 2 * 11 + 2; Figueroa, SIGNUM Newsletter
// 30(3), 1995).
#pragma once

#include "engine/backend/backend.hpp"
#include "numerics/bits.hpp"
#include "numerics/elementary.hpp"
#include "numerics/portability.hpp"

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
struct SquareRoot {
  FP16LAB_HD float operator()(float x) const { return canonicalize(square_root_f32(x)); }
};
struct Absolute {
  FP16LAB_HD float operator()(float x) const {
    return canonicalize(float_from_bits(bits_of(x) & Binary32::magnitude_mask));
  }
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
    case UnaryOp::square_root:
      return visitor(SquareRoot{});
    case UnaryOp::absolute:
      return visitor(Absolute{});
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
  }
}

/// fill_uniform: three FP32 roundings, (high - low), its product with u in [0, 1), the sum.
FP16LAB_HD inline float uniform_between(float low, float high, float u) {
  const float width = high - low;
  return canonicalize(low + width * u);
}

}  // namespace fp16lab::engine::functions
