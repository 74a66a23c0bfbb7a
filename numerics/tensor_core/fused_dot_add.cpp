// The definition of a tensor core's dot product, in integers, one output at a time.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "numerics/convert/convert.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/platform/floating_point_scope.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab {
namespace {

/// Significands are fixed-point numbers with this many fraction bits, enough for FP32; products have twice as
/// many. They are below 2 and 4, and aligning one is a single shift to the right.
constexpr int point = 30;
constexpr int product_point = 2 * point;

/// Products that are added exactly, of formats of 6 and 4 bits, are integers of this unit below 2^10, as
/// 28 * 28 is; significands of scales have 3 fraction bits. So 64 products and 40 fraction bits stay below
/// 2^58.
constexpr int exact_point = 8, scale_point = 3, most_exact_fraction_bits = 40;
constexpr bool adds_exactly(DType format) {
  return format == DType::e2m1 || format == DType::e2m3 || format == DType::e3m2;
}

/// A decoded operand or accumulator. If finite its value is (-1)^sign * significand * 2^(exponent - point),
/// `exponent` being the one with which it enters the alignment, wherever the leading one may be.
struct Decoded {
  Exact::Kind kind = Exact::Kind::zero;
  bool sign = false;
  int exponent = 0;
  std::uint64_t significand = 0;
};

template <class F>
Decoded decoded(SmallFloat<F> x) {
  const Exact exact = decode(x);
  return {exact.kind, exact.sign, exact.exponent + F::fraction_bits,
          exact.significand << (point - F::fraction_bits)};
}

template <class F>
SmallFloat<F> as(std::uint32_t word) {
  return SmallFloat<F>::from_bits(static_cast<typename F::Bits>(word));
}

void decode_all(std::span<const Float16> words, Decoded* to) {
  for (const Float16 word : words) *to++ = decoded(word);
}

/// Words in `format`, as the units of the row see them.
void decode_all(const TensorCoreModel& row, DType format, std::span<const std::uint32_t> words, Decoded* to) {
  visit_dtype<is_operand>(format, [&](auto dtype) {
    using F = typename decltype(dtype)::Format;
    static_assert(F::width > 8 || F::exponent_bits <= Binary16::exponent_bits,
                  "numbers of a byte are FP16 numbers");
    for (const std::uint32_t word : words) {
      const SmallFloat<F> x = as<F>(word >> ignored_bits<F>);
      *to++ = F::width <= 8 && row.as_fp16 ? decoded(convert<Binary16>(x)) : decoded(x);
    }
  });
}

Decoded decoded_scale(DType format, std::uint32_t code) {
  return format == DType::e8m0 ? decoded(as<ScaleE8M0>(code)) : decoded(as<ScaleUE4M3>(code));
}

Decoded decode_accumulator(const TensorCoreModel& row, std::uint32_t word) {
  if (row.accumulator() == DType::f32) return decoded(as<Binary32>(word));
  Decoded c = decoded(as<Binary16>(word));
  if (row.subnormal_accumulator == SubnormalAccumulator::own_exponent && c.kind == Exact::Kind::finite) {
    const int leading_zeros = point + 1 - bit_width(c.significand);
    c.exponent -= leading_zeros;
    c.significand <<= leading_zeros;
  }
  return c;
}

/// The terms of one fused block, with its special values gathered apart.
class Block {
 public:
  void add_product(const Decoded& a, const Decoded& b) {
    using enum Exact::Kind;
    const bool sign = a.sign != b.sign;
    if (a.kind == finite && b.kind == finite) {
      add({sign, a.exponent + b.exponent, a.significand * b.significand});
    } else if (a.kind == nan || b.kind == nan) {
      nan_ = true;
    } else if (a.kind == infinite || b.kind == infinite) {
      if (a.kind == zero || b.kind == zero)
        nan_ = true;
      else
        add_infinity(sign);
    }
  }

