// The table of tensor cores and fused_dot_add, on published and hand-made vectors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "numerics/arithmetic/arithmetic.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/tensor_core_twin.hpp"
#include "tests/support/tensor_core_vectors.hpp"

namespace fp16lab {
namespace {

using testing::HasSubstr;
using testing_support::all_tensor_core_vectors;
using testing_support::hex_words;
using testing_support::message_of;
using testing_support::tensor_core_vectors;
using testing_support::TensorCoreVector;
using testing_support::VectorScales;

std::vector<Float16> halves(const std::vector<std::uint32_t>& words) {
  std::vector<Float16> result;
  result.reserve(words.size());
  for (const std::uint32_t word : words)
    result.push_back(Float16::from_bits(static_cast<std::uint16_t>(word)));
  return result;
}

std::string text(const TensorCoreVector& v) {
  std::string options;
  for (const std::string& option : v.options) options += " " + option;
  if (!v.scale.empty()) options += ' ' + v.line();
  if (v.source.starts_with("mmasim")) options += ' ' + v.a;  // several of a kind
  return v.id + " on " + v.model + ' ' + v.in + ' ' + v.acc + options + " (" + v.source + ")";
}

std::string formats_of(const TensorCoreModel& row, DType format) {
  return std::string(row.name) + ' ' + std::string(name_of(format)) + " with " +
         std::string(name_of(row.accumulator()));
}

TEST(TensorCore, GoldenVectors) {
  for (const TensorCoreVector& v : all_tensor_core_vectors()) {
    const TensorCoreModel row = row_of(v);
    const std::vector<std::uint32_t> a = hex_words(v.a);
    const std::vector<std::uint32_t> b = hex_words(v.b);
    const std::uint32_t c = hex_words(v.c).at(0);
    const std::uint32_t d = hex_words(v.d).at(0);
    ASSERT_FALSE(a.empty() || v.source.empty()) << text(v);
    const DType a_format = operand_format(v.in_a());
    const DType b_format = operand_format(v.in_b());
    const VectorScales scales(v);
    EXPECT_EQ(fused_dot_add(row, a_format, a, b_format, b, c, scales), d) << text(v);
    if (v.in == "f16" && v.acc == "f32") {
      EXPECT_EQ(bits_of(fused_dot_add(row, halves(a), halves(b), float_from_bits(c))), d) << text(v);
    }
    // The twin is judged by the same vectors, the published captures among them.
    EXPECT_EQ(oracle::Twin(row).dot(a_format, a, b_format, b, c, scales), d) << "the twin, " << text(v);
  }
}

// FP64's chain of fmas, which MMA-Sim's vectors, and fp16lab's own fma in integers, both give.
TEST(TensorCore, Fp64IsAChainOfFmas) {
  const auto lines = testing_support::golden_lines("fp64", 7);
  EXPECT_EQ(lines.size(), 30U);
  std::set<std::string> models;
  for (const std::vector<std::string>& line : lines) {
    const auto word_of = [](const std::string& text) {
      return std::uint64_t{std::stoull(text, nullptr, 16)};
    };
    std::vector<std::uint64_t> a, b;
    for (const std::string& word : testing_support::split(line[2], ' ')) a.push_back(word_of(word));
    for (const std::string& word : testing_support::split(line[3], ' ')) b.push_back(word_of(word));
    const TensorCoreModel& row = tensor_core_model(line[1], DType::f64, DType::f64);
    EXPECT_EQ(fused_dot_add(row, a, b, word_of(line[4])), word_of(line[5])) << line[0] << ' ' << line[1];
    using Double = SmallFloat<Binary64>;
    Double sum = Double::from_bits(word_of(line[4]));
    for (std::size_t k = 0; k < a.size(); ++k)
      sum = fma(Double::from_bits(a[k]), Double::from_bits(b[k]), sum);
    EXPECT_EQ(sum.bits(), word_of(line[5])) << line[0] << ' ' << line[1];
    models.insert(line[1]);
  }
  EXPECT_EQ(models.size(), 4U);
  const std::vector<std::uint64_t> one{0}, two{0, 0};
  const TensorCoreModel& row = tensor_core_model("hopper", DType::f64, DType::f64);
  EXPECT_THAT(message_of([&] { fused_dot_add(row, one, two, 0); }),
              HasSubstr("a has 1 elements and b has 2"));
  EXPECT_THAT(message_of([&] { fused_dot_add(tensor_core_model("hopper"), one, one, 0); }),
              HasSubstr("no f64 operands"));
}

TEST(TensorCore, NoGoldenVectorIsMissing) {
  const std::map<std::string, std::size_t> sizes{{"fp16_fp32", 263}, {"bf16_tf32", 107},   {"fp16_fp16", 138},
                                                 {"fp8", 55},        {"captured", 385},    {"options", 123},
                                                 {"f8f6f4", 108},    {"block_scales", 108}};
  for (const auto& [file, size] : sizes) EXPECT_EQ(tensor_core_vectors(file).size(), size) << file;

  std::set<std::string> ids;
  std::set<std::string> keys;
  std::set<std::string> seen;
  for (const TensorCoreVector& v : all_tensor_core_vectors()) {
    std::string id = v.id;
    while (!id.empty() && id.back() >= 'a' && id.back() <= 'z') id.pop_back();
    ids.insert(id);
    EXPECT_TRUE(keys.insert(text(v)).second) << "twice: " << text(v);
    if (v.options.empty()) seen.insert(v.model + ' ' + v.in_a() + " with " + v.acc);
  }
  for (int i = 1; i <= 67; ++i) EXPECT_TRUE(ids.contains("V" + std::to_string(i))) << "V" << i;
  for (const char* probe : {"P2", "P3"}) EXPECT_TRUE(ids.contains(probe)) << probe;

  for (const TensorCoreModel& row : all_tensor_core_models())
    for (const DType format : dtypes<is_low_precision>)
      if (row.operands.contains(format) && format != DType::e5m2) {  // shares its rows with e4m3
        EXPECT_TRUE(seen.contains(formats_of(row, format))) << formats_of(row, format);
      }
}

// Volta adds 1 - 2^-24 and four 2^-24 to more than 1 and four 2^-24 (Fasi et al., 2021).
TEST(TensorCore, VoltaIsNotMonotoneInTheAccumulator) {
  const std::vector<Float16> x(4, Float16::from_bits(0x0c00));  // 2^-12
  const TensorCoreModel& volta = tensor_core_model("volta");
  EXPECT_GT(fused_dot_add(volta, x, x, 0x1.fffffep-1f), fused_dot_add(volta, x, x, 1.0f));
}

// FP16 products are never below the floor of a row with FP32 output: a row of our own makes it visible.
TEST(TensorCore, ExponentFloorTruncates) {
  TensorCoreModel row = tensor_core_model("hopper");
  row.set(&Stage::exponent_floor, 0);  // unit 2^-25
  const auto dot = [&row](std::uint32_t a, std::uint32_t b, float c) {
    return fused_dot_add(row, halves({a}), halves({b}), c);
  };
  EXPECT_EQ(dot(0x0c00, 0x0c00, 0x1p-25f), 0x1.8p-24f);
  EXPECT_EQ(dot(0x0001, 0x3c00, 0x1p-26f), 0x1p-24f);
  EXPECT_EQ(bits_of(dot(0x0001, 0x0001, -0x1p-26f)), 0U);
}

TEST(TensorCore, NoProductsReturnTheAccumulatorUnchanged) {
  for (const TensorCoreModel& row : tensor_core_models()) {
    const DType format = *std::ranges::find_if(
        dtypes<is_low_precision>, [&](DType candidate) { return row.operands.contains(candidate); });
    for (const std::uint32_t c : {0x8000U, 0x3c01U, 0xfc01U, 0x0001U, 0xfc00U}) {
      EXPECT_EQ(fused_dot_add(row, format, {}, format, {}, c), c);
      if (row.accumulator() == DType::f32) {
        EXPECT_EQ(fused_dot_add(row, format, {}, format, {}, c << 16 | 1), c << 16 | 1);
      }
    }
  }
}

// The upper bits of a word beyond its format do not count, as a 16-bit register's neighbour does not.
TEST(TensorCore, OnlyTheLowBitsOfAWordCount) {
  const TensorCoreModel& row = tensor_core_model("hopper", DType::f16, DType::f16);
  const std::vector<std::uint32_t> clean{0x3c00};
  const std::vector<std::uint32_t> dirty{0xffff3c00};
  EXPECT_EQ(fused_dot_add(row, DType::f16, dirty, DType::f16, clean, 0xffff3c00U), 0x4000U);
}

TEST(TensorCore, BadInputIsNamed) {
  const std::vector<Float16> two(2), three(3);
  const std::vector<std::uint32_t> word{0};
  TensorCoreModel row = tensor_core_model("hopper");
  EXPECT_THAT(message_of([&] { fused_dot_add(row, two, three, 0.0f); }),
              HasSubstr("a has 2 elements and b has 3"));
  EXPECT_THAT(message_of([&] { fused_dot_add(row, DType::f16, word, DType::e4m3, word, 0); }),
              HasSubstr("no e4m3 operands"));
  EXPECT_THAT(
      message_of([&] { fused_dot_add(tensor_core_model("hopper", DType::f16, DType::f16), two, two, 0.0f); }),
      HasSubstr("accumulates in f16"));
  const auto with = [&row](int Stage::*number, int value) {
    TensorCoreModel changed = row;
    changed.set(number, value);
    return message_of(
        [&] { fused_dot_add(changed, std::vector<Float16>(1), std::vector<Float16>(1), 0.0f); });
  };
  EXPECT_THAT(with(&Stage::products, 65), HasSubstr("65 products; 1 to 64"));
  EXPECT_THAT(with(&Stage::products, 0), HasSubstr("1 to 64"));
  EXPECT_THAT(with(&Stage::fraction_bits, 49), HasSubstr("49 fraction bits; 1 to 48"));
  EXPECT_THAT(with(&Stage::fraction_bits, 0), HasSubstr("1 to 48"));
  EXPECT_THAT(with(&Stage::exponent_floor, 1001), HasSubstr("-1000 to 1000"));
}

TEST(TensorCore, UnknownNamesAreAnsweredWithTheKnownOnes) {
  const std::string mistyped = message_of([] { tensor_core_model("hoper"); });
  EXPECT_THAT(mistyped, HasSubstr("did you mean 'hopper'"));
  EXPECT_THAT(mistyped, HasSubstr("blackwell-tcgen05"));
  EXPECT_THAT(message_of([] { tensor_core_model("zzzzzzzz"); }), testing::Not(HasSubstr("did you mean")));
  EXPECT_THAT(
      message_of([] { tensor_core_model("volta", DType::bf16); }),
      HasSubstr("'volta' has no bf16 operands with f32 accumulators; it has f16 with f32, f16 with f16"));
  EXPECT_THAT(message_of([] { operand_format("fp16"); }), HasSubstr("did you mean 'f16'"));
  EXPECT_THAT(message_of([] { accumulator_format("f64"); }), HasSubstr("f32, f16"));
}

TEST(TensorCore, ChipsAndGenerationsAreFoundInAnyCase) {
  EXPECT_EQ(&tensor_core_model("Ampere"), &tensor_core_model("ampere"));
  EXPECT_EQ(tensor_core_model("HOPPER-wgmma", DType::e4m3).name, "hopper-wgmma");
  struct Chip {
    std::string_view name, row, other;
  };
  const Chip chips[] = {{"v100", "volta", ""},
                        {"T4", "turing", ""},
                        {"A100", "ampere", ""},
                        {"l40s", "ada", ""},
                        {"RTX4090", "ada", ""},
                        {"H100", "hopper", "hopper-wgmma"},
                        {"h200", "hopper", "hopper-wgmma"},
                        {"b200", "blackwell", "blackwell-tcgen05"},
                        {"zen4", "avx512_bf16", ""},
                        {"Zen5", "avx512_bf16", ""}};
  EXPECT_EQ(std::size(chips), tensor_core_chips().size());
  for (const Chip& chip : chips) {
    for (const DType accumulator : accumulator_formats)
      for (const DType format : dtypes<is_low_precision>) {
        const auto of = [&](std::string_view name) {
          try {
            return &tensor_core_model(name, format, accumulator);
          } catch (const std::invalid_argument&) {
            return static_cast<const TensorCoreModel*>(nullptr);
          }
        };
        if (!is_fp8(format) || chip.other.empty()) {
          // FP6 and FP4 are products of one of a chip's rows alone.
          const TensorCoreModel* const row = of(chip.row) != nullptr ? of(chip.row) : of(chip.other);
          EXPECT_EQ(of(chip.name), row) << chip.name << ' ' << name_of(format);
        } else {
          EXPECT_THAT(message_of([&] { tensor_core_model(chip.name, format, accumulator); }),
                      testing::AllOf(HasSubstr("different bits: " + std::string(chip.row) + " ("),
                                     HasSubstr(" and " + std::string(chip.other) + " (")))
              << name_of(format);
        }
      }
  }
  EXPECT_THAT(message_of([] { tensor_core_model("h10"); }), HasSubstr("did you mean 'h100'"));
  EXPECT_THAT(message_of([] { tensor_core_model("A100", DType::e4m3); }),
              HasSubstr("'A100' has no e4m3 operands with f32 accumulators; it has f16 with f32"));
}

// The rules that give the numbers (MMA-Sim): a block takes 8, 16 or 32 bytes of each operand; exponent floors
// are -108 - F0 with FP32 output and 4 - F0 with FP16 output, F0 being the generation's fraction bits.
TEST(TensorCore, TheTableIsWhole) {
  struct Generation {
    std::string_view name;
    int bytes, fraction_bits;
  };
  const Generation generations[] = {
      {"volta", 8, 23},   {"turing", 16, 24},       {"ampere", 16, 24},    {"ada", 16, 24},
      {"hopper", 32, 25}, {"hopper-wgmma", 32, 25}, {"blackwell", 32, 25}, {"blackwell-tcgen05", 32, 25}};
  const std::string_view others[] = {"avx512_bf16"};  // after NVIDIA's, with numbers of their own
  ASSERT_THAT(tensor_core_names().subspan(std::size(generations)), testing::ElementsAreArray(others));
  std::set<std::string> questions;
  for (std::size_t i = 0; i < std::size(generations); ++i) {
    const Generation& generation = generations[i];
    EXPECT_EQ(tensor_core_names()[i], generation.name);
    for (const TensorCoreModel& row : tensor_core_models()) {
      if (row.name != generation.name) continue;
      EXPECT_FALSE(row.source.empty() || row.hardware.empty()) << row.name;
      // What the published models recommend where hardware has not spoken.
      EXPECT_EQ(row.subnormal_accumulator, SubnormalAccumulator::emin) << row.name;
      EXPECT_EQ(row.underflow_zero, UnderflowZero::positive) << row.name;
      EXPECT_EQ(row.block().exponent_floor,
                (row.accumulator() == DType::f16 ? 4 : -108) - generation.fraction_bits)
          << row.name << ' ' << row.hardware;
      for (const DType format : dtypes<is_low_precision>) {
        if (!row.operands.contains(format)) continue;
        EXPECT_TRUE(questions.insert(formats_of(row, format)).second)
            << "two rows for one question: " << formats_of(row, format);
        EXPECT_EQ(&tensor_core_model(row.name, format, row.accumulator()), &row);
        const bool bytes = is_byte_format(format) && !row.as_fp16;
        EXPECT_EQ(row.block().products * (format == DType::tf32 ? 4
                                          : bytes               ? 1
                                                                : 2),
                  generation.bytes)
            << formats_of(row, format);
        const bool short_sums = bytes && (row.name == "ada" || row.name == "hopper-wgmma");
        EXPECT_EQ(row.block().fraction_bits, short_sums ? 13 : generation.fraction_bits)
            << formats_of(row, format);
        EXPECT_EQ(row.block().output == BlockOutput::fp32_toward_zero_14_bits,
                  short_sums && row.accumulator() == DType::f32)
            << formats_of(row, format);
      }
    }
  }
  // f16, bf16, tf32 and FP8 by accumulator: volta 2, turing 2, ampere 4, the five others 8 each.
  // FP6 and FP4 on blackwell-tcgen05: 6.
  EXPECT_EQ(questions.size(), 2U + 2U + 4U + 5U * 8U + 6U);

  // After them: block scales, whose floor is -108 - F, but -139 with F = 35 for groups; and FP64.
  EXPECT_THAT(block_scaled_names(), testing::ElementsAre("blackwell-mxf8f6f4", "blackwell-mxf4nvf4"));
  std::size_t others_left = 0;
  for (const TensorCoreModel& row : all_tensor_core_models().subspan(tensor_core_models().size())) {
    ++others_left;
    EXPECT_NE(row.is_scaled(), row.accumulator() == DType::f64) << row.name;
    EXPECT_EQ(&tensor_core_model(row.name, row.is_scaled() ? DType::e2m1 : DType::f64, row.accumulator()),
              &row);
  }
  EXPECT_EQ(others_left, 2U + 4U);
}

// Compute capabilities as the CUDA C++ Programming Guide lists them.
TEST(TensorCoreTable, EveryComputeCapabilityWithTensorCoresHasAGeneration) {
  const std::map<std::pair<int, int>, std::string_view> generations = {
      {{7, 0}, "volta"},      {{7, 2}, "volta"},      {{7, 5}, "turing"},     {{8, 0}, "ampere"},
      {{8, 6}, "ampere"},     {{8, 7}, "ampere"},     {{8, 9}, "ada"},        {{9, 0}, "hopper"},
      {{10, 0}, "blackwell"}, {{10, 3}, "blackwell"}, {{12, 0}, "blackwell"}, {{12, 1}, "blackwell"}};
  for (const auto& [capability, generation] : generations) {
    EXPECT_EQ(tensor_core_of(capability.first, capability.second), generation);
    EXPECT_THAT(tensor_core_names(), testing::Contains(generation));
  }
  EXPECT_EQ(tensor_core_of(6, 1), "");
  EXPECT_EQ(tensor_core_of(13, 0), "");
}

}  // namespace
}  // namespace fp16lab
