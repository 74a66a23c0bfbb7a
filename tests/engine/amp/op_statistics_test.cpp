// Op statistics: counts, tables, and the advice of the frameworks' guides.
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "engine/amp/levels/op_statistics.hpp"

namespace fp16lab::engine::test::op_statistics_test {
namespace {

using amp::Advice;
using amp::OpStatistics;
using testing::AllOf;
using testing::HasSubstr;

/// fc1 and fc2 in f16, one of their calls in bf16, a loss in f32.
OpStatistics example() {
  OpStatistics statistics;
  for (int call = 0; call < 3; ++call) {
    statistics.on_cast("fc1", Op::linear, DType::f16);
    statistics.on_op("fc1", Op::linear, DType::f16);
    statistics.on_op("fc1", Op::relu, DType::f16);
    statistics.on_op("fc2", Op::linear, call == 0 ? DType::bf16 : DType::f16);
    statistics.on_cast("", Op::mse_loss, DType::f32);
    statistics.on_cast("", Op::mse_loss, DType::f32);
    statistics.on_op("", Op::mse_loss, DType::f32);
  }
  statistics.on_cast("fc2", Op::linear, DType::bf16);
  return statistics;
}

using Fields = std::tuple<std::string, std::string, std::uint64_t, std::uint64_t, std::uint64_t,
                          std::uint64_t, std::uint64_t>;
std::vector<Fields> fields_of(std::span<const OpCount> counts) {
  std::vector<Fields> fields;
  for (const OpCount& count : counts)
    fields.emplace_back(count.layer, count.op, count.f16, count.bf16, count.f32, count.casts_to_low,
                        count.casts_to_f32);
  return fields;
}

TEST(OpStatistics, CountsCallsAndCastsByLayerAndOp) {
  const OpStatistics statistics = example();
  EXPECT_EQ(fields_of(statistics.by_layer()), (std::vector<Fields>{{"fc1", "linear", 3, 0, 0, 3, 0},
                                                                   {"fc1", "relu", 3, 0, 0, 0, 0},
                                                                   {"fc2", "linear", 2, 1, 0, 1, 0},
                                                                   {"", "mse_loss", 0, 0, 3, 0, 6}}));
  EXPECT_EQ(fields_of(statistics.by_op()), (std::vector<Fields>{{"", "linear", 5, 1, 0, 4, 0},
                                                                {"", "relu", 3, 0, 0, 0, 0},
                                                                {"", "mse_loss", 0, 0, 3, 0, 6}}));
}

TEST(OpStatistics, TextIsAnAlignedTableWithTotals) {
  EXPECT_EQ(amp::to_text(example()),
            "op        layer     FP16  BF16  FP32  casts to 16 bits  casts to FP32\n"
            "linear    2 layers     5     1     0                 4              0\n"
            "          fc1          3     0     0                 3              0\n"
            "          fc2          2     1     0                 1              0\n"
            "relu      fc1          3     0     0                 0              0\n"
            "mse_loss  -            0     0     3                 0              6\n"
            "total                  8     1     3                 4              6\n");
}

TEST(OpStatistics, CsvHasARowForEachLayerAndOp) {
  EXPECT_EQ(amp::to_csv(example()),
            "layer,op,f16,bf16,f32,casts_to_low,casts_to_f32\n"
            "fc1,linear,3,0,0,3,0\n"
            "fc1,relu,3,0,0,0,0\n"
            "fc2,linear,2,1,0,1,0\n"
            ",mse_loss,0,0,3,0,6\n");
  OpStatistics named;
  named.on_op("a \"b\",c", Op::relu, DType::f16);
  EXPECT_THAT(amp::to_csv(named), testing::EndsWith("\n\"a \"\"b\"\",c\",relu,1,0,0,0,0\n"));
}

TEST(OpStatistics, ClearForgetsEverything) {
  OpStatistics statistics = example();
  statistics.on_product("fc1", Op::linear, {.m = 3, .n = 3, .k = 3}, DType::f16);
  statistics.clear();
  EXPECT_TRUE(statistics.by_layer().empty());
  EXPECT_TRUE(statistics.by_op().empty());
  EXPECT_TRUE(statistics.advice().empty());
  EXPECT_EQ(amp::to_csv(statistics), "layer,op,f16,bf16,f32,casts_to_low,casts_to_f32\n");
}

// ---- advice -------------------------------------------------------------------------------------

ProductShape gemm(std::int64_t m, std::int64_t n, std::int64_t k) { return {.m = m, .n = n, .k = k}; }
/// A 3 x 3 convolution of 8 images of 4 x 4.
ProductShape convolution(std::int64_t input_channels, std::int64_t output_channels, bool nchw = false) {
  return {.m = 128,
          .n = output_channels,
          .k = 9 * input_channels,
          .input_channels = input_channels,
          .output_channels = output_channels,
          .nchw = nchw};
}

struct Call {
  std::string layer;
  ProductShape shape;
  DType dtype = DType::f16;
};
std::vector<Advice> advice_on(const std::vector<Call>& calls) {
  OpStatistics statistics;
  for (const Call& call : calls) {
    const Op op = call.shape.input_channels > 0 ? Op::conv2d : Op::linear;
    statistics.on_product(call.layer, op, call.shape, call.dtype);
  }
  return statistics.advice();
}

TEST(OpAdvice, EveryDimensionOfAProductIsAMultipleOf8) {
  EXPECT_TRUE(advice_on({{"fc1", gemm(8, 16, 24)}, {"fc2", gemm(512, 8192, 8)}}).empty());
  // Each of M, N, K alone, on either side of a multiple.
  for (const std::int64_t bad : {1, 7, 9, 10, 15, 4095}) {
    const std::vector<std::pair<ProductShape, std::string>> cases = {
        {gemm(bad, 16, 16), "M"}, {gemm(16, bad, 16), "N"}, {gemm(16, 16, bad), "K"}};
    for (const auto& [shape, name] : cases) {
      const auto advice = advice_on({{"fc", shape}});
      ASSERT_EQ(advice.size(), 1u);
      EXPECT_EQ(advice[0].layer, "fc");
      const std::int64_t right = (bad / 8 + 1) * 8;  // no case is a multiple
      EXPECT_THAT(advice[0].text,
                  AllOf(HasSubstr(name + " = " + std::to_string(bad) + " is not a multiple of 8"),
                        HasSubstr("FP16"), HasSubstr("A100 the guides quote 16"),
                        HasSubstr(": " + std::to_string(right) + " would be right")));
    }
  }
  EXPECT_EQ(advice_on({{"fc", gemm(10, 10, 10)}}).size(), 3u);
}

TEST(OpAdvice, NamesTheDtypeAndIsSilentOnFp32) {
  EXPECT_THAT(advice_on({{"fc", gemm(8, 10, 8), DType::bf16}}).at(0).text, HasSubstr("BF16"));
  EXPECT_TRUE(
      advice_on({{"fc", gemm(7, 7, 7), DType::f32}, {"conv", convolution(3, 5, true), DType::f32}}).empty());
}

TEST(OpAdvice, IsGivenOnceForEachLayer) {
  const std::vector<Call> twice = {{"fc1", gemm(8, 10, 8)},
                                   {"fc1", gemm(8, 10, 8)},
                                   {"fc1", gemm(16, 10, 8)},  // another batch size: the same N
                                   {"fc2", gemm(8, 10, 8)}};
  const auto advice = advice_on(twice);
  ASSERT_EQ(advice.size(), 2u);
  EXPECT_EQ(advice[0].layer, "fc1");
  EXPECT_EQ(advice[1].layer, "fc2");
}

TEST(OpAdvice, ConvolutionsAreJudgedByTheirChannels) {
  // M = 128 and K = 72 of the implicit GEMM are multiples of 8; with C = 12 and K = 20 the channels are not.
  const std::vector<Call> fine = {{"conv1", convolution(8, 16)}, {"conv2", convolution(16, 8)}};
  EXPECT_TRUE(advice_on(fine).empty());
  const auto advice = advice_on({{"conv1", convolution(8, 12)}, {"conv2", convolution(12, 20)}});
  ASSERT_EQ(advice.size(), 3u);
  EXPECT_THAT(advice[0].text, HasSubstr("K = 12 is not a multiple of 8"));
  EXPECT_THAT(advice[1].text,
              AllOf(HasSubstr("C = 12 is not a multiple of 8"), HasSubstr("16 would be right")));
  EXPECT_THAT(advice[2].text,
              AllOf(HasSubstr("K = 20 is not a multiple of 8"), HasSubstr("24 would be right")));
}

TEST(OpAdvice, TheFirstConvolutionMayHaveFourChannelsButNotFewer) {
  for (const std::int64_t channels : {1, 2, 3}) {
    const auto advice = advice_on({{"conv1", convolution(channels, 8)}});
    ASSERT_EQ(advice.size(), 1u) << channels;
    EXPECT_THAT(advice[0].text, AllOf(HasSubstr("C = " + std::to_string(channels)),
                                      HasSubstr("first convolution"), HasSubstr("4 would be right")));
  }
  EXPECT_TRUE(advice_on({{"conv1", convolution(4, 8)}}).empty());
  EXPECT_EQ(advice_on({{"conv1", convolution(5, 8)}}).size(), 1u);
  // Only the first layer is exempt: in later ones 4 channels are as bad as any.
  const auto advice = advice_on({{"conv1", convolution(4, 8)}, {"conv2", convolution(4, 8)}});
  ASSERT_EQ(advice.size(), 1u);
  EXPECT_EQ(advice[0].layer, "conv2");
  EXPECT_THAT(advice[0].text, HasSubstr("8 would be right"));
  // An excluded first convolution, in FP32, is still the first.
  const auto second = advice_on({{"conv1", convolution(1, 4), DType::f32}, {"conv2", convolution(4, 8)}});
  ASSERT_EQ(second.size(), 1u);
  EXPECT_THAT(second[0].text, HasSubstr("8 would be right"));
}

TEST(OpAdvice, NchwIsSlowerForConvolutionsOf16Bits) {
  const auto advice = advice_on({{"conv1", convolution(8, 8, true)}});
  ASSERT_EQ(advice.size(), 1u);
  EXPECT_THAT(advice[0].text, AllOf(HasSubstr("NCHW"), HasSubstr("NHWC would be right")));
}

}  // namespace
}  // namespace fp16lab::engine::test::op_statistics_test
