// exp_f32 and log_f32 over all 2^32 arguments, or every n-th: FP16LAB_SWEEP_STRIDE (an odd number; 1 is
// everything). Oracle: the C library in long double. On x86 that has 64 significant bits and an error of
// about one of its own ulps, so the error measured here, in FP32 ulps, is known to 2^-38. Compared as well:
// the same source compiled with FMA.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>

#include "numerics/elementary.hpp"
#include "tests/numerics/elementary_fma_twin.hpp"

namespace fp16lab {
namespace {

std::uint64_t stride_from_environment() {
  const char* text = std::getenv("FP16LAB_SWEEP_STRIDE");
  const std::uint64_t stride = text == nullptr ? 61 : std::stoull(text);
  return stride | 1;
}

/// |actual - exact| in ulps of FP32 at `exact`; the ulp of subnormal results is 2^-149.
double error_in_ulps(float actual, long double exact) {
  int exponent = 0;
  std::frexp(exact, &exponent);  // 2^(exponent - 1) <= |exact| < 2^exponent
  return static_cast<double>(
      std::fabs(std::ldexp(static_cast<long double>(actual) - exact, 24 - std::max(exponent, -125))));
}

struct Tally {
  double worst = 0;              ///< over finite results
  std::uint64_t misrounded = 0;  ///< not the FP32 number nearest to the exact result
  std::uint64_t wrong = 0;       ///< special values, overflow, NaN: not exactly as documented
  std::uint64_t fma_differs = 0;

  void finite(float actual, long double exact) {
    if (static_cast<float>(exact) != actual) ++misrounded;
    if (!std::isfinite(actual)) {
      ++wrong;
      return;
    }
    worst = std::max(worst, error_in_ulps(actual, exact));
  }
  void same_bits(float actual, std::uint32_t expected) {
    wrong += static_cast<std::uint64_t>(bits_of(actual) != expected);
  }
  void merge(const Tally& other) {
    worst = std::max(worst, other.worst);
    misrounded += other.misrounded;
    wrong += other.wrong;
    fma_differs += other.fma_differs;
  }
};

constexpr std::uint32_t infinity_bits = 0x7f800000;
constexpr std::uint32_t nan_bits = 0x7fffffff;

void judge_exp(float x, float y, Tally& tally) {
  if (std::isnan(x)) return tally.same_bits(y, nan_bits);
  // 128 ln 2 = 88.72...; beyond 89 and -104 (e^-104 < 2^-150) the result is certain.
  if (x > 89.0f) return tally.same_bits(y, infinity_bits);
  if (x < -104.0f) return tally.same_bits(y, 0);
  const long double exact = std::exp(static_cast<long double>(x));
  if (exact >= 0x1.ffffffp127L)
    return tally.same_bits(y, infinity_bits);  // half an ulp above the largest float
  tally.finite(y, exact);
}

void judge_log(float x, float y, Tally& tally) {
  if (std::isnan(x) || x < 0) return tally.same_bits(y, nan_bits);
  if (x == 0) return tally.same_bits(y, 0xff800000);
  if (std::isinf(x)) return tally.same_bits(y, infinity_bits);
  if (x == 1.0f) return tally.same_bits(y, 0);
  tally.finite(y, std::log(static_cast<long double>(x)));
}

constexpr std::size_t block = 4096;

template <class Function, class Twin, class Judge>
Tally sweep(Function function, Twin twin, Judge judge) {
  static_assert(std::numeric_limits<long double>::digits >= 64, "the oracle needs extended precision");
#if defined(__x86_64__)
  const bool has_fma = __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2");
#else
  const bool has_fma = true;  // the twin has no flags of its own there
#endif
  const std::uint64_t stride = stride_from_environment();
  const auto blocks =
      static_cast<std::int64_t>(((std::uint64_t{1} << 32) + stride * block - 1) / (stride * block));
  Tally total;
#pragma omp parallel num_threads(2)
  {
    Tally mine;
#pragma omp for schedule(dynamic, 16)
    for (std::int64_t i = 0; i < blocks; ++i) {
      std::array<float, block> from{};
      std::array<float, block> to{};
      std::array<float, block> to_fma{};
      std::size_t count = 0;
      for (std::uint64_t bits = static_cast<std::uint64_t>(i) * block * stride;
           count < block && bits < (std::uint64_t{1} << 32); bits += stride)
        from[count++] = float_from_bits(static_cast<std::uint32_t>(bits));
      for (std::size_t k = 0; k < block; ++k) to[k] = function(from[k]);
      if (has_fma) twin(from.data(), to_fma.data(), block);
      for (std::size_t k = 0; k < count; ++k) {
        judge(from[k], to[k], mine);
        mine.fma_differs += static_cast<std::uint64_t>(has_fma && bits_of(to[k]) != bits_of(to_fma[k]));
      }
    }
#pragma omp critical
    total.merge(mine);
  }
  return total;
}

// The header's bound is 0.5 + 2^-27 ulp; the oracle may be off by 2^-38.
constexpr double bound = 0.5 + 0x1p-27 + 0x1p-38;

void report(const char* name, const Tally& tally) {
  std::printf("%s: largest error %.12f ulp, not correctly rounded: %llu\n", name, tally.worst,
              static_cast<unsigned long long>(tally.misrounded));
}

TEST(ElementarySweep, ExpKeepsItsBound) {
  const Tally tally = sweep(
      [](float x) { return exp_f32(x); },
      [](const float* from, float* to, std::size_t n) { fp16lab_twin::exp_f32(from, to, n); }, judge_exp);
  report("exp_f32", tally);
  EXPECT_LT(tally.worst, bound);
  EXPECT_EQ(tally.wrong, 0u);
  EXPECT_EQ(tally.fma_differs, 0u);
}

TEST(ElementarySweep, LogKeepsItsBound) {
  const Tally tally = sweep(
      [](float x) { return log_f32(x); },
      [](const float* from, float* to, std::size_t n) { fp16lab_twin::log_f32(from, to, n); }, judge_log);
  report("log_f32", tally);
  EXPECT_LT(tally.worst, bound);
  EXPECT_EQ(tally.wrong, 0u);
  EXPECT_EQ(tally.fma_differs, 0u);
}

}  // namespace
}  // namespace fp16lab
