// fused_dot_add against its twin in big integers: every row of the table, and rows changed at random, on
// seeded random operands of every shape that decides something.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "numerics/tensor_core/tensor_core_model.hpp"
#include "tests/support/tensor_core_twin.hpp"

namespace fp16lab {
namespace {

using oracle::Encoding;

enum class Shape {
  raw,             ///< any bit pattern
  finite,          ///< any exponent
  near_one,        ///< alignment shifts of a few bits
  tiny_or_zero,    ///< zeros and subnormals
  near_overflow,   ///< the largest binades
  powers_of_two,   ///< ties and exact cuts
  small_products,  ///< products about the smallest accumulators, where exponent floors are
  mixed,           ///< another shape for each element
  count
};

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : engine_(seed) {}

  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(engine_() % bound); }
  int between(int low, int high) {
    return low + static_cast<int>(below(static_cast<std::uint32_t>(high - low + 1)));
  }
  bool one_in(std::uint32_t n) { return below(n) == 0; }
  Shape shape() { return static_cast<Shape>(below(static_cast<std::uint32_t>(Shape::count))); }

  /// `small`: the exponent near which Shape::small_products are.
  std::uint32_t word(const Encoding& encoding, Shape shape, int small) {
    if (shape == Shape::mixed)
      return one_in(40)
                 ? special(encoding)
                 : word(encoding, static_cast<Shape>(below(static_cast<std::uint32_t>(Shape::mixed))), small);
    const int top = (1 << encoding.exponent_bits) -
                    (encoding.ofp8_e4m3 || encoding.finite ? 1 : 2);  // largest finite field
    const std::uint32_t any_fraction = below(1U << encoding.fraction_bits);
    switch (shape) {
      case Shape::raw:
        return static_cast<std::uint32_t>(engine_()) >> (32 - encoding.width());
      case Shape::finite:
        return packed(encoding, between(0, top), any_fraction);
      case Shape::near_one:
        return packed(encoding, encoding.bias() + between(-3, 3), any_fraction);
      case Shape::tiny_or_zero:
        return packed(encoding, 0, one_in(2) ? 0 : any_fraction);
      case Shape::near_overflow:
        return packed(encoding, top - between(0, 1), any_fraction);
      case Shape::powers_of_two:
        return packed(encoding, between(0, top), 0);
      default:
        return packed(encoding, std::clamp(encoding.bias() + small + between(-6, 6), 0, top),
                      one_in(2) ? 0 : any_fraction);
    }
  }

  /// A code of a block scale: about 1, any, and the extremes, NaN and UE4M3's zero among them.
  std::uint32_t scale(DType format) {
    const std::uint32_t last = format == DType::e8m0 ? 255 : 127, one = format == DType::e8m0 ? 127 : 56;
    if (one_in(60)) return last;
    if (one_in(10)) return one_in(2) ? below(3) : last - 1 - below(3);
    return one_in(3) ? below(last) : one - 4 + below(9);
  }

 private:
  std::uint32_t packed(const Encoding& encoding, int field, std::uint32_t fraction) {
    const std::uint32_t code = static_cast<std::uint32_t>(field) << encoding.fraction_bits | fraction;
    const bool is_nan = encoding.ofp8_e4m3 && code == 0x7f;
    return (is_nan ? code - 1 : code) | below(2) << (encoding.width() - 1);
  }

  /// An infinity or a NaN, of which E4M3 has only the one with all bits set; the formats of 6 and 4 bits have
  /// none.
  std::uint32_t special(const Encoding& encoding) {
    const std::uint32_t top = (1U << encoding.exponent_bits) - 1;
    const std::uint32_t all_set = (1U << encoding.fraction_bits) - 1;
    const std::uint32_t fraction = encoding.ofp8_e4m3 ? all_set : one_in(2) ? 0 : below(all_set + 1);
    return (top << encoding.fraction_bits | fraction) | below(2) << (encoding.width() - 1);
  }

  std::mt19937_64 engine_;
};

/// One dot product with everything about it.
struct Case {
  TensorCoreModel row;
  DType a_format, b_format;
  std::vector<std::uint32_t> a, b;
  std::uint32_t c = 0;
  ScaleKind kind{};
  std::vector<std::uint32_t> a_scales{}, b_scales{};

  DotScales scales() const { return {kind, a_scales, b_scales}; }
};

