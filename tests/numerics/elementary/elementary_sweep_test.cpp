// Every elementary function over all 2^32 arguments, or every n-th: FP16LAB_SWEEP_STRIDE (an odd number; 1 is
// everything). Judged are the error, special values, signs, monotonicity, symmetry, and that the same source
// compiled with FMA gives the same bits. The C library decides where the result is clearly nearest; close to
// a rounding boundary, or beyond it, MPFR does. So the largest error reported is MPFR's.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ostream>
#include <string>

#include "tests/numerics/elementary/elementary_fma_twin.hpp"
#include "tests/numerics/elementary/elementary_functions.hpp"
#include "tests/numerics/elementary/elementary_oracle.hpp"

namespace fp16lab::test {

void PrintTo(const ElementaryProperties& properties, std::ostream* stream) { *stream << properties.name; }

namespace {

std::uint64_t stride_from_environment() {
  const char* text = std::getenv("FP16LAB_SWEEP_STRIDE");
  const std::uint64_t stride = text == nullptr ? 19 : std::stoull(text);
  return stride | 1;
}

bool cpu_has_fma() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2");
#else
  return true;  // the twin has no flags of its own there
#endif
}

struct Tally {
  double worst = 0;  ///< ulps, of the results that MPFR judged: all above 0.5 - 2^-18
  float worst_at = 0;
  std::uint64_t judged = 0;
  std::uint64_t asked_mpfr = 0;
  std::uint64_t misrounded = 0;  ///< not the FP32 number nearest to the exact result
  std::uint64_t wrong = 0;       ///< special values and signs: not exactly as documented
  std::uint64_t not_monotone = 0;
  std::uint64_t not_symmetric = 0;
  std::uint64_t fma_differs = 0;

