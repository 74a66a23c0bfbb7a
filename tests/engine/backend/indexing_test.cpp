// Conformance: indices out of range are named, whichever verb hands numbers to the host next.
#include <fmt/format.h>

#include <limits>

#include "tests/engine/backend/conformance.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::engine::test {
namespace {

using testing_support::message_of;

TEST_P(BackendConformance, AnIndexOutOfRangeIsNamed) {
  const std::vector<float> ones(12, 1.0f);
  const Tensor x = tensor(Shape{3, 4}, ones), planes = tensor(Shape{1, 1, 3, 4}, ones);
  const Tensor rows = tensor(Shape{3, 3}, std::vector<float>(9)), three = tensor(std::vector<float>(3)),
               windows = tensor(Shape{1, 1, 1, 3}, std::vector<float>(3));
  Tensor few = output({3}, DType::f32), picked = output({3, 3}, DType::f32),
         table = output({4, 3}, DType::f32), pooled = output({1, 1, 1, 3}, DType::f32),
         placed = output({1, 1, 3, 4}, DType::f32);
  struct Call {
    const char* verb;
    std::int32_t limit;
    std::function<void(const Tensor& index)> run;
  };
  const std::vector<Call> calls{
      {"pick", 4, [&](const Tensor& index) { backend().pick(x, index, few); }},
      {"place", 3, [&](const Tensor& index) { backend().place(three, index, picked); }},
      {"gather_rows", 4, [&](const Tensor& index) { backend().gather_rows(table, index, picked); }},
      {"scatter_rows", 4, [&](const Tensor& index) { backend().scatter_rows(rows, index, table); }},
      {"pool_pick", 12,
       [&](const Tensor& index) {
         backend().pool_pick(planes, index.reshaped({1, 1, 1, 3}), Layout::nchw, pooled);
       }},
      {"pool_place", 12, [&](const Tensor& index) {
         backend().pool_place(windows, index.reshaped({1, 1, 1, 3}), Layout::nchw, placed);
       }}};
  for (const Call& call : calls)
    for (const std::int32_t bad : {-1, call.limit}) {
      const auto run = [&] {
        call.run(tensor(std::vector<std::int32_t>{0, bad, 2}));
        values_of<float>(few);  // a device may lag the host: then the transfer to the host throws
      };
      EXPECT_THROW(run(), std::out_of_range);
      EXPECT_EQ(message_of(run),
                fmt::format("{}: index[1] is {}, which is not in [0, {})", call.verb, bad, call.limit));
    }
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
    hand();  // the error is reported once
  }
  backend().pick(three, tensor(std::vector<std::int32_t>{0, 3, 1}), few);
  expect_same_bits(values_of<float>(few), {1.0f, 1.0f, 1.0f}, "after an error");
}

}  // namespace
}  // namespace fp16lab::engine::test
