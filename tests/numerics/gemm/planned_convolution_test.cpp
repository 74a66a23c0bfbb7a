// Convolutions in the order of a plan: against sums written out by their definition, where every order gives
// the same numbers, and the orders of oneDNN as they were revealed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <stdexcept>
#include <vector>

#include "numerics/convert/convert.hpp"
#include "numerics/gemm/planned_convolution.hpp"

namespace fp16lab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Words = std::vector<std::uint16_t>;

/// Small whole numbers in BF16, whose sums are exact in any order.
Words whole_numbers(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  Words words;
  for (std::int64_t i = 0; i < count; ++i)
    words.push_back(narrow<BrainFloat16>(static_cast<float>(static_cast<int>(random() % 9) - 4)).bits());
  return words;
}

float number(std::uint16_t word) { return widen(BFloat16::from_bits(word)); }

/// Element (n, channel, row, column) of a tensor of `channels` x `rows` x `columns`.
std::size_t at(const ConvolutionCall& call, std::int64_t channels, std::int64_t rows, std::int64_t columns,
               std::int64_t n, std::int64_t channel, std::int64_t row, std::int64_t column) {
  return static_cast<std::size_t>(call.channels_last
                                      ? ((n * rows + row) * columns + column) * channels + channel
                                      : ((n * channels + channel) * rows + row) * columns + column);
}

/// The sums by their definition, as planned_convolution lays them out.
std::vector<float> by_definition(const ConvolutionCall& call, const Words& x, const Words& weight,
                                 const Words& y, const Words& bias) {
  const std::int64_t in = call.c / call.groups, out = call.k / call.groups;
  const std::int64_t sizes[] = {call.n * call.p() * call.q() * call.k, call.n * call.h * call.w * call.c,
                                call.k * in * call.r * call.s, call.k};
  std::vector<float> sums(static_cast<std::size_t>(sizes[static_cast<int>(call.result)]), 0.0F);
  const auto add = [&](std::int64_t to, float term) { sums[static_cast<std::size_t>(to)] += term; };
  for (std::int64_t n = 0; n < call.n; ++n)
    for (std::int64_t k = 0; k < call.k; ++k)
      for (std::int64_t p = 0; p < call.p(); ++p)
        for (std::int64_t q = 0; q < call.q(); ++q) {
          const std::int64_t place = ((n * call.p() + p) * call.q() + q) * call.k + k;
          const float gradient = number(y[at(call, call.k, call.p(), call.q(), n, k, p, q)]);
          if (call.result == Convolved::output) add(place, number(bias[static_cast<std::size_t>(k)]));
          if (call.result == Convolved::bias_gradient) add(k, gradient);
          for (std::int64_t i = 0; i < in * call.r * call.s; ++i) {
            const std::int64_t c = k / out * in + i / (call.r * call.s), r = i / call.s % call.r,
                               s = i % call.s;
            const std::int64_t h = p * call.stride[0] - call.padding[0] + r * call.dilation[0];
            const std::int64_t w = q * call.stride[1] - call.padding[1] + s * call.dilation[1];
            if (h < 0 || h >= call.h || w < 0 || w >= call.w) continue;
            const float input = number(x[at(call, call.c, call.h, call.w, n, c, h, w)]);
            const std::int64_t filter = k * in * call.r * call.s + i;
            const float tap = number(weight[static_cast<std::size_t>(filter)]);
            if (call.result == Convolved::output) add(place, input * tap);
            if (call.result == Convolved::input_gradient)
              add(((n * call.h + h) * call.w + w) * call.c + c, gradient * tap);
            if (call.result == Convolved::weight_gradient) add(filter, gradient * input);
          }
        }
  return sums;
}

