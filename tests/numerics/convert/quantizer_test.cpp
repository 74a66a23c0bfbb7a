// Block quantizers. Scales that are powers of two follow from their definitions in exact rationals, and so do
// the elements: the number nearest to x / scale. What libraries do with other scales is compared with torchao
// and with Transformer Engine's published order of operations by python/tests (test_quantization.py).
#include "numerics/convert/quantizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "numerics/convert/convert.hpp"
#include "numerics/convert/quantization_error.hpp"
#include "tests/support/exact_rounding.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab {
namespace {

using oracle::Rational;
using oracle::ValueTable;
using testing::HasSubstr;
using testing_support::message_of;

struct Result {
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
  std::vector<BlockLoss> losses;
  float tensor_scale = 1;
};

Result quantized(const Quantizer& quantizer, MatrixSize size, const std::vector<float>& values,
                 const QuantizeOptions& options = {}) {
  const MatrixSize blocks = quantizer.scales_of(size);
  const auto count = static_cast<std::size_t>(blocks.rows * blocks.columns);
  Result result{std::vector<std::uint8_t>(values.size()), std::vector<float>(count),
                std::vector<BlockLoss>(count)};
  result.tensor_scale =
      quantize(quantizer, size, values, result.codes, result.scales, options, result.losses);
  return result;
}

/// Blocks whose magnitudes lie anywhere in FP32, with a few numbers of the same size, zeros, and ties.
std::vector<float> numbers(std::size_t count, std::size_t block, unsigned seed) {
  std::mt19937 engine(seed);
  std::vector<float> values(count);
  int exponent = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (i % block == 0) exponent = static_cast<int>(engine() % 270) - 142;
    const float fraction = static_cast<float>(engine() % 4096) / 2048.0F - 1.0F;
    values[i] = engine() % 9 == 0 ? 0.0F : std::ldexp(fraction, exponent - static_cast<int>(engine() % 12));
  }
  return values;
}

/// The power of two in E8M0 for an amax above zero.
Rational scale_by_definition(ScaleRule rule, float amax, const Rational& top, int emax, int precision) {
  const auto floor_log2 = [](const Rational& x) {
    int k = -160;
    while (oracle::power_of_two(k + 1) <= x) ++k;
    return k;
  };
  const auto ceil_log2 = [&](const Rational& x) {
    const int k = floor_log2(x);
    return oracle::power_of_two(k) == x ? k : k + 1;
  };
  int k = 0;
  switch (rule) {
    case ScaleRule::floor:
      k = floor_log2(oracle::rational(amax)) - emax;
      break;
    case ScaleRule::ceil:
      k = ceil_log2(oracle::rational(amax)) - emax;
      break;
    case ScaleRule::even: {
      const int e = floor_log2(oracle::rational(amax));
      const Rational unit = oracle::power_of_two(e - precision + 1);
      k = floor_log2(oracle::rational(amax) + unit / 2) - emax;
      break;
    }
    default: {
      const float least = amax / static_cast<float>(top);  // the one operation that FP32 rounds
      k = least == 0 ? -127 : ceil_log2(oracle::rational(least));
    }
  }
  return oracle::power_of_two(std::clamp(k, -127, 127));
}

TEST(Quantizer, PowersOfTwoAndTheirElementsFollowTheDefinitions) {
  for (const char* name : {"mxfp8", "mxfp8-e5m2", "mxfp6-e3m2", "mxfp6-e2m3", "mxfp4"}) {
    Quantizer how = quantizer(name);
    visit_dtype<is_operand>(how.element, [&](auto dtype) {
      using F = typename decltype(dtype)::Format;
      const ValueTable table = ValueTable::of<F>();
      const Rational top = table.value(F::max_finite);
      for (const ScaleRule rule : rules_of(DType::e8m0)) {
        how.rule = rule;
        const std::vector<float> values = numbers(32 * 150, 32, 7);
        const Result result = quantized(how, {10, 480}, values);
        for (std::size_t block = 0; block < result.scales.size(); ++block) {
          float amax = 0;
          for (std::size_t i = 32 * block; i < 32 * block + 32; ++i)
            amax = std::max(amax, std::fabs(values[i]));
          ASSERT_GT(amax, 0);
          const Rational scale = scale_by_definition(rule, amax, top, F::emax, F::precision);
          ASSERT_EQ(oracle::rational(result.scales[block]), scale)
              << name << " " << name_of(rule) << " " << amax;
          // Transformer Engine and torchao leave elements under the least scale as they are.
          const bool untouched = rule == ScaleRule::rceil && scale == oracle::power_of_two(-127);
          for (std::size_t i = 32 * block; i < 32 * block + 32; ++i) {
            Rational x = oracle::rational(std::fabs(values[i]));
            if (!untouched) x /= std::max(scale, oracle::power_of_two(-126));
            const std::uint64_t magnitude = x >= top
                                                ? std::uint64_t{F::max_finite}
                                                : table.round(x, false, Rounding::nearest_even).magnitude;
            ASSERT_EQ(result.codes[i], table.code(magnitude, std::signbit(values[i])))
                << name << " " << name_of(rule) << " " << values[i] << " at scale " << result.scales[block];
          }
        }
      }
    });
  }
}

