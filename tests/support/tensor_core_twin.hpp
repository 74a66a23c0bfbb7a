// The slow twin of fused_dot_add: a fused block written from its definition in one big fixed-point integer.
//
// Every operand, product and sum is an integer count of 2^-400, below all of them (the least TF32 product is
// 2^-272, the finest alignment unit 2^-187), and exponents are read off the integer's leading bit instead of
// the encoding. Nothing here comes from numerics/ but the parameters of a row.
#pragma once

#include <algorithm>
#include <boost/multiprecision/cpp_int.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::oracle {

/// Operands take 528 bits, the product of two of them 1056 before it is scaled back.
using Fixed = boost::multiprecision::number<boost::multiprecision::cpp_int_backend<
    1152, 1152, boost::multiprecision::signed_magnitude, boost::multiprecision::unchecked, void>>;
inline constexpr int fixed_point = 400;

struct Encoding {
  int exponent_bits;
  int fraction_bits;
  bool ofp8_e4m3 = false;  ///< no infinities; only the last code is a NaN
  bool finite = false;     ///< neither infinities nor NaN: MX's formats of 6 and 4 bits

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int width() const { return 1 + exponent_bits + fraction_bits; }
};

inline constexpr Encoding fp32_encoding{8, 23};
inline constexpr Encoding fp16_encoding{5, 10};

inline Encoding encoding_of(DType format) {
  switch (format) {
    case DType::f16:
      return fp16_encoding;
    case DType::bf16:
      return {8, 7};
    case DType::tf32:
      return {8, 10};
    case DType::e4m3:
      return {4, 3, true};
    case DType::e5m2:
      return {5, 2};
    case DType::e3m2:
      return {3, 2, false, true};
    case DType::e2m3:
      return {2, 3, false, true};
    case DType::e2m1:
      return {2, 1, false, true};
    default: {  // a test's own row, "e3m4"
      const std::string_view name = name_of(format);
      if (name.size() == 4 && name[0] == 'e' && name[2] == 'm') return {name[1] - '0', name[3] - '0'};
    }
  }
  throw std::logic_error("encoding_of");
}

struct Number {
  bool nan = false;
  bool infinite = false;
  bool negative = false;
  Fixed magnitude = 0;  ///< in units of 2^-fixed_point

  bool zero() const { return !nan && !infinite && magnitude == 0; }
  Fixed value() const { return negative ? Fixed(-magnitude) : magnitude; }
};

inline Number number_of(std::uint32_t word, const Encoding& encoding) {
  const std::uint32_t fraction = word % (1U << encoding.fraction_bits);
  const std::uint32_t field = (word >> encoding.fraction_bits) % (1U << encoding.exponent_bits);
  const bool last_field = field == (1U << encoding.exponent_bits) - 1;
  Number x;
  x.negative = (word >> (encoding.width() - 1)) % 2 == 1;
  if (last_field && encoding.ofp8_e4m3) {
    x.nan = fraction == 7;
  } else if (last_field && !encoding.finite) {
    x.nan = fraction != 0;
    x.infinite = fraction == 0;
  }
  if (x.nan || x.infinite) return x;
  const std::uint32_t significand = field == 0 ? fraction : fraction + (1U << encoding.fraction_bits);
  const int weight = std::max<int>(static_cast<int>(field), 1) - encoding.bias() - encoding.fraction_bits;
  x.magnitude = Fixed(significand) << (weight + fixed_point);
  return x;
}

/// A block scale: E8M0 is a power of two from 2^-127 on; UE4M3 is E4M3 without its sign.
struct Scale {
  bool nan = false;
  Fixed magnitude = 0;
  int exponent = 0;
};

inline Scale scale_of(DType format, std::uint32_t code) {
  if (format == DType::e8m0) {
    const int exponent = static_cast<int>(code % 256) - 127;
    return {code % 256 == 255, Fixed(1) << (exponent + fixed_point), exponent};
  }
  if (format != DType::ue4m3) throw std::logic_error("scale_of");
  const int field = static_cast<int>(code % 128 / 8), fraction = static_cast<int>(code % 8);
  const int exponent = std::max(field, 1) - 7;
  return {field == 15 && fraction == 7,
          Fixed(field == 0 ? fraction : fraction + 8) << (exponent - 3 + fixed_point), exponent};
}

