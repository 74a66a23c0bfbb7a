// Conformance: elements and rows by index.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "tests/engine/backend/conformance.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::engine::test {
namespace {

using testing_support::message_of;

// ---- pick and place ----

TEST_P(BackendConformance, PickNamesTheRowThatIsOutOfRange) {
  const Tensor x = tensor(Shape{3, 4}, std::vector<float>(12, 1.0f));
  Tensor out = output(Shape{3}, DType::f32);
  for (const std::int32_t bad : {-1, 4}) {
    const auto pick = [&] {
      backend().pick(x, tensor(std::vector<std::int32_t>{0, bad, 3}), out);
      values_of<float>(out);  // a device may run behind the host: then who hands numbers to the host throws
    };
    EXPECT_THAT(pick, testing::ThrowsMessage<std::out_of_range>("pick: index[1] is " + std::to_string(bad) +
                                                                ", which is not in [0, 4)"));
  }
}

// ---- gather and scatter ----

TEST_P(BackendConformance, ScatterRowsAddsInTreeOrderAndRoundsOnce) {
  // As for reduce: 1 at position 0 of its segment and 2^-24 at 1 and 17 meet in the fold of distance 16, and
  // survive. Other symbols lie between them, so only a sort that keeps the positions' order gives this.
  std::vector<std::int32_t> index;
  std::vector<float> x;
  for (int i = 0; i < 18; ++i) {
    index.insert(index.end(), {1, 0});
    x.insert(x.end(), {i == 0 ? 1.0f : i == 1 || i == 17 ? 0x1p-24f : 0.0f, 100.0f});
  }
  Tensor out = output(Shape{3, 1}, DType::f32);
  backend().scatter_rows(tensor(x), tensor(index), out);
  expect_same_bits(values_of<float>(out), {1800.0f, 1.0f + 0x1p-23f, 0.0f}, "two small ones meet first");
  // f16: 2048 + 1 + 1 in FP32 is 2050; rounded in between it would stay 2048.
  Tensor half = output(Shape{1, 1}, DType::f16);
  backend().scatter_rows(tensor(mapped(std::vector{2048.0f, 1.0f, 1.0f}, [](float v) { return half_of(v); })),
                         tensor(std::vector<std::int32_t>{0, 0, 0}), half);
  expect_same_bits(values_of<Float16>(half), {half_of(2050.0f)}, "one rounding");
  Tensor lone = output(Shape{2, 1}, DType::f32);
  backend().scatter_rows(tensor(std::vector{-0.0f}), tensor(std::vector<std::int32_t>{1}), lone);
  expect_same_bits(values_of<float>(lone), {0.0f, -0.0f}, "absent rows are +0, a lone -0 stays");
}

TEST_P(BackendConformance, RowsOutOfRangeAreNamed) {
  Tensor table = output(Shape{4, 2}, DType::f32), rows = output(Shape{3, 2}, DType::f32);
  for (const std::int32_t bad : {-1, 4}) {
    const Tensor index = tensor(std::vector<std::int32_t>{0, 3, bad});
    const std::string what = "index[2] is " + std::to_string(bad) + ", which is not in [0, 4)";
    const auto gather = [&] {
      backend().gather_rows(table, index, rows);
      values_of<float>(rows);
    };
    const auto scatter = [&] {
      backend().scatter_rows(rows, index, table);
      values_of<float>(table);
    };
    EXPECT_THAT(gather, testing::ThrowsMessage<std::out_of_range>("gather_rows: " + what));
    EXPECT_THAT(scatter, testing::ThrowsMessage<std::out_of_range>("scatter_rows: " + what));
  }
  const Tensor index = tensor(std::vector<std::int32_t>{0, 3});
  EXPECT_REFUSED("gather_rows: out is f32 (3, 2); it must have 4 elements, 2 rows of 2",
                 backend().gather_rows(table, index, rows));
  EXPECT_REFUSED("scatter_rows: x is f32 (4, 2); it must have 4 elements, 2 rows of 2",
                 backend().scatter_rows(table, index, rows));
  EXPECT_REFUSED("gather_rows: index is f32 (3, 2); i32 is needed", backend().gather_rows(table, rows, rows));
}

TEST_P(BackendConformance, TheFirstIndexOutOfRangeIsNamedOnce) {
  // The first of two calls counts, and the lowest of its rows, whichever verb hands numbers to the host next.
  std::vector<std::int32_t> many(3000, 1);
  for (std::size_t row = 777; row < many.size(); row += 5) many[row] = row % 2 == 0 ? -3 : 4;
  many[777] = std::numeric_limits<std::int32_t>::min();
  const Tensor bad = tensor(many), worse = tensor(std::vector<std::int32_t>{-1, 9, 9});
  const Tensor table = tensor(Shape{4, 2}, std::vector<float>(8, 1.0f));
  Tensor rows = output(Shape{3000, 2}, DType::f32), few = output(Shape{3}, DType::f32);
  Tensor step = backend().make_step_state(StepState{});
  const Tensor three = tensor(Shape{3, 4}, std::vector<float>(12, 1.0f));
  const std::vector<std::function<void()>> handing{[&] { values_of<float>(few); },
                                                   [&] { (void)backend().digest(three, 1); },
                                                   [&] { (void)backend().read_step_state(step); },
                                                   [&] {
                                                     ExponentHistogram counts;
                                                     backend().histogram(three, counts);
                                                   },
                                                   [&] {
                                                     CastProbe probe;
                                                     backend().histogram(three, probe);
                                                     (void)settled(probe);
                                                   }};
  for (const std::function<void()>& hand : handing) {
    EXPECT_EQ(message_of([&] {
                backend().gather_rows(table, bad, rows);
                backend().pick(three, worse, few);
                hand();
              }),
              "gather_rows: index[777] is -2147483648, which is not in [0, 4)");
    hand();  // forgotten once it is told
  }
  backend().pick(three, tensor(std::vector<std::int32_t>{0, 3, 1}), few);
  expect_same_bits(values_of<float>(few), {1.0f, 1.0f, 1.0f}, "after an error");
}

}  // namespace
}  // namespace fp16lab::engine::test
