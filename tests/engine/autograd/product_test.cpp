// Batched products and linear over leading axes: against products of single matrices, and against finite
// differences of first and second order, exact where the inputs have few bits.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/autograd/twin.hpp"

namespace fp16lab::engine::test {
namespace {

using V = std::vector<Variable>;

TEST(BatchedMatmul, IsOneMatmulAMatrix) {
  const auto backend = hopper_backend();
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      Tape tape(*backend);
      const Shape a_shape = ta ? Shape{3, 4, 5} : Shape{3, 5, 4};
      const Shape b_shape = tb ? Shape{3, 2, 4} : Shape{3, 4, 2};
      const HostTensor a = with_signs(a_shape, 1), b = with_signs(b_shape, 2);
      const V v = inputs_on(tape, {a, b});
      const Variable y = ops::matmul(v[0], v[1], {.a = ta, .b = tb});
      EXPECT_EQ(y.shape(), (Shape{3, 5, 2}));
      std::vector<float> expected;
      for (std::size_t i = 0; i < 3; ++i) {
        const auto part = [&](const HostTensor& from) {
          const std::size_t size = from.values.size() / 3;
          const auto begin = from.values.begin() + static_cast<std::ptrdiff_t>(i * size);
          return tape.constant(tensor_of(*backend, {from.shape[1], from.shape[2]},
                                         {begin, begin + static_cast<std::ptrdiff_t>(size)}));
        };
        const auto values = values_of(*backend, ops::matmul(part(a), part(b), {.a = ta, .b = tb}).tensor());
        expected.insert(expected.end(), values.begin(), values.end());
      }
      EXPECT_EQ(values_of(*backend, y.tensor()), expected);
    }
  }
}

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

TEST(LinearOverLeadingAxes, HasTheBitsOfTheMatrixCase) {
  const auto backend = hopper_backend();
  const HostTensor x = with_signs({2, 3, 4}, 1), w = with_signs({5, 4}, 2), b = with_signs({5}, 3);
  const auto run = [&](const Shape& shape) {
    Tape tape(*backend);
    const V v = inputs_on(tape, {{shape, x.values}, w, b});
    const Variable y = ops::linear(v[0], v[1], v[2]);
    std::vector<std::vector<float>> results = {values_of(*backend, y.tensor())};
    for (const Variable& g : tape.gradients(std::vector{weighted_sum(tape, y)}, {}, v))
      results.push_back(values_of(*backend, g.tensor()));
    return std::pair(y.shape(), results);
  };
  const auto [matrix_shape, matrix] = run({6, 4});
  const auto [batch_shape, batch] = run({2, 3, 4});
  EXPECT_EQ(matrix_shape, (Shape{6, 5}));
  EXPECT_EQ(batch_shape, (Shape{2, 3, 5}));
  EXPECT_EQ(matrix, batch);
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
  tape.set_observer(&seen);
  tape.gradients(std::vector{ops::sum(y)}, {}, v);
  EXPECT_EQ(seen.totals(),
            (std::map<std::string, std::uint64_t>{{"fc1.input", 12}, {"fc1.weight", 12}, {"fc1.bias", 4}}));
}

}  // namespace
}  // namespace fp16lab::engine::test