  /// The products of these, which are exact integers of 2^-exact_point (check), as one term.
  void add_group(std::span<const Decoded> a, std::span<const Decoded> b, const Decoded& a_scale,
                 const Decoded& b_scale) {
    using enum Exact::Kind;
    if (a_scale.kind == nan || b_scale.kind == nan) nan_ = true;
    bool all_zero = true;
    std::int64_t sum = 0;
    for (std::size_t k = 0; k < a.size(); ++k) {
      if (a[k].kind != finite || b[k].kind != finite) continue;
      all_zero = false;
      const int shift = product_point - exact_point - (a[k].exponent + b[k].exponent);
      const auto product = static_cast<std::int64_t>((a[k].significand * b[k].significand) >> shift);
      sum += a[k].sign != b[k].sign ? -product : product;
    }
    if (all_zero || a_scale.kind != finite || b_scale.kind != finite) return;
    constexpr int below = point - scale_point;
    const std::uint64_t scale = (a_scale.significand >> below) * (b_scale.significand >> below);
    add({sum < 0, a_scale.exponent + b_scale.exponent,
         static_cast<std::uint64_t>(sum < 0 ? -sum : sum) * scale, exact_point + 2 * scale_point});
  }

  /// With no smaller exponent than `least`.
  void add_accumulator(const Decoded& c, int least) {
    if (c.kind == Exact::Kind::nan) nan_ = true;
    if (c.kind == Exact::Kind::infinite) add_infinity(c.sign);
    if (c.kind != Exact::Kind::finite) return;
    // The bits that this cuts are below every unit: that of 48 fraction bits is 2^(least - 48).
    const int cut = std::clamp(least - c.exponent, 0, 63);
    add({c.sign, std::max(c.exponent, least), c.significand << (product_point - point) >> cut});
  }

  std::uint32_t result(const TensorCoreModel& row, const Stage& stage) const {
    Exact sum;
    if (nan_ || (positive_infinity_ && negative_infinity_)) {
      sum.kind = Exact::Kind::nan;
    } else if (positive_infinity_ || negative_infinity_) {
      sum.kind = Exact::Kind::infinite;
      sum.sign = negative_infinity_;
    } else {
      sum = finite_sum(stage);
    }
    const bool finite = sum.kind == Exact::Kind::finite;
    std::uint32_t word = rounded(sum, stage.output);
    const std::uint32_t sign =
        format_of(stage.output) == DType::f16 ? Binary16::sign_mask : Binary32::sign_mask;
    if (finite && word == sign && row.underflow_zero == UnderflowZero::positive) word = 0;
    return word;
  }

 private:
  /// (-1)^sign * significand * 2^(exponent - its point), aligned by `exponent`.
  struct Term {
    bool sign;
    int exponent;
    std::uint64_t significand;
    int of_point = product_point;
  };

  void add(const Term& term) { terms_[count_++] = term; }
  void add_infinity(bool sign) { (sign ? negative_infinity_ : positive_infinity_) = true; }
  std::span<const Term> terms() const { return {terms_.data(), count_}; }

  /// The sum of the terms as multiples of one unit, 2^(max_exponent - fraction_bits), the bits below it
  /// dropped from each magnitude; +0 if they cancel.
  Exact finite_sum(const Stage& stage) const {
    int max_exponent = stage.exponent_floor;
    for (const Term& term : terms()) max_exponent = std::max(max_exponent, term.exponent);
    std::int64_t sum = 0;
    for (const Term& term : terms()) {
      const int shift = term.of_point - stage.fraction_bits + (max_exponent - term.exponent);
      const auto magnitude = static_cast<std::int64_t>(shift < 0 ? term.significand << -shift
                                                                 : term.significand >> std::min(shift, 63));
      sum += term.sign ? -magnitude : magnitude;
    }
    Exact exact;
    if (sum == 0) return exact;
    exact.kind = Exact::Kind::finite;
    exact.sign = sum < 0;
    exact.significand = static_cast<std::uint64_t>(sum < 0 ? -sum : sum);
    exact.exponent = max_exponent - stage.fraction_bits;
    return exact;
  }

