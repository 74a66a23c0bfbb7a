// Conformance: memory and casts.
#include <cmath>
#include <limits>

#include "tests/engine/backend/conformance.hpp"

namespace fp16lab::engine::test {
namespace {

// ---- memory ----

TEST_P(BackendConformance, BytesTravelUnchanged) {
  const std::vector<float> values = random_floats(1025, Kind::special, 1);  // NaN payloads too
  const Tensor x = tensor(values);
  Tensor copied = output(Shape{25, 41}, DType::f32);
  backend().copy(x, copied);
  expect_same_bits(values_of<float>(copied), values, "copy");
}

TEST_P(BackendConformance, FillRoundsOnce) {
  // 1 + 2^-11 + 2^-40 lies just above a tie of FP16: through FP32 it would fall on the tie and go down.
  Tensor halves = output(Shape{31}, DType::f16);
  backend().fill(halves, 1.0 + 0x1p-11 + 0x1p-40);
  expect_same_bits(values_of<Float16>(halves), std::vector(31, Float16::from_bits(0x3c01)), "fill f16");
  backend().fill(halves, -std::numeric_limits<double>::quiet_NaN());
  expect_same_bits(values_of<Float16>(halves), std::vector(31, Float16::from_bits(0x7fff)), "fill f16 NaN");
  backend().fill(halves, 65520.0);
  expect_same_bits(values_of<Float16>(halves), std::vector(31, Float16::from_bits(0x7c00)),
                   "fill f16 overflow");
  Tensor floats = output(Shape{70001}, DType::f32);
  backend().fill(floats, -0.1);
  expect_same_bits(values_of<float>(floats), std::vector(70001, -0.1f), "fill f32");
  backend().fill(floats, -0.0);
  expect_same_bits(values_of<float>(floats), std::vector(70001, -0.0f), "fill f32 -0");
  Tensor integers = output(Shape{7}, DType::i32);
  backend().fill(integers, -2147483648.0);
  expect_same_bits(values_of<std::int32_t>(integers),
                   std::vector(7, std::numeric_limits<std::int32_t>::min()), "fill i32");
  EXPECT_THROW(backend().fill(integers, 0.5), std::invalid_argument);
  EXPECT_THROW(backend().fill(integers, 2147483648.0), std::invalid_argument);
}

// ---- casts ----

TEST_P(BackendConformance, FillRoundsBf16Once) {
  // 1 + 2^-8 + 2^-40 lies just above a tie of BF16: through FP32 it would fall on the tie and go down.
  Tensor brains = output(Shape{31}, DType::bf16);
  const auto expect_filled = [&](double value, std::uint16_t bits) {
    backend().fill(brains, value);
    expect_same_bits(values_of<BFloat16>(brains), std::vector(31, BFloat16::from_bits(bits)), "fill bf16");
  };
  expect_filled(1.0 + 0x1p-8 + 0x1p-40, 0x3f81);
  expect_filled(1.0 + 0x1p-8, 0x3f80);
  expect_filled(-std::numeric_limits<double>::quiet_NaN(), 0x7fff);
  expect_filled(0x1.ffp127, 0x7f80);  // the tie between the largest number and 2^128
  expect_filled(-0x1.feffffffp127, 0xff7f);
  expect_filled(0x1p-134, 0x0000);  // half of the smallest subnormal: to even
  expect_filled(0x1.8p-133, 0x0002);
}

TEST_P(BackendConformance, WideningBf16IsExact) {
  const std::vector<BFloat16> brains = all_words<BFloat16>();
  Tensor out = output(Shape{65536}, DType::f32);
  backend().cast(tensor(brains), out);
  expect_same_bits(values_of<float>(out),
                   mapped(brains,
                          [](BFloat16 x) {
                            const std::uint32_t bits = std::uint32_t{x.bits()} << 16;
                            const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
                            return float_from_bits(nan ? 0x7fffffffu : bits);
                          }),
                   "cast bf16 to f32");
}

TEST_P(BackendConformance, CastsBetweenF16AndBf16RoundOnceFromTheExactValue) {
  // All 2^16 words both ways, against one conversion without FP32 in between, which is an identity on both.
  const auto check = [&]<class From, class To>(From, To) {
    const std::vector<From> words = all_words<From>();
    const std::vector<To> expected = mapped(words, [](From x) { return convert<typename To::Format>(x); });
    Tensor out = output(Shape{65536}, DTypeOf<To>::value);
    CastProbe probe;
    backend().cast(tensor(words), out, &probe);
    expect_same_bits(values_of<To>(out), expected, "cast " + std::string(name_of(DTypeOf<From>::value)));
    EXPECT_EQ(settled(probe).before, naive_histogram(words));
    EXPECT_EQ(probe.after, naive_histogram(expected));
  };
  check(Float16{}, BFloat16{});
  check(BFloat16{}, Float16{});
}

TEST_P(BackendConformance, WideningIsExact) {
  const std::vector<Float16> halves = all_words<Float16>();
  Tensor out = output(Shape{65536}, DType::f32);
  backend().cast(tensor(halves), out);
  std::vector<float> expected;
  for (const Float16 half : halves) {
    const int field = (half.bits() >> 10) & 31, fraction = half.bits() & 1023;
    const double magnitude = field == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, field - 25);
    const double sign = (half.bits() & 0x8000) != 0 ? -1.0 : 1.0;
    float value = static_cast<float>(sign * magnitude);
    if (field == 31 && fraction == 0) value = static_cast<float>(sign * HUGE_VAL);
    if (field == 31 && fraction != 0) value = float_from_bits(0x7fffffffu);
    expected.push_back(value);
  }
  expect_same_bits(values_of<float>(out), expected, "cast f16 to f32");
}

TEST_P(BackendConformance, NarrowingToBf16RoundsToNearestEven) {
  // On FP32 bits: the upper half, plus one where the lower half is above the middle, or in the middle and the
  // upper half odd. Every upper half with the lower halves around the middle; a carry out of the significand
  // is right as it is, up to infinity.
  std::vector<float> values = random_floats(100000, Kind::special, 2);
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper)
    for (const std::uint32_t lower : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      values.push_back(float_from_bits(upper << 16 | lower));
  Tensor out = output(Shape{static_cast<std::int64_t>(values.size())}, DType::bf16);
  CastProbe probe;
  backend().cast(tensor(values), out, &probe);
  const std::vector<BFloat16> expected = mapped(values, [](float x) {
    const std::uint32_t bits = bits_of(x), upper = bits >> 16, lower = bits & 0xffffu;
    if (std::isnan(x)) return BFloat16::from_bits(0x7fff);
    const bool up = lower > 0x8000u || (lower == 0x8000u && (upper & 1u) != 0);
    return BFloat16::from_bits(static_cast<std::uint16_t>(upper + (up ? 1u : 0u)));
  });
  expect_same_bits(values_of<BFloat16>(out), expected, "cast f32 to bf16");
  EXPECT_EQ(settled(probe).before, naive_histogram(values));
  EXPECT_EQ(probe.after, naive_histogram(expected));
}

TEST_P(BackendConformance, NarrowingRoundsToNearestEven) {
  // Around every half and every midpoint between halves; then random words.
  std::vector<float> values = random_floats(100000, Kind::special, 2);
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const double here = static_cast<double>(float_of(Float16::from_bits(static_cast<std::uint16_t>(bits))));
    const double next =
        bits == 0x7bff
            ? 65536.0
            : static_cast<double>(float_of(Float16::from_bits(static_cast<std::uint16_t>(bits + 1))));
    const auto middle = static_cast<float>((here + next) / 2);
    for (const float value : {static_cast<float>(here), std::nextafterf(middle, 0.0f), middle,
                              std::nextafterf(middle, HUGE_VALF)}) {
      values.push_back(value);
      values.push_back(-value);
    }
  }
  const Shape shape{static_cast<std::int64_t>(values.size())};
  Tensor out = output(shape, DType::f16);
  CastProbe probe;
  backend().cast(tensor(values), out, &probe);
  const std::vector<Float16> expected = mapped(values, [](float x) { return narrow<Binary16>(x); });
  expect_same_bits(values_of<Float16>(out), expected, "cast f32 to f16");
  EXPECT_EQ(settled(probe).before, naive_histogram(values));
  EXPECT_EQ(probe.after, naive_histogram(expected));
}

}  // namespace
}  // namespace fp16lab::engine::test