TEST(Quantizer, LossesAreCountedByBlock) {
  std::vector<float> values(64, 1.0F);
  values[0] = 500;  // floor: scale 1, and 448 is the largest code
  values[1] = 0x1p-11F;
  values[2] = -0x1p-10F;  // a tie to 0
  values[3] = 0;
  const Result mx = quantized(quantizer("mxfp8"), {1, 64}, values);
  EXPECT_EQ(mx.scales[0], 1);
  EXPECT_EQ(mx.losses[0].made_zero, 2u);
  EXPECT_EQ(mx.losses[0].saturated, 1u);
  EXPECT_FLOAT_EQ(mx.losses[0].headroom, std::log2(448.0F / 500));
  EXPECT_EQ(mx.codes[0], 0x7e);
  EXPECT_EQ(mx.losses[1].made_zero, 0u);
  EXPECT_FLOAT_EQ(mx.losses[1].headroom, std::log2(448.0F / 256));
  Quantizer rceil = quantizer("mxfp8");
  rceil.rule = ScaleRule::rceil;
  EXPECT_EQ(quantized(rceil, {1, 64}, values).scales[0], 2);
  // Ties: 464 is halfway to the even code of 448, 7 halfway from the odd one of 6.
  Quantizer given = quantizer("fp8-tensor");
  const auto saturated = [&](DType element, float value) {
    given.element = element;
    return quantized(given, {1, 1}, {value}, {.scale = 1.0F}).losses[0].saturated;
  };
  EXPECT_EQ(saturated(DType::e4m3, 464), 0u);
  EXPECT_EQ(saturated(DType::e4m3, std::nextafter(464.0F, 500.0F)), 1u);
  EXPECT_EQ(saturated(DType::e2m1, std::nextafter(7.0F, 6.0F)), 0u);
  EXPECT_EQ(saturated(DType::e2m1, -7), 1u);
  EXPECT_EQ(saturated(DType::e2m1, INFINITY), 0u);  // no finite one
  const Result zeros = quantized(quantizer("mxfp8"), {1, 32}, std::vector<float>(32));
  EXPECT_TRUE(std::isnan(zeros.losses[0].headroom));
  EXPECT_EQ(zeros.losses[0].made_zero, 0u);
}

TEST(Quantizer, NaNStaysInItsBlock) {
  std::vector<float> values(64, 1.0F);
  values[40] = NAN;
  for (const ScaleRule rule : rules_of(DType::e8m0)) {
    Quantizer how = quantizer("mxfp8");
    how.rule = rule;
    const Result result = quantized(how, {1, 64}, values);
    EXPECT_FALSE(std::isnan(result.scales[0]));
    EXPECT_TRUE(std::isnan(result.scales[1])) << name_of(rule);
    std::vector<float> back(64);
    dequantize(how, {1, 64}, result.codes, result.scales, 1, back);
    EXPECT_EQ(back[0], 1);
    EXPECT_TRUE(std::isnan(back[40]) && std::isnan(back[41]));
  }
}