  static std::uint32_t rounded(Exact sum, BlockOutput output) {
    // Unlike IEEE truncation the hardware does not saturate: from 2^128 on the result is infinite.
    const int leading = sum.exponent + bit_width(sum.significand) - 1;
    const bool finite = sum.kind == Exact::Kind::finite;
    if (format_of(output) == DType::f32 && finite && leading > Binary32::emax)
      sum.kind = Exact::Kind::infinite;
    switch (output) {
      case BlockOutput::fp32_toward_zero:
        return round_pack<Binary32>(sum, Rounding::toward_zero).bits();
      case BlockOutput::fp32_toward_zero_14_bits:
        if (sum.kind == Exact::Kind::nan) return Binary32::canonical_nan;
        return round_pack<ShortFloat32>(sum, Rounding::toward_zero).bits()
               << (Binary32::precision - ShortFloat32::precision);
      case BlockOutput::fp16_nearest_even:
        return round_pack<Binary16>(sum, Rounding::nearest_even).bits();
      case BlockOutput::fp32_nearest_even:
        return round_pack<Binary32>(sum, Rounding::nearest_even).bits();
      case BlockOutput::fp32_nearest_even_flushed:
      case BlockOutput::fp64_nearest_even:
        break;  // for an fma alone
    }
    throw std::logic_error("no rounding of an aligned sum");
  }

  using ShortFloat32 = Format<8, 14>;  // E8M13, the upper part of an FP32 word

