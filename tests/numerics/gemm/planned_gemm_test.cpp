// Products in the order of a library's plan, against chains and additions written out for each output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <stdexcept>
#include <vector>

#include "numerics/formats/bits.hpp"
#include "numerics/gemm/library_plan.hpp"

namespace fp16lab {
namespace {

using ::testing::HasSubstr;

struct Case {
  const TensorCoreModel& row;
  DType format;
  GemmShape shape;
  std::vector<std::uint8_t> bytes = {};    ///< of FP8: A, then B, both row-major
  std::vector<std::uint16_t> halves = {};  ///< of BF16
};

Case random_case(std::string_view name, DType format, GemmShape shape) {
  Case x{tensor_core_model(name, format), format, shape};
  std::mt19937 random(7);
  const auto count = static_cast<std::size_t>(shape.k * (shape.m + shape.n));
  for (std::size_t i = 0; i < count; ++i) {
    x.bytes.push_back(static_cast<std::uint8_t>((random() & 0xb7U) | 0x20U));  // finite, some binades apart
    x.halves.push_back(static_cast<std::uint16_t>((random() & 0x83ffU) | 0x3c00U));
  }
  return x;
}

std::uint32_t word(const Case& x, std::size_t i) { return is_fp8(x.format) ? x.bytes[i] : x.halves[i]; }

StridedMatrix matrix(const Case& x, std::size_t from, std::int64_t columns) {
  const void* const data =
      is_fp8(x.format) ? static_cast<const void*>(x.bytes.data() + from) : x.halves.data() + from;
  return {x.format, data, columns, 1};
}

std::vector<float> planned(const Case& x, const ProductOrder& order, int threads = 1) {
  std::vector<float> d(static_cast<std::size_t>(x.shape.m * x.shape.n));
  planned_gemm(x.row, order, x.shape, matrix(x, 0, x.shape.k),
               matrix(x, static_cast<std::size_t>(x.shape.m * x.shape.k), x.shape.n), d.data(), x.shape.n,
               threads);
  return d;
}

/// One chain from +0 over these k.
float chain(const Case& x, std::int64_t i, std::int64_t j, const std::vector<std::int64_t>& ks) {
  std::vector<std::uint32_t> a, b;
  for (const std::int64_t k : ks) {
    a.push_back(word(x, static_cast<std::size_t>(i * x.shape.k + k)));
    b.push_back(word(x, static_cast<std::size_t>(x.shape.m * x.shape.k + k * x.shape.n + j)));
  }
  return float_from_bits(fused_dot_add(x.row, x.format, a, x.format, b, 0));
}

std::vector<std::int64_t> range(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> ks;
  for (std::int64_t k = begin; k < end; ++k) ks.push_back(k);
  return ks;
}

template <class Output>
void expect_outputs(const Case& x, const ProductOrder& order, const Output& output) {
  const std::vector<float> d = planned(x, order);
  EXPECT_EQ(planned(x, order, 3), d);
  const std::vector<float> chained = planned(x, {});
  std::size_t others = 0;
  for (std::int64_t i = 0; i < x.shape.m; ++i)
    for (std::int64_t j = 0; j < x.shape.n; ++j) {
      const auto at = static_cast<std::size_t>(i * x.shape.n + j);
      ASSERT_EQ(bits_of(d[at]), bits_of(output(i, j))) << order_text(order) << ", output " << i << ' ' << j;
      others += d[at] != chained[at] ? 1 : 0;
    }
  EXPECT_GT(10 * others, d.size()) << "the order shows: " << order_text(order);
}

TEST(PlannedGemm, ChainsBeginAgain) {
  const Case x = random_case("avx512_bf16", DType::bf16, {.m = 5, .n = 7, .k = 83});
  expect_outputs(x, {.restart = 32}, [&](std::int64_t i, std::int64_t j) {
    return (chain(x, i, j, range(0, 32)) + chain(x, i, j, range(32, 64))) + chain(x, i, j, range(64, 83));
  });
}

TEST(PlannedGemm, NeighbouringPartsAreAddedInOrder) {
  const Case x = random_case("hopper-wgmma", DType::e4m3, {.m = 3, .n = 5, .k = 32 * 7 - 9});
  const std::int64_t k = x.shape.k;
  // Seven tiles of 32: parts of three, three and one.
  expect_outputs(x, {.restart = 64, .parts = 3, .tile = 32}, [&](std::int64_t i, std::int64_t j) {
    const float p0 = chain(x, i, j, range(0, 64)) + chain(x, i, j, range(64, 96));
    const float p1 = chain(x, i, j, range(96, 160)) + chain(x, i, j, range(160, 192));
    return (p0 + p1) + chain(x, i, j, range(192, k));
  });
}

TEST(PlannedGemm, InterleavedPartsAreAddedInPairs) {
  const Case x = random_case("ada", DType::e4m3, {.m = 4, .n = 3, .k = 16 * 9});
  const auto part = [&](std::int64_t i, std::int64_t j, std::int64_t p) {
    std::vector<std::int64_t> ks;
    for (std::int64_t t = p; t < 9; t += 4)
      for (const std::int64_t k : range(16 * t, 16 * t + 16)) ks.push_back(k);
    return chain(x, i, j, ks);
  };
  // h = 2: slot 0 is p0 + p2, slot 1 is p1 since 1 + 2 is the last part.
  expect_outputs(x, {.parts = 4, .tile = 16, .interleaved = true, .join = Join::pairwise},
                 [&](std::int64_t i, std::int64_t j) {
                   return (part(i, j, 3) + (part(i, j, 0) + part(i, j, 2))) + part(i, j, 1);
                 });
}

std::string refusal(std::string_view plan, const TensorCoreModel& row, const ProductCall& call) {
  try {
    library_plan(plan).order(row, call);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "none";
}

TEST(LibraryPlan, RefusesByNameWhatIsNotKnown) {
  const TensorCoreModel& processor = tensor_core_model("avx512_bf16", DType::bf16);
  const auto onednn = [&](const ProductCall& call) { return refusal("onednn", processor, call); };
  EXPECT_EQ(onednn({.shape = {64, 64, 64}}), "none");
  EXPECT_THAT(onednn({.shape = {16, 16, 16}}),
              HasSubstr("16 x 16 x 16 has no more than 4096 multiplications"));
  EXPECT_EQ(onednn({.shape = {16, 16, 16}, .batch = 2}), "none");
  EXPECT_THAT(onednn({.shape = {1, 64, 640}}), HasSubstr("a matrix times a vector"));
  EXPECT_THAT(onednn({.shape = {64, 64, 2048}, .a_transposed = true, .threads = 2}),
              HasSubstr("whether K is split"));
  EXPECT_EQ(library_plan("onednn").order(processor, {.shape = {64, 64, 1024}}).restart, 512);
  EXPECT_EQ(library_plan("onednn").order(processor, {.shape = {64, 64, 1026}}).restart, 1024);
  EXPECT_EQ(library_plan("onednn").order(processor, {.shape = {64, 64, 2048}, .a_transposed = true}).restart,
            512);
  const TensorCoreModel& hopper = tensor_core_model("hopper", DType::e4m3);
  const ProductCall fp8{.shape = {64, 64, 256}, .a = DType::e4m3, .b = DType::e4m3};
  EXPECT_THAT(refusal("onednn", hopper, fp8), HasSubstr("it takes the row avx512_bf16, not hopper"));
  EXPECT_THAT(refusal("cublaslt-12.8", hopper, fp8), HasSubstr("ada and hopper-wgmma, not hopper"));
  EXPECT_THAT(refusal("cublaslt-12.8", hopper, {.shape = {64, 64, 256}}),
              HasSubstr("products of f16 are not known"));
  EXPECT_THROW(library_plan("mkl"), std::invalid_argument);
}

TEST(PlannedGemm, RefusesOrdersThatNoInstructionAllows) {
  const Case x = random_case("ada", DType::e4m3, {.m = 2, .n = 2, .k = 64});
  EXPECT_THROW(planned(x, {.restart = 24}), std::invalid_argument);
  EXPECT_THROW(planned(x, {.parts = 2}), std::invalid_argument);
  EXPECT_THROW(planned(x, {.parts = 2, .tile = 8}), std::invalid_argument);
}

}  // namespace
}  // namespace fp16lab
