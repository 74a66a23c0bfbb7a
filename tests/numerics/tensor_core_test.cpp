// fused_dot_add against published vectors and against a twin in exact rationals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "numerics/bits.hpp"
#include "numerics/tensor_core_model.hpp"
#include "tests/support/exact_rounding.hpp"

namespace fp16lab {
namespace {

std::vector<Float16> halves(const std::string& words) {
  std::vector<Float16> result;
  std::istringstream in(words);
  for (std::string word; in >> word;)
    result.push_back(Float16::from_bits(static_cast<std::uint16_t>(std::stoul(word, nullptr, 16))));
  return result;
}

struct GoldenRow {
  std::string id, model, a, b, c, d, source;
};

std::vector<GoldenRow> golden_rows() {
  std::ifstream in(std::string(FP16LAB_SOURCE_DIR) + "/tests/golden/tensor_core_fp16_fp32.tsv");
  std::vector<GoldenRow> rows;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream fields(line);
    GoldenRow row;
    for (std::string* field : {&row.id, &row.model, &row.a, &row.b, &row.c, &row.d, &row.source})
      std::getline(fields, *field, '\t');
    rows.push_back(row);
  }
  return rows;
}

TEST(TensorCore, GoldenVectors) {
  const std::vector<GoldenRow> rows = golden_rows();
  ASSERT_EQ(rows.size(), 32u * 3u + 7u);  // V1-V30 with two variants, for three models; seven captured rows
  for (const GoldenRow& row : rows) {
    const auto c = static_cast<std::uint32_t>(std::stoul(row.c, nullptr, 16));
    const auto d = static_cast<std::uint32_t>(std::stoul(row.d, nullptr, 16));
    const std::vector<Float16> a = halves(row.a);
    const std::vector<Float16> b = halves(row.b);
    ASSERT_FALSE(a.empty() || row.source.empty()) << row.id;
    EXPECT_EQ(bits_of(fused_dot_add(tensor_core_model(row.model), a, b, float_from_bits(c))), d)
        << row.id << " on " << row.model << " (" << row.source << ")";
  }
}

TEST(TensorCore, RowsWithEqualParametersAgree) {
  for (const GoldenRow& row : golden_rows())
    for (const TensorCoreModel& model : tensor_core_models()) {
      const TensorCoreModel& named = tensor_core_model(row.model);
      if (model.block_size != named.block_size || model.fraction_bits != named.fraction_bits) continue;
      const float c = float_from_bits(static_cast<std::uint32_t>(std::stoul(row.c, nullptr, 16)));
      EXPECT_EQ(bits_of(fused_dot_add(model, halves(row.a), halves(row.b), c)),
                static_cast<std::uint32_t>(std::stoul(row.d, nullptr, 16)))
          << row.id << " on " << model.name;
    }
}

// The twin: IEEE fields by hand, terms as rationals, alignment as truncation of a quotient, the last
// conversion by counting binades. It shares nothing with numerics/ but the row of parameters.
using oracle::Integer;
using oracle::power_of_two;
using oracle::Rational;

struct TwinTerm {
  Rational value = 0;
  int exponent = 0;
  bool zero = true, infinite = false, nan = false, negative = false;
};

TwinTerm twin_decode(std::uint32_t bits, int exponent_bits, int fraction_bits) {
  const std::uint32_t fraction = bits % (1u << fraction_bits);
  const std::uint32_t field = (bits >> fraction_bits) % (1u << exponent_bits);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  TwinTerm term;
  term.negative = (bits >> (fraction_bits + exponent_bits)) % 2 != 0;
  const Rational below_point(fraction, 1u << fraction_bits);
  if (field == (1u << exponent_bits) - 1) {
    term.zero = false;
    (fraction == 0 ? term.infinite : term.nan) = true;
  } else if (field != 0) {
    term.zero = false;
    term.exponent = static_cast<int>(field) - bias;
    term.value = (1 + below_point) * power_of_two(term.exponent);
  } else if (fraction != 0) {
    term.zero = false;
    term.exponent = 1 - bias;
    term.value = below_point * power_of_two(term.exponent);
  }
  if (term.negative) term.value = -term.value;
  return term;
}

Integer truncated(const Rational& x) {  // toward zero, like the division of integers
  return numerator(x) / denominator(x);
}

std::uint32_t twin_to_fp32(const Rational& sum) {
  if (sum == 0) return 0;
  const std::uint32_t sign = sum < 0 ? 0x80000000u : 0u;
  const Rational magnitude = sum < 0 ? Rational(-sum) : sum;
  if (magnitude >= power_of_two(128)) return sign | 0x7f800000u;
  int exponent = -126;
  while (magnitude >= power_of_two(exponent + 1)) ++exponent;
  const Integer ulps =
      truncated(magnitude / power_of_two(exponent - 23));  // up to 2^24 - 1, less if subnormal
  const auto significand = static_cast<std::uint32_t>(ulps);
  if (significand < (1u << 23)) return sign | significand;
  return sign | (static_cast<std::uint32_t>(exponent + 127) << 23) | (significand - (1u << 23));
}

std::uint32_t twin(const TensorCoreModel& model, const std::vector<std::uint16_t>& a,
                   const std::vector<std::uint16_t>& b, std::uint32_t c) {
  for (std::size_t first = 0; first < a.size(); first += static_cast<std::size_t>(model.block_size)) {
    std::vector<TwinTerm> terms{twin_decode(c, 8, 23)};
    bool nan = terms[0].nan;
    for (std::size_t k = first; k < a.size() && k < first + static_cast<std::size_t>(model.block_size); ++k) {
      const TwinTerm x = twin_decode(a[k], 5, 10);
      const TwinTerm y = twin_decode(b[k], 5, 10);
      nan = nan || x.nan || y.nan || (x.infinite && y.zero) || (x.zero && y.infinite);
      TwinTerm product;
      product.value = x.value * y.value;
      product.exponent = x.exponent + y.exponent;
      product.zero = x.zero || y.zero;
      product.infinite = x.infinite || y.infinite;
      product.negative = x.negative != y.negative;
      terms.push_back(product);
    }
    bool positive_infinity = false;
    bool negative_infinity = false;
    int emax = model.exponent_floor;
    for (const TwinTerm& term : terms) {
      if (term.infinite) (term.negative ? negative_infinity : positive_infinity) = true;
      if (!term.zero) emax = std::max(emax, term.exponent);
    }
    if (nan || (positive_infinity && negative_infinity)) {
      c = 0x7fffffff;
    } else if (positive_infinity || negative_infinity) {
      c = positive_infinity ? 0x7f800000 : 0xff800000;
    } else {
      const Rational unit = power_of_two(emax - model.fraction_bits);
      Integer sum = 0;
      for (const TwinTerm& term : terms) sum += truncated(term.value / unit);
      c = twin_to_fp32(Rational(sum) * unit);
    }
  }
  return c;
}

/// Kinds of operands: everything that a bit pattern can be, and shapes that random patterns rarely make.
class Operands {
 public:
  explicit Operands(std::uint64_t seed) : engine_(seed) {}

