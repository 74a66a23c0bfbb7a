// FP32 to the small formats over all 2^32 bit patterns, or every n-th of them: FP16LAB_SWEEP_STRIDE (an odd
// number; 1 is everything). Judged: the scalar definition and the array form. Oracles: for FP16 the F16C
// instructions in their four modes, ties-away derived from F16C's neighbours, and the compiler's _Float16;
// for every format a list of its values, written from the definition, in FP64 that holds all of them and all
// their midpoints exactly.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "numerics/convert/convert.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace fp16lab {
namespace {

std::uint64_t stride_from_environment(std::uint64_t usual) {
  const char* text = std::getenv("FP16LAB_SWEEP_STRIDE");
  const std::uint64_t stride = text == nullptr ? usual : std::stoull(text);
  return stride | 1;  // odd, so that every residue of the low bits occurs
}

constexpr std::size_t block = 4096;

/// Sums mismatches(first, stride) over blocks of patterns first, first + stride, ... below 2^32, on two
/// threads.
template <class Mismatches>
std::uint64_t sweep(std::uint64_t stride, const Mismatches& mismatches) {
  const auto blocks =
      static_cast<std::int64_t>(((std::uint64_t{1} << 32) + stride * block - 1) / (stride * block));
  std::uint64_t wrong = 0;
#pragma omp parallel for schedule(dynamic, 64) reduction(+ : wrong) num_threads(2)
  for (std::int64_t i = 0; i < blocks; ++i)
    wrong += mismatches(static_cast<std::uint64_t>(i) * block * stride, stride);
  testing::Test::RecordProperty("patterns", std::to_string((std::uint64_t{1} << 32) / stride));
  return wrong;
}

std::vector<float> patterns(std::uint64_t first, std::uint64_t stride) {
  std::vector<float> from;
  from.reserve(block);
  for (std::uint64_t bits = first; from.size() < block && bits < (std::uint64_t{1} << 32); bits += stride)
    from.push_back(float_from_bits(static_cast<std::uint32_t>(bits)));
  return from;
}

// ---- Every format, by its values --------------------------------------------------------------------------

/// The non-negative values of F by code, and last the one that the first code after the largest finite would
/// have.
template <class F>
const std::vector<double>& values_of() {
  static const std::vector<double> values = [] {
    std::vector<double> result;
    const int fractions = 1 << (F::precision - 1);
    result.reserve(std::size_t{F::magnitude_mask} + fractions + 1);
    for (int fraction = 0; fraction < fractions; ++fraction)
      result.push_back(std::ldexp(fraction, F::emin - F::fraction_bits));
    for (int exponent = F::emin; exponent <= F::emax + 1; ++exponent)
      for (int fraction = 0; fraction < fractions; ++fraction)
        result.push_back(std::ldexp(fractions + fraction, exponent - F::fraction_bits));
    result.resize(std::size_t{F::max_finite} + 2);
    return result;
  }();
  return values;
}

/// Rounds |x| between values[low] <= |x| and its successor; `low` is the last code if |x| is beyond it.
template <class F>
std::uint32_t round_by_table(double magnitude, std::uint32_t low, bool negative, Rounding rounding) {
  const std::vector<double>& values = values_of<F>();
  const auto infinity = static_cast<std::uint32_t>(values.size() - 1);
  const bool nearest = rounding == Rounding::nearest_even || rounding == Rounding::nearest_away;
  const bool away = rounding == (negative ? Rounding::downward : Rounding::upward);
  if (std::isinf(magnitude)) return infinity;
  if (low == infinity) return nearest || away ? infinity : infinity - 1;
  if (values[low] == magnitude) return low;
  if (!nearest) return low + (away ? 1 : 0);
  const double middle = 0.5 * (values[low] + values[low + 1]);
  const bool up =
      magnitude > middle || (magnitude == middle && (rounding == Rounding::nearest_away || low % 2 != 0));
  return low + (up ? 1 : 0);
}

/// The array form of every pattern of a block; the scalar form, much slower, of every eighth block.
template <class F>
std::uint64_t mismatches_by_table(std::uint64_t first, std::uint64_t stride) {
  const std::vector<double>& values = values_of<F>();
  const std::vector<float> from = patterns(first, stride);
  const bool also_scalar = first / (stride * block) % 8 == 0;
  std::vector<std::uint32_t> low(from.size());
  const auto infinity = static_cast<std::uint32_t>(values.size() - 1);
  for (std::size_t i = 0; i < from.size(); ++i) {  // ascending within a sign: the last search is near
    const auto magnitude = static_cast<double>(std::fabs(from[i]));
    std::uint32_t code = i == 0 ? 0 : low[i - 1];
    if (i == 0 || values[code] > magnitude)
      code = static_cast<std::uint32_t>(std::max<std::ptrdiff_t>(
          std::upper_bound(values.begin(), values.end(), magnitude) - values.begin() - 1, 0));
    while (code < infinity && values[code + 1] <= magnitude) ++code;
    low[i] = code;
  }
  std::uint64_t wrong = 0;
  std::vector<SmallFloat<F>> to(from.size());
  for (const Rounding rounding : all_roundings) {
    narrow<F>(from, to, rounding);
    for (std::size_t i = 0; i < from.size(); ++i) {
      const bool negative = std::signbit(from[i]);
      std::uint32_t right = F::canonical_nan;
      if (!std::isnan(from[i]))
        right = round_by_table<F>(std::fabs(from[i]), low[i], negative, rounding) |
                (negative ? F::sign_mask : 0u);
      wrong += static_cast<std::uint64_t>(to[i].bits() != right);
      if (also_scalar) wrong += static_cast<std::uint64_t>(narrow<F>(from[i], rounding).bits() != right);
    }
  }
  ArithmeticOptions options = Rounding::stochastic;
  options.random_bits = static_cast<std::uint32_t>(first * 0x9E3779B97F4A7C15u >> 32);
  narrow<F>(from, to, options);
  if (also_scalar)
    for (std::size_t i = 0; i < from.size(); ++i)
      wrong += static_cast<std::uint64_t>(to[i].bits() != narrow<F>(from[i], options).bits());
  return wrong;
}

template <class F>
class ConversionSweepByValues : public testing::Test {};
using Formats = testing::Types<Binary16, BrainFloat16, TensorFloat32, Fp8E4M3, Fp8E5M2>;
TYPED_TEST_SUITE(ConversionSweepByValues, Formats);

TYPED_TEST(ConversionSweepByValues, EveryPatternInEveryMode) {
  EXPECT_EQ(sweep(stride_from_environment(31), mismatches_by_table<TypeParam>), 0u);
}

// ---- FP16, by F16C ----------------------------------------------------------------------------------------

#if defined(__x86_64__)

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
    std::uint16_t magnitude) {  // that of a finite half, or 65536 for the infinity; from the definition
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

/// The number of mismatches among the patterns first, first + stride, ... (`block` of them, below 2^32).
std::uint64_t mismatches_by_f16c(std::uint64_t first, std::uint64_t stride) {
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
        case Rounding::stochastic:
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
  EXPECT_EQ(sweep(stride_from_environment(17), mismatches_by_f16c), 0u);
}

#else
TEST(ConversionSweep, EqualsF16cInEveryMode) { GTEST_SKIP() << "F16C is an x86 instruction set"; }
#endif

}  // namespace
}  // namespace fp16lab