std::string text(const Case& x) {
  std::string words;
  char buffer[160];
  for (std::size_t k = 0; k < x.a.size(); ++k) {
    std::snprintf(buffer, sizeof buffer, " %x*%x", x.a[k], x.b[k]);
    words += buffer;
  }
  for (std::size_t i = 0; i < x.a_scales.size(); ++i) {
    std::snprintf(buffer, sizeof buffer, " scales %x*%x for %d", x.a_scales[i], x.b_scales[i], x.kind.block);
    words += buffer;
  }
  std::snprintf(buffer, sizeof buffer,
                " L=%d F=%d E0=%d output=%d %s subnormal=%d zero=%d c=%x:", x.row.block().products,
                x.row.block().fraction_bits, x.row.block().exponent_floor,
                static_cast<int>(x.row.block().output), stages_text(x.row).c_str(),
                static_cast<int>(x.row.subnormal_accumulator), static_cast<int>(x.row.underflow_zero), x.c);
  return std::string(x.row.name) + ' ' + std::string(name_of(x.a_format)) + ' ' +
         std::string(name_of(x.b_format)) + buffer + words;
}

/// What other hardware would do: any of the row's numbers and choices changed.
void change_row(TensorCoreModel& row, Generator& random) {
  if (random.one_in(2))
    row.subnormal_accumulator =
        random.one_in(4) ? SubnormalAccumulator::fp16_emin : SubnormalAccumulator::own_exponent;
  if (random.one_in(2)) row.underflow_zero = UnderflowZero::keeps_sign;
  if (random.one_in(2)) row.set(&Stage::exponent_floor, row.block().exponent_floor + random.between(-1, 1));
  if (random.one_in(8)) row.set(&Stage::exponent_floor, random.between(-160, 40));
  if (random.one_in(4)) row.set(&Stage::fraction_bits, row.block().fraction_bits + random.between(-1, 1));
  if (random.one_in(8)) row.set(&Stage::fraction_bits, random.between(1, 48));
  const Stage& block = row.block();
  if (row.as_fp16) {
    if (random.one_in(2))
      row.stages = two_blocks_then_c(16, block.fraction_bits, block.output, block.exponent_floor);
  } else if (row.stages.size() == 1 && random.one_in(2)) {
    row.set(&Stage::products,
            random.one_in(2) ? std::max(1, row.block().products / 2) : random.between(1, 64));
  }
}

std::uint32_t bits_in(DType format) { return format == DType::f32 ? 31U : 15U; }

Case random_case(const TensorCoreModel& row, DType a_format, DType b_format, bool changed, Generator& random,
                 ScaleKind kind = {}) {
  Case x{row, a_format, b_format, {}, {}, 0, kind};
  if (changed) change_row(x.row, random);
  const Encoding a = oracle::encoding_of(a_format);
  const Encoding b = oracle::encoding_of(b_format);
  const Encoding c = row.accumulator() == DType::f32 ? oracle::fp32_encoding : oracle::fp16_encoding;
  // TF32 words are registers: 13 bits more, which must not count.
  const auto in_register = [&random](DType format, std::uint32_t word) {
    return format == DType::tf32 ? word << 13 | random.below(1U << 13) : word;
  };

  const int step = x.row.products();
  int size = random.one_in(4) ? step : random.between(0, std::min(3 * step + 3, 70));
  if (kind.block > 0) {
    size = random.between(1, 160 / kind.block) * kind.block;
    for (int i = 0; i < size / kind.block; ++i) {
      x.a_scales.push_back(random.scale(kind.format));
      x.b_scales.push_back(random.scale(kind.format));
    }
  }
  const Shape a_shape = random.shape();
  const Shape b_shape = random.one_in(2) ? a_shape : random.shape();
  const bool narrow_range = a.exponent_bits < 8;
  const int small = narrow_range ? random.between(-14, -8) : random.between(-80, -66);
  const bool cancelling = random.one_in(3);
  for (int k = 0; k < size; ++k) {
    const auto i = static_cast<std::size_t>(k);
    x.a.push_back(in_register(a_format, random.word(a, a_shape, small)));
    x.b.push_back(in_register(b_format, random.word(b, b_shape, small)));
    if (cancelling && k > 0 && random.one_in(2)) {  // an earlier product with the other sign
      const auto earlier = static_cast<std::size_t>(random.between(std::max(0, k - 3), k - 1));
      x.a[i] = x.a[earlier] ^ 1U << (a_format == DType::tf32 ? 31 : a.width() - 1);
      x.b[i] = x.b[earlier];
    }
  }
  switch (random.below(9)) {
    case 0:
      break;  // +0
    case 8:   // a tiny accumulator beside zero products
      x.c = random.word(c, Shape::tiny_or_zero, 0);
      for (std::uint32_t& word : x.a) word = in_register(a_format, random.word(a, Shape::tiny_or_zero, 0));
      for (std::uint32_t& word : x.b) word = 0;
      break;
    case 1:
      x.c = 1U << bits_in(row.accumulator());  // -0
      break;
    case 2: {  // cancels the products, but for what their alignment lost
      x.c = oracle::Twin(x.row).dot(a_format, x.a, b_format, x.b, 0, x.scales()) ^
            1U << bits_in(row.accumulator());
      break;
    }
    case 3:  // where the products are
      x.c = random.word(c, Shape::small_products, 2 * small);
      break;
    default:
      x.c = random.word(c, random.shape(), -10);
  }
  return x;
}

