// The elementary functions over arrays. Compiled twice, the second time with FMA (elementary_fma_twin.cpp);
// hence no standard header here whose inline functions the two objects would share.
#pragma once

#include <cstddef>

#include "numerics/elementary/elementary.hpp"

namespace fp16lab::test {

enum class Elementary { exp, log, log2, log1p, tanh, sigmoid, rsqrt, erf, gelu, gelu_tanh, sin, cos };

/// to[i] = function(from[i]), in a loop that the compiler may vectorise.
inline void apply(Elementary function, const float* from, float* to, std::size_t n) {
  const auto each = [=](auto value) {
    for (std::size_t i = 0; i < n; ++i) to[i] = value(from[i]);
  };
  switch (function) {
    case Elementary::exp:
      return each([](float x) { return exp_f32(x); });
    case Elementary::log:
      return each([](float x) { return log_f32(x); });
    case Elementary::log2:
      return each([](float x) { return log2_f32(x); });
    case Elementary::log1p:
      return each([](float x) { return log1p_f32(x); });
    case Elementary::tanh:
      return each([](float x) { return tanh_f32(x); });
    case Elementary::sigmoid:
      return each([](float x) { return sigmoid_f32(x); });
    case Elementary::rsqrt:
      return each([](float x) { return rsqrt_f32(x); });
    case Elementary::erf:
      return each([](float x) { return erf_f32(x); });
    case Elementary::gelu:
      return each([](float x) { return gelu_f32(x); });
    case Elementary::gelu_tanh:
      return each([](float x) { return gelu_tanh_f32(x); });
    case Elementary::sin:
      return each([](float x) { return sin_f32(x); });
    case Elementary::cos:
      return each([](float x) { return cos_f32(x); });
  }
}

}  // namespace fp16lab::test
