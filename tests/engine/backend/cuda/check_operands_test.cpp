// The data on which pinning compares: does it tell orders apart, and is it what it says?
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "engine/backend/cuda/library/algorithm_check.hpp"
#include "tests/engine/backend/cuda/fake_product_library.hpp"

namespace fp16lab::engine::test {
namespace {

template <class Half>
ProductOperands<Half> operands_of(const ProductProblem& problem, const CheckLoad& load) {
  ProductOperands<Half> result{.m = problem.m, .n = problem.n, .k = problem.k, .a = {}, .b = {}};
  for (std::int64_t i = 0; i < problem.m; ++i)
    for (std::int64_t k = 0; k < problem.k; ++k)
      result.a.push_back(Half::from_bits(check_element(load.a, i, k)));
  for (std::int64_t j = 0; j < problem.n; ++j)
    for (std::int64_t k = 0; k < problem.k; ++k)
      result.b.push_back(Half::from_bits(check_element(load.b, j, k)));
  return result;
}

bool is_mask(const CheckLoad& load) {
  return load.a.set == AlgorithmChoices::order_a || load.a.set == AlgorithmChoices::order_b;
}

std::vector<std::uint32_t> stored(const std::vector<float>& wide, DType out) {
  std::vector<std::uint32_t> bits;
  bits.reserve(wide.size());
  for (const float x : wide)
    bits.push_back(out == DType::f32   ? bits_of(x)
                   : out == DType::f16 ? narrow<Binary16>(x).bits()
                                       : narrow<BrainFloat16>(x).bits());
  return bits;
}

/// The loads, those with masks or the others, on which outputs of `topology` are not those of the ascending
/// order.
template <class Half>
int revealing(const ProductProblem& problem, std::string_view tensor_core, Topology topology, bool masks) {
  const TensorCoreModel& row = tensor_core_model(tensor_core, operand_format_of<Half>);
  int count = 0;
  for (const CheckLoad& load : check_loads(problem)) {
    if (is_mask(load) != masks) continue;
    const ProductOperands<Half> operands = operands_of<Half>(problem, load);
    count += stored(product_in_order(row, operands, Topology::ascending), problem.out) !=
             stored(product_in_order(row, operands, topology), problem.out);
  }
  return count;
}

struct Extents {
  std::int64_t m, n, k;
};
// A tile's worth, a narrow layer, a k that ends within a block, many blocks with few lines, and one single
// output.
constexpr Extents cases[] = {{16, 8, 64},  {64, 10, 128}, {3, 5, 120},
                             {9, 4, 1024}, {2, 40, 333},  {1, 1, 160}};

template <class Half>
void expect_revealed_by_masks(DType out, std::string_view tensor_core) {
  for (const auto& [m, n, k] : cases) {
    const ProductProblem problem = contiguous_product(m, n, k, 1, DTypeOf<Half>::value, out);
    for (const Topology topology : wrong_topologies)
      EXPECT_GT(revealing<Half>(problem, tensor_core, topology, true), 0)
          << describe(problem) << " in the order " << name_of(FakeAlgorithm{.topology = topology});
  }
}

TEST(CheckOperands, MasksAloneTellEveryOrderOfBlocksFromTheAscendingOne) {
  for (const DType out : {DType::f32, DType::f16}) expect_revealed_by_masks<Float16>(out, "hopper");
  for (const DType out : {DType::f32, DType::bf16}) expect_revealed_by_masks<BFloat16>(out, "hopper");
  expect_revealed_by_masks<Float16>(DType::f32, "ampere");
}

// The three sets without masks; also where k has more blocks than masks may visit.
TEST(CheckOperands, AdversarialNumbersTellThemWhereOutputsAreMany) {
  for (const auto& [m, n, k] :
       {Extents{16, 8, 64}, Extents{64, 10, 128}, Extents{2, 40, 333}, Extents{8, 8, 8192}}) {
    const ProductProblem problem = contiguous_product(m, n, k, 1, DType::f16, DType::f32);
    for (const Topology topology : wrong_topologies)
      EXPECT_GT(revealing<Float16>(problem, "hopper", topology, false), 0)
          << describe(problem) << " in the order " << name_of(FakeAlgorithm{.topology = topology});
  }
}

TEST(CheckOperands, MasksVisitEveryBlockOfK) {
  const ProductProblem problem = contiguous_product(48, 10, 2048, 1, DType::f16, DType::f32);
  std::set<std::int64_t> visited;
  int rounds = 0;
  for (const CheckLoad& load : check_loads(problem)) {
    if (load.a.set != AlgorithmChoices::order_a) continue;
    ++rounds;
    for (std::int64_t line = 0; line < problem.m; line += 2) {
      std::vector<std::int64_t> masks;
      for (std::int64_t k = 0; k < problem.k; ++k)
        if (std::abs(widen(Float16::from_bits(check_element(load.a, line, k)))) == 0x1p15f)
          masks.push_back(k);
      ASSERT_EQ(masks.size(), 2u) << "line " << line;
      EXPECT_EQ(masks[0] / 16, masks[1] / 16) << "line " << line;
      visited.insert(masks[0] / 16);
    }
  }
  EXPECT_EQ(rounds, 6);  // 128 blocks, 24 lines a round
  EXPECT_EQ(visited.size(), 128u);
}

// A survivor counts: with the two masks in block t, the ascending order leaves exactly the units of the
// blocks behind t, and what was before them is lost but for multiples of the last place of M = 2^30, which is
// 2^7 and above every sum here.
TEST(CheckOperands, TheAscendingOrderLeavesTheUnitsBehindTheMasks) {
  const ProductProblem problem = contiguous_product(16, 1, 128, 1, DType::f16, DType::f32);
  for (const CheckLoad& load : check_loads(problem)) {
    if (load.a.set != AlgorithmChoices::order_a) continue;
    const ProductOperands<Float16> operands = operands_of<Float16>(problem, load);
    const std::vector<float> d = product_in_order(tensor_core_model("hopper"), operands, Topology::ascending);
    for (std::int64_t line = 0; line < problem.m; line += 2) {
      double behind = 0;
      bool masked = false;
      for (std::int64_t block = 0; block < 8; ++block) {
        double units = 0;
        bool here = false;
        for (std::int64_t k = 16 * block; k < 16 * block + 16; ++k) {
          const double a =
              static_cast<double>(widen(operands.a[static_cast<std::size_t>(line * problem.k + k)]));
          here = here || std::abs(a) == 0x1p15;
          units += a;
        }
        if (masked) behind += units * 0x1p15;
        masked = masked || here;
      }
      EXPECT_EQ(static_cast<double>(d[static_cast<std::size_t>(line)]), behind) << "line " << line;
    }
  }
}

TEST(CheckOperands, CancellingSumsAreExactlyZero) {
  for (const std::int64_t k : {2, 64, 1000}) {
    const ProductProblem problem = contiguous_product(5, 7, k, 1, DType::f16, DType::f32);
    const CheckLoad load = check_loads(problem)[1];
    ASSERT_EQ(load.a.set, AlgorithmChoices::cancelling);
    const ProductOperands<Float16> operands = operands_of<Float16>(problem, load);
    int inexact = 0;
    const std::vector<float> d = product_in_order(tensor_core_model("hopper"), operands, Topology::ascending);
    for (std::int64_t i = 0; i < problem.m; ++i)
      for (std::int64_t j = 0; j < problem.n; ++j) {
        double sum = 0;  // exact: multiples of 2^-12 below 2^22
        for (std::int64_t at = 0; at < k; ++at)
          sum += static_cast<double>(widen(operands.a[static_cast<std::size_t>(i * k + at)])) *
                 static_cast<double>(widen(operands.b[static_cast<std::size_t>(j * k + at)]));
        EXPECT_EQ(sum, 0.0);
        inexact += d[static_cast<std::size_t>(i * problem.n + j)] != 0.0f;
      }
    if (k == 1000) {
      EXPECT_GT(inexact, 30) << "of 35: the outputs are the roundings";
    }
  }
}

TEST(CheckOperands, SpecialValuesAreThereAndLeaveFiniteOutputs) {
  const ProductProblem problem = contiguous_product(32, 32, 64, 1, DType::f16, DType::f16);
  const CheckLoad load = check_loads(problem)[2];
  ASSERT_EQ(load.a.set, AlgorithmChoices::special);
  const ProductOperands<Float16> operands = operands_of<Float16>(problem, load);
  for (const std::vector<Float16>& side : {operands.a, operands.b}) {
    int nan = 0, infinite[2] = {}, zero[2] = {}, subnormal = 0;
    for (const Float16 x : side) {
      nan += x.is_nan();
      subnormal += x.is_subnormal();
      if (x.is_infinite()) ++infinite[x.sign()];
      if (x.is_zero()) ++zero[x.sign()];
    }
    for (const int count : {nan, infinite[0], infinite[1]}) EXPECT_GT(count, 0);
    for (const int count : {subnormal, zero[0], zero[1]}) EXPECT_GT(count, 100);
  }
  int nan = 0, infinite = 0, finite = 0;
  for (const float x : product_in_order(tensor_core_model("hopper"), operands, Topology::ascending))
    ++(is_nan(x) ? nan : std::isinf(x) ? infinite : finite);
  for (const int count : {nan, infinite, finite}) EXPECT_GT(count, 100) << "of 1024";
}

TEST(CheckOperands, WideExponentsReachBothEndsAndStayFinite) {
  for (const DType out : {DType::f32, DType::f16})
    for (const std::int64_t k : {1, 16, 4096}) {
      const ProductProblem problem = contiguous_product(8, 8, k, 1, DType::f16, out);
      const CheckLoad load = check_loads(problem)[0];
      ASSERT_EQ(load.a.set, AlgorithmChoices::wide);
      const ProductOperands<Float16> operands = operands_of<Float16>(problem, load);
      for (const float x : product_in_order(tensor_core_model("hopper"), operands, Topology::ascending)) {
        EXPECT_TRUE(std::isfinite(x));
        EXPECT_TRUE(out == DType::f32 || narrow<Binary16>(x).is_finite()) << x << ", k " << k;
      }
      if (k < 4096) continue;
      std::set<int> exponents;
      for (const Float16 x : operands.a)
        if (!x.is_zero()) exponents.insert(std::ilogb(widen(x)));
      EXPECT_EQ(*exponents.begin(), -24);
      EXPECT_EQ(*exponents.rbegin(), out == DType::f32 ? 15 : 0);  // 4096 products below 2^2 stay below 2^14
    }
}

TEST(CheckOperands, SamplesAreFourThousandOrAllAndReachTheCorners) {
  for (const auto& [m, n, batch] : {std::array<std::int64_t, 3>{8192, 8192, 1},
                                    {1, 1, 300},
                                    {1, 100000, 1},
                                    {10, 512, 1},
                                    {7, 3, 5},
                                    {64, 64, 64}}) {
    const CheckSamples samples = check_samples(contiguous_product(m, n, 16, batch, DType::f16, DType::f16));
    const auto count = std::ssize(samples.items) * std::ssize(samples.rows) * std::ssize(samples.columns);
    EXPECT_GE(count, std::min<std::int64_t>(4096, m * n * batch));
    EXPECT_LE(count, 4 * 4096);
    for (const auto& [chosen, extent] :
         {std::pair{samples.items, batch}, std::pair{samples.rows, m}, std::pair{samples.columns, n}}) {
      EXPECT_EQ(chosen.front(), 0);
      EXPECT_EQ(chosen.back(), extent - 1);
      EXPECT_TRUE(std::adjacent_find(chosen.begin(), chosen.end(), std::greater_equal<>()) == chosen.end())
          << "each once, ascending";
    }
  }
}

}  // namespace
}  // namespace fp16lab::engine::test
