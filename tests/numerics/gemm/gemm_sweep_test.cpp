// The cross product that gemm_test.cpp samples: every row of the table, every pair of its operand formats,
// every distribution, every kind of accumulator, every instruction set; and many rows that no hardware has.
#include <gtest/gtest.h>

#include <cstdint>
#include <tuple>

#include "tests/numerics/gemm/gemm_cases.hpp"
#include "tests/numerics/gemm/gemm_checks.hpp"

namespace fp16lab {
namespace {

/// All instruction sets, one or two threads, a layout that rotates.
void check_targets(const TensorCoreModel& model, const test::Problem& p) {
  static test::Layout layout = 0;
  const auto expected = test::definition(model, p);
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const test::ForcedTarget forced(target);
    check_layout(model, p, expected, layout % test::all_layouts, 1 + static_cast<int>(layout / 16 % 2));
    layout += 7;
  }
}

class GemmSweepOf : public ::testing::TestWithParam<test::Data> {};

TEST_P(GemmSweepOf, EveryRowFormatAndAccumulator) {
  test::CaseMaker maker(4321u + static_cast<unsigned>(GetParam()));
  const std::tuple<int, int, int> shapes[] = {{33, 65, 70}, {9, 130, 33}, {66, 3, 129}};
  std::size_t turn = 0;
  for (const TensorCoreModel& model : tensor_core_models())
    for (const auto& [a, b] : test::operand_pairs(model))
      for (const auto accumulator : test::all_accumulators) {
        const auto& [m, n, k] = shapes[turn++ % std::size(shapes)];
        check_targets(model, maker.make(a, b, model.accumulator(), GetParam(), accumulator, m, n, k));
        if (HasFatalFailure()) return;
      }
}

TEST_P(GemmSweepOf, RowsThatNoHardwareHas) {
  test::CaseMaker maker(8765u + static_cast<unsigned>(GetParam()));
  for (int round = 0; round < 300; ++round) {
    const TensorCoreModel model = test::random_model(maker);
    const auto pairs = test::operand_pairs(model);
    const auto& [a, b] = pairs[maker.random() % pairs.size()];
    const auto accumulator = test::all_accumulators[maker.random() % 3];
    const int m = 1 + static_cast<int>(maker.random() % 12), n = 1 + static_cast<int>(maker.random() % 70);
    const int k = 1 + static_cast<int>(maker.random() % 90);
    check_targets(model, maker.make(a, b, model.accumulator(), GetParam(), accumulator, m, n, k));
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(AllData, GemmSweepOf, ::testing::ValuesIn(test::all_data),
                         [](const auto& data) { return test::name_of(data.param); });

}  // namespace
}  // namespace fp16lab
