// Batched products and linear over leading axes against finite differences of first and second order, exact
// where the inputs have few bits.
#include <map>
#include <string>
#include <vector>

#include "engine/autograd/counting.hpp"
#include "tests/engine/autograd/twin.hpp"

namespace fp16lab::engine::test {
namespace {

using V = std::vector<Variable>;

TEST(BatchedMatmul, GradientsEqualFiniteDifferences) {
  const auto backend = hopper_backend();
  const DifferenceBounds exact{.magnitude = 0};
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      const Function function = [&](Tape&, const V& x) {
        return ops::matmul(x[0], x[1], {.a = ta, .b = tb});
      };
      const std::vector<HostTensor> inputs = {short_numbers(ta ? Shape{2, 4, 3} : Shape{2, 3, 4}, 1),
                                              short_numbers(tb ? Shape{2, 2, 4} : Shape{2, 4, 2}, 2)};
      expect_gradients(*backend, function, inputs, exact);
      expect_gradients(*backend, gradient_function(function), inputs, exact);
    }
  }
}

TEST(BatchedMatmul, RejectsUnequalBatchesAndRanks) {
  const auto backend = hopper_backend();
  Tape tape(*backend);
  const V v = inputs_on(tape, {short_numbers({2, 3, 4}, 1), short_numbers({3, 4, 2}, 2),
                               short_numbers({4, 2}, 3), short_numbers({2, 3, 2}, 4), short_numbers({4}, 5)});
  expect_rejected([&] { ops::matmul(v[0], v[1]); }, {"matmul: batch extents", "(2, 3, 4)", "(3, 4, 2)"});
  expect_rejected([&] { ops::matmul(v[0], v[2]); }, {"matmul: ", "(2, 3, 4)", "(4, 2)"});
  expect_rejected([&] { ops::matmul(v[4], v[4]); }, {"matmul: ", "(4)"});
  expect_rejected([&] { ops::matmul(v[0], v[3]); }, {"matmul: inner extents", "(2, 3, 4)", "(2, 3, 2)"});
}

TEST(LinearOverLeadingAxes, GradientsEqualFiniteDifferences) {
  const auto backend = hopper_backend();
  const DifferenceBounds exact{.magnitude = 0};
  const Function with_bias = [](Tape&, const V& x) { return ops::linear(x[0], x[1], x[2]); };
  const Function without = [](Tape&, const V& x) { return ops::linear(x[0], x[1], {}); };
  for (const Shape& shape : {Shape{2, 2, 3}, Shape{3}, Shape{1, 2, 2, 3}}) {
    const HostTensor x = short_numbers(shape, 1), w = short_numbers({2, 3}, 2), b = short_numbers({2}, 3);
    expect_gradients(*backend, with_bias, {x, w, b}, exact);
    expect_gradients(*backend, gradient_function(with_bias), {x, w, b}, exact);
    expect_gradients(*backend, without, {x, w}, exact);
    expect_gradients(*backend, gradient_function(without), {x, w}, exact);
  }
}

TEST(LinearOverLeadingAxes, ShowsItsGradientsUnderTheirNames) {
  const auto backend = hopper_backend();
  Tape tape(*backend);
  const V v = inputs_on(tape, {short_numbers({2, 2, 3}, 1), short_numbers({4, 3}, 2), short_numbers({4}, 3)});
  const Variable y = [&] {
    const ScopeGuard scope(tape, "fc1");
    return ops::linear(v[0], v[1], v[2]);
  }();
  SeenGradients seen;
  const CountingGuard counted(tape, seen);
  tape.gradients(std::vector{ops::sum(y)}, {}, v);
  EXPECT_EQ(seen.totals(),
            (std::map<std::string, std::uint64_t>{{"fc1.input", 12}, {"fc1.weight", 12}, {"fc1.bias", 4}}));
}

}  // namespace
}  // namespace fp16lab::engine::test
