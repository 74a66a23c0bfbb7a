// Products in the order of a library's plan, against chains and additions written out for each output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <stdexcept>
#include <vector>

#include "numerics/convert/convert.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/gemm/explained_product.hpp"
#include "numerics/gemm/library_plan.hpp"
#include "numerics/gemm/order_steps.hpp"

namespace fp16lab {
namespace {

using ::testing::HasSubstr;

struct Case {
  const TensorCoreModel& row;
  DType format;
  GemmShape shape;
  std::vector<std::uint8_t> bytes = {};    ///< FP8 codes: A, then B, both row-major
  std::vector<std::uint16_t> halves = {};  ///< BF16 codes
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

std::vector<float> planned(const Case& x, const PlannedProduct& order, int threads = 1) {
  std::vector<float> d(static_cast<std::size_t>(x.shape.m * x.shape.n));
  planned_gemm(order, x.shape, matrix(x, 0, x.shape.k),
               matrix(x, static_cast<std::size_t>(x.shape.m * x.shape.k), x.shape.n), d.data(), x.shape.n,
               threads);
  return d;
}

std::vector<std::uint32_t> words(const Case& x, std::int64_t first, std::int64_t step) {
  std::vector<std::uint32_t> all;
  for (std::int64_t k = 0; k < x.shape.k; ++k)
    all.push_back(word(x, static_cast<std::size_t>(first + k * step)));
  return all;
}

/// The scalar reference and its explanation give the same word, and the parts of the error add up to it.
void expect_explained(const Case& x, const PlannedProduct& order, std::int64_t i, std::int64_t j,
                      float expected) {
  const std::vector<std::uint32_t> a = words(x, i * x.shape.k, 1);
  const std::vector<std::uint32_t> b = words(x, x.shape.m * x.shape.k + j, x.shape.n);
  EXPECT_EQ(planned_dot(order, x.format, a, x.format, b), bits_of(expected)) << order_text(order);
  const ExplainedDot dot = explained_product(order, x.format, a, x.format, b);
  EXPECT_EQ(dot.word, bits_of(expected)) << order_text(order);
  Rational parts = 0;
  for (const ExplainedStep& step : dot.steps) {
    parts += step.result.value - step.sum.value;
    for (const ExplainedTerm& term : step.terms) parts -= term.dropped;
  }
  EXPECT_EQ(*dot.error, parts) << order_text(order);
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

PlannedProduct of(const Case& x, const ProductOrder& order) { return {.row = &x.row, .ranges = {order}}; }

template <class Output>
void expect_outputs(const Case& x, const PlannedProduct& order, const Output& output) {
  const std::vector<float> d = planned(x, order);
  EXPECT_EQ(planned(x, order, 3), d);
  const std::vector<float> chained = planned(x, {.row = &x.row});
  std::size_t others = 0;
  for (std::int64_t i = 0; i < x.shape.m; ++i)
    for (std::int64_t j = 0; j < x.shape.n; ++j) {
      const auto at = static_cast<std::size_t>(i * x.shape.n + j);
      ASSERT_EQ(bits_of(d[at]), bits_of(output(i, j))) << order_text(order) << ", output " << i << ' ' << j;
      others += d[at] != chained[at] ? 1 : 0;
      if (j == 0) expect_explained(x, order, i, j, output(i, j));
    }
  EXPECT_GT(10 * others, d.size()) << "the order shows: " << order_text(order);
}

TEST(PlannedGemm, ChainsBeginAgain) {
  const Case x = random_case("avx512_bf16", DType::bf16, {.m = 5, .n = 7, .k = 83});
  expect_outputs(x, of(x, {.restart = 32}), [&](std::int64_t i, std::int64_t j) {
    return (chain(x, i, j, range(0, 32)) + chain(x, i, j, range(32, 64))) + chain(x, i, j, range(64, 83));
  });
}

TEST(PlannedGemm, NeighbouringPartsAreAddedInOrder) {
  const Case x = random_case("hopper-wgmma", DType::e4m3, {.m = 3, .n = 5, .k = 32 * 7 - 9});
  const std::int64_t k = x.shape.k;
  // Seven tiles of 32: parts of three, three and one.
  expect_outputs(x, of(x, {.restart = 64, .parts = 3, .tile = 32}), [&](std::int64_t i, std::int64_t j) {
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
  expect_outputs(x, of(x, {.parts = 4, .tile = 16, .interleaved = true, .join = Join::pairwise}),
                 [&](std::int64_t i, std::int64_t j) {
                   return (part(i, j, 3) + (part(i, j, 0) + part(i, j, 2))) + part(i, j, 1);
                 });
}

std::string refusal(std::string_view plan, const TensorCoreModel& row, const ProductCall& call) {
  try {
    library_plan(plan).product(row, call);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "none";
}

TEST(LibraryPlan, RefusesByNameWhatIsNotKnown) {
  const TensorCoreModel& processor = tensor_core_model("avx512_bf16", DType::bf16);
  const auto onednn = [&](const ProductCall& call) { return refusal("onednn", processor, call); };
  EXPECT_THAT(onednn({.shape = {1, 8, 40}, .a_transposed = true, .b_transposed = true}),
              HasSubstr("both operands transposed"));
  EXPECT_THAT(onednn({.shape = {64, 64, 2048}, .a_transposed = true, .threads = 4}),
              HasSubstr("whether K of"));
  EXPECT_THAT(onednn({.shape = {64, 64, 131072}, .a_transposed = true, .threads = 2}),
              HasSubstr("was not looked at"));
  const TensorCoreModel& hopper = tensor_core_model("hopper", DType::e4m3);
  const ProductCall fp8{.shape = {64, 64, 256}, .a = DType::e4m3, .b = DType::e4m3};
  EXPECT_THAT(refusal("onednn", hopper, fp8), HasSubstr("it takes the row avx512_bf16, not hopper"));
  EXPECT_THAT(refusal("cublaslt-12.8", hopper, fp8), HasSubstr("ada and hopper-wgmma, not hopper"));
  EXPECT_THAT(refusal("cublaslt-12.8", hopper, {.shape = {64, 64, 256}}),
              HasSubstr("products of f16 are not known"));
  EXPECT_THROW(library_plan("mkl"), std::invalid_argument);
}

/// Every class of oneDNN's and ATen's dispatch, by its order.
TEST(LibraryPlan, OneDnnDispatchesByShapeAndLayout) {
  const TensorCoreModel& processor = tensor_core_model("avx512_bf16", DType::bf16);
  const auto order = [&](const ProductCall& call) {
    return order_text(library_plan("onednn").product(processor, call));
  };
  EXPECT_EQ(order({.shape = {64, 64, 1024}}), "avx512_bf16: chains of 512, added in order");
  EXPECT_EQ(order({.shape = {64, 64, 1026}}), "avx512_bf16: chains of 1024, added in order");
  EXPECT_EQ(order({.shape = {64, 64, 2048}, .a_transposed = true}),
            "avx512_bf16: chains of 512, added in order");
  EXPECT_EQ(order({.shape = {128, 33, 8192}, .a_transposed = true, .threads = 2}),
            "avx512_bf16: 2 neighbouring parts of tiles of 4096, each chains of 512, added in order, added "
            "in order");
  EXPECT_EQ(order({.shape = {256, 256, 4096}, .a_transposed = true, .threads = 2}),
            "avx512_bf16: chains of 512, added in order");
  EXPECT_EQ(order({.shape = {16, 16, 16}}),
            "aten: 4 interleaved parts of single elements, each one chain, added in order");
  EXPECT_EQ(
      order({.shape = {4, 4, 100}, .b_transposed = true}),
      "aten: 64 interleaved parts of single elements, each one chain, added by halving them, up to 64; then "
      "8 interleaved parts of single elements, each one chain, added by halving them, up to 96; then term "
      "by term");
  EXPECT_EQ(order({.shape = {4, 4, 100}, .a_transposed = true}), "aten: one chain");
  EXPECT_EQ(order({.shape = {4, 4, 20}, .batch = 3, .kind = ProductKind::bmm}), "aten: one chain");
  EXPECT_EQ(order({.shape = {16, 16, 17}, .batch = 2, .kind = ProductKind::bmm}),
            "avx512_bf16: chains of 512, added in order");
  EXPECT_EQ(order({.shape = {1, 64, 640}}), "aten: one chain");
  EXPECT_EQ(order({.shape = {64, 64, 32768}, .a_transposed = true, .threads = 2}),
            "avx512_bf16: 2 neighbouring parts of tiles of 16384, each chains of 512, added in order, added "
            "in order");
  EXPECT_EQ(order({.shape = {30, 1, 20}, .kind = ProductKind::mv}),
            "aten: 8 interleaved parts of single elements, each one chain, added by halving them, up to 16; "
            "then term by term");
  EXPECT_EQ(order({.shape = {30, 1, 20}, .kind = ProductKind::mv, .a_transposed = true}), "aten: one chain");
  EXPECT_EQ(order({.shape = {1, 1, 20}, .kind = ProductKind::dot}),
            "aten: 8 interleaved parts of single elements, each one chain, added by halving them, up to 16; "
            "then term by term");
  EXPECT_EQ(order({.shape = {1, 1, 5000}, .kind = ProductKind::dot}),
            "avx512_bf16: 16 interleaved parts of tiles of 2, each one chain, added by halving them to four, "
            "then in pairs");
  EXPECT_EQ(order({.shape = {256, 1, 128}}),
            "avx512_bf16: 16 interleaved parts of tiles of 2, each one chain, added by halving them to four, "
            "then in "
            "pairs");
}

TEST(LibraryPlan, OneDnnTakesAtensLoopsForFp16) {
  const LibraryPlan& onednn = library_plan("onednn");
  const TensorCoreModel& row = planned_row(onednn, "zen5", DType::f16, DType::f16, DType::f32);
  const ProductCall call{.shape = {64, 64, 1024}, .a = DType::f16, .b = DType::f16};
  EXPECT_EQ(order_text(onednn.product(row, call)),
            "aten: 4 interleaved parts of single elements, each one chain, added in order");
  EXPECT_EQ(planned_row(onednn, "hopper", DType::f16, DType::f16, DType::f32).name, "hopper");
  EXPECT_THROW(planned_row(library_plan("instruction"), "zen5", DType::f16, DType::f16, DType::f32),
               std::invalid_argument);
}

TEST(PlannedGemm, LanesAndTermsThatFollow) {
  const Case x = random_case("avx512_bf16", DType::bf16, {.m = 4, .n = 4, .k = 91});
  const PlannedProduct small =
      library_plan("onednn").product(x.row, {.shape = x.shape, .b_transposed = true});
  const Case single{*small.row, x.format, x.shape, x.bytes, x.halves};
  expect_outputs(single, small, [&](std::int64_t i, std::int64_t j) {
    const auto term = [&](std::int64_t k) { return chain(single, i, j, {k}); };
    std::vector<float> lanes;
    for (std::int64_t k = 0; k < 64; ++k) lanes.push_back(term(k));
    for (std::size_t half = 32; half > 0; half /= 2)
      for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    std::vector<float> tail;
    for (std::int64_t k = 64; k < 72; ++k) tail.push_back(chain(single, i, j, {k, k + 8}));
    for (std::size_t half = 4; half > 0; half /= 2)
      for (std::size_t lane = 0; lane < half; ++lane) tail[lane] += tail[lane + half];
    float sum = lanes[0] + tail[0];
    for (std::int64_t k = 80; k < 91; ++k) sum += term(k);
    return sum;
  });
  const PlannedProduct four = library_plan("onednn").product(x.row, {.shape = {4, 4, 91}});
  expect_outputs(single, four, [&](std::int64_t i, std::int64_t j) {
    std::vector<std::vector<std::int64_t>> ks(4);
    for (std::int64_t k = 0; k < 88; ++k) ks[static_cast<std::size_t>(k % 4)].push_back(k);
    for (const std::int64_t k : {88, 89, 90}) ks[0].push_back(k);
    return ((chain(single, i, j, ks[0]) + chain(single, i, j, ks[1])) + chain(single, i, j, ks[2])) +
           chain(single, i, j, ks[3]);
  });
  const Case vector = random_case("avx512_bf16", DType::bf16, {.m = 40, .n = 1, .k = 163});
  const PlannedProduct lanes = library_plan("onednn").product(vector.row, {.shape = vector.shape});
  expect_outputs(vector, lanes, [&](std::int64_t i, std::int64_t j) {
    std::vector<float> sums;
    for (std::int64_t lane = 0; lane < 16; ++lane) {
      std::vector<std::int64_t> ks;
      for (std::int64_t k = 2 * lane; k < 163; k += 32)
        for (std::int64_t e = k; e < std::min<std::int64_t>(k + 2, 163); ++e) ks.push_back(e);
      sums.push_back(chain(vector, i, j, ks));
    }
    for (std::size_t half = 8; half > 2; half /= 2)
      for (std::size_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
  });
}

/// By hand. The parts of K are 2048 + 9 and 1 + 2^-11. FP16 has multiples of 2 there and rounds 2057 to 2056,
/// whose significand 1028 is even; BF16 has multiples of 16 and rounds it to 2064. Both round the second, a
/// tie or less, to 1.
TEST(PlannedGemm, PartialSumsOfReducedPrecision) {
  const TensorCoreModel& volta = tensor_core_model("volta");
  const auto f16 = [](float x) { return narrow<Binary16>(x); };
  const std::vector<Float16> a{f16(2048), f16(9), f16(0), f16(0), f16(1), f16(0x1p-11F), f16(0), f16(0)};
  const std::vector<Float16> b(8, f16(1));
  const auto product = [&](DType partials) {
    const ProductCall call{.shape = {1, 1, 8}, .parts = 2, .partials = partials};
    float d = 0;
    planned_gemm(library_plan("split-k").product(volta, call), call.shape, {DType::f16, a.data(), 8, 1},
                 {DType::f16, b.data(), 1, 1}, &d, 1);
    return d;
  };
  EXPECT_EQ(product(DType::f32), 2058 + 0x1p-11F);
  EXPECT_EQ(product(DType::f16), 2057);
  EXPECT_EQ(product(DType::bf16), 2065);
  EXPECT_EQ(order_text(library_plan("split-k").product(
                volta, {.shape = {1, 1, 8}, .parts = 2, .partials = DType::f16})),
            "volta: 2 neighbouring parts of tiles of 4, each one chain, rounded to f16, added in order");
  EXPECT_THAT(refusal("split-k", volta, {.shape = {1, 1, 12}, .parts = 2}), HasSubstr("a multiple of 8 has"));
  EXPECT_THROW(planned(random_case("ada", DType::e4m3, {.m = 2, .n = 2, .k = 64}),
                       {.row = &tensor_core_model("ada", DType::e4m3),
                        .ranges = {{.parts = 2, .tile = 32, .partials = DType::e4m3}}}),
               std::invalid_argument);
}

TEST(PlannedGemm, RefusesOrdersThatNoInstructionAllows) {
  const Case x = random_case("ada", DType::e4m3, {.m = 2, .n = 2, .k = 64});
  EXPECT_THROW(planned(x, of(x, {.restart = 24})), std::invalid_argument);
  EXPECT_THROW(planned(x, of(x, {.parts = 2})), std::invalid_argument);
  EXPECT_THROW(planned(x, of(x, {.parts = 2, .tile = 8})), std::invalid_argument);
  EXPECT_THROW(planned(x, of(x, {.parts = 2, .tile = 16, .interleaved = true, .rest_in_first = true})),
               std::invalid_argument);
  EXPECT_THROW(planned(x, of(x, {.parts = 3, .tile = 16, .join = Join::halves})), std::invalid_argument);
}

}  // namespace
}  // namespace fp16lab
