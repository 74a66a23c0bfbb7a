// Explanations of dot products: on every golden vector and on random lines of every row, the steps must end
// with the word of fused_dot_add, and lead to it from the exact sum.
#include "numerics/tensor_core/explained_dot.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <vector>

#include "tests/support/tensor_core_twin.hpp"
#include "tests/support/tensor_core_vectors.hpp"

namespace fp16lab {
namespace {

TEST(ExplainedDot, ItEndsWithTheWordOfEveryGoldenVector) {
  for (const testing_support::TensorCoreVector& v : testing_support::all_tensor_core_vectors()) {
    const ExplainedDot dot =
        explained_dot(testing_support::row_of(v), operand_format(v.in_a()), testing_support::hex_words(v.a),
                      operand_format(v.in_b()), testing_support::hex_words(v.b),
                      testing_support::hex_words(v.c).at(0), testing_support::VectorScales(v));
    EXPECT_EQ(dot.word, testing_support::hex_words(v.d).at(0)) << v.id << ' ' << v.model;
  }
}

TEST(ExplainedDot, WrongArgumentsAreRefused) {
  const std::vector<std::uint32_t> one{0x3c00}, two{0x3c00, 0x3c00};
  TensorCoreModel row = tensor_core_model("hopper");
  EXPECT_THROW(explained_dot(row, DType::f16, one, DType::f16, two, 0), std::invalid_argument);
  EXPECT_THROW(explained_dot(row, DType::tf32, one, DType::tf32, one, 0), std::invalid_argument);
  row.set(&Stage::fraction_bits, 49);
  EXPECT_THROW(explained_dot(row, DType::f16, one, DType::f16, one, 0), std::invalid_argument);
}

// Random lines of every row.

class RandomWords {
 public:
  explicit RandomWords(std::uint64_t seed) : engine_(seed) {}
  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(engine_() % bound); }
  bool one_in(std::uint32_t n) { return below(n) == 0; }

  enum class Kind { raw, near_one, tiny, mixed, count };
  Kind kind() { return static_cast<Kind>(below(static_cast<std::uint32_t>(Kind::count))); }

  /// A word of the format: any bits; a number within a few binades of 1; zero or subnormal; or one of these.
  std::uint32_t word(const oracle::Encoding& encoding, Kind kind) {
    if (kind == Kind::mixed) kind = static_cast<Kind>(below(static_cast<std::uint32_t>(Kind::mixed)));
    const std::uint32_t sign = below(2) << (encoding.width() - 1);
    const std::uint32_t fraction = below(1U << encoding.fraction_bits);
    if (kind == Kind::near_one)
      return sign |
             static_cast<std::uint32_t>(encoding.bias() + static_cast<int>(below(7)) - 3)
                 << encoding.fraction_bits |
             fraction;
    if (kind == Kind::tiny) return sign | (one_in(2) ? 0 : fraction);
    return static_cast<std::uint32_t>(engine_()) >> (32 - encoding.width());
  }

 private:
  std::mt19937_64 engine_;
};

struct Line {
  TensorCoreModel row;
  DType a_format, b_format;
  std::vector<std::uint32_t> a, b;
  std::uint32_t c;
  ScaleKind kind{};
  std::vector<std::uint32_t> a_scales{}, b_scales{};

