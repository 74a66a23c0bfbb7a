// Operand distributions for the GEMM tests: ordinary data and everything that could break a fast kernel.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "numerics/bits.hpp"
#include "numerics/small_float.hpp"

namespace fp16lab::test {

enum class Data {
  normal,             // N(0, 1)
  raw_bits,           // any FP16 code, NaN and infinity included
  wide,               // any finite code: all exponents, subnormals, zeros
  near_max_product,   // significands near 2 and one exponent: the int32 sum of a Hopper block nearly full
  cancelling,         // products in pairs of opposite sign
  mostly_zero,        // 70 % zeros of both signs, in runs, so that whole blocks vanish
  sprinkled_special,  // N(0, 1) with a few NaNs and infinities
  all_special,        // NaN and infinity only
  subnormal,          // subnormals and zeros
  one_infinity_sign,  // +infinity and positive numbers: no NaN must appear
};

inline constexpr Data all_data[] = {Data::normal,
                                    Data::raw_bits,
                                    Data::wide,
                                    Data::near_max_product,
                                    Data::cancelling,
                                    Data::mostly_zero,
                                    Data::sprinkled_special,
                                    Data::all_special,
                                    Data::subnormal,
                                    Data::one_infinity_sign};

inline std::string name_of(Data data) {
  static const char* const names[] = {
      "normal",      "raw_bits",          "wide",        "near_max_product", "cancelling",
      "mostly_zero", "sprinkled_special", "all_special", "subnormal",        "one_infinity_sign"};
  return names[static_cast<std::size_t>(data)];
}

enum class Accumulator {
  none,     // a null pointer
  similar,  // of the size of the products
  extreme,  // zeros of both signs, subnormal, tiny, huge, infinite, NaN with payload
};

/// A dense m x k and k x n problem, row-major, with accumulators.
struct Problem {
  std::int64_t m = 0, n = 0, k = 0;
  std::vector<Float16> a, b;
  std::vector<float> c;  // empty for Accumulator::none
};

class CaseMaker {
 public:
  explicit CaseMaker(std::uint32_t seed) : engine_(seed) {}

  Problem make(Data data, Accumulator accumulator, std::int64_t m, std::int64_t n, std::int64_t k) {
    Problem p{m,
              n,
              k,
              std::vector<Float16>(static_cast<std::size_t>(m * k)),
              std::vector<Float16>(static_cast<std::size_t>(k * n)),
              {}};
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t x = 0; x < k; ++x) p.a[static_cast<std::size_t>(i * k + x)] = code(data, x, i, true);
    for (std::int64_t x = 0; x < k; ++x)
      for (std::int64_t j = 0; j < n; ++j) p.b[static_cast<std::size_t>(x * n + j)] = code(data, x, j, false);
    if (data == Data::cancelling) cancel(p);
    if (accumulator == Accumulator::none) return p;
    p.c.resize(static_cast<std::size_t>(m * n));
    for (float& c : p.c) c = accumulator == Accumulator::similar ? similar(data) : extreme();
    return p;
  }

  float any_float() {
    const auto pick = engine_() % 8;
    if (pick < 3) return normal_(engine_);
    if (pick == 3) return extreme();
    return float_from_bits(static_cast<std::uint32_t>(engine_()));
  }

  float normal() { return normal_(engine_); }

