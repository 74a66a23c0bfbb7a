// What each of the elementary functions must satisfy, as a table.
#pragma once

#include <cstdint>

#include "tests/numerics/elementary/elementary_apply.hpp"

namespace fp16lab::test {

enum class Symmetry { none, odd, even };
enum class Direction { none, rising, falling };  ///< over the whole domain, as the exact function

struct ElementaryProperties {
  const char* name;
  double bound;          ///< bound of the error in ulps, as the function's comment states it
  std::uint64_t digest;  ///< the results' bits, see elementary_test.cpp; g++ 12 and clang++ 14 agree
  Elementary function;
  Symmetry symmetry;
  Direction direction;
  // Results at +0, -0, +inf, -inf. NaN must give 7fffffff.
  std::uint32_t at_zero, at_minus_zero, at_infinity, at_minus_infinity;
  float lowest;  ///< end of the domain: below it, NaN
};

constexpr std::uint32_t one_bits = 0x3f800000;
constexpr std::uint32_t infinity_bits = 0x7f800000;
constexpr std::uint32_t nan_bits = 0x7fffffff;
constexpr std::uint32_t sign_bit = 0x80000000;
constexpr float everywhere = -__builtin_inff();

constexpr ElementaryProperties elementary_properties[] = {
    {"exp_f32", 0.5 + 0x1p-27, 0x0f2fee8f219a2095, Elementary::exp, Symmetry::none, Direction::rising,
     one_bits, one_bits, infinity_bits, 0, everywhere},
    {"log_f32", 0.5 + 0x1p-27, 0x3c048cf05f5a8e25, Elementary::log, Symmetry::none, Direction::rising,
     0xff800000, 0xff800000, infinity_bits, nan_bits, 0},
    {"log2_f32", 0.5 + 0x1p-26, 0xbb084cdc77605113, Elementary::log2, Symmetry::none, Direction::rising, 0xff800000,
     0xff800000, infinity_bits, nan_bits, 0},
    {"log1p_f32", 0.5 + 0x1p-27, 0xb757c82dc3b4dbcb, Elementary::log1p, Symmetry::none, Direction::rising, 0,
     sign_bit, infinity_bits, nan_bits, -1},
    {"tanh_f32", 0.5 + 0x1p-26, 0x9687aac9d6376d26, Elementary::tanh, Symmetry::odd, Direction::rising, 0,
     sign_bit, one_bits, sign_bit | one_bits, everywhere},
    {"sigmoid_f32", 0.5 + 0x1p-26, 0x1f8ecf6d69cc8f58, Elementary::sigmoid, Symmetry::none, Direction::rising,
     0x3f000000, 0x3f000000, one_bits, 0, everywhere},
    {"rsqrt_f32", 0.5 + 0x1p-27, 0x152176665f6a532c, Elementary::rsqrt, Symmetry::none, Direction::falling,
     infinity_bits, sign_bit | infinity_bits, 0, nan_bits, 0},
    {"erf_f32", 0.5 + 0x1p-23, 0x30ed5c8b579e2399, Elementary::erf, Symmetry::odd, Direction::rising, 0,
     sign_bit, one_bits, sign_bit | one_bits, everywhere},
    {"gelu_f32", 0.5 + 0x1p-21, 0x54870cf0e3daf215, Elementary::gelu, Symmetry::none, Direction::none, 0,
     sign_bit, infinity_bits, sign_bit, everywhere},
    {"gelu_tanh_f32", 0.5 + 0x1p-19, 0x513481168259adc7, Elementary::gelu_tanh, Symmetry::none,
     Direction::none, 0, sign_bit, infinity_bits, sign_bit, everywhere},
    {"sin_f32", 0.5 + 0x1p-26, 0x3e9078f22aa973fd, Elementary::sin, Symmetry::odd, Direction::none, 0,
     sign_bit, nan_bits, nan_bits, everywhere},
    {"cos_f32", 0.5 + 0x1p-26, 0x3320e21fd52f2606, Elementary::cos, Symmetry::even, Direction::none, one_bits,
     one_bits, nan_bits, nan_bits, everywhere},
};

}  // namespace fp16lab::test
