// FP32 to FP16 over all 2^32 bit patterns, or every n-th of them: FP16LAB_SWEEP_STRIDE (an odd number; 1 is
// everything). Oracles: the F16C instructions in their four modes, ties-away derived from F16C's neighbours,
// and the compiler's _Float16. Judged: the scalar definition and the array form.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "numerics/convert.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace fp16lab {
namespace {

#if defined(__x86_64__)

std::uint64_t stride_from_environment() {
  const char* text = std::getenv("FP16LAB_SWEEP_STRIDE");
  const std::uint64_t stride = text == nullptr ? 5 : std::stoull(text);
  return stride | 1;  // odd, so that every residue of the low bits occurs
}

bool cpu_has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0 &&
         __builtin_cpu_supports("avx");
}

template <int immediate>
__attribute__((target("avx,f16c"))) void f16c(const float* from, std::uint16_t* to) {
  const __m128i words = _mm256_cvtps_ph(_mm256_loadu_ps(from), immediate | _MM_FROUND_NO_EXC);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), words);
}

double value_of(
    std::uint16_t magnitude) {  // of a finite half, or 65536 for the infinity; from the definition
  const int field = magnitude >> 10;
  const double fraction = magnitude & 0x3ff;
  return field == 0 ? fraction * 0x1p-24
                    : (1024 + fraction) * static_cast<double>(std::uint64_t{1} << field) * 0x1p-25;
}

/// Ties away from zero from truncation: the next half up if x is at or above the midpoint (exact in FP64).
std::uint16_t nearest_away(float x, std::uint16_t truncated) {
  const auto magnitude = static_cast<std::uint16_t>(truncated & 0x7fff);
  if (magnitude >= 0x7c00) return truncated;
  const double middle = 0.5 * (value_of(magnitude) + value_of(static_cast<std::uint16_t>(magnitude + 1)));
  return static_cast<std::uint16_t>(truncated + (static_cast<double>(std::abs(x)) >= middle ? 1 : 0));
}

constexpr std::size_t block = 4096;

/// The number of mismatches among the patterns first, first + stride, ... (`block` of them, below 2^32).
std::uint64_t mismatches(std::uint64_t first, std::uint64_t stride) {
  std::array<float, block> from{};
  std::array<std::uint16_t, block> expected{};
  std::array<std::uint16_t, block> truncated{};
  std::array<Float16, block> actual{};
  std::size_t count = 0;
  for (std::uint64_t bits = first; count < block && bits < (std::uint64_t{1} << 32); bits += stride)
    from[count++] = float_from_bits(static_cast<std::uint32_t>(bits));
  std::uint64_t wrong = 0;
  for (const Rounding rounding : {Rounding::toward_zero, Rounding::nearest_even, Rounding::upward,
                                  Rounding::downward, Rounding::nearest_away}) {
    for (std::size_t i = 0; i < block; i += 8) switch (rounding) {
        case Rounding::nearest_even:
          f16c<_MM_FROUND_TO_NEAREST_INT>(&from[i], &expected[i]);
          break;
        case Rounding::toward_zero:
          f16c<_MM_FROUND_TO_ZERO>(&from[i], &expected[i]);
          break;
        case Rounding::upward:
          f16c<_MM_FROUND_TO_POS_INF>(&from[i], &expected[i]);
          break;
        case Rounding::downward:
          f16c<_MM_FROUND_TO_NEG_INF>(&from[i], &expected[i]);
          break;
        case Rounding::nearest_away:
          break;
      }
    if (rounding == Rounding::toward_zero) truncated = expected;
    if (rounding == Rounding::nearest_away)
      for (std::size_t i = 0; i < count; ++i) expected[i] = nearest_away(from[i], truncated[i]);
    narrow(std::span(from).first(count), std::span(actual).first(count), rounding);
    for (std::size_t i = 0; i < count; ++i) {
      const bool is_nan = from[i] != from[i];
      const std::uint16_t right = is_nan ? 0x7fff : expected[i];
      wrong += static_cast<std::uint64_t>(actual[i].bits() != right);
      wrong += static_cast<std::uint64_t>(narrow<Binary16>(from[i], rounding).bits() != right);
#if defined(__FLT16_MAX__)
      if (rounding == Rounding::nearest_even && !is_nan)
        wrong +=
            static_cast<std::uint64_t>(std::bit_cast<std::uint16_t>(static_cast<_Float16>(from[i])) != right);
#endif
    }
  }
  return wrong;
}

TEST(ConversionSweep, EqualsF16cInEveryMode) {
  if (!cpu_has_f16c()) GTEST_SKIP() << "this CPU has no F16C";
  const std::uint64_t stride = stride_from_environment();
  const auto blocks =
      static_cast<std::int64_t>(((std::uint64_t{1} << 32) + stride * block - 1) / (stride * block));
  std::uint64_t wrong = 0;
#pragma omp parallel for schedule(dynamic, 64) reduction(+ : wrong) num_threads(2)
  for (std::int64_t i = 0; i < blocks; ++i)
    wrong += mismatches(static_cast<std::uint64_t>(i) * block * stride, stride);
  EXPECT_EQ(wrong, 0u);
  RecordProperty("patterns", std::to_string((std::uint64_t{1} << 32) / stride));
}

#else
TEST(ConversionSweep, EqualsF16cInEveryMode) { GTEST_SKIP() << "F16C is an x86 instruction set"; }
#endif

}  // namespace
}  // namespace fp16lab