  std::array<Term, max_block_size + 1> terms_;  // the first count_ are set
  std::size_t count_ = 0;
  bool nan_ = false;
  bool positive_infinity_ = false;
  bool negative_infinity_ = false;
};

[[noreturn]] void refuse(const TensorCoreModel& model, const std::string& what) {
  throw std::invalid_argument(fmt::format("tensor-core model '{}' {}", model.name, what));
}

void check(const TensorCoreModel& model, const Stage& stage, std::size_t index) {
  const int fewest = stage.sum == Sum::addition ? 0 : 1;
  const int most = stage.sum == Sum::addition ? 0 : max_block_size;
  if (stage.products < fewest || stage.products > most)
    refuse(model,
           fmt::format("has a block of {} products; {} to {} are possible", stage.products, fewest, most));
  if (stage.share.run < 1 || stage.share.groups < 1 || stage.share.group < 0 ||
      stage.share.group >= stage.share.groups)
    refuse(model, fmt::format("takes group {} of {} groups of {} products; group 0 to groups - 1 of 1 and "
                              "more are possible",
                              stage.share.group, stage.share.groups, stage.share.run));
  if (stage.sum == Sum::aligned && (stage.fraction_bits < 1 || stage.fraction_bits > 48))
    refuse(model,
           fmt::format("keeps {} fraction bits; 1 to 48 are possible",  // 4 * 65 terms of 2^48: 64 bits
                       stage.fraction_bits));
  if (stage.sum == Sum::aligned && (stage.exponent_floor < -1000 || stage.exponent_floor > 1000))
    refuse(model,
           fmt::format("has exponent floor {}; -1000 to 1000 are possible",  // far beyond all exponents
                       stage.exponent_floor));
  const bool nearest = stage.output == BlockOutput::fp32_nearest_even ||
                       (stage.sum == Sum::addition && stage.output == BlockOutput::fp16_nearest_even);
  const bool of_fma = stage.output == BlockOutput::fp32_nearest_even_flushed ||
                      stage.output == BlockOutput::fp64_nearest_even;
  const bool possible = stage.sum == Sum::aligned ? !of_fma : nearest || (of_fma && stage.sum == Sum::fma);
  if (!possible)
    refuse(model, fmt::format("rounds a stage of kind {} by {}, which it cannot", name_of(stage.sum),
                              name_of(stage.output)));
  if (index == 0 && (stage.entry == Entry::previous || stage.sum == Sum::addition))
    refuse(model, "begins with a stage that takes what the one before made");
  if (index > 0 && stage.sum != Sum::addition && stage.entry != Entry::previous)
    refuse(model, fmt::format(
                      "has a stage {} that {} enters: what the stages before it made would be lost; previous "
                      "is possible",
                      index + 1, name_of(stage.entry)));
}

/// Block scales, and groups that they need.
void check_scaled(const TensorCoreModel& model) {
  for (const Stage& stage : model.stages) {
    const int exact = stage.exact_group;
    if (exact != 1 && (exact < 1 || !model.is_scaled() || stage.sum != Sum::aligned ||
                       stage.products % exact != 0 || stage.share.groups != 1))
      refuse(model, fmt::format("adds {} of {} products exactly: 1, or with block scales in one aligned sum "
                                "a divisor, is possible",
                                exact, stage.products));
    if (exact > 1 && stage.fraction_bits > most_exact_fraction_bits)
      refuse(model, fmt::format("keeps {} fraction bits of exact groups; 1 to {} are possible",
                                stage.fraction_bits, most_exact_fraction_bits));
    for (const DType format : dtypes<is_operand>)
      if (exact > 1 && model.operands.contains(format) && !adds_exactly(format))
        refuse(model,
               fmt::format("adds products of {} exactly; e2m1, e2m3 and e3m2 are possible", name_of(format)));
    for (const ScaleKind& kind : model.scales)
      if (kind.block % exact != 0 || (exact == 1 && kind.block > 0 && kind.format != DType::e8m0) ||
          (kind.format != DType::e8m0 && kind.format != DType::ue4m3))
        refuse(model, fmt::format("has scales of {} for {} elements; e8m0, or for groups of {} products "
                                  "ue4m3 too, for a multiple of a group are possible",
                                  name_of(kind.format), kind.block, exact));
    if (model.is_scaled() && stage.sum != Sum::aligned)
      refuse(model,
             fmt::format("has block scales in a stage of kind {}; aligned is possible", name_of(stage.sum)));
  }
  if (model.accumulator() == DType::f64)
    for (const DType format : dtypes<is_operand>)
      if (model.operands.contains(format))
        refuse(model, fmt::format("accumulates {} operands in f64; f64 is possible", name_of(format)));
}

void check(const TensorCoreModel& model, DType a_format, std::size_t a_size, DType b_format,
           std::size_t b_size) {
  if (a_size != b_size)
    throw std::invalid_argument(
        fmt::format("a has {} elements and b has {}; they must agree", a_size, b_size));
  std::size_t index = 0;
  for (const Stage& stage : model.stages) {
    check(model, stage, index++);
    if (format_of(stage.output) != model.accumulator())
      refuse(model, fmt::format("has stages that end in {} and in {}", name_of(format_of(stage.output)),
                                name_of(model.accumulator())));
  }
  check_scaled(model);
  if (model.products() > max_block_size)
    refuse(model, fmt::format("has {} products in an instruction; {} are possible", model.products(),
                              max_block_size));
  for (int k = 0; k < model.products(); ++k)
    if (std::ranges::count_if(model.stages, [&](const Stage& stage) {
          return stage.products > 0 && stage.share.contains(k);
        }) != 1)
      refuse(model, fmt::format("has stages of which not just one takes product {} of an instruction", k));
  for (const Stage& stage : model.stages) {
    int count = 0;
    for (int k = 0; k < model.products(); ++k) count += stage.products > 0 && stage.share.contains(k) ? 1 : 0;
    if (count != stage.products)
      refuse(model, fmt::format("has a stage of {} products whose share of an instruction is {}",
                                stage.products, count));
  }
  for (const DType format : {a_format, b_format})
    if (!model.operands.contains(format))
      throw std::invalid_argument(
          fmt::format("this row of tensor-core model '{}' has no {} operands", model.name, name_of(format)));
}

/// The value of a number that FP32 holds.
float float_of(const Decoded& x) {
  Exact exact;
  exact.kind = x.kind;
  exact.sign = x.sign;
  exact.exponent = x.exponent - point;
  exact.significand = x.significand;
  return float_from_bits(round_pack<Binary32>(exact, Rounding::nearest_even).bits());
}

float flushed(float x) { return std::fabs(x) < 0x1p-126F ? std::copysign(0.0F, x) : x; }

/// fma as x86 has it with DAZ and FTZ: subnormal inputs are zeros, and so are results that are tiny after
/// rounding (Intel SDM, volume 1, 4.9.1.5), which are rounded as if exponents had no end.
float flushing_fma(float a, float b, float c) {
  a = flushed(a);
  b = flushed(b);
  c = flushed(c);
  const float sum = std::fma(a, b, c);
  if (std::fabs(sum) != 0x1p-126F) return flushed(sum);
  // Rounded up to the least normal number, or that number? Both a * b and c are small here, since bits of
  // theirs that far down are left: scaled, nothing is subnormal and nothing overflows.
  constexpr float scale = 0x1p64F;
  const float scaled =
      std::fabs(a) < std::fabs(b) ? std::fma(a * scale, b, c * scale) : std::fma(a, b * scale, c * scale);
  return std::fabs(scaled) < 0x1p-62F ? std::copysign(0.0F, sum) : sum;
}

/// One ordinary addition. Through FP32 an FP16 sum rounds as if once: 24 >= 2 * 11 + 2 (Figueroa 1995).
std::uint32_t addition(DType format, std::uint32_t x, std::uint32_t y) {
  if (format == DType::f16) {
    const float total = widen(Float16::from_bits(static_cast<std::uint16_t>(x))) +
                        widen(Float16::from_bits(static_cast<std::uint16_t>(y)));
    return narrow<Binary16>(total).bits();
  }
  return bits_of(canonicalize(float_from_bits(x) + float_from_bits(y)));
}

/// What an instruction multiplies: as many of these as it has, fewer at the end of K.
struct Operand {
  std::array<Decoded, max_block_size> numbers;
  std::array<Decoded, max_block_size> scales;  ///< that of each number, where a stage has exact groups

