// fp16lab.h gives the bits of the C++ functions for every stride, and one sentence for what cannot be.
#include "numerics/c_interface/fp16lab.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "numerics/convert/convert.hpp"
#include "numerics/gemm/gemm.hpp"
#include "numerics/histogram/exponent_histogram.hpp"

namespace fp16lab {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<float> numbers(std::size_t count) {
  std::mt19937 random(7);
  std::vector<float> made(count);
  for (float& x : made) x = float_from_bits(static_cast<std::uint32_t>(random()) & 0xbfffffffu);
  made[0] = 0x1p-25f;
  made[1] = 65520.0f;
  made[2] = NAN;
  return made;
}

TEST(CInterface, RoundsAsNarrowAtEveryStride) {
  const std::vector<float> from = numbers(300);
  std::vector<Float16> expected(100);
  for (const std::ptrdiff_t stride : {1, 3, -2, 0}) {
    const float* const first = stride < 0 ? from.data() + 298 : from.data();
    std::vector<float> gathered(100);
    for (std::ptrdiff_t i = 0; i < 100; ++i) gathered[static_cast<std::size_t>(i)] = first[i * stride];
    narrow<Binary16>(gathered, expected, Rounding::upward);
    std::vector<std::uint16_t> codes(200, 0xdead);
    ASSERT_EQ(fp16lab_round(FP16LAB_F16, FP16LAB_UPWARD, first, stride, codes.data(), 2, 100), FP16LAB_OK);
    for (std::size_t i = 0; i < 100; ++i) {
      EXPECT_EQ(codes[2 * i], expected[i].bits()) << stride << ", " << i;
      EXPECT_EQ(codes[2 * i + 1], 0xdead) << "between the results nothing is written";
    }
  }
}

TEST(CInterface, EveryFormatThereAndBack) {
  const std::vector<float> from = numbers(256);
  const std::vector<double> wide(from.begin(), from.end());
  std::vector<float> back(from.size());
  const auto check = [&]<class Format>(int format, Format) {
    std::vector<SmallFloat<Format>> expected(from.size()), codes(from.size()), codes64(from.size());
    narrow<Format>(from, expected);
    ASSERT_EQ(fp16lab_round(format, FP16LAB_NEAREST_EVEN, from.data(), 1, codes.data(), 1, from.size()),
              FP16LAB_OK);
    ASSERT_EQ(fp16lab_round_f64(format, FP16LAB_NEAREST_EVEN, wide.data(), 1, codes64.data(), 1, wide.size()),
              FP16LAB_OK);
    ASSERT_EQ(fp16lab_widen(format, codes.data(), 1, back.data(), 1, codes.size()), FP16LAB_OK);
    for (std::size_t i = 0; i < from.size(); ++i) {
      EXPECT_EQ(codes[i].bits(), expected[i].bits());
      EXPECT_EQ(codes64[i].bits(), expected[i].bits()) << "FP32 numbers round alike from FP64";
      EXPECT_EQ(bits_of(back[i]), bits_of(widen(expected[i])));
    }
  };
  check(FP16LAB_F16, Binary16());
  check(FP16LAB_BF16, BrainFloat16());
  check(FP16LAB_TF32, TensorFloat32());
  check(FP16LAB_E4M3, Fp8E4M3());
  check(FP16LAB_E5M2, Fp8E5M2());
  check(FP16LAB_E2M1, Fp4E2M1());
  check(FP16LAB_E4M3FNUZ, Fp8E4M3Fnuz());
  check(FP16LAB_UE4M3, ScaleUE4M3());
}

/// Operands of random small values as halves, in a matrix with room around it.
struct Operand {
  std::vector<Float16> values;
  fp16lab_matrix matrix{};
};
Operand operand(std::int64_t rows, std::int64_t columns, std::ptrdiff_t row_stride,
                std::ptrdiff_t column_stride, unsigned seed) {
  std::mt19937 random(seed);
  Operand made;
  made.values.resize(
      static_cast<std::size_t>((rows + 1) * std::abs(row_stride) + (columns + 1) * std::abs(column_stride)));
  for (Float16& x : made.values)
    x = Float16::from_bits(static_cast<std::uint16_t>(0x3000 + random() % 0x1000));
  const Float16* first = made.values.data();
  if (row_stride < 0) first += -row_stride * rows;
  if (column_stride < 0) first += -column_stride * columns;
  made.matrix = {first, row_stride, column_stride};
  return made;
}

TEST(CInterface, ProductsAreThoseOfEmulatedGemmAtEveryStride) {
  constexpr std::int64_t m = 5, n = 6, k = 37;
  for (const auto& [a_row, a_column] :
       {std::pair<std::ptrdiff_t, std::ptrdiff_t>{k, 1}, {1, m}, {k + 3, 1}, {2 * k, 2}, {-k, 1}}) {
    for (const auto& [b_row, b_column] :
         {std::pair<std::ptrdiff_t, std::ptrdiff_t>{n, 1}, {1, k}, {3, 7 * k}, {0, 1}}) {
      const Operand a = operand(m, k, a_row, a_column, 1), b = operand(k, n, b_row, b_column, 2);
      std::vector<Float16> a_packed, b_packed;
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < k; ++j)
          a_packed.push_back(static_cast<const Float16*>(a.matrix.data)[i * a_row + j * a_column]);
      for (std::int64_t i = 0; i < k; ++i)
        for (std::int64_t j = 0; j < n; ++j)
          b_packed.push_back(static_cast<const Float16*>(b.matrix.data)[i * b_row + j * b_column]);
      std::vector<float> c(m * n, 0.25f), expected(c.size()), d(m * (n + 1), -1.0f);
      emulated_gemm(tensor_core_model("ampere"), {m, n, k}, MatrixView<Float16>{a_packed.data(), k},
                    MatrixView<Float16>{b_packed.data(), n}, c.data(), expected.data(), n);
      std::vector<float> c_wide(d.size(), 0.25f);
      ASSERT_EQ(fp16lab_gemm("ampere", FP16LAB_F32, m, n, k, FP16LAB_F16, a.matrix, FP16LAB_F16, b.matrix,
                             c_wide.data(), d.data(), n + 1, 2),
                FP16LAB_OK)
          << fp16lab_last_error();
      for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t j = 0; j < n; ++j)
          EXPECT_EQ(d[static_cast<std::size_t>(i * (n + 1) + j)],
                    expected[static_cast<std::size_t>(i * n + j)]);
        EXPECT_EQ(d[static_cast<std::size_t>(i * (n + 1) + n)], -1.0f) << "no write goes beyond a row";
      }
      // A dot product is an element.
      float dot = 0;
      const float start = 0.25f;
      ASSERT_EQ(fp16lab_dot("ampere", FP16LAB_F32, FP16LAB_F16, a.matrix.data, a_column, FP16LAB_F16,
                            b.matrix.data, b_row, k, &start, &dot),
                FP16LAB_OK);
      EXPECT_EQ(dot, expected[0]);
    }
  }
}

