// fma_chain_gemm against a chain of std::fma: bit for bit, on every instruction set that this CPU has.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "numerics/gemm/gemm.hpp"
#include "tests/numerics/gemm/gemm_checks.hpp"

namespace fp16lab {
namespace {

/// FP32 numbers of all kinds.
class Floats {
 public:
  explicit Floats(std::uint32_t seed) : engine_(seed) {}

  float normal() { return normal_(engine_); }

  float any_float() {
    const auto bits = static_cast<std::uint32_t>(engine_());
    switch (engine_() % 8) {
      case 0:
      case 1:
      case 2:
        return normal();
      case 3: {
        const std::uint32_t extremes[] = {0,          1,          0x007fffff, 0x00800000,
                                          0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fc00000};
        return float_from_bits((bits & 0x80000000U) | extremes[bits % 8]);
      }
      default:
        return float_from_bits(bits);
    }
  }

 private:
  std::mt19937 engine_;
  std::normal_distribution<float> normal_;
};

std::vector<std::uint32_t> words(const std::vector<float>& values) {
  std::vector<std::uint32_t> result;
  result.reserve(values.size());
  for (const float x : values) result.push_back(bits_of(x));
  return result;
}

std::vector<float> fma_definition(const std::vector<float>& a, const std::vector<float>& b, std::int64_t m,
                                  std::int64_t n, std::int64_t k) {
  std::vector<float> d(static_cast<std::size_t>(m * n));
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      float chain = 0.0f;
      for (std::int64_t x = 0; x < k; ++x)
        chain =
            std::fma(a[static_cast<std::size_t>(i * k + x)], b[static_cast<std::size_t>(x * n + j)], chain);
      d[static_cast<std::size_t>(i * n + j)] = std::isnan(chain) ? float_from_bits(0x7fffffff) : chain;
    }
  return d;
}

/// Runs every target in all layouts.
void check_fma(const std::vector<float>& a, const std::vector<float>& b, std::int64_t m, std::int64_t n,
               std::int64_t k, int threads) {
  const auto expected = fma_definition(a, b, m, n, k);
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const test::ForcedTarget forced(target);
    for (unsigned layout = 0; layout < 4; ++layout) {
      SCOPED_TRACE(
          fmt::format("{} {}x{}x{} layout {} threads {}", gemm_target_name(), m, n, k, layout, threads));
      constexpr std::uint32_t poison = 0x7fc12345;
      const test::Stored<float> stored_a(words(a), m, k, (layout & 1) != 0, layout, poison);
      const test::Stored<float> stored_b(words(b), k, n, (layout & 2) != 0, layout, poison);
      test::Output<float> d(m, n, layout);
      fma_chain_gemm({m, n, k}, stored_a.view(), stored_b.view(), d.data(), d.ldd(), threads);
      ASSERT_TRUE(d.equals(words(expected)));
      const test::PackedBytes packed(fma_chain_packed_b_bytes({m, n, k}));
      auto* const packed_b = reinterpret_cast<float*>(packed.data());
      fma_chain_pack_b({m, n, k}, stored_b.view(), packed_b, threads);
      test::Output<float> from_packed(m, n, layout);
      const test::Stored<float> nothing(std::vector<std::uint32_t>(b.size(), poison), k, n, (layout & 2) != 0,
                                        layout, poison);
      fma_chain_gemm({m, n, k}, stored_a.view(), nothing.view(), nullptr, from_packed.data(),
                     from_packed.ldd(), threads, packed_b);
      ASSERT_TRUE(from_packed.equals(words(expected))) << "packed";
    }
  }
}

TEST(FmaChainGemm, EqualsTheChainOfScalarFma) {
  Floats maker(5);
  const std::tuple<int, int, int> shapes[] = {{1, 1, 1},      {1, 17, 3},   {7, 65, 33}, {64, 64, 64},
                                              {33, 129, 100}, {6, 64, 300}, {5, 3, 600}, {130, 140, 150}};
  for (const bool wild : {false, true})
    for (const auto& [m, n, k] : shapes) {
      std::vector<float> a(static_cast<std::size_t>(m * k)), b(static_cast<std::size_t>(k * n));
      for (auto* operand : {&a, &b})
        for (float& x : *operand) x = wild ? maker.any_float() : maker.normal();
      check_fma(a, b, m, n, k, 1);
      if (HasFatalFailure()) return;
    }
}