/// floor(log2(|x|)), but at least `least`; x != 0.
inline int exponent_of(const Fixed& magnitude, int least = -fixed_point) {
  return std::max(least, static_cast<int>(msb(magnitude)) - fixed_point);
}

/// The largest multiple of 2^unit that is not above the magnitude.
inline Fixed cut(const Fixed& magnitude, int unit) {
  const int bits = unit + fixed_point;
  return (magnitude >> bits) << bits;
}

/// The code of a magnitude that is a number of the format, or of infinity if it is beyond.
inline std::uint32_t code_of(const Fixed& magnitude, const Encoding& encoding) {
  if (magnitude == 0) return 0;
  const int emin = 1 - encoding.bias();
  const int exponent = exponent_of(magnitude, emin);
  if (exponent > encoding.bias()) return ((1U << encoding.exponent_bits) - 1) << encoding.fraction_bits;
  const auto ulps =
      static_cast<std::uint32_t>(Fixed(magnitude >> (exponent - encoding.fraction_bits + fixed_point)));
  // A subnormal has fewer ulps than 2^fraction_bits and exponent emin, which its code calls 0.
  return (static_cast<std::uint32_t>(exponent - emin) << encoding.fraction_bits) + ulps;
}

inline std::uint32_t nearest_even(const Fixed& magnitude, const Encoding& encoding) {
  if (magnitude == 0) return 0;
  const int ulp = exponent_of(magnitude, 1 - encoding.bias()) - encoding.fraction_bits;
  const Fixed below = cut(magnitude, ulp);
  const Fixed one_ulp = Fixed(1) << (ulp + fixed_point);
  const Fixed twice_the_rest = (magnitude - below) * 2;
  const bool odd = ((below >> (ulp + fixed_point)) & 1) != 0;
  const bool up = twice_the_rest > one_ulp || (twice_the_rest == one_ulp && odd);
  return code_of(up ? Fixed(below + one_ulp) : below, encoding);
}

class Twin {
 public:
  explicit Twin(const TensorCoreModel& row) : row_(row) {}

  std::uint32_t dot(DType a_format, const std::vector<std::uint32_t>& a, DType b_format,
                    const std::vector<std::uint32_t>& b, std::uint32_t c,
                    const DotScales& scales = {}) const {
    const auto step = static_cast<std::size_t>(row_.products());
    for (std::size_t first = 0; first < a.size(); first += step) {
      std::vector<Factors> pairs;
      for (std::size_t k = first; k < std::min(a.size(), first + step); ++k)
        pairs.push_back({operand(a_format, a[k]), operand(b_format, b[k]), scale(scales, scales.a, k),
                         scale(scales, scales.b, k)});
      c = instruction(pairs, c);
    }
    return c;
  }

 private:
  struct Operand {
    Number number;
    int exponent;
  };
  struct Factors {
    Operand a{}, b{};  ///< +0
    Scale a_scale{false, Fixed(1) << fixed_point, 0}, b_scale = a_scale;
  };
  /// What is aligned by `exponent`; what does not count has no exponent.
  struct Term {
    Fixed value;
    int exponent;
    bool counts;
  };

  static Scale scale(const DotScales& scales, std::span<const std::uint32_t> codes, std::size_t k) {
    if (scales.kind.block == 0) return Factors{}.a_scale;
    return scale_of(scales.kind.format, codes[k / static_cast<std::size_t>(scales.kind.block)]);
  }

