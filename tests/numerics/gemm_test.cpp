// emulated_gemm against the scalar fused_dot_add, fma_chain_gemm against a chain of std::fma: bit for bit, on
// every instruction set that this CPU has.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "numerics/bits.hpp"
#include "numerics/gemm.hpp"
#include "numerics/highway_targets.hpp"
// After highway_targets.hpp, which selects the targets.
#include "hwy/highway.h"
#include "tests/numerics/gemm_cases.hpp"

namespace fp16lab {
namespace {

using test::Accumulator;
using test::CaseMaker;
using test::Data;
using test::Problem;

constexpr float sentinel = -7.25f;

/// Forces one instruction set for its lifetime.
class ForcedTarget {
 public:
  explicit ForcedTarget(std::int64_t target) { force(target); }
  ForcedTarget(const ForcedTarget&) = delete;
  ForcedTarget& operator=(const ForcedTarget&) = delete;
  ~ForcedTarget() { force(0); }

 private:
  static void force(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
  }
};

/// A matrix in memory: stored transposed or not, with columns to spare that hold poison.
template <class T>
class Stored {
 public:
  Stored(const std::vector<T>& dense, std::int64_t rows, std::int64_t columns, bool transposed,
         std::int64_t padding, T poison)
      : transposed_(transposed), stride_((transposed ? rows : columns) + padding) {
    data_.assign(static_cast<std::size_t>((transposed ? columns : rows) * stride_), poison);
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j)
        data_[static_cast<std::size_t>(transposed ? j * stride_ + i : i * stride_ + j)] =
            dense[static_cast<std::size_t>(i * columns + j)];
  }
  MatrixView<T> view() const { return {data_.data(), stride_, transposed_}; }

 private:
  bool transposed_;
  std::int64_t stride_;
  std::vector<T> data_;
};

/// D between guard elements, filled with sentinels or, to alias it, with C.
class Output {
 public:
  Output(const Problem& p, std::int64_t padding) : m_(p.m), n_(p.n), ldd_(p.n + padding) {
    data_.assign(static_cast<std::size_t>(m_ * ldd_ + 2 * guard), sentinel);
  }
  float* data() { return data_.data() + guard; }
  std::int64_t ldd() const { return ldd_; }
  void fill(const std::vector<float>& dense) {
    for (std::int64_t i = 0; i < m_; ++i)
      for (std::int64_t j = 0; j < n_; ++j)
        data()[i * ldd_ + j] = dense[static_cast<std::size_t>(i * n_ + j)];
  }
  /// Are the m x n outputs `expected`, bit for bit, and is everything around them untouched?
  ::testing::AssertionResult equals(const std::vector<float>& expected) {
    for (std::int64_t x = -guard; x < m_ * ldd_ + guard; ++x) {
      const std::int64_t i = x < 0 ? -1 : x / ldd_, j = x < 0 ? -1 : x % ldd_;
      const bool inside = i >= 0 && i < m_ && j < n_;
      const float want = inside ? expected[static_cast<std::size_t>(i * n_ + j)] : sentinel;
      if (bits_of(data()[x]) != bits_of(want))
        return ::testing::AssertionFailure()
               << (inside ? "output (" : "outside of D (") << i << ", " << j << ") is " << std::hex
               << bits_of(data()[x]) << ", should be " << bits_of(want);
    }
    return ::testing::AssertionSuccess();
  }