TEST(CInterface, HalvesAsSumsAndMixedFp8) {
  const std::vector<std::uint8_t> e4m3(16, 0x38), e5m2(16, 0x3c);  // ones
  float sum = 0;
  ASSERT_EQ(fp16lab_dot("hopper", FP16LAB_F32, FP16LAB_E4M3, e4m3.data(), 1, FP16LAB_E5M2, e5m2.data(), 1, 16,
                        nullptr, &sum),
            FP16LAB_OK)
      << fp16lab_last_error();
  EXPECT_EQ(sum, 16.0f);
  const std::vector<std::uint16_t> ones(16, 0x3c00);
  std::uint16_t half = 0;
  ASSERT_EQ(fp16lab_dot("hopper", FP16LAB_F16, FP16LAB_F16, ones.data(), 1, FP16LAB_F16, ones.data(), 1, 16,
                        nullptr, &half),
            FP16LAB_OK);
  EXPECT_EQ(half, 0x4c00);
  EXPECT_EQ(
      fp16lab_dot("hopper", FP16LAB_F16, FP16LAB_F16, nullptr, 1, FP16LAB_F16, nullptr, 1, 0, nullptr, &half),
      FP16LAB_OK)
      << "no products";
  EXPECT_EQ(half, 0);
}

TEST(CInterface, CountsAsTheHistogram) {
  const std::vector<float> values = numbers(1000);
  ExponentHistogram expected;
  count_exponents(values, expected);
  fp16lab_histogram counts{};
  ASSERT_EQ(fp16lab_count(FP16LAB_F32, values.data(), 1, values.size(), &counts, 2), FP16LAB_OK);
  for (std::size_t i = 0; i < FP16LAB_BINS; ++i) EXPECT_EQ(counts.bins[i], expected.bins[i]) << i;
  EXPECT_EQ(counts.zero, expected.zero);
  EXPECT_EQ(counts.nan, expected.nan);
  EXPECT_EQ(bits_of(counts.smallest), expected.smallest);
  EXPECT_EQ(bits_of(counts.greatest), expected.greatest);
  ASSERT_EQ(fp16lab_count(FP16LAB_F32, values.data(), 2, 1, &counts, 1), FP16LAB_OK);
  EXPECT_EQ(counts.bins[-26 + 150], 1u)
      << "2^-25 is the top of its bin, which FP16 loses at scale 1: bins[0 .. 124]";
}