  /// Neighbouring products: their sum times both scales, which they share.
  static Fixed scaled_sum(const std::vector<Factors>& pairs, std::size_t first, std::size_t count) {
    Fixed sum = 0;
    for (std::size_t k = first; k < first + count; ++k) {
      const Number &x = pairs[k].a.number, &y = pairs[k].b.number;
      const Fixed product = (x.magnitude * y.magnitude) >> fixed_point;
      sum += x.negative == y.negative ? product : Fixed(-product);
    }
    const bool negative = sum < 0;
    Fixed magnitude = abs(sum);
    magnitude = (magnitude * pairs[first].a_scale.magnitude) >> fixed_point;
    magnitude = (magnitude * pairs[first].b_scale.magnitude) >> fixed_point;
    return negative ? Fixed(-magnitude) : magnitude;
  }

  std::vector<Term> terms_of(const Stage& stage, const std::vector<Factors>& pairs) const {
    std::vector<Term> terms;
    const auto group = static_cast<std::size_t>(stage.exact_group);
    for (std::size_t first = 0; first < pairs.size(); first += group) {
      const Factors& one = pairs[first];
      bool counts = false;
      for (std::size_t k = first; k < first + group; ++k)
        counts = counts || (!pairs[k].a.number.zero() && !pairs[k].b.number.zero());
      counts = counts && one.a_scale.magnitude != 0 && one.b_scale.magnitude != 0;
      const int of_scales = one.a_scale.exponent + one.b_scale.exponent;
      const int of_products = group > 1 ? 0 : one.a.exponent + one.b.exponent;
      terms.push_back({scaled_sum(pairs, first, group), of_scales + of_products, counts});
    }
    return terms;
  }

  bool wide() const { return row_.accumulator() == DType::f32; }
  std::uint32_t canonical_nan() const { return wide() ? 0x7fffffffU : 0x7fffU; }
  std::uint32_t infinity(bool negative) const {
    if (wide()) return negative ? 0xff800000U : 0x7f800000U;
    return negative ? 0xfc00U : 0x7c00U;
  }
  const Encoding& accumulator() const { return wide() ? fp32_encoding : fp16_encoding; }

  Operand operand(DType format, std::uint32_t word) const {
    if (format == DType::tf32) word /= 1U << 13;
    const Encoding encoding = encoding_of(format);
    const Number number = number_of(word, encoding);
    // FP8 operands that become FP16 have FP16's exponent range.
    const int emin = 1 - (row_.as_fp16 && encoding.width() <= 8 ? fp16_encoding : encoding).bias();
    return {number, number.magnitude == 0 ? 0 : exponent_of(number.magnitude, emin)};
  }

  std::uint32_t block(const Stage& stage, const std::vector<Factors>& pairs, std::uint32_t c_word) const {
    const Number c = number_of(c_word, accumulator());
    bool nan = c.nan;
    bool positive = c.infinite && !c.negative;
    bool negative = c.infinite && c.negative;
    for (const Factors& pair : pairs) {
      const Number& x = pair.a.number;
      const Number& y = pair.b.number;
      nan = nan || pair.a_scale.nan || pair.b_scale.nan || x.nan || y.nan || (x.infinite && y.zero()) ||
            (x.zero() && y.infinite);
      if (x.infinite || y.infinite) (x.negative == y.negative ? positive : negative) = true;
    }
    if (nan || (positive && negative)) return canonical_nan();
    if (positive || negative) return infinity(negative);

    std::vector<Term> terms = terms_of(stage, pairs);
    if (!c.zero()) {
      const SubnormalAccumulator rule = row_.subnormal_accumulator;
      const int least = wide() ? (rule == SubnormalAccumulator::fp16_emin ? -14 : -126)
                               : (rule == SubnormalAccumulator::own_exponent ? -fixed_point : -14);
      terms.push_back({c.value(), exponent_of(c.magnitude, least), true});
    }
    int emax = stage.exponent_floor;
    for (const Term& term : terms)
      if (term.counts) emax = std::max(emax, term.exponent);
    Fixed sum = 0;
    for (const Term& term : terms) {
      const Fixed aligned = cut(abs(term.value), emax - stage.fraction_bits);
      sum += term.value < 0 ? Fixed(-aligned) : aligned;
    }
    return encoded(stage, sum);
  }

