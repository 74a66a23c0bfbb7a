// Conversions from FP32 to the formats of 8, 6 and 4 bits, and back, against the host side of CUDA's own
// headers (cuda_fp8.h, cuda_fp6.h, cuda_fp4.h). Every n-th FP32 pattern: all of them with
// FP16LAB_SWEEP_STRIDE=1.
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "numerics/convert/convert.hpp"

namespace fp16lab {
namespace {

ArithmeticOptions rounding(Rounding direction, bool saturates) {
  ArithmeticOptions options = direction;
  options.saturate = saturates;
  return options;
}

/// The array form of every n-th pattern; theirs(x) are the expected bits.
template <class F, class Theirs>
void expect_equal(const ArithmeticOptions& options, const Theirs& theirs) {
  const char* const asked = std::getenv("FP16LAB_SWEEP_STRIDE");
  const std::uint64_t stride = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 2003;
  constexpr std::size_t block = 1 << 14;
  std::vector<float> from;
  std::vector<SmallFloat<F>> to(block);
  const auto compare = [&] {
    to.resize(from.size());
    narrow<F>(from, to, options);
    for (std::size_t i = 0; i < from.size(); ++i)
      ASSERT_EQ(to[i].bits(), theirs(from[i])) << std::hexfloat << from[i] << ' ' << bits_of(from[i]);
    from.clear();
  };
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += stride) {
    from.push_back(float_from_bits(static_cast<std::uint32_t>(bits)));
    if (from.size() == block) compare();
    if (testing::Test::HasFatalFailure()) return;
  }
  // Few significant bits: numbers of the format, ties, and their neighbours.
  for (std::uint64_t high = 0; high < 1 << 14; ++high)
    for (const std::uint32_t low : {0x3ffffU, 0U, 1U})
      from.push_back(float_from_bits(static_cast<std::uint32_t>(high << 18) | low));
  compare();
}

TEST(CudaHeaders, Fp8) {
  for (const bool saturates : {false, true}) {
    const __nv_saturation_t theirs = saturates ? __NV_SATFINITE : __NV_NOSAT;
    const ArithmeticOptions options = rounding(Rounding::nearest_even, saturates);
    expect_equal<Fp8E4M3>(options, [=](float x) { return __nv_cvt_float_to_fp8(x, theirs, __NV_E4M3); });
    expect_equal<Fp8E5M2>(options, [=](float x) { return __nv_cvt_float_to_fp8(x, theirs, __NV_E5M2); });
  }
}

TEST(CudaHeaders, Fp6AndFp4) {
  const ArithmeticOptions options = rounding(Rounding::nearest_even, true);
  expect_equal<Fp6E3M2>(options,
                        [](float x) { return __nv_cvt_float_to_fp6(x, __NV_E3M2, cudaRoundNearest); });
  expect_equal<Fp6E2M3>(options,
                        [](float x) { return __nv_cvt_float_to_fp6(x, __NV_E2M3, cudaRoundNearest); });
  expect_equal<Fp4E2M1>(options,
                        [](float x) { return __nv_cvt_float_to_fp4(x, __NV_E2M1, cudaRoundNearest); });
}

TEST(CudaHeaders, Scales) {
  for (const bool saturates : {false, true}) {
    const __nv_saturation_t theirs = saturates ? __NV_SATFINITE : __NV_NOSAT;
    expect_equal<ScaleE8M0>(rounding(Rounding::toward_zero, saturates),
                            [=](float x) { return __nv_cvt_float_to_e8m0(x, theirs, cudaRoundZero); });
    expect_equal<ScaleE8M0>(rounding(Rounding::upward, saturates),
                            [=](float x) { return __nv_cvt_float_to_e8m0(x, theirs, cudaRoundPosInf); });
  }
}

/// Through FP16, which holds every number of them; NaN as any NaN.
template <class F, class Theirs>
void expect_widened(const Theirs& theirs) {
  for (std::uint32_t code = 0; code < std::uint32_t{1} << F::width; ++code) {
    const auto ours = SmallFloat<F>::from_bits(static_cast<std::uint8_t>(code));
    const __half_raw half = theirs(static_cast<std::uint8_t>(code));
    const auto expected = Float16::from_bits(half.x);
    ASSERT_EQ(ours.is_nan(), expected.is_nan()) << code;
    if (ours.is_nan()) continue;
    ASSERT_EQ(bits_of(widen(ours)), bits_of(widen(expected))) << code;
  }
}

TEST(CudaHeaders, EveryCodeWidens) {
  expect_widened<Fp8E4M3>([](std::uint8_t code) { return __nv_cvt_fp8_to_halfraw(code, __NV_E4M3); });
  expect_widened<Fp8E5M2>([](std::uint8_t code) { return __nv_cvt_fp8_to_halfraw(code, __NV_E5M2); });
  expect_widened<Fp6E3M2>([](std::uint8_t code) { return __nv_cvt_fp6_to_halfraw(code, __NV_E3M2); });
  expect_widened<Fp6E2M3>([](std::uint8_t code) { return __nv_cvt_fp6_to_halfraw(code, __NV_E2M3); });
  expect_widened<Fp4E2M1>([](std::uint8_t code) { return __nv_cvt_fp4_to_halfraw(code, __NV_E2M1); });
  for (std::uint32_t code = 0; code < 256; ++code) {
    const auto ours = ScaleE8M0::Bits(code);
    const __nv_bfloat16_raw theirs = __nv_cvt_e8m0_to_bf16raw(ours);
    if (code == 255)
      EXPECT_TRUE(SmallFloat<ScaleE8M0>::from_bits(ours).is_nan());
    else
      EXPECT_EQ(bits_of(widen(SmallFloat<ScaleE8M0>::from_bits(ours))), std::uint32_t{theirs.x} << 16)
          << code;
  }
}

}  // namespace
}  // namespace fp16lab
