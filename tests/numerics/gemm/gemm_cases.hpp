// Operand distributions for the GEMM tests: ordinary data and everything that could break a fast kernel, in
// every operand format. Elements are words, as fused_dot_add takes them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "numerics/formats/bits.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::test {

enum class Data {
  normal,              // N(0, 1)
  raw_bits,            // any code, NaN and infinity included
  wide,                // any finite code: all exponents, subnormals, zeros
  near_max_product,    // significands near 2 and one exponent: the int32 sum of a Hopper block nearly full
  cancelling,          // products in pairs of opposite sign
  mostly_zero,         // 70 % zeros of both signs, in runs, so that whole blocks vanish
  sprinkled_special,   // N(0, 1) with a few NaNs and infinities
  all_special,         // NaN and infinity only
  subnormal,           // subnormals and zeros
  one_infinity_sign,   // +infinity and positive numbers: no NaN must appear
  far_exponents,       // lines of one magnitude each, so that products are around all bounds of the kernels
  near_half_overflow,  // sums around 65504, so that FP16 accumulators overflow here and there
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
                                    Data::one_infinity_sign,
                                    Data::far_exponents,
                                    Data::near_half_overflow};

inline std::string name_of(Data data) {
  static const char* const names[] = {
      "normal",        "raw_bits",          "wide",        "near_max_product", "cancelling",
      "mostly_zero",   "sprinkled_special", "all_special", "subnormal",        "one_infinity_sign",
      "far_exponents", "near_half_overflow"};
  return names[static_cast<std::size_t>(data)];
}

enum class Accumulator {
  none,     // a null pointer
  similar,  // of the size of the products
  extreme,  // zeros of both signs, subnormal, tiny, huge, infinite, NaN with payload
};
inline constexpr Accumulator all_accumulators[] = {Accumulator::none, Accumulator::similar,
                                                   Accumulator::extreme};

/// A dense m x k and k x n problem, row-major, with accumulators.
struct Problem {
  DType a_format, b_format;
  DType c_format;
  std::int64_t m = 0, n = 0, k = 0;
  std::vector<std::uint32_t> a, b;
  std::vector<std::uint32_t> c;  // empty for Accumulator::none
};

class CaseMaker {
 public:
  explicit CaseMaker(std::uint32_t seed) : engine_(seed) {}