TEST(FmaChainGemm, ShortChainsOfAnyBits) {
  // Long chains of arbitrary bits end as NaN; with K = 1 .. 3 every kind of single step shows, overflow,
  // subnormal results and double-rounding traps among them.
  Floats maker(6);
  for (std::int64_t k = 1; k <= 3; ++k) {
    for (int round = 0; round < 20; ++round) {
      std::vector<float> a(static_cast<std::size_t>(60 * k)), b(static_cast<std::size_t>(60 * k));
      for (auto* operand : {&a, &b})
        for (float& x : *operand) {
          // Half of them with exponents near the edges, where products or sums leave the normal range.
          x = maker.any_float();
          if (round % 2 == 0) continue;
          const std::uint32_t edge = round % 4 == 1 ? 0x1f800000u : 0x5f800000u;
          x = float_from_bits((bits_of(x) & 0x807fffffu) | (edge + (bits_of(x) >> 2 & 0x01800000u)));
        }
      check_fma(a, b, 60, 60, k, 1);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(FmaChainGemm, DoubleRoundingTraps) {
  // After one step the chain holds s; the second step lands so close to a midpoint of FP32 numbers that FP64
  // rounds onto it, and the tie then goes the wrong way unless the FP64 sum was rounded to odd:
  //   1 + 2^-24 (1 + 2^-33)            is above the midpoint, the tie would go down to 1
  //   1 + 2^-23 + 2^-24 (1 - 2^-46)    is below the midpoint, the tie would go up to 1 + 2^-22
  struct Trap {
    float start, x, y, result;
  };
  const Trap traps[] = {{1.0f, 0x1p-24f * (1.0f + 0x1p-11f), 1.0f - 0x1p-11f + 0x1p-22f, 1.0f + 0x1p-23f},
                        {1.0f + 0x1p-23f, 0x1p-24f * (1.0f + 0x1p-23f), 1.0f - 0x1p-23f, 1.0f + 0x1p-23f}};
  for (const Trap& trap : traps)
    for (const float sign : {1.0f, -1.0f}) {
      const std::vector<float> a = {sign * trap.start, trap.x};
      const std::vector<float> b = {1.0f, sign * trap.y};
      ASSERT_EQ(fma_definition(a, b, 1, 1, 2)[0], sign * trap.result);
      const auto product = static_cast<double>(a[1]) * static_cast<double>(b[1]);
      ASSERT_NE(static_cast<float>(product + static_cast<double>(a[0])), sign * trap.result) << "no trap";
      check_fma(a, b, 1, 1, 2, 1);
    }
}

TEST(FmaChainGemm, ThreadsAndBlocksChangeNoBit) {
  Floats maker(8);
  const std::int64_t m = 800, n = 70, k = 300;
  std::vector<float> a(static_cast<std::size_t>(m * k)), b(static_cast<std::size_t>(k * n));
  for (auto* operand : {&a, &b})
    for (float& x : *operand) x = maker.normal();
  check_fma(a, b, m, n, k, 2);
  std::vector<float> wide(static_cast<std::size_t>(2100 * 40)), few(static_cast<std::size_t>(3 * 40));
  for (auto* operand : {&wide, &few})
    for (float& x : *operand) x = maker.normal();
  check_fma(few, wide, 3, 2100, 40, 2);
}

TEST(FmaChainGemm, ContinuesFromAccumulators) {
  // A product cut anywhere along K and continued, in place or elsewhere, is the product; from infinities and
  // -0 too.
  Floats maker(9);
  const std::int64_t m = 9, n = 70, k = 333;
  std::vector<float> a(static_cast<std::size_t>(m * k)), b(static_cast<std::size_t>(k * n));
  for (auto* operand : {&a, &b})
    for (float& x : *operand) x = maker.normal();
  a[3] = std::numeric_limits<float>::infinity();
  const std::vector<float> expected = fma_definition(a, b, m, n, k);
  for (const std::int64_t cut : {1, 256, 300}) {
    std::vector<float> first(static_cast<std::size_t>(m * n)), second(first.size());
    const MatrixView<float> rest_a{a.data() + cut, k, false}, rest_b{b.data() + cut * n, n, false};
    fma_chain_gemm({m, n, cut}, {a.data(), k, false}, {b.data(), n, false}, first.data(), n);
    fma_chain_gemm({m, n, k - cut}, rest_a, rest_b, first.data(), second.data(), n, 2);
    fma_chain_gemm({m, n, k - cut}, rest_a, rest_b, first.data(), first.data(), n);
    EXPECT_EQ(words(first), words(expected)) << cut;
    EXPECT_EQ(words(second), words(expected)) << cut;
  }
  const float minus_zero = -0.0f;
  float d = 1.0f;
  fma_chain_gemm({1, 1, 0}, {}, {}, &minus_zero, &d, 1);
  EXPECT_EQ(bits_of(d), 0x80000000u);
}

TEST(FmaChainGemm, EmptyProblemsAndBadArguments) {
  float d[1] = {-7.25F};
  fma_chain_gemm({0, 3, 4}, {}, {}, d, 3);
  EXPECT_EQ(d[0], -7.25F);
  fma_chain_gemm({1, 1, 0}, {}, {}, d, 1);
  EXPECT_EQ(bits_of(d[0]), 0u);
  const std::vector<float> y(64);
  std::vector<float> result(64);
  try {
    fma_chain_gemm({2, 2, -3}, {y.data(), 3, false}, {y.data(), 2, false}, result.data(), 2);
    FAIL() << "nothing thrown";
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("k=-3"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace fp16lab
