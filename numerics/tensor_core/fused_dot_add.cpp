// The definition of a tensor core's dot product, in integers, one output at a time.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>

#include "numerics/convert/convert.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/platform/floating_point_scope.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab {
namespace {

/// Significands are fixed-point numbers with this many fraction bits, enough for FP32; products have twice as
/// many. They lie below 2 and 4, and aligning one is a single shift to the right.
constexpr int point = 30;
constexpr int product_point = 2 * point;

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
  visit_dtype<is_low_precision>(format, [&](auto dtype) {
    using F = typename decltype(dtype)::Format;
    static_assert(F::width > 8 || F::exponent_bits <= Binary16::exponent_bits,
                  "FP8 numbers are FP16 numbers");
    const bool through_fp16 = F::width == 8 && row.dataflow != Dataflow::fused_chain;
    for (const std::uint32_t word : words) {
      const SmallFloat<F> x = as<F>(word >> ignored_bits<F>);
      // What becomes FP16 keeps its value, but the subnormals of E4M3 are normal there.
      *to++ = through_fp16 ? decoded(convert<Binary16>(x)) : decoded(x);
    }
  });
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

  void add_accumulator(const Decoded& c) {
    if (c.kind == Exact::Kind::nan) nan_ = true;
    if (c.kind == Exact::Kind::infinite) add_infinity(c.sign);
    if (c.kind == Exact::Kind::finite) add({c.sign, c.exponent, c.significand << (product_point - point)});
  }

  std::uint32_t result(const TensorCoreModel& row) const {
    Exact sum;
    if (nan_ || (positive_infinity_ && negative_infinity_)) {
      sum.kind = Exact::Kind::nan;
    } else if (positive_infinity_ || negative_infinity_) {
      sum.kind = Exact::Kind::infinite;
      sum.sign = negative_infinity_;
    } else {
      sum = finite_sum(row);
    }
    const bool finite = sum.kind == Exact::Kind::finite;
    std::uint32_t word = rounded(sum, row.output);
    const std::uint32_t sign =
        row.output == BlockOutput::fp16_nearest_even ? Binary16::sign_mask : Binary32::sign_mask;
    if (finite && word == sign && row.underflow_zero == UnderflowZero::positive) word = 0;
    return word;
  }

 private:
  /// (-1)^sign * significand * 2^(exponent - product_point), aligned by `exponent`.
  struct Term {
    bool sign;
    int exponent;
    std::uint64_t significand;
  };

  void add(const Term& term) { terms_[count_++] = term; }
  void add_infinity(bool sign) { (sign ? negative_infinity_ : positive_infinity_) = true; }
  std::span<const Term> terms() const { return {terms_.data(), count_}; }

  /// The sum of the terms as multiples of one unit, 2^(max_exponent - fraction_bits), the bits below it
  /// dropped from each magnitude; +0 if they cancel.
  Exact finite_sum(const TensorCoreModel& row) const {
    int max_exponent = row.exponent_floor;
    for (const Term& term : terms()) max_exponent = std::max(max_exponent, term.exponent);
    std::int64_t sum = 0;
    for (const Term& term : terms()) {
      const int shift = product_point - row.fraction_bits + (max_exponent - term.exponent);
      const auto magnitude = static_cast<std::int64_t>(term.significand >> std::min(shift, 63));
      sum += term.sign ? -magnitude : magnitude;
    }
    Exact exact;
    if (sum == 0) return exact;
    exact.kind = Exact::Kind::finite;
    exact.sign = sum < 0;
    exact.significand = static_cast<std::uint64_t>(sum < 0 ? -sum : sum);
    exact.exponent = max_exponent - row.fraction_bits;
    return exact;
  }

  static std::uint32_t rounded(Exact sum, BlockOutput output) {
    // Unlike IEEE truncation the hardware does not saturate: from 2^128 on the result is infinite.
    if (output != BlockOutput::fp16_nearest_even && sum.kind == Exact::Kind::finite &&
        sum.exponent + bit_width(sum.significand) - 1 > Binary32::emax)
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
    }
    return 0;
  }

  using ShortFloat32 = Format<8, 14>;  // E8M13, the upper part of an FP32 word

  std::array<Term, max_block_size + 1> terms_;  // the first count_ are set
  std::size_t count_ = 0;
  bool nan_ = false;
  bool positive_infinity_ = false;
  bool negative_infinity_ = false;
};