TEST(Quantizer, ThreadsChangeNoBit) {
  const std::vector<float> values = numbers(128 * 1024, 32, 3);
  PhiloxStream stream{.seed = 5};
  for (const Quantizer& how : quantizers())
    for (const PhiloxStream* const random :
         {static_cast<const PhiloxStream*>(nullptr), &std::as_const(stream)}) {
      const Result one = quantized(how, {128, 1024}, values, {.random = random});
      const Result many = quantized(how, {128, 1024}, values, {.random = random, .threads = 3});
      EXPECT_EQ(one.codes, many.codes) << how.name;
      EXPECT_EQ(one.scales, many.scales) << how.name;
      std::vector<float> back(values.size()), other(values.size());
      dequantize(how, {128, 1024}, one.codes, one.scales, one.tensor_scale, back);
      dequantize(how, {128, 1024}, one.codes, one.scales, one.tensor_scale, other, 3);
      EXPECT_EQ(back, other);
    }
}

TEST(Quantizer, SquaresOfErrorsAreThoseOfThePart) {
  for (const Quantizer& how : quantizers()) {
    const MatrixSize size{128, 640}, part{100, 603};
    std::vector<float> values(128 * 640);
    std::mt19937 engine(5);
    std::normal_distribution<float> normal;
    for (float& x : values) x = std::ldexp(normal(engine), static_cast<int>(engine() % 9));
    values[3 * 640 + 7] = NAN;  // and its block
    values[101 * 640] = INFINITY;
    const Result result = quantized(how, size, values);
    std::vector<float> back(values.size());
    dequantize(how, size, result.codes, result.scales, result.tensor_scale, back);
    double difference = 0, whole = 0;
    std::uint64_t not_finite = 0;
    for (std::size_t row = 0; row < 100; ++row)
      for (std::size_t column = 0; column < 603; ++column) {
        const double value = values[row * 640 + column], error = back[row * 640 + column] - value;
        not_finite += std::isfinite(error) ? 0 : 1;
        if (!std::isfinite(error)) continue;
        difference += error * error;
        whole += value * value;
      }
    for (const int threads : {1, 3}) {
      const QuantizationError error = quantization_error(how, size, part, values, result.codes, result.scales,
                                                         result.tensor_scale, threads);
      EXPECT_NEAR(error.difference, difference, 1e-12 * difference) << how.name;
      EXPECT_NEAR(error.whole, whole, 1e-12 * whole) << how.name;
      EXPECT_EQ(error.not_finite, not_finite) << how.name;
    }
  }
}

TEST(Quantizer, StochasticElementsTakeTheHalfWordsOfTheirPlaces) {
  const std::vector<float> values = numbers(64 * 64, 16, 4);
  const PhiloxStream stream{.seed = 9};
  const Result result = quantized(quantizer("nvfp4"), {64, 64}, values, {.random = &stream});
  // By hand: multiples as the rule has them, then narrow_stochastic over the whole.
  std::vector<float> scaled(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float by = 1 / (result.scales[i / 16] * result.tensor_scale);
    scaled[i] = values[i] * std::min(by, std::numeric_limits<float>::max());
  }
  std::vector<SmallFloat<Fp4E2M1>> codes(values.size());
  ArithmeticOptions saturating;
  saturating.saturate = true;
  narrow_stochastic<Fp4E2M1>(scaled, codes, stream, 0, saturating);
  for (std::size_t i = 0; i < codes.size(); ++i) ASSERT_EQ(result.codes[i], codes[i].bits()) << i;
}

TEST(Quantizer, OneScaleOfTheTensorReachesAllBlocks) {
  std::vector<float> values(256, 0.001F);
  values[17] = 6 * 448;
  const Result result = quantized(quantizer("nvfp4"), {4, 64}, values);
  EXPECT_EQ(result.tensor_scale, 1);
  EXPECT_EQ(result.scales[1], 448);
  EXPECT_EQ(result.scales[0], 0);                   // 0.001 / 6 is below half of UE4M3's least number
  EXPECT_NEAR(result.losses[1].headroom, 0, 1e-6);  // FP32's 1/6 is a little above it
  const Result one_level = quantized(quantizer("nvfp4"), {4, 64}, values, {.tensor_scale = false});
  EXPECT_EQ(one_level.tensor_scale, 1);
  const Result known = quantized(quantizer("nvfp4"), {4, 64}, values, {.tensor_amax = 2 * 6 * 448.0F});
  EXPECT_EQ(known.tensor_scale, 2);
  EXPECT_EQ(known.scales[1], 224);
}