  DotScales scales() const { return {kind, a_scales, b_scales}; }
  oracle::Scale scale(const std::vector<std::uint32_t>& of, std::size_t k) const {
    if (kind.block == 0) return {false, oracle::Fixed(1) << oracle::fixed_point, 0};
    return oracle::scale_of(kind.format, of[k / static_cast<std::size_t>(kind.block)]);
  }
};

Line random_line(const TensorCoreModel& row, DType a_format, DType b_format, RandomWords& random,
                 ScaleKind scales = {}) {
  Line line{row, a_format, b_format, {}, {}, 0, scales};
  TensorCoreModel& model = line.row;
  if (random.one_in(2) && scales.block == 0) {
    model.subnormal_accumulator = SubnormalAccumulator::own_exponent;
    model.underflow_zero = UnderflowZero::keeps_sign;
    model.set(&Stage::fraction_bits, 1 + static_cast<int>(random.below(48)));
    const Stage& block = model.block();
    if (model.as_fp16)
      model.stages = two_blocks_then_c(16, block.fraction_bits, block.output, block.exponent_floor);
    else if (model.stages.size() == 1)
      model.set(&Stage::products, 1 + static_cast<int>(random.below(9)));
  }
  const RandomWords::Kind kind = random.kind();
  const auto operand = [&](DType format) {
    const std::uint32_t word = random.word(oracle::encoding_of(format), kind);
    return format == DType::tf32 ? word << 13 | random.below(1U << 13) : word;
  };
  std::uint32_t size = random.below(40);
  if (scales.block > 0) {
    const std::uint32_t count = 1 + random.below(4), one = scales.format == DType::e8m0 ? 127 : 56;
    size = count * static_cast<std::uint32_t>(scales.block);
    for (std::uint32_t i = 0; i < 2 * count; ++i)
      (i % 2 == 0 ? line.a_scales : line.b_scales)
          .push_back(random.one_in(60)  ? 255  // NaN of both formats
                     : random.one_in(3) ? random.below(256)
                                        : one - 6 + random.below(12));
  }
  for (std::uint32_t k = 0; k < size; ++k) {
    line.a.push_back(operand(a_format));
    line.b.push_back(operand(b_format));
  }
  const bool wide = row.accumulator() == DType::f32;
  line.c = random.word(wide ? oracle::fp32_encoding : oracle::fp16_encoding, random.kind());
  return line;
}

Rational value_of(const oracle::Number& number) {
  const auto magnitude = static_cast<boost::multiprecision::cpp_int>(number.magnitude);
  const Rational value(magnitude, boost::multiprecision::cpp_int(1) << oracle::fixed_point);
  return number.negative ? Rational(-value) : value;
}

Rational power_of_two(int exponent) {
  const boost::multiprecision::cpp_int power = boost::multiprecision::cpp_int(1) << std::abs(exponent);
  return exponent < 0 ? Rational(1, power) : Rational(power);
}

struct Seen {
  int finite = 0, special = 0, overflowed = 0, dropped = 0, rounded = 0, subnormal = 0;
};

/// What must hold of every explanation; the numbers of the words come from the twin (tensor_core_twin.hpp).
void judge(const Line& line, Seen& seen) {
  const ExplainedDot dot =
      explained_dot(line.row, line.a_format, line.a, line.b_format, line.b, line.c, line.scales());
  ASSERT_EQ(dot.word,
            fused_dot_add(line.row, line.a_format, line.a, line.b_format, line.b, line.c, line.scales()));

  const oracle::Encoding accumulator =
      line.row.accumulator() == DType::f32 ? oracle::fp32_encoding : oracle::fp16_encoding;
  const auto read = [](DType format, std::uint32_t word) {  // a TF32 register with all of its bits
    return oracle::number_of(word,
                             format == DType::tf32 ? oracle::fp32_encoding : oracle::encoding_of(format));
  };
  const oracle::Number c = oracle::number_of(line.c, accumulator);
  bool finite = !c.nan && !c.infinite;
  oracle::Fixed exact = c.value();
  for (std::size_t k = 0; k < line.a.size(); ++k) {
    const oracle::Number a = read(line.a_format, line.a[k]);
    const oracle::Number b = read(line.b_format, line.b[k]);
    finite = finite && !a.nan && !a.infinite && !b.nan && !b.infinite;
    const oracle::Scale of_a = line.scale(line.a_scales, k), of_b = line.scale(line.b_scales, k);
    finite = finite && !of_a.nan && !of_b.nan;
    oracle::Fixed product = (a.magnitude * b.magnitude) >> oracle::fixed_point;
    product = (product * of_a.magnitude) >> oracle::fixed_point;
    product = (product * of_b.magnitude) >> oracle::fixed_point;
    exact += a.negative == b.negative ? product : oracle::Fixed(-product);
  }
  ASSERT_EQ(dot.exact.is_finite(), finite);
  if (!finite) {
    ++seen.special;
    return;
  }
  oracle::Number sum;
  sum.negative = exact < 0;
  sum.magnitude = abs(exact);
  ASSERT_EQ(dot.exact.value, value_of(sum));
  const std::uint32_t sign = sum.negative ? 1U << (accumulator.width() - 1) : 0;
  if (sum.magnitude != 0) {
    ASSERT_EQ(dot.nearest_word, oracle::nearest_even(sum.magnitude, accumulator) | sign);
  }
  if (!dot.result.is_finite()) {
    ++seen.overflowed;
    return;
  }
  ++seen.finite;
  ASSERT_EQ(dot.result.value, value_of(oracle::number_of(dot.word, accumulator)));

  // What every term keeps and drops, and every rounding, lead from the exact sum to the result.
  Rational balance = dot.exact.value + dot.operand_error;
  if (line.a_format != DType::tf32) {
    ASSERT_EQ(dot.operand_error, 0);
  }
  for (const ExplainedStep& step : dot.steps) {
    Rational kept = 0;
    for (const ExplainedTerm& term : step.terms) {
      ASSERT_EQ(term.kept + term.dropped, term.number.value);
      kept += term.kept;
      balance -= term.dropped;
      seen.dropped += term.dropped != 0 ? 1 : 0;
      if (step.kind != Sum::aligned) {
        if (step.kind == Sum::addition) {
          ASSERT_EQ(term.dropped, 0);
        }
        continue;
      }
      const Rational unit = power_of_two(step.unit_exponent);
      ASSERT_EQ(denominator(Rational(term.kept / unit)), 1) << "a multiple of the unit";
      ASSERT_LT(abs(term.dropped), unit);
      ASSERT_GE(term.kept * term.number.value, 0) << "towards zero";
      ASSERT_LE(abs(term.kept), abs(term.number.value));
      const int most = term.source == ExplainedTerm::Source::group ? 36 * 16 * 4 : 4;
      ASSERT_LE(abs(term.kept), most * power_of_two(step.max_exponent));
    }
    ASSERT_EQ(step.sum.value, kept);
    balance += step.result.value - step.sum.value;
    seen.rounded += step.result.value != step.sum.value ? 1 : 0;
  }
  ASSERT_EQ(balance, dot.result.value);
  ASSERT_TRUE(dot.error.has_value());
  ASSERT_EQ(*dot.error, dot.result.value - dot.exact.value);
  const bool is_subnormal =
      dot.result.value != 0 && abs(dot.result.value) < power_of_two(1 - accumulator.bias());
  seen.subnormal += is_subnormal ? 1 : 0;

  const int emin = 1 - accumulator.bias();
  const int binade = sum.magnitude == 0 ? emin : oracle::exponent_of(sum.magnitude, emin);
  ASSERT_EQ(dot.ulp_exponent, std::min(binade, accumulator.bias()) - accumulator.fraction_bits);
}

TEST(ExplainedDot, EveryLineOfEveryRowAddsUp) {
  RandomWords random(20261122);
  for (const TensorCoreModel& row : all_tensor_core_models()) {
    if (row.accumulator() == DType::f64) continue;
    Seen seen;
    const auto formats = std::ranges::count_if(
        dtypes<is_operand>, [&row](DType format) { return row.operands.contains(format); });
    const auto lines = std::min<std::ptrdiff_t>(400, 1600 / (formats * formats));  // of each pair of formats
    for (const DType a_format : dtypes<is_low_precision>)
      for (const DType b_format : dtypes<is_low_precision>) {
        if (!row.operands.contains(a_format) || !row.operands.contains(b_format)) continue;
        for (std::ptrdiff_t i = 0; i < lines; ++i) {
          const std::uint32_t kinds = row.scales[1].block > 0 ? 3 : 1;
          const Line line = random_line(row, a_format, b_format, random, row.scales[random.below(kinds)]);
          judge(line, seen);
          if (HasFatalFailure()) {
            ADD_FAILURE() << row.name << ' ' << name_of(a_format) << ' ' << name_of(b_format) << " line "
                          << i;
            return;
          }
        }
      }
    EXPECT_GT(seen.finite, 20) << row.name;
    EXPECT_GT(seen.special, 5) << row.name;
    EXPECT_GT(seen.dropped, 20) << row.name;
    EXPECT_GT(seen.rounded, 5) << row.name;
    if (row.accumulator() == DType::f16) {
      EXPECT_GT(seen.overflowed + seen.subnormal, 0) << row.name;
    }
  }
}

}  // namespace
}  // namespace fp16lab