  /// A scale's exponent joins the number's. It is a power of two, or NaN.
  void scale_number(std::size_t k) {
    if (scales[k].kind == Exact::Kind::nan) numbers[k].kind = Exact::Kind::nan;
    numbers[k].exponent += scales[k].exponent;
  }
};

/// One instruction of `count` products.
std::uint32_t instruction(const TensorCoreModel& model, const Operand& a, const Operand& b, std::size_t count,
                          std::uint32_t c) {
  std::uint32_t result = 0;
  const int length = model.products();
  const int least = model.subnormal_accumulator == SubnormalAccumulator::fp16_emin ? Binary16::emin : -1000;
  for (const Stage& stage : model.stages) {
    const std::uint32_t entry = stage.entry == Entry::accumulator ? c
                                : stage.entry == Entry::zero      ? 0
                                                                  : result;
    if (stage.sum == Sum::addition) {
      result = addition(model.accumulator(), result, c);
    } else if (stage.sum == Sum::fma) {
      float sum = float_from_bits(entry);
      for (int k = 0; k < length; ++k) {
        if (!stage.share.contains(k)) continue;
        const auto i = static_cast<std::size_t>(k);
        const float x = i < count ? float_of(a.numbers[i]) : 0.0F;
        const float y = i < count ? float_of(b.numbers[i]) : 0.0F;
        sum = stage.output == BlockOutput::fp32_nearest_even_flushed ? flushing_fma(x, y, sum)
                                                                     : std::fma(x, y, sum);
      }
      result = bits_of(canonicalize(sum));
    } else {
      Block block;
      block.add_accumulator(decode_accumulator(model, entry), least);
      const auto exact = static_cast<std::size_t>(stage.exact_group);
      for (std::size_t k = 0; k < count; k += exact)
        if (exact > 1)
          block.add_group(std::span(a.numbers).subspan(k, exact), std::span(b.numbers).subspan(k, exact),
                          a.scales[k], b.scales[k]);
        else if (stage.share.contains(static_cast<int>(k)))
          block.add_product(a.numbers[k], b.numbers[k]);
      result = block.result(model, stage);
    }
  }
  return result;
}

/// `decode_part(first, count, a, b)` decodes that many operands from `first` on.
template <class DecodePart>
std::uint32_t dot_add(const TensorCoreModel& model, std::size_t size, std::uint32_t c,
                      const DecodePart& decode_part) {
  const auto step = static_cast<std::size_t>(model.products());
  Operand a, b;
  for (std::size_t first = 0; first < size; first += step) {
    const std::size_t count = std::min(step, size - first);
    decode_part(first, count, a, b);
    c = instruction(model, a, b, count, c);
  }
  return c;
}

}  // namespace