  std::uint32_t random(std::uint32_t bound) {
    return std::uniform_int_distribution<std::uint32_t>(0, bound - 1)(engine_);
  }

  std::uint16_t half(int kind) {
    switch (kind) {
      case 0:
        return static_cast<std::uint16_t>(random(0x10000));  // any pattern
      case 1:
        return static_cast<std::uint16_t>(random(2) << 15 | random(0x7c00));  // any finite number
      case 2:
        return static_cast<std::uint16_t>(random(2) << 15 | (0x3800 + random(0x800)));  // near one
      case 3:
        return random(10) < 6 ? static_cast<std::uint16_t>(random(2) << 15)  // mostly zeros and subnormals
                              : static_cast<std::uint16_t>(random(2) << 15 | random(0x400));
      case 4:
        return static_cast<std::uint16_t>(random(2) << 15 | (0x7b00 + random(0x100)));  // near the largest
      default:
        return static_cast<std::uint16_t>(random(2) << 15 | random(31) << 10);  // powers of two
    }
  }

  std::uint32_t single(int kind) {
    const std::uint32_t sign = random(2) << 31;
    switch (kind) {
      case 0:
        return static_cast<std::uint32_t>(engine_());  // any pattern
      case 1:
        return sign | (127 - 30 + random(65)) << 23 | random(1u << 23);  // where FP16 products live
      case 2:
        return sign | random(1u << 23);  // zero and subnormals
      case 3:
        return sign | (0x7f000000 + random(0x800000));  // near overflow
      case 4:
        return sign | (127 - 30 + random(65)) << 23;  // powers of two
      default:
        return sign;  // zero
    }
  }