 private:
  static constexpr std::int64_t guard = 70;
  std::int64_t m_, n_, ldd_;
  std::vector<float> data_;
};

std::vector<float> definition(const TensorCoreModel& model, const Problem& p) {
  std::vector<float> d(static_cast<std::size_t>(p.m * p.n));
  std::vector<Float16> column(static_cast<std::size_t>(p.k));
  for (std::int64_t j = 0; j < p.n; ++j) {
    for (std::int64_t x = 0; x < p.k; ++x)
      column[static_cast<std::size_t>(x)] = p.b[static_cast<std::size_t>(x * p.n + j)];
    for (std::int64_t i = 0; i < p.m; ++i) {
      const auto at = static_cast<std::size_t>(i * p.n + j);
      const std::span row(p.a.data() + i * p.k, static_cast<std::size_t>(p.k));
      d[at] = fused_dot_add(model, row, column, p.c.empty() ? 0.0f : p.c[at]);
    }
  }
  return d;
}

std::string describe(GemmShape shape, unsigned layout, int threads) {
  return fmt::format("{} {}x{}x{} layout {} threads {}", gemm_target_name(), shape.m, shape.n, shape.k,
                     layout, threads);
}

/// One call in one storage layout, compared with `expected`.
void check_layout(const TensorCoreModel& model, const Problem& p, const std::vector<float>& expected,
                  unsigned layout, int threads) {
  const bool a_transposed = (layout & 1) != 0, b_transposed = (layout & 2) != 0, in_place = (layout & 4) != 0;
  const std::int64_t padding = (layout & 8) != 0 ? 3 : 0;
  SCOPED_TRACE(describe({p.m, p.n, p.k}, layout, threads));
  const auto poison = Float16::from_bits(0x7e01);  // a NaN: reading it would show
  const Stored<Float16> a(p.a, p.m, p.k, a_transposed, padding, poison);
  const Stored<Float16> b(p.b, p.k, p.n, b_transposed, padding, poison);
  Output d(p, padding);
  const bool has_c = !p.c.empty();
  Output c(p, padding);
  if (has_c) (in_place ? d : c).fill(p.c);
  const float* initial = !has_c ? nullptr : in_place ? d.data() : c.data();
  emulated_gemm(model, {p.m, p.n, p.k}, a.view(), b.view(), initial, d.data(), d.ldd(), threads);
  ASSERT_TRUE(d.equals(expected));
}

/// All layouts on the best target, a rotating choice on the others.
void check_everywhere(const TensorCoreModel& model, const Problem& p) {
  const auto expected = definition(model, p);
  for (unsigned layout = 0; layout < 16; ++layout) check_layout(model, p, expected, layout, 1);
  unsigned layout = static_cast<unsigned>(p.m + 3 * p.n + 5 * p.k);
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const ForcedTarget forced(target);
    check_layout(model, p, expected, layout % 16, 1);
    check_layout(model, p, expected, (layout + 7) % 16, 1);
    layout += 5;
  }
}

TensorCoreModel synthetic_model(int block_size, int fraction_bits) {
  return {"synthetic", "test",          block_size, fraction_bits, BlockOutput::fp32_toward_zero,
          -133,        Evidence::model, "test"};
}

using ModelAndData = std::tuple<std::pair<int, int>, Data>;
class EmulatedGemm : public ::testing::TestWithParam<ModelAndData> {};

TEST_P(EmulatedGemm, EqualsTheScalarDefinition) {
  const auto [parameters, data] = GetParam();
  const auto model = synthetic_model(parameters.first, parameters.second);
  CaseMaker maker(1234u + static_cast<unsigned>(data));
  const std::tuple<int, int, int> shapes[] = {{1, 1, 1},      {1, 17, 3},   {7, 65, 33}, {3, 5, 16},
                                              {33, 129, 100}, {40, 64, 48}, {2, 200, 7}, {65, 1, 31}};
  for (const auto accumulator : {Accumulator::none, Accumulator::similar, Accumulator::extreme})
    for (const auto& [m, n, k] : shapes) {
      check_everywhere(model, maker.make(data, accumulator, m, n, k));
      if (HasFatalFailure()) return;
    }
}

std::string case_name(const ::testing::TestParamInfo<ModelAndData>& case_info) {
  const auto& [parameters, data] = case_info.param;
  return fmt::format("L{}F{}_{}", parameters.first, parameters.second, name_of(data));
}

INSTANTIATE_TEST_SUITE_P(AllModels, EmulatedGemm,
                         ::testing::Combine(::testing::Values(std::pair{4, 23}, std::pair{8, 24},
                                                              std::pair{16, 25}, std::pair{4, 25},
                                                              std::pair{8, 23}, std::pair{16, 23}),
                                            ::testing::ValuesIn(test::all_data)),
                         case_name);

TEST(EmulatedGemmModels, EveryRowOfTheTableAndTheScalarFallback) {
  CaseMaker maker(7);
  std::vector<TensorCoreModel> models(tensor_core_models().begin(), tensor_core_models().end());
  models.push_back(synthetic_model(16, 24));
  models.push_back(synthetic_model(2, 22));   // no kernel: computed by the definition
  models.push_back(synthetic_model(32, 25));  // likewise
  for (const auto& model : models)
    for (const auto data : {Data::wide, Data::raw_bits})
      check_everywhere(model, maker.make(data, Accumulator::extreme, 9, 70, 37));
}

TEST(EmulatedGemmBlocks, CacheBlocksAndThreadsChangeNoBit) {
  CaseMaker maker(99);
  const std::tuple<int, int, int> shapes[] = {{3, 5, 2100}, {1, 2100, 20}, {1060, 3, 20}, {130, 140, 150}};
  for (const auto data : {Data::wide, Data::sprinkled_special, Data::cancelling})
    for (const auto& [m, n, k] : shapes) {
      const auto p = maker.make(data, Accumulator::extreme, m, n, k);
      const auto& model = tensor_core_model(k % 3 == 0 ? "hopper" : "volta");
      const auto expected = definition(model, p);
      for (const int threads : {1, 2, 3})
        check_layout(model, p, expected, static_cast<unsigned>(threads) * 5 % 16, threads);
    }
}