  Problem make(DType a, DType b, DType c, Data data, Accumulator accumulator, std::int64_t m, std::int64_t n,
               std::int64_t k) {
    Problem p{a, b, c, m, n, k, words(m * k), words(k * n), {}};
    // Lines (rows of A, columns of B) of far_exponents have one magnitude each.
    std::vector<int> row_exponents(m), column_exponents(n);
    for (int& e : row_exponents) e = far_exponent();
    for (int& e : column_exponents) e = far_exponent();
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t x = 0; x < k; ++x) {
        line_exponent_ = row_exponents[static_cast<std::size_t>(i)];
        p.a[static_cast<std::size_t>(i * k + x)] = word(a, data, x, i, true);
      }
    for (std::int64_t x = 0; x < k; ++x)
      for (std::int64_t j = 0; j < n; ++j) {
        line_exponent_ = column_exponents[static_cast<std::size_t>(j)];
        p.b[static_cast<std::size_t>(x * n + j)] = word(b, data, x, j, false);
      }
    if (data == Data::cancelling) cancel(p);
    if (accumulator == Accumulator::none) return p;
    p.c = words(m * n);
    for (std::uint32_t& word : p.c)
      word = c == DType::f32 ? single(data, accumulator) : half(data, accumulator);
    return p;
  }

  std::uint32_t random() { return static_cast<std::uint32_t>(engine_()); }

 private:
  static std::vector<std::uint32_t> words(std::int64_t count) {
    return std::vector<std::uint32_t>(static_cast<std::size_t>(count));
  }

  std::uint32_t word(DType format, Data data, std::int64_t k, std::int64_t line, bool is_a) {
    return visit_dtype<is_low_precision>(format, [&](auto dtype) -> std::uint32_t {
      using F = typename decltype(dtype)::Format;
      const std::uint32_t bits = code<F>(data, k, line, is_a);
      if constexpr (std::is_same_v<F, TensorFloat32>)  // the low 13 bits must not matter
        return bits << 13 | (random() & 0x1fff);
      else
        return bits;
    });
  }

  /// N(0, 1) times a power of two, narrowed by truncation of the significand: enough for test data, and no
  /// code under test. Too large becomes the largest binade, too small a random subnormal.
  template <class F>
  std::uint32_t gaussian(int power = 0) {
    const std::uint32_t x = bits_of(normal_(engine_));
    const int exponent = static_cast<int>(x >> 23 & 0xff) - 127 + power;
    const std::uint32_t sign = x >> 31 != 0 ? F::sign_mask : 0U;
    const std::uint32_t fraction = x >> (23 - F::fraction_bits) & F::fraction_mask;
    if (exponent < F::emin) return sign | fraction;
    const auto field = static_cast<std::uint32_t>(std::min(exponent, F::emax) + F::bias);
    return std::min<std::uint32_t>(field << F::fraction_bits | fraction, F::max_finite) | sign;
  }

  template <class F>
  std::uint32_t code(Data data, std::int64_t k, std::int64_t line, bool is_a) {
    const std::uint32_t bits = random() & (F::sign_mask | F::magnitude_mask);
    const std::uint32_t sign = bits & F::sign_mask;
    constexpr std::uint32_t signed_fraction = F::sign_mask | F::fraction_mask;
    constexpr std::uint32_t below_two = F::magnitude_mask >> 1;  // magnitudes without the top exponent bit
    switch (data) {
      case Data::normal:
      case Data::cancelling:
        return gaussian<F>();
      case Data::raw_bits:
        return bits;
      case Data::wide:
        return (bits & F::magnitude_mask) > F::max_finite ? bits & (F::sign_mask | (F::fraction_mask >> 1))
                                                          : bits;
      case Data::near_max_product: {
        // The sign of a product depends on the row (or is mixed), so sums reach both ends of int32.
        const std::uint32_t row_sign = is_a && line % 3 != 0 ? F::sign_mask : 0U;
        const std::uint32_t mixed = line % 7 == 6 ? sign : row_sign;
        constexpr std::uint32_t low = F::fraction_bits >= 7 ? 0xf : 0x1;
        const std::uint32_t cleared = random() % 16 == 0 ? 0U : random() & low;
        constexpr std::uint32_t largest =
            static_cast<std::uint32_t>(F::bias) << F::fraction_bits | F::fraction_mask;
        return mixed | (largest - cleared);
      }
      case Data::mostly_zero:
        return random() % 10 < 7 || (k / 16) % 2 == 1 ? sign : bits & (F::sign_mask | below_two);
      case Data::sprinkled_special:
        if (random() % 257 != 0) return gaussian<F>();
        return sign | (F::has_infinity ? F::infinity | (bits & 1U) : F::canonical_nan);
      case Data::all_special:
        return bits | (F::has_infinity ? F::exponent_mask : F::canonical_nan);
      case Data::subnormal:
        return bits & signed_fraction;
      case Data::one_infinity_sign:
        return random() % 31 == 0 && F::has_infinity ? F::infinity : (bits & below_two) | 1U;
      case Data::far_exponents: {
        if (random() % 8 == 0) return sign;
        const int exponent =
            std::clamp(line_exponent_ + static_cast<int>(random() % 4), F::emin - 1, F::emax - 1);
        return (bits & signed_fraction) | static_cast<std::uint32_t>(exponent + F::bias) << F::fraction_bits;
      }
      case Data::near_half_overflow:
        return gaussian<F>(6);
    }
    return 0;
  }

  /// Products around 2^-149 and 2^-126 and below, around the kernels' own bounds 2^-101 and 2^100, and near
  /// overflow, when two of these meet.
  int far_exponent() {
    static constexpr int exponents[] = {-126, -100, -75, -66, -52, -50, -26, 0, 25, 48, 50, 62, 75, 120};
    return exponents[random() % std::size(exponents)];
  }

  /// Makes columns 2i and 2i+1 of A equal and rows 2i and 2i+1 of B opposite, but for some last places.
  void cancel(Problem& p) {
    const std::uint32_t sign = p.b_format == DType::tf32 ? 0x80000000U : is_fp8(p.b_format) ? 0x80U : 0x8000U;
    const std::uint32_t last_place = p.b_format == DType::tf32 ? 0x2000U : 1U;
    for (std::int64_t x = 0; x + 1 < p.k; x += 2) {
      for (std::int64_t i = 0; i < p.m; ++i)
        p.a[static_cast<std::size_t>(i * p.k + x + 1)] = p.a[static_cast<std::size_t>(i * p.k + x)];
      for (std::int64_t j = 0; j < p.n; ++j) {
        const std::uint32_t first = p.b[static_cast<std::size_t>(x * p.n + j)];
        p.b[static_cast<std::size_t>((x + 1) * p.n + j)] =
            first ^ sign ^ (random() % 4 == 0 ? last_place : 0U);
      }
    }
  }

  std::uint32_t half(Data data, Accumulator accumulator) {
    const std::uint32_t bits = random() & 0xffff;
    const std::uint32_t sign = bits & 0x8000;
    if (accumulator == Accumulator::similar)
      return gaussian<Binary16>(data == Data::near_half_overflow ? 14 : data == Data::subnormal ? -20 : 0);
    switch (random() % 8) {
      case 0:
        return sign;
      case 1:
        return bits & 0x83ff;  // subnormal
      case 2:
        return sign | 1U;
      case 3:
        return sign | (0x7bffU - (bits & 3U));
      case 4:
        return sign | 0x7c00U;
      case 5:
        return bits | 0x7c01U;  // NaNs, quiet and signalling
      default:
        return bits;
    }
  }

  std::uint32_t single(Data data, Accumulator accumulator) {
    const std::uint32_t bits = random();
    const std::uint32_t sign = bits & 0x80000000U;
    const std::uint32_t fraction = bits & 0x007fffffU;
    const auto with_exponent = [&](int exponent) {
      return sign | static_cast<std::uint32_t>(exponent + 127) << 23 | fraction;
    };
    const auto scaled_normal = [&](float scale) { return bits_of(normal_(engine_) * scale); };
    if (accumulator == Accumulator::similar) {
      // Exponents at most those of the products, so that sums overflow int32.
      if (data == Data::near_max_product) return with_exponent(0);
      if (data == Data::subnormal) return scaled_normal(0x1p-30F);
      return scaled_normal(bits % 4 == 0 ? 0x1p12F : 1.0F);
    }
    switch (random() % 12) {
      case 0:
        return sign;  // zeros
      case 1:
        return sign | fraction;  // subnormal
      case 2:
        return sign | 1U;  // the smallest
      case 3:
        return with_exponent(-126 + static_cast<int>(random() % 10));
      case 4:
        return with_exponent(-110 + static_cast<int>(random() % 20));  // around the fast kernel's own floor
      case 5:
        return with_exponent(90 + static_cast<int>(random() % 38));  // and its ceiling
      case 6:
        return with_exponent(127);
      case 7:
        return sign | 0x7f7fffffU;  // the largest
      case 8:
        return sign | 0x7f800000U;  // infinities
      case 9:
        return sign | 0x7f800000U | fraction | 1U;  // NaNs, quiet and signalling
      default:
        return scaled_normal(1.0F);
    }
  }

  std::mt19937 engine_;
  std::normal_distribution<float> normal_;
  int line_exponent_ = 0;
};

}  // namespace fp16lab::test