 private:
  std::mt19937_64 engine_;
};

TEST(TensorCore, EqualsExactRationalTwin) {
  Operands operands(20240917);
  const std::size_t lengths[] = {1, 3, 4, 5, 8, 15, 16, 17, 33};
  long non_finite = 0;
  long cases = 0;
  for (const char* name : {"volta", "ampere", "hopper"}) {
    const TensorCoreModel& model = tensor_core_model(name);
    for (int half_kind = 0; half_kind < 6; ++half_kind)
      for (int single_kind = 0; single_kind < 6; ++single_kind)
        for (const std::size_t length : lengths)
          for (int repetition = 0; repetition < 96; ++repetition) {
            std::vector<std::uint16_t> a;
            std::vector<std::uint16_t> b;
            for (std::size_t k = 0; k < length; ++k) {
              a.push_back(operands.half(half_kind));
              b.push_back(
                  operands.half(repetition % 2 == 0 ? half_kind : static_cast<int>(operands.random(6))));
              // Cancelling pairs: the same product with the other sign.
              if (repetition % 3 == 0 && k % 2 == 1) {
                a[k] = static_cast<std::uint16_t>(a[k - 1] ^ 0x8000);
                b[k] = b[k - 1];
              }
            }
            std::uint32_t c = operands.single(single_kind);
            std::vector<Float16> half_a;
            std::vector<Float16> half_b;
            for (std::size_t k = 0; k < length; ++k) {
              half_a.push_back(Float16::from_bits(a[k]));
              half_b.push_back(Float16::from_bits(b[k]));
            }
            const float result = fused_dot_add(model, half_a, half_b, float_from_bits(c));
            non_finite += std::isfinite(result) ? 0 : 1;
            ++cases;
            ASSERT_EQ(bits_of(result), twin(model, a, b, c))
                << name << ", kinds " << half_kind << ' ' << single_kind << ", K = " << length;
          }
  }
  EXPECT_GT(non_finite, cases / 50);  // the special values were really there
  EXPECT_LT(non_finite, cases / 2);
}

// FP16 products never lie below a real row's exponent floor: a row of our own makes it visible.
TEST(TensorCore, ExponentFloorTruncates) {
  TensorCoreModel row = tensor_core_model("hopper");
  row.exponent_floor = 0;  // unit 2^-25
  EXPECT_EQ(bits_of(fused_dot_add(row, halves("0c00"), halves("0c00"), 0x1p-25f)), bits_of(0x1.8p-24f));
  EXPECT_EQ(bits_of(fused_dot_add(row, halves("0001"), halves("3c00"), 0x1p-26f)), bits_of(0x1p-24f));
  EXPECT_EQ(bits_of(fused_dot_add(row, halves("0001"), halves("0001"), -0x1p-26f)), 0u);
}

TEST(TensorCore, NoProductsReturnTheAccumulatorUnchanged) {
  const std::vector<Float16> none;
  for (const TensorCoreModel& model : tensor_core_models())
    for (const std::uint32_t c : {0x80000000u, 0x3f800001u, 0xffc00001u, 0x00000001u, 0xff800000u})
      EXPECT_EQ(bits_of(fused_dot_add(model, none, none, float_from_bits(c))), c);
}

TEST(TensorCore, BadInputIsNamed) {
  const std::vector<Float16> two(2, Float16::from_bits(0));
  const std::vector<Float16> three(3, Float16::from_bits(0));
  EXPECT_THROW(fused_dot_add(tensor_core_model("hopper"), two, three, 0.0f), std::invalid_argument);
  try {
    tensor_core_model("hoper");
    FAIL() << "accepted a model that does not exist";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("did you mean 'hopper'"));
    EXPECT_THAT(error.what(), testing::HasSubstr("blackwell-tcgen05"));
  }
  try {
    tensor_core_model("zzzzzzzz");
    FAIL() << "accepted a model that does not exist";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), testing::Not(testing::HasSubstr("did you mean")));
  }
}

TEST(TensorCore, EveryRowSaysWhereItComesFrom) {
  std::vector<std::string> names;
  for (const TensorCoreModel& model : tensor_core_models()) {
    names.emplace_back(model.name);
    EXPECT_FALSE(model.source.empty() || model.hardware.empty()) << model.name;
  }
  EXPECT_THAT(names, testing::ElementsAre("volta", "turing", "ampere", "ada", "hopper", "hopper-wgmma",
                                          "blackwell", "blackwell-tcgen05"));
}

}  // namespace
}  // namespace fp16lab
