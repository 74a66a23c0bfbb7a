// The plain FP16 instructions of GPUs: IEEE arithmetic in FP64, then PTX's .ftz and .sat as doubles say them.
#include "numerics/arithmetic/gpu_half.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "tests/support/arithmetic_cases.hpp"
#include "tests/support/arithmetic_oracle.hpp"

namespace fp16lab {
namespace {

using oracle::Number;
using oracle::Operation;

constexpr oracle::Sizes half_sizes = oracle::sizes_of<Binary16>();

std::uint64_t flushed(std::uint64_t code) { return (code & 0x7c00) == 0 ? code & 0x8000 : code; }

std::uint64_t expected(Operation operation, std::uint64_t a, std::uint64_t b, std::uint64_t c,
                       ptx::Modifiers modifiers) {
  if (modifiers.ftz) {
    a = flushed(a);
    b = flushed(b);
    c = flushed(c);
  }
  std::uint64_t bits = oracle::fp64_outcome(operation, half_sizes, oracle::number(half_sizes, a),
                                            oracle::number(half_sizes, b), oracle::number(half_sizes, c),
                                            Rounding::nearest_even, Tininess::after_rounding)
                           .bits;
  if (modifiers.ftz) bits = flushed(bits);
  if (!modifiers.sat) return bits;
  const Number result = oracle::number(half_sizes, bits);
  if (result.is_nan() || result.negative) return 0;
  return result.is_infinite() || result.real() > 1 ? 0x3c00 : bits;
}

TEST(GpuHalf, AddSubMulFmaWithEveryModifier) {
  std::vector<std::uint64_t> codes = cases::corner_codes(half_sizes);
  std::mt19937_64 engine(8);
  for (int i = 0; i < 200; ++i) codes.push_back(engine() & 0xffff);
  const auto half = [](std::uint64_t code) { return Float16::from_bits(static_cast<std::uint16_t>(code)); };
  std::size_t third = 0;
  for (const std::uint64_t a : codes)
    for (const std::uint64_t b : codes) {
      const std::uint64_t c = codes[third++ % codes.size()];
      for (const ptx::Modifiers modifiers : {ptx::Modifiers{}, ptx::Modifiers{true, false},
                                             ptx::Modifiers{false, true}, ptx::Modifiers{true, true}}) {
        ASSERT_EQ(ptx::add(half(a), half(b), modifiers).bits(), expected(Operation::add, a, b, 0, modifiers));
        ASSERT_EQ(ptx::sub(half(a), half(b), modifiers).bits(), expected(Operation::sub, a, b, 0, modifiers));
        ASSERT_EQ(ptx::mul(half(a), half(b), modifiers).bits(), expected(Operation::mul, a, b, 0, modifiers));
        ASSERT_EQ(ptx::fma(half(a), half(b), half(c), modifiers).bits(),
                  expected(Operation::fma, a, b, c, modifiers));
      }
    }
}

TEST(GpuHalf, Conversions) {
  for (std::uint32_t code = 0; code < 65536; ++code) {
    const auto half = Float16::from_bits(static_cast<std::uint16_t>(code));
    const float wide = ptx::cvt_f32_f16(half);
    const Number number = oracle::number(half_sizes, code);
    if (number.is_nan()) {
      ASSERT_EQ(bits_of(wide), 0x7fffffffu);
      ASSERT_EQ(ptx::cvt_f16_f32(wide).bits(), 0x7fff);
      ASSERT_EQ(ptx::cvt_f16_f32(wide, Rounding::nearest_even, {false, true}).bits(), 0);
      continue;
    }
    ASSERT_EQ(static_cast<double>(wide),
              number.is_infinite() ? (number.negative ? -HUGE_VAL : HUGE_VAL) : number.real());
    ASSERT_EQ(ptx::cvt_f16_f32(wide, Rounding::nearest_even, {true, false}).bits(), code)
        << "half subnormals stay";
    ASSERT_EQ(ptx::cvt_f16_f32(wide, Rounding::upward, {false, true}).bits(),
              number.negative ? 0u : std::min(code, 0x3c00u));
  }
  const float tiny = float_from_bits(1);
  EXPECT_EQ(ptx::cvt_f16_f32(tiny, Rounding::upward).bits(), 0x0001);
  EXPECT_EQ(ptx::cvt_f16_f32(tiny, Rounding::upward, {true, false}).bits(), 0x0000)
      << "single subnormals do not";
  EXPECT_EQ(ptx::cvt_f16_f32(float_from_bits(0xffc00001)).bits(), 0x7fff);
  EXPECT_EQ(ptx::cvt_f16_f32(65520.0f).bits(), 0x7c00);
  EXPECT_EQ(ptx::cvt_f16_f32(-65520.0f, Rounding::toward_zero).bits(), 0xfbff);
}

}  // namespace
}  // namespace fp16lab