TEST(CInterface, MistakesAreOneSentence) {
  float x = 1, d = 7;
  std::uint16_t code = 7;
  const auto wrong = [](int status) {
    EXPECT_EQ(status, FP16LAB_INVALID);
    return std::string(fp16lab_last_error());
  };
  EXPECT_THAT(wrong(fp16lab_round(FP16LAB_F32, FP16LAB_NEAREST_EVEN, &x, 1, &code, 1, 1)),
              StartsWith("fp16lab_round: the format must be narrower than FP32"));
  EXPECT_THAT(wrong(fp16lab_round(99, FP16LAB_NEAREST_EVEN, &x, 1, &code, 1, 1)),
              HasSubstr("format 99 is none of fp16lab_format"));
  EXPECT_THAT(wrong(fp16lab_round(FP16LAB_F16, 9, &x, 1, &code, 1, 1)),
              HasSubstr("rounding 9 is none of fp16lab_rounding"));
  EXPECT_THAT(wrong(fp16lab_round(FP16LAB_F16, FP16LAB_NEAREST_EVEN, nullptr, 1, &code, 1, 1)),
              HasSubstr("an input is null"));
  EXPECT_THAT(wrong(fp16lab_round(FP16LAB_F16, FP16LAB_NEAREST_EVEN, &x, 1, nullptr, 1, 1)),
              HasSubstr("an output is null"));
  const auto dot = [&](const char* core, int sums) {
    return fp16lab_dot(core, sums, FP16LAB_F16, &code, 1, FP16LAB_F16, &code, 1, 1, nullptr, &d);
  };
  EXPECT_THAT(wrong(dot("hoper", FP16LAB_F32)), HasSubstr("hopper"));
  EXPECT_THAT(wrong(dot(nullptr, FP16LAB_F32)), HasSubstr("tensor_core is null"));
  EXPECT_THAT(wrong(dot("hopper", FP16LAB_BF16)), HasSubstr("FP16LAB_F32 or FP16LAB_F16"));
  EXPECT_THAT(wrong(fp16lab_dot("hopper", FP16LAB_F32, FP16LAB_E4M3, &code, 1, FP16LAB_F16, &code, 1, 1,
                                nullptr, &d)),
              HasSubstr("tensor-core model 'hopper' multiplies no e4m3 by f16"));
  EXPECT_THAT(wrong(fp16lab_gemm("hopper", FP16LAB_F32, -1, 1, 1, FP16LAB_F16, {&code, 1, 1}, FP16LAB_F16,
                                 {&code, 1, 1}, nullptr, &d, 1, 1)),
              HasSubstr("at least 0"));
  EXPECT_THAT(wrong(fp16lab_gemm("hopper", FP16LAB_F32, 1, 1, 1, FP16LAB_F16, {&code, 1, 1}, FP16LAB_F16,
                                 {&code, 1, 1}, nullptr, &d, 1, 0)),
              HasSubstr("threads must be at least 1"));
  constexpr std::int64_t huge = std::int64_t{1} << 62;  // its square is 0 modulo 2^64
  EXPECT_THAT(wrong(fp16lab_gemm("hopper", FP16LAB_F32, huge, huge, 0, FP16LAB_F16, {&code, 1, 1},
                                 FP16LAB_F16, {&code, 1, 1}, nullptr, nullptr, huge, 1)),
              HasSubstr("expected less than 2^63"));
  EXPECT_THAT(wrong(fp16lab_gemm("hopper", FP16LAB_F32, 1 << 25, 1 << 25, 0, FP16LAB_F16, {&code, 1, 1},
                                 FP16LAB_F16, {&code, 1, 1}, nullptr, &d, 1 << 25, 1)),
              HasSubstr("at most 2^48 elements"));
  EXPECT_THAT(wrong(fp16lab_count(FP16LAB_E4M3, &code, 1, 1, nullptr, 1)), HasSubstr("histogram is null"));
  EXPECT_EQ(code, 7) << "nothing was written";
  EXPECT_EQ(d, 7);
  // Another thread has its own.
  std::string other = "?";
  std::thread([&] { other = fp16lab_last_error(); }).join();
  EXPECT_EQ(other, "");
  EXPECT_EQ(fp16lab_api(), FP16LAB_API);
}

}  // namespace
}  // namespace fp16lab