TEST(EmulatedGemmBlocks, SumOfTheBlockThatLeavesInt32) {
  // 16 products of 1.99902344 each are 16 * 3.996 * 2^25 quanta, just below 2^31; c = +-1.9 sends the sum
  // over.
  for (const float c : {1.9f, -1.9f}) {
    const auto code = Float16::from_bits(0x3fff);
    const auto other = Float16::from_bits(c > 0 ? 0x3fff : 0xbfff);
    Problem p{5, 67, 16, std::vector<Float16>(5 * 16, code), std::vector<Float16>(16 * 67, other), {}};
    p.c.assign(5 * 67, c);
    for (std::size_t i = 0; i < p.c.size(); i += 3) p.c[i] = -c;  // neighbours in the same vector stay inside
    check_everywhere(tensor_core_model("hopper"), p);
  }
}

TEST(EmulatedGemmEdges, EmptyProblems) {
  const auto& model = tensor_core_model("hopper");
  const float c[6] = {1, -0.0f, float_from_bits(0x7f800001), 4, 5, 6};
  float d[6] = {};
  emulated_gemm(model, {2, 3, 0}, {}, {}, c, d, 3);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(bits_of(d[i]), bits_of(c[i])) << "K = 0 copies C, NaN payloads too";
  emulated_gemm(model, {2, 3, 0}, {}, {}, nullptr, d, 3);
  for (const float x : d) EXPECT_EQ(bits_of(x), 0u);
  d[0] = sentinel;
  fma_chain_gemm({1, 1, 0}, {}, {}, d, 1);
  EXPECT_EQ(bits_of(d[0]), 0u);
  d[0] = sentinel;
  emulated_gemm(model, {0, 3, 4}, {}, {}, nullptr, d, 3);
  emulated_gemm(model, {3, 0, 4}, {}, {}, nullptr, nullptr, 0);
  fma_chain_gemm({0, 3, 4}, {}, {}, d, 3);
  EXPECT_EQ(d[0], sentinel);
}

TEST(EmulatedGemmEdges, BadArgumentsAreNamed) {
  const auto& model = tensor_core_model("hopper");
  const std::vector<Float16> x(64);
  const std::vector<float> y(64);
  std::vector<float> d(64);
  const auto message = [&](auto call) -> std::string {
    try {
      call();
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "nothing thrown";
  };
  const auto run = [&](GemmShape s, MatrixView<Float16> a, MatrixView<Float16> b, std::int64_t ldd,
                       int threads) {
    return message([&] { emulated_gemm(model, s, a, b, nullptr, d.data(), ldd, threads); });
  };
  EXPECT_NE(run({-1, 2, 3}, {x.data(), 3, false}, {x.data(), 2, false}, 2, 1).find("m=-1"),
            std::string::npos);
  EXPECT_NE(
      run({2, 2, 3}, {x.data(), 2, false}, {x.data(), 2, false}, 2, 1).find("2 of A must be at least 3"),
      std::string::npos);
  EXPECT_NE(run({2, 2, 3}, {x.data(), 3, false}, {x.data(), 2, true}, 2, 1).find("2 of B must be at least 3"),
            std::string::npos);
  EXPECT_NE(run({2, 2, 3}, {x.data(), 3, false}, {x.data(), 2, false}, 1, 1).find("ldd=1"),
            std::string::npos);
  EXPECT_NE(run({2, 2, 3}, {nullptr, 3, false}, {x.data(), 2, false}, 2, 1).find("A is null"),
            std::string::npos);
  EXPECT_NE(run({2, 2, 3}, {x.data(), 3, false}, {x.data(), 2, false}, 2, 0).find("threads=0"),
            std::string::npos);
  EXPECT_NE(message([&] {
              fma_chain_gemm({2, 2, -3}, {y.data(), 3, false}, {y.data(), 2, false}, d.data(), 2);
            }).find("k=-3"),
            std::string::npos);
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
    const ForcedTarget forced(target);
    for (unsigned layout = 0; layout < 4; ++layout) {
      SCOPED_TRACE(describe({m, n, k}, layout, threads));
      const auto poison = float_from_bits(0x7fc12345);
      const Stored<float> stored_a(a, m, k, (layout & 1) != 0, layout, poison);
      const Stored<float> stored_b(b, k, n, (layout & 2) != 0, layout, poison);
      Output d({m, n, k, {}, {}, {}}, layout);
      fma_chain_gemm({m, n, k}, stored_a.view(), stored_b.view(), d.data(), d.ldd(), threads);
      ASSERT_TRUE(d.equals(expected));
    }
  }
}

TEST(FmaChainGemm, EqualsTheChainOfScalarFma) {
  CaseMaker maker(5);
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
  CaseMaker maker(6);
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
  CaseMaker maker(8);
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

}  // namespace
}  // namespace fp16lab