TEST(PlannedConvolution, SumsAreThoseOfTheDefinition) {
  const TensorCoreModel& row = tensor_core_model("avx512_bf16", DType::bf16);
  int compared = 0;
  for (const ConvolutionCall& shape :
       {ConvolutionCall{.n = 2, .c = 19, .h = 7, .w = 6, .k = 5, .r = 3, .s = 3, .padding = {1, 1}},
        {.n = 3,
        .c = 6,
        .h = 9,
        .w = 8,
        .k = 4,
        .r = 3,
        .s = 2,
        .stride = {2, 1},
        .padding = {1, 0},
        .groups = 2},
        {.n = 1,
        .c = 3,
        .h = 9,
        .w = 9,
        .k = 2,
        .r = 2,
        .s = 3,
        .stride = {1, 2},
        .padding = {0, 2},
        .dilation = {2, 3}},
        {.n = 2, .c = 4, .h = 5, .w = 5, .k = 4, .r = 3, .s = 3, .padding = {1, 1}, .groups = 4},
        {.n = 2, .c = 33, .h = 4, .w = 4, .k = 17, .r = 1, .s = 1}})
    for (const bool last : {false, true})
      for (const Convolved result : every<Convolved>) {
        ConvolutionCall call = shape;
        call.channels_last = last;
        call.result = result;
        const std::int64_t in = call.c / call.groups, places = call.n * call.p() * call.q();
        const Words x = whole_numbers(call.n * call.c * call.h * call.w, 1);
        const Words weight = whole_numbers(call.k * in * call.r * call.s, 2);
        const Words y = whole_numbers(places * call.k, 3), bias = whole_numbers(call.k, 4);
        const std::int64_t terms = result == Convolved::output ? in * call.r * call.s
                                   : result == Convolved::input_gradient
                                       ? call.k / call.groups * call.r * call.s
                                       : places;
        PlannedConvolution plan{.product = {.row = &row, .ranges = {{.restart = 6}}}, .terms = {}};
        for (std::int64_t i = terms; i-- > 0;) {  // backwards, with empty places between
          plan.terms.push_back(i);
          if (i % 3 == 0) plan.terms.push_back(no_term);
        }
        const std::vector<float> expected = by_definition(call, x, weight, y, bias);
        for (const int threads : {1, 3}) {
          std::vector<float> sums(expected.size(), -1.0F);
          planned_convolution(plan, call, {x.data(), weight.data(), y.data(), bias.data()}, sums.data(),
                              threads);
          EXPECT_EQ(sums, expected) << name_of(result) << " of " << call.c << " channels";
          ++compared;
        }
      }
  EXPECT_EQ(compared, 5 * 2 * 4 * 2);
}

PlannedConvolution onednn(const ConvolutionCall& call) {
  return library_plan("onednn").convolution(tensor_core_model("zen5", DType::bf16), call);
}

/// A term of a 2 x 2 kernel and 3 channels is (c * 2 + r) * 2 + s.
TEST(PlannedConvolution, OneDnnAddsTapByTap) {
  const ConvolutionCall call{.c = 3, .h = 4, .w = 4, .k = 3, .r = 2, .s = 2};
  EXPECT_THAT(onednn(call).terms, ElementsAre(0, 4, 8, -1, 1, 5, 9, -1, 2, 6, 10, -1, 3, 7, 11, -1));
  ConvolutionCall wide = call;
  wide.c = 17;  // sixteen channels, tap by tap, then the last
  const std::vector<std::int64_t> blocks = onednn(wide).terms;
  EXPECT_THAT(std::vector(blocks.begin() + 12, blocks.begin() + 20),
              ElementsAre(48, 52, 56, 60, 1, 5, 9, 13));
  EXPECT_THAT(std::vector(blocks.end() - 8, blocks.end()), ElementsAre(64, -1, 65, -1, 66, -1, 67, -1));
  wide.channels_last = true;
  EXPECT_THAT(onednn(wide).terms, SizeIs(4 * 18));
  ConvolutionCall of_input{
      .result = Convolved::input_gradient, .c = 2, .h = 5, .w = 5, .k = 2, .r = 3, .s = 3};
  of_input.padding = {1, 1};
  of_input.channels_last = true;  // taps from the last to the first
  EXPECT_THAT(onednn(of_input).terms,
              ElementsAre(8, 17, 7, 16, 6, 15, 5, 14, 4, 13, 3, 12, 2, 11, 1, 10, 0, 9));
}