  std::uint32_t encoded(const Stage& stage, const Fixed& sum) const {
    if (sum == 0) return 0;
    const Fixed magnitude = abs(sum);
    std::uint32_t code = 0;
    if (!wide()) {
      code = nearest_even(magnitude, fp16_encoding);
    } else {
      const int significant = stage.output == BlockOutput::fp32_toward_zero_14_bits ? 14 : 24;
      code = code_of(cut(magnitude, exponent_of(magnitude, -126) - (significant - 1)), fp32_encoding);
    }
    if (code == 0 && row_.underflow_zero == UnderflowZero::positive) return 0;
    return code + (sum < 0 ? 1U << (accumulator().width() - 1) : 0U);
  }

  std::uint32_t instruction(const std::vector<Factors>& pairs, std::uint32_t c) const {
    std::uint32_t before = 0;
    for (const Stage& stage : row_.stages) {
      std::vector<Factors> mine;
      for (std::size_t k = 0; k < pairs.size(); ++k)
        if (static_cast<int>(k) / stage.share.run % stage.share.groups == stage.share.group)
          mine.push_back(pairs[k]);
      const std::uint32_t entry = stage.entry == Entry::accumulator ? c
                                  : stage.entry == Entry::zero      ? 0
                                                                    : before;
      if (stage.sum == Sum::addition) {
        before = nearest_sum(before, c);
      } else if (stage.sum == Sum::aligned) {
        before = block(stage, mine, entry);
      } else {
        before = entry;
        mine.resize(static_cast<std::size_t>(stage.products));
        for (const Factors& factors : mine) before = fma(stage, factors, before);
      }
    }
    return before;
  }

  /// a * b + c to nearest even. Flushing: subnormal operands and c count as zeros of their signs; so does a
  /// result that is below 2^-126 after rounding to 24 bits, however small its exponent.
  std::uint32_t fma(const Stage& stage, const Factors& factors, std::uint32_t c_word) const {
    const bool flushes = stage.output == BlockOutput::fp32_nearest_even_flushed;
    const Fixed least = Fixed(1) << (fixed_point - 126);
    const auto read = [&](Number number) {
      if (flushes && !number.nan && !number.infinite && number.magnitude < least) number.magnitude = 0;
      return number;
    };
    const Number a = read(factors.a.number), b = read(factors.b.number),
                 c = read(number_of(c_word, accumulator()));
    const bool infinite = a.infinite || b.infinite;
    const bool product_negative = a.negative != b.negative;
    if (a.nan || b.nan || c.nan || (infinite && (a.zero() || b.zero())) ||
        (infinite && c.infinite && product_negative != c.negative))
      return canonical_nan();
    if (infinite) return infinity(product_negative);
    if (c.infinite) return infinity(c.negative);
    const Fixed product = (a.magnitude * b.magnitude) >> fixed_point;
    const Fixed sum = (product_negative ? Fixed(-product) : product) + c.value();
    const bool negative = sum == 0 ? product_negative && c.negative && product == 0 : sum < 0;
    const std::uint32_t sign = negative ? 0x80000000U : 0U;
    const Fixed magnitude = abs(sum);
    if (flushes && magnitude < least - (Fixed(1) << (fixed_point - 151))) return sign;
    return sign + nearest_even(magnitude, accumulator());
  }

  /// IEEE addition, to nearest even: -0 only from two -0.
  std::uint32_t nearest_sum(std::uint32_t left, std::uint32_t right) const {
    const Number x = number_of(left, accumulator());
    const Number y = number_of(right, accumulator());
    if (x.nan || y.nan || (x.infinite && y.infinite && x.negative != y.negative)) return canonical_nan();
    if (x.infinite) return left;
    if (y.infinite) return right;
    const Fixed sum = x.value() + y.value();
    const bool negative = sum == 0 ? x.negative && y.negative : sum < 0;
    return nearest_even(abs(sum), accumulator()) + (negative ? 1U << (accumulator().width() - 1) : 0U);
  }

  const TensorCoreModel& row_;
};

}  // namespace fp16lab::oracle