TEST(Quantizer, BlocksOfRowsAndColumnsShareAScale) {
  std::vector<float> values(256 * 256);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = std::ldexp(1.0F, static_cast<int>(i / 256 / 128 * 4 + i % 256 / 128));
  const Result result = quantized(quantizer("fp8-128x128"), {256, 256}, values);
  EXPECT_EQ(result.scales, (std::vector<float>{1 / 448.0F, 2 / 448.0F, 16 / 448.0F, 32 / 448.0F}));
  EXPECT_EQ(result.codes, std::vector<std::uint8_t>(values.size(), 0x7e));
  const Result whole = quantized(quantizer("fp8-tensor"), {256, 256}, values);
  EXPECT_EQ(whole.scales, std::vector<float>{1 / (448.0F / 32)});
  const Result given = quantized(quantizer("fp8-tensor"), {256, 256}, values, {.scale = 0.25F});
  EXPECT_EQ(given.scales, std::vector<float>{0.25F});
  EXPECT_EQ(given.losses[0].saturated, 0u);
}

TEST(Quantizer, NothingHasNoBlocks) {
  for (const Quantizer& how : quantizers()) {
    EXPECT_TRUE(quantized(how, {0, 256}, {}).scales.empty() || how.block.rows == 0) << how.name;
    EXPECT_TRUE(quantized(how, {256, 0}, {}).codes.empty());
  }
}

TEST(Quantizer, WhatDoesNotFitIsRefused) {
  const std::vector<float> values(40);
  std::vector<std::uint8_t> codes(40);
  std::vector<float> scales(2);
  const auto refusal = [&](Quantizer how, MatrixSize size, QuantizeOptions options = {}) {
    return message_of([&] { quantize(how, size, values, codes, scales, options); });
  };
  EXPECT_THAT(refusal(quantizer("mxfp8"), {1, 40}), HasSubstr("blocks of 32 columns, but the matrix has 40"));
  EXPECT_THAT(refusal(quantizer("nvfp4-2d"), {40, 16}),
              HasSubstr("blocks of 16 rows, but the matrix has 40"));
  EXPECT_THAT(refusal(quantizer("fp8-row"), {1, 41}), HasSubstr("40 values; the matrix has 41"));
  EXPECT_THAT(refusal(quantizer("fp8-tensor"), {1, 40}), HasSubstr("2 scales; the matrix has 1"));
  Quantizer how = quantizer("mxfp8");
  how.rule = ScaleRule::te;
  EXPECT_THAT(refusal(how, {1, 32}), HasSubstr("which rule 'te' does not make; floor, ceil, even, rceil"));
  how = quantizer("mxfp8");
  how.element = DType::f16;
  EXPECT_THAT(refusal(how, {1, 32}), HasSubstr("elements of f16; e4m3"));
  how = quantizer("mxfp8");
  how.scale = DType::e4m3;
  EXPECT_THAT(refusal(how, {1, 32}), HasSubstr("scales of e4m3; e8m0, ue4m3 and f32"));
  EXPECT_THAT(refusal(quantizer("fp8-row"), {2, 20}, {.scale = 0.0F}),
              HasSubstr("scale 0; a finite one above 0"));
  EXPECT_THAT(refusal(quantizer("fp8-row"), {2, 20}, {.tensor_amax = 1.0F}),
              HasSubstr("has no scale of the tensor"));
  how = quantizer("nvfp4");
  how.block = {2, 20};
  EXPECT_THAT(refusal(how, {2, 20}, {.scale = 1.0F}), HasSubstr("2 scales; the matrix has 1"));
  scales.resize(1);
  EXPECT_THAT(refusal(how, {2, 20}, {.scale = 1.0F}), HasSubstr("takes no scale from outside"));
  EXPECT_THAT(refusal(how, {2, 20}, {.tensor_amax = NAN}), HasSubstr("a finite one, 0 or above"));
  EXPECT_THAT(message_of([] { quantizer("mxfp9"); }), HasSubstr("did you mean 'mxfp"));
}