  void merge(const Tally& other) {
    if (other.worst > worst) {
      worst = other.worst;
      worst_at = other.worst_at;
    }
    judged += other.judged;
    asked_mpfr += other.asked_mpfr;
    misrounded += other.misrounded;
    wrong += other.wrong;
    not_monotone += other.not_monotone;
    not_symmetric += other.not_symmetric;
    fma_differs += other.fma_differs;
  }
};

void judge(const ElementaryProperties& f, float x, float y, Tally& tally) {
  const auto expect = [&](std::uint32_t bits) {
    tally.wrong += static_cast<std::uint64_t>(bits_of(y) != bits);
  };
  const bool negative = std::signbit(x);
  if (std::isnan(x)) return expect(nan_bits);
  if (x == 0) return expect(negative ? f.at_minus_zero : f.at_zero);
  if (std::isinf(x)) return expect(negative ? f.at_minus_infinity : f.at_infinity);
  if (x < f.lowest) return expect(nan_bits);
  const double exact = library_value(f.function, x);
  tally.wrong += static_cast<std::uint64_t>(std::isnan(y) || std::signbit(y) != std::signbit(exact));
  ++tally.judged;
  // If everything within 2^-40 of the library's answer rounds to y, the error is below 0.5 - 2^-18 ulp.
  if (bits_of(static_cast<float>(exact * (1 - 0x1p-40))) == bits_of(y) &&
      bits_of(static_cast<float>(exact * (1 + 0x1p-40))) == bits_of(y))
    return;
  ++tally.asked_mpfr;
  const double error = error_by_mpfr(f.function, x, y);
  tally.misrounded += static_cast<std::uint64_t>(error > 0.5);
  if (error > tally.worst) {
    tally.worst = error;
    tally.worst_at = x;
  }
}

/// Neighbours a < b in the order of bit patterns.
bool keeps_direction(Direction direction, float a, float b, float value_a, float value_b) {
  if (direction == Direction::none || std::isnan(value_a) || std::isnan(value_b)) return true;
  if (std::signbit(a) != std::signbit(b)) return true;
  const bool rising = (direction == Direction::rising) != std::signbit(a);
  return rising ? value_a <= value_b : value_a >= value_b;
}

constexpr std::size_t block = 4096;
using Block = std::array<float, block>;

/// Judges `count` arguments in ascending order of their bit patterns.
void sweep_block(const ElementaryProperties& f, const Block& from, std::size_t count, bool has_fma,
                 Tally& tally) {
  Block to{};
  Block other{};
  apply(f.function, from.data(), to.data(), block);
  if (has_fma) {
    fp16lab_twin::apply(static_cast<int>(f.function), from.data(), other.data(), block);
    for (std::size_t k = 0; k < count; ++k)
      tally.fma_differs += static_cast<std::uint64_t>(bits_of(to[k]) != bits_of(other[k]));
  }
  if (f.symmetry != Symmetry::none) {
    Block negated{};
    for (std::size_t k = 0; k < block; ++k) negated[k] = float_from_bits(bits_of(from[k]) ^ sign_bit);
    apply(f.function, negated.data(), other.data(), block);
    const std::uint32_t flip = f.symmetry == Symmetry::odd ? sign_bit : 0;
    for (std::size_t k = 0; k < count; ++k) {
      const std::uint32_t expected = std::isnan(to[k]) ? nan_bits : bits_of(to[k]) ^ flip;
      tally.not_symmetric += static_cast<std::uint64_t>(bits_of(other[k]) != expected);
    }
  }
  for (std::size_t k = 0; k < count; ++k) judge(f, from[k], to[k], tally);
  for (std::size_t k = 1; k < count; ++k)
    tally.not_monotone +=
        static_cast<std::uint64_t>(!keeps_direction(f.direction, from[k - 1], from[k], to[k - 1], to[k]));
}

Tally sweep(const ElementaryProperties& f) {
  const std::uint64_t stride = stride_from_environment();
  const bool has_fma = cpu_has_fma();
  // A symmetric function's negative half is compared with its positive half.
  const std::uint64_t end = std::uint64_t{1} << (f.symmetry == Symmetry::none ? 32 : 31);
  const std::uint64_t step =
      stride * (block - 1);  // blocks share one argument, so that none is without neighbour
  const auto blocks = static_cast<std::int64_t>((end + step - 1) / step);
  Tally total;
#pragma omp parallel num_threads(2)
  {
    Tally mine;
#pragma omp for schedule(dynamic, 16)
    for (std::int64_t i = 0; i < blocks; ++i) {
      Block from{};
      std::size_t count = 0;
      for (std::uint64_t bits = static_cast<std::uint64_t>(i) * step; count < block && bits < end;
           bits += stride)
        from[count++] = float_from_bits(static_cast<std::uint32_t>(bits));
      sweep_block(f, from, count, has_fma, mine);
    }
#pragma omp critical
    total.merge(mine);
  }
  return total;
}

class ElementarySweep : public testing::TestWithParam<ElementaryProperties> {};

TEST_P(ElementarySweep, KeepsItsBound) {
  const ElementaryProperties& f = GetParam();
  const Tally tally = sweep(f);
  std::printf(
      "%s: largest error %.12f ulp at %a; %llu results, MPFR asked for %llu, misrounded %llu\n", f.name,
      tally.worst, static_cast<double>(tally.worst_at), static_cast<unsigned long long>(tally.judged),
      static_cast<unsigned long long>(tally.asked_mpfr), static_cast<unsigned long long>(tally.misrounded));
  std::fflush(stdout);
  EXPECT_LT(tally.worst, f.bound);
  EXPECT_GT(tally.worst, 0.5 - 0x1p-12);  // a sweep that compared nothing would pass all the others
  EXPECT_EQ(tally.wrong, 0u);
  EXPECT_EQ(tally.not_monotone, 0u);
  EXPECT_EQ(tally.not_symmetric, 0u);
  EXPECT_EQ(tally.fma_differs, 0u);
}

INSTANTIATE_TEST_SUITE_P(All, ElementarySweep, testing::ValuesIn(elementary_properties),
                         [](const testing::TestParamInfo<ElementaryProperties>& each) {
                           return std::string(each.param.name);
                         });

}  // namespace
}  // namespace fp16lab::test