 private:
  Float16 code(Data data, std::int64_t k, std::int64_t line, bool is_a) {
    const auto bits = static_cast<std::uint16_t>(engine_());
    const auto make = [](unsigned x) { return Float16::from_bits(static_cast<std::uint16_t>(x)); };
    const unsigned sign = bits & 0x8000u;
    // N(0, 1) narrowed by truncation of the significand: enough for test data, and no code under test.
    const auto gaussian = [&] {
      const std::uint32_t x = bits_of(normal_(engine_));
      const auto exponent = static_cast<int>(x >> 23 & 0xff) - 127 + 15;
      return exponent < 1
                 ? make(bits & 0x83ff)
                 : make((x >> 16 & 0x8000u) | static_cast<unsigned>(exponent) << 10 | (x >> 13 & 0x3ff));
    };
    switch (data) {
      case Data::normal:
      case Data::cancelling:
        return gaussian();
      case Data::raw_bits:
        return make(bits);
      case Data::wide:
        return make((bits & 0x7c00) == 0x7c00 ? bits & 0x83ffu : bits);
      case Data::near_max_product: {
        // The sign of a product depends on the row (or is mixed), so sums reach both ends of int32.
        const unsigned row_sign = is_a && line % 3 != 0 ? 0x8000u : 0u;
        const unsigned mixed = line % 7 == 6 ? sign : row_sign;
        return make(mixed | 0x3ff0u | (bits & 0xfu) | (bits % 16 == 0 ? 0x000fu : 0u));
      }
      case Data::mostly_zero:
        return engine_() % 10 < 7 || (k / 16) % 2 == 1 ? make(sign) : make(bits & 0xbfff);
      case Data::sprinkled_special:
        return engine_() % 257 == 0 ? make(sign | 0x7c00u | (bits & 1u)) : gaussian();
      case Data::all_special:
        return make(bits | 0x7c00u);
      case Data::subnormal:
        return make(bits & 0x83ff);
      case Data::one_infinity_sign:
        return make(engine_() % 31 == 0 ? 0x7c00u : (bits & 0x3fffu) | 1u);
    }
    return make(0);
  }

  /// Makes columns 2i and 2i+1 of A equal and rows 2i and 2i+1 of B opposite, but for some last places.
  void cancel(Problem& p) {
    for (std::int64_t x = 0; x + 1 < p.k; x += 2) {
      for (std::int64_t i = 0; i < p.m; ++i)
        p.a[static_cast<std::size_t>(i * p.k + x + 1)] = p.a[static_cast<std::size_t>(i * p.k + x)];
      for (std::int64_t j = 0; j < p.n; ++j) {
        const unsigned first = p.b[static_cast<std::size_t>(x * p.n + j)].bits();
        const unsigned wobble = engine_() % 4 == 0 ? 1u : 0u;
        p.b[static_cast<std::size_t>((x + 1) * p.n + j)] =
            Float16::from_bits(static_cast<std::uint16_t>((first ^ 0x8000u) ^ wobble));
      }
    }
  }

  float similar(Data data) {
    if (data ==
        Data::near_max_product) {  // exponent at most that of the products, so that the sum overflows int32
      const float magnitude = 1.0f + static_cast<float>(engine_() % 1000) / 1001.0f;
      return engine_() % 2 == 0 ? magnitude : -magnitude;
    }
    if (data == Data::subnormal) return normal_(engine_) * 0x1p-30f;
    return normal_(engine_) * (engine_() % 4 == 0 ? 0x1p12f : 1.0f);
  }

  float extreme() {
    const auto random = static_cast<std::uint32_t>(engine_());
    const std::uint32_t sign = random & 0x80000000u;
    const std::uint32_t fraction = random & 0x007fffffu;
    const auto with_exponent = [&](int exponent) {
      return float_from_bits(sign | static_cast<std::uint32_t>(exponent + 127) << 23 | fraction);
    };
    switch (engine_() % 12) {
      case 0:
        return float_from_bits(sign);  // zeros
      case 1:
        return float_from_bits(sign | fraction);  // subnormal
      case 2:
        return float_from_bits(sign | 1u);  // the smallest
      case 3:
        return with_exponent(-126 + static_cast<int>(engine_() % 40));
      case 4:
        return with_exponent(-70 + static_cast<int>(engine_() % 20));  // around the kernel's own floor
      case 5:
        return with_exponent(90 + static_cast<int>(engine_() % 20));  // and its ceiling
      case 6:
        return with_exponent(127);
      case 7:
        return float_from_bits(sign | 0x7f7fffffu);  // the largest
      case 8:
        return float_from_bits(sign | 0x7f800000u);  // infinities
      case 9:
        return float_from_bits(sign | 0x7f800000u | fraction | 1u);  // NaNs, quiet and signalling
      default:
        return normal_(engine_);
    }
  }

  std::mt19937 engine_;
  std::normal_distribution<float> normal_;
};

}  // namespace fp16lab::test
