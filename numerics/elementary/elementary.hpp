// Elementary functions whose bits are ours: one source for the host and the device, no libm.
//
// Libraries do not agree on the last bit of exp and log (IEEE 754-2019, 9.2 only recommends correct
// rounding), so a result that two back ends must share cannot come from them. Here an FP32 result is computed
// in FP64 with + - * /, bit casts and integer selects only, and rounded once to FP32. All floating-point code
// of the project is compiled without contraction; then no operation depends on whether the machine has a
// fused multiply-add. No function branches, so loops over them vectorise; the one exception is sin and cos,
// which take another path where |x| >= 2^20. Everything is constexpr.
//
//   exponential.hpp             exp_f32, sigmoid_f32, tanh_f32, log_f32, log2_f32, log1p_f32
//   error_function.hpp          erf_f32, gelu_f32, gelu_tanh_f32
//   reciprocal_square_root.hpp  rsqrt_f32
//   trigonometric.hpp           sin_f32, cos_f32
//
// Each function states a derived error bound, and the largest error over all 2^32 arguments that
// full_sweep_elementary measured.
#pragma once

#include "numerics/elementary/error_function.hpp"
#include "numerics/elementary/exponential.hpp"
#include "numerics/elementary/reciprocal_square_root.hpp"
#include "numerics/elementary/trigonometric.hpp"