void check(const TensorCoreModel& model, DType a_format, std::size_t a_size, DType b_format,
           std::size_t b_size) {
  if (a_size != b_size)
    throw std::invalid_argument(
        fmt::format("fused_dot_add: a has {} elements and b has {}; they must agree", a_size, b_size));
  if (model.block_size < 1 || model.block_size > max_block_size)
    throw std::invalid_argument(
        fmt::format("fused_dot_add: model '{}' has a block of {} products; 1 to {} are possible", model.name,
                    model.block_size, max_block_size));
  if (model.fraction_bits < 1 || model.fraction_bits > 48)  // 4 * 65 terms of 2^48 stay inside 64 bits
    throw std::invalid_argument(
        fmt::format("fused_dot_add: model '{}' keeps {} fraction bits; 1 to 48 are possible", model.name,
                    model.fraction_bits));
  if (model.exponent_floor < -1000 || model.exponent_floor > 1000)  // far beyond every format's exponents
    throw std::invalid_argument(
        fmt::format("fused_dot_add: model '{}' has exponent floor {}; -1000 to 1000 are possible", model.name,
                    model.exponent_floor));
  for (const DType format : {a_format, b_format})
    if (!model.operands.contains(format))
      throw std::invalid_argument(fmt::format("fused_dot_add: this row of model '{}' has no {} operands",
                                              model.name, name_of(format)));
}

constexpr std::size_t fp8_instruction_size = 32;  // mma.sync.m16n8k32

/// One instruction of fp8_as_fp16_*: its products from +0 in two blocks, then c.
std::uint32_t fp8_instruction(const TensorCoreModel& model, std::span<const Decoded> a,
                              std::span<const Decoded> b, std::uint32_t c) {
  const auto in_second_block = [&](std::size_t k) {
    return model.dataflow == Dataflow::fp8_as_fp16_pairs ? k % 4 >= 2 : k >= fp8_instruction_size / 2;
  };
  std::uint32_t sum = 0;
  for (const bool second : {false, true}) {
    Block block;
    block.add_accumulator(decode_accumulator(model, sum));
    for (std::size_t k = 0; k < a.size(); ++k)
      if (in_second_block(k) == second) block.add_product(a[k], b[k]);
    sum = block.result(model);
  }
  // One ordinary addition. Through FP32 an FP16 sum rounds as if once: 24 >= 2 * 11 + 2 (Figueroa 1995).
  if (model.accumulator() == DType::f16) {
    const float total = widen(Float16::from_bits(static_cast<std::uint16_t>(sum))) +
                        widen(Float16::from_bits(static_cast<std::uint16_t>(c)));
    return narrow<Binary16>(total).bits();
  }
  return bits_of(canonicalize(float_from_bits(sum) + float_from_bits(c)));
}

/// `decode_block(first, count, a, b)` decodes that many operands from `first` on.
template <class DecodeBlock>
std::uint32_t dot_add(const TensorCoreModel& model, std::size_t size, std::uint32_t c,
                      const DecodeBlock& decode_block) {
  const bool through_fp16 = model.dataflow != Dataflow::fused_chain;
  const std::size_t step = through_fp16 ? fp8_instruction_size : static_cast<std::size_t>(model.block_size);
  std::array<Decoded, max_block_size> a, b;
  for (std::size_t first = 0; first < size; first += step) {
    const std::size_t count = std::min(step, size - first);
    decode_block(first, count, a.data(), b.data());
    if (through_fp16) {
      c = fp8_instruction(model, std::span(a).first(count), std::span(b).first(count), c);
      continue;
    }
    Block block;
    block.add_accumulator(decode_accumulator(model, c));
    for (std::size_t i = 0; i < count; ++i) block.add_product(a[i], b[i]);
    c = block.result(model);
  }
  return c;
}

}  // namespace

std::uint32_t fused_dot_add(const TensorCoreModel& model, DType a_format, std::span<const std::uint32_t> a,
                            DType b_format, std::span<const std::uint32_t> b, std::uint32_t c) {
  check(model, a_format, a.size(), b_format, b.size());
  const FloatingPointScope scope;
  return dot_add(model, a.size(), c, [&](std::size_t first, std::size_t count, Decoded* x, Decoded* y) {
    decode_all(model, a_format, a.subspan(first, count), x);
    decode_all(model, b_format, b.subspan(first, count), y);
  });
}

float fused_dot_add(const TensorCoreModel& model, std::span<const Float16> a, std::span<const Float16> b,
                    float c) {
  check(model, DType::f16, a.size(), DType::f16, b.size());
  if (model.accumulator() != DType::f32)
    throw std::invalid_argument(
        fmt::format("fused_dot_add: this row of model '{}' accumulates in {}, not in f32", model.name,
                    name_of(model.accumulator())));
  const FloatingPointScope scope;
  return float_from_bits(
      dot_add(model, a.size(), bits_of(c), [&](std::size_t first, std::size_t count, Decoded* x, Decoded* y) {
        decode_all(a.subspan(first, count), x);
        decode_all(b.subspan(first, count), y);
      }));
}

}  // namespace fp16lab