std::uint32_t fused_dot_add(const TensorCoreModel& model, DType a_format, std::span<const std::uint32_t> a,
                            DType b_format, std::span<const std::uint32_t> b, std::uint32_t c,
                            const DotScales& scales) {
  check(model, a_format, a.size(), b_format, b.size());
  check_scales(model, scales.kind, a.size(), scales.a.size(), scales.b.size());
  const FloatingPointScope scope;
  const auto decode_scales = [&](std::span<const std::uint32_t> codes, std::size_t first, std::size_t count,
                                 Operand& to) {
    const auto block = static_cast<std::size_t>(scales.kind.block);
    for (std::size_t k = 0; k < count; ++k) {
      to.scales[k] = decoded_scale(scales.kind.format, codes[(first + k) / block]);
      if (model.block().exact_group == 1) to.scale_number(k);
    }
  };
  return dot_add(model, a.size(), c, [&](std::size_t first, std::size_t count, Operand& x, Operand& y) {
    decode_all(model, a_format, a.subspan(first, count), x.numbers.data());
    decode_all(model, b_format, b.subspan(first, count), y.numbers.data());
    if (scales.kind.block == 0) return;
    decode_scales(scales.a, first, count, x);
    decode_scales(scales.b, first, count, y);
  });
}

std::uint64_t fused_dot_add(const TensorCoreModel& model, std::span<const std::uint64_t> a,
                            std::span<const std::uint64_t> b, std::uint64_t c) {
  check(model, DType::f64, a.size(), DType::f64, b.size());
  const FloatingPointScope scope;
  double sum = double_from_bits(c);
  for (std::size_t k = 0; k < a.size(); ++k)
    sum = std::fma(double_from_bits(a[k]), double_from_bits(b[k]), sum);
  if (a.empty()) return c;
  return bits_of(canonicalize(sum));
}

float fused_dot_add(const TensorCoreModel& model, std::span<const Float16> a, std::span<const Float16> b,
                    float c) {
  check(model, DType::f16, a.size(), DType::f16, b.size());
  if (model.accumulator() != DType::f32)
    throw std::invalid_argument(
        fmt::format("this row of tensor-core model '{}' accumulates in {}, not in f32", model.name,
                    name_of(model.accumulator())));
  check_scales(model, {}, a.size(), 0, 0);
  const FloatingPointScope scope;
  return float_from_bits(
      dot_add(model, a.size(), bits_of(c), [&](std::size_t first, std::size_t count, Operand& x, Operand& y) {
        decode_all(a.subspan(first, count), x.numbers.data());
        decode_all(b.subspan(first, count), y.numbers.data());
      }));
}

}  // namespace fp16lab
