// Products of quantized matrices, each output by the definition of a dot product.
#include "numerics/gemm/quantized_gemm.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "numerics/convert/convert.hpp"
#include "numerics/formats/bits.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab {
namespace {

using testing::HasSubstr;
using testing_support::message_of;

struct Made {
  Quantizer how;
  MatrixSize size;
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
  float tensor_scale = 1;

  QuantizedMatrix view() const { return {how, size, codes, scales, tensor_scale}; }
  /// Codes of row `row` from column `first` on.
  std::vector<std::uint32_t> words(std::int64_t row, std::int64_t first, std::int64_t count) const {
    const auto begin = codes.begin() + row * size.columns + first;
    return {begin, begin + count};
  }
  float scale(std::int64_t row, std::int64_t column) const {
    const std::int64_t down = how.block.rows == 0 ? size.rows : how.block.rows;
    const std::int64_t across = how.block.columns == 0 ? size.columns : how.block.columns;
    return scales[static_cast<std::size_t>(row / down * (size.columns / across) + column / across)];
  }
};

Made made(Quantizer how, MatrixSize size, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(size.rows * size.columns));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = std::ldexp(normal(engine), static_cast<int>(i / 16 % 23) - 11);
  const MatrixSize scales = how.scales_of(size);
  Made result{how, size, std::vector<std::uint8_t>(values.size()),
              std::vector<float>(static_cast<std::size_t>(scales.rows * scales.columns))};
  result.tensor_scale = quantize(how, size, values, result.codes, result.scales);
  return result;
}

std::vector<float> product(const Made& a, const Made& b, int threads = 1) {
  std::vector<float> d(static_cast<std::size_t>(a.size.rows * b.size.rows));
  quantized_gemm(row_of_quantized(a.how, b.how), a.view(), b.view(), d, threads);
  return d;
}

template <class Scale>
std::uint32_t code_of(float scale) {
  return narrow<Scale>(scale).bits();
}

TEST(QuantizedGemm, BlockScalesEnterTheSumsAndTensorScalesFollow) {
  for (const auto& [name_a, name_b] :
       std::vector<std::pair<const char*, const char*>>{{"mxfp8", "mxfp8"},
                                                        {"mxfp8-e5m2", "mxfp6-e3m2"},
                                                        {"mxfp4", "mxfp4"},
                                                        {"mxfp4", "mxfp8"},
                                                        {"nvfp4", "nvfp4"},
                                                        {"nvfp4", "nvfp4-2d"},
                                                        {"nvfp4-2d", "nvfp4-2d"}}) {
    const Made a = made(quantizer(name_a), {16, 192}, 1), b = made(quantizer(name_b), {32, 192}, 2);
    const TensorCoreModel& row = row_of_quantized(a.how, b.how);
    const std::vector<float> d = product(a, b);
    const int block = a.how.scale == DType::e8m0 ? 32 : 16;
    for (std::int64_t i = 0; i < 16; ++i)
      for (std::int64_t j = 0; j < 32; ++j) {
        std::vector<std::uint32_t> of_a, of_b;
        for (std::int64_t k = 0; k < 192; k += block) {
          const bool power = a.how.scale == DType::e8m0;
          of_a.push_back(power ? code_of<ScaleE8M0>(a.scale(i, k)) : code_of<ScaleUE4M3>(a.scale(i, k)));
          of_b.push_back(power ? code_of<ScaleE8M0>(b.scale(j, k)) : code_of<ScaleUE4M3>(b.scale(j, k)));
        }
        const float sum =
            float_from_bits(fused_dot_add(row, a.how.element, a.words(i, 0, 192), b.how.element,
                                          b.words(j, 0, 192), 0, {{a.how.scale, block}, of_a, of_b}));
        ASSERT_EQ(bits_of(d[static_cast<std::size_t>(i * 32 + j)]),
                  bits_of(sum * (a.tensor_scale * b.tensor_scale)))
            << name_a << " " << name_b << " " << i << " " << j;
      }
    EXPECT_EQ(product(a, b, 3), d);
  }
}

TEST(QuantizedGemm, Fp32ScalesPromoteEachBlockOfK) {
  for (const auto& [name_a, name_b] :
       std::vector<std::pair<const char*, const char*>>{{"fp8-1x128", "fp8-128x128"},
                                                        {"fp8-1x128", "fp8-1x128"},
                                                        {"fp8-tensor", "fp8-tensor-e5m2"},
                                                        {"fp8-row", "fp8-tensor"}}) {
    const Made a = made(quantizer(name_a), {9, 384}, 3), b = made(quantizer(name_b), {128, 384}, 4);
    const TensorCoreModel& row = tensor_core_model("hopper-wgmma", a.how.element, b.how.element, DType::f32);
    const std::vector<float> d = product(a, b);
    const std::int64_t run = a.how.block.columns == 0 ? 384 : 128;
    for (std::int64_t i = 0; i < 9; ++i)
      for (std::int64_t j = 0; j < 128; ++j) {
        float sum = 0;
        for (std::int64_t k = 0; k < 384; k += run) {
          const float chain = float_from_bits(
              fused_dot_add(row, a.how.element, a.words(i, k, run), b.how.element, b.words(j, k, run), 0));
          sum = std::fma(a.scale(i, k) * b.scale(j, k), chain, sum);
        }
        ASSERT_EQ(bits_of(d[static_cast<std::size_t>(i * 128 + j)]), bits_of(sum)) << name_a << " " << name_b;
      }
  }
}

TEST(QuantizedGemm, WhatDoesNotFitIsRefused) {
  const Made mx = made(quantizer("mxfp8"), {4, 64}, 1), nv = made(quantizer("nvfp4"), {4, 64}, 1);
  const Made tile = made(quantizer("fp8-1x128"), {4, 256}, 1),
             tensor = made(quantizer("fp8-tensor"), {4, 256}, 1);
  EXPECT_THAT(message_of([&] { row_of_quantized(mx.how, nv.how); }),
              HasSubstr("scales of e8m0 and of ue4m3"));
  EXPECT_THAT(message_of([&] { row_of_quantized(mx.how, mx.how, "hopper-wgmma"); }),
              HasSubstr("takes no block scales, as blackwell-mxf8f6f4 and blackwell-mxf4nvf4 do; these "
                        "scales are e8m0"));
  EXPECT_EQ(row_of_quantized(mx.how, mx.how, "B200").name, "blackwell-mxf8f6f4");
  EXPECT_EQ(row_of_quantized(nv.how, nv.how, "blackwell").name, "blackwell-mxf4nvf4");
  EXPECT_THAT(message_of([&] { row_of_quantized(tile.how, tile.how, "blackwell-mxf8f6f4"); }),
              HasSubstr("takes scales of e8m0 for 32 elements; these scales are f32"));
  EXPECT_THAT(message_of([&] { product(tile, tensor); }), HasSubstr("K and its runs must agree"));
  std::vector<float> d(3);
  EXPECT_THAT(message_of([&] { quantized_gemm(row_of_quantized(mx.how, mx.how), mx.view(), mx.view(), d); }),
              HasSubstr("d has 3 numbers"));
  QuantizedMatrix few = mx.view();
  few.scales = few.scales.first(3);
  EXPECT_THAT(message_of([&] { quantized_gemm(row_of_quantized(mx.how, mx.how), few, mx.view(), d); }),
              HasSubstr("a is 4 x 64 with 256 codes and 3 scales; 256 and 8 are needed"));
}

}  // namespace
}  // namespace fp16lab