struct Counts {
  long cases = 0, nan = 0, infinite = 0, zero = 0, negative_zero = 0, subnormal = 0;
};

void judge(const Case& x, Counts& counts) {
  const std::uint32_t d = fused_dot_add(x.row, x.a_format, x.a, x.b_format, x.b, x.c, x.scales());
  ASSERT_EQ(d, oracle::Twin(x.row).dot(x.a_format, x.a, x.b_format, x.b, x.c, x.scales())) << text(x);
  const bool wide = x.row.accumulator() == DType::f32;
  const std::uint32_t magnitude = d & (wide ? 0x7fffffffU : 0x7fffU);
  const std::uint32_t infinity = wide ? 0x7f800000U : 0x7c00U;
  ++counts.cases;
  counts.nan += magnitude > infinity ? 1 : 0;
  counts.infinite += magnitude == infinity ? 1 : 0;
  counts.zero += d == 0 ? 1 : 0;
  counts.negative_zero += magnitude == 0 && d != 0 ? 1 : 0;
  counts.subnormal += magnitude != 0 && magnitude < (wide ? 0x800000U : 0x400U) ? 1 : 0;
}

/// For each row and each pair of its formats, of which five formats have 25; FP16LAB_SWEEP_CASES asks for
/// another number.
long cases_per_pair(const TensorCoreModel& row) {
  const char* const asked = std::getenv("FP16LAB_SWEEP_CASES");
  const bool many = row.operands.contains(DType::e4m3) && row.operands.contains(DType::e2m1);
  return asked != nullptr ? std::atol(asked) : many ? 400 : 2000;
}

TEST(TensorCoreTwin, EveryRowEqualsItsTwin) {
  Generator random(20240917);
  for (const TensorCoreModel& row : tensor_core_models()) {
    const long cases = cases_per_pair(row);
    Counts counts;
    for (const DType a_format : dtypes<is_low_precision>)
      for (const DType b_format : dtypes<is_low_precision>) {
        if (!row.operands.contains(a_format) || !row.operands.contains(b_format)) continue;
        for (long i = 0; i < cases; ++i) {
          judge(random_case(row, a_format, b_format, i % 3 == 2, random), counts);
          if (HasFatalFailure()) return;
        }
      }
    // Everything that a sum can become was really there.
    const std::string which = std::string(row.name) + ", " + std::string(row.hardware);
    EXPECT_GT(counts.nan, counts.cases / 100) << which;
    EXPECT_LT(counts.nan, counts.cases / 2) << which;
    EXPECT_GT(counts.infinite, counts.cases / 200) << which;
    EXPECT_GT(counts.zero, counts.cases / 200) << which;
    EXPECT_GT(counts.subnormal, counts.cases / 200) << which;
    const bool can_underflow = row.accumulator() == DType::f16 || row.operands.contains(DType::bf16) ||
                               row.operands.contains(DType::tf32);
    if (can_underflow) {
      EXPECT_GT(counts.negative_zero, 0) << which;
    }
  }
}

TEST(TensorCoreTwin, RowsWithBlockScalesEqualTheirTwins) {
  Generator random(20261128);
  int rows = 0;
  for (const TensorCoreModel& row : all_tensor_core_models()) {
    if (!row.is_scaled()) continue;
    ++rows;
    const long cases = cases_per_pair(row);
    Counts counts;
    for (const DType a_format : dtypes<is_operand>)
      for (const DType b_format : dtypes<is_operand>)
        for (const ScaleKind& kind : row.scales) {
          if (!row.operands.contains(a_format) || !row.operands.contains(b_format) || kind.block == 0)
            continue;
          for (long i = 0; i < cases; ++i) {
            Case x = random_case(row, a_format, b_format, false, random, kind);
            if (i % 3 == 2) {
              x.row.set(&Stage::exponent_floor, row.block().exponent_floor + random.between(-4, 4));
              x.row.set(&Stage::fraction_bits, random.between(20, 40));
              if (random.one_in(2))
                x.row.set(&Stage::products, row.block().exact_group * random.between(1, row.products() / 16));
            }
            judge(x, counts);
            if (HasFatalFailure()) return;
          }
        }
    EXPECT_GT(counts.nan, counts.cases / 100) << row.name;
    EXPECT_GT(counts.infinite, counts.cases / 200) << row.name;
    EXPECT_GT(counts.zero, counts.cases / 200) << row.name;
    EXPECT_GT(counts.subnormal, counts.cases / 200) << row.name;
  }
  EXPECT_EQ(rows, 2);
}

}  // namespace
}  // namespace fp16lab