TEST(PlannedConvolution, OneDnnBeginsAgainInEachRowForWeights) {
  ConvolutionCall call{
      .result = Convolved::weight_gradient, .n = 1, .c = 16, .h = 3, .w = 5, .k = 4, .r = 3, .s = 3};
  const PlannedConvolution rows = onednn(call);  // one row of three columns
  EXPECT_THAT(rows.terms, ElementsAre(0, 1, 2, -1));
  EXPECT_EQ(rows.product.ranges.front().restart, 4);
  call.c = 3;
  call.w = 22;
  call.h = 22;  // an image of 20 x 20 in two parts
  EXPECT_EQ(onednn(call).product.ranges.front().restart, 200);
  ConvolutionCall two{
      .result = Convolved::weight_gradient, .n = 3, .c = 16, .h = 14, .w = 14, .k = 32, .r = 3, .s = 3};
  two.padding = {1, 1};
  two.threads = 2;
  EXPECT_EQ(onednn(two).product.ranges.front().end, 21 * 14);  // 42 rows in halves
}

TEST(PlannedConvolution, OneDnnRefusesWhatWasNeverExamined) {
  const auto refusal = [](const ConvolutionCall& call) {
    try {
      onednn(call);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("nothing was refused");
  };
  const ConvolutionCall call{.n = 2, .c = 8, .h = 10, .w = 10, .k = 8, .r = 3, .s = 3};
  const auto with = [&](auto change) {
    ConvolutionCall other = call;
    change(other);
    return refusal(other);
  };
  EXPECT_EQ(refusal(call), "nothing was refused");
  EXPECT_THAT(with([](auto& c) { c.dilation = {2, 2}; }), HasSubstr("no dilation"));
  EXPECT_THAT(with([](auto& c) { c.padding = {2, 2}; }), HasSubstr("padding that keeps the size"));
  EXPECT_THAT(with([](auto& c) { c.s = 2; }), HasSubstr("square kernels"));
  EXPECT_THAT(with([](auto& c) { c.groups = 2; }), HasSubstr("one group, or one for each channel"));
  EXPECT_THAT(with([](auto& c) { c.format = DType::f16; }),
              HasSubstr("output of a convolution only with BF16"));
  EXPECT_THAT(with([](auto& c) { c.threads = 3; }), HasSubstr("one or two threads"));
  EXPECT_THAT(with([](auto& c) {
                c.result = Convolved::input_gradient;
                c.stride = {2, 2};
              }),
              HasSubstr("input_gradient of a convolution only with an odd width"));
  EXPECT_THAT(with([](auto& c) {
                c.result = Convolved::weight_gradient;
                c.threads = 2;
              }),
              HasSubstr("listed sizes"));
  EXPECT_EQ(library_plan("cublaslt-12.8").convolution, nullptr);
}

TEST(PlannedConvolution, RefusesTermsAndShapesThatAreNone) {
  const ConvolutionCall call{.n = 1, .c = 1, .h = 3, .w = 3, .k = 1, .r = 2, .s = 2};
  PlannedConvolution plan = onednn(call);
  const Words any(16);
  std::vector<float> sums(16);
  const ConvolutionOperands operands{any.data(), any.data(), any.data()};
  plan.terms.push_back(4);
  EXPECT_THROW(planned_convolution(plan, call, operands, sums.data()), std::invalid_argument);
  plan.terms.pop_back();
  ConvolutionCall empty = call;
  empty.h = 1;
  EXPECT_THROW(planned_convolution(plan, empty, operands, sums.data()), std::invalid_argument);
}

}  // namespace
}  // namespace fp16lab