TEST(AmaxHistory, TheGreatestOfTheLastDecides) {
  AmaxHistory history(DType::e4m3, 3);
  EXPECT_EQ(history.scale(), 1);
  history.see(0);
  EXPECT_EQ(history.scale(), 1);  // zeros alone
  history.see(448);
  EXPECT_EQ(history.scale(), 1);
  history.see(14);
  EXPECT_EQ(history.scale(), 1);  // 448 is still in it
  history.see(14);
  EXPECT_EQ(history.scale(), 1);
  history.see(7);  // 448 left
  EXPECT_EQ(history.scale(), 1 / (448.0F / 14));
  history.see(INFINITY);
  history.see(NAN);
  EXPECT_EQ(history.scale(), 1 / (448.0F / 14));  // while the infinity is in it
  history.see(7);
  history.see(7);
  EXPECT_EQ(history.scale(), 1 / (448.0F / 7));
  AmaxHistory last(DType::e5m2, 1024, AmaxHistory::Choice::most_recent, 1);
  last.see(57344);
  last.see(2);
  EXPECT_EQ(last.scale(), 1 / (28672.0F / 2));
  EXPECT_THAT(message_of([] { AmaxHistory(DType::e4m3, 0); }), HasSubstr("length 0; 1 and more"));
}

TEST(AmaxHistory, GoesOnFromItsState) {
  AmaxHistory history(DType::e4m3, 3);
  for (const float amax : {7.0F, 100.0F, 3.0F, 2.0F}) history.see(amax);  // 2, 100, 3; the next replaces 100
  AmaxHistory other(DType::e4m3, 3);
  other.restore(history.state());
  EXPECT_EQ(other.state(), history.state());
  for (const float amax : {1.0F, 1.0F, 1.0F}) {
    EXPECT_EQ(other.scale(), history.scale());
    history.see(amax);
    other.see(amax);
  }
  EXPECT_EQ(other.scale(), 1 / 448.0F);
  for (const std::vector<float>& state :
       {std::vector<float>(4, 1.0F), {0, 0, 1, 1, 1}, {1, 3, 1, 1, 1}, {1, 0.5F, 1, 1, 1}, {1, -1, 1, 1, 1}})
    EXPECT_THAT(message_of([&] { other.restore(state); }),
                HasSubstr("are no state of an amax history of length 3"));
}

TEST(QuantizerLoss, AddsUpBlocks) {
  QuantizerLoss loss{.values = 64, .amax = 3};
  loss.add({.made_zero = 2, .headroom = 0.5F});
  loss.add({.made_zero = 1, .saturated = 3, .headroom = -0.25F});
  loss.add({.headroom = NAN});
  QuantizerLoss all{.values = 6, .amax = 5};
  all += loss;
  EXPECT_EQ(all.values, 70u);
  EXPECT_EQ(all.made_zero, 3u);
  EXPECT_EQ(all.saturated, 3u);
  EXPECT_EQ(all.blocks, 2u);
  EXPECT_EQ(all.saturated_blocks, 1u);
  EXPECT_EQ(all.least_headroom, -0.25);
  EXPECT_EQ(all.headroom_sum, 0.25);
  EXPECT_EQ(all.amax, 5);
}

TEST(RandomHadamard, KeepsProductsOfPairs) {
  std::mt19937 engine(1);
  std::vector<float> a(16), b(16);
  for (float& x : a) x = static_cast<float>(engine() % 17) - 8;
  for (float& x : b) x = static_cast<float>(engine() % 17) - 8;
  float before = 0, after = 0;
  for (std::size_t i = 0; i < 16; ++i) before += a[i] * b[i];
  const std::vector<float> first = a;
  random_hadamard(a, 16, te_hadamard_signs);
  random_hadamard(b, 16, te_hadamard_signs);
  for (std::size_t i = 0; i < 16; ++i) after += a[i] * b[i];
  EXPECT_EQ(before, after);  // small integers: every sum is exact
  float sum = 0;
  for (std::size_t i = 0; i < 16; ++i) sum += (te_hadamard_signs >> i & 1) != 0 ? -first[i] : first[i];
  EXPECT_EQ(a[0], sum / 4);
  std::vector<float> one{3};
  random_hadamard(one, 1, 1);
  EXPECT_EQ(one[0], -3);
  EXPECT_THAT(message_of([&] { random_hadamard(a, 12, 0); }), HasSubstr("a power of two of at most 32"));
}

}  // namespace
}  // namespace fp16lab
