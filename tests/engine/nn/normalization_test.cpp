// BatchNorm's running statistics.
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <vector>

#include "engine/nn/normalization.hpp"
#include "tests/engine/nn/support.hpp"

namespace fp16lab::engine::test {
namespace {

TEST(BatchNorm, RunningStatisticsFollowTheBatches) {
  const auto backend = hopper_backend();
  nn::BatchNorm layer(*backend, "bn", {.features = 2, .momentum = 0.25f});
  ASSERT_EQ(layer.buffers().size(), 2u);
  EXPECT_EQ(layer.buffers()[0]->name, "bn.running_mean");
  EXPECT_EQ(layer.buffers()[1]->name, "bn.running_var");
  double mean[2] = {0, 0}, variance[2] = {1, 1};
  Tape tape(*backend);
  tape.set_context({.training = true});
  for (std::uint64_t batch = 0; batch < 5; ++batch) {
    const std::vector<float> x = uniform_values(12, 100 + batch, 2.0f);
    layer.forward(tape, tape.constant(tensor_of(*backend, {3, 2, 1, 2}, x)));
    tape.reset();
    const std::vector<std::size_t> members[2] = {{0, 1, 4, 5, 8, 9}, {2, 3, 6, 7, 10, 11}};  // by channel
    for (std::size_t c = 0; c < 2; ++c) {
      double sum = 0, squares = 0;
      for (const std::size_t i : members[c]) sum += static_cast<double>(x[i]);
      for (const std::size_t i : members[c]) squares += std::pow(static_cast<double>(x[i]) - sum / 6, 2);
      mean[c] = 0.75 * mean[c] + 0.25 * sum / 6;
      variance[c] = 0.75 * variance[c] + 0.25 * squares / 5;  // unbiased
    }
  }
  const auto running_mean = values_of(*backend, layer.buffers()[0]->value);
  const auto running_variance = values_of(*backend, layer.buffers()[1]->value);
  for (std::size_t c = 0; c < 2; ++c) {
    // |x| <= 2, six terms. Mean: 5 additions of up to 12 and a division give 6 u 12 / 6 = 12 u, three
    // roundings of up to 2 more; old errors shrink by 0.75, so the total stays below 18 u (0.25 / (1 - 0.75))
    // = 18 u. Variance: the mean enters in second order; 6 squares of up to 16 with 3 roundings, 5 additions,
    // a division and the correction: below 16 u of at most 16 * 6 / 5.
    EXPECT_NEAR(static_cast<double>(running_mean[c]), mean[c], 18 * 0x1p-24);
    EXPECT_NEAR(static_cast<double>(running_variance[c]), variance[c], 16 * 20 * 0x1p-24);
  }
}

TEST(BatchNorm, OneValuePerChannelHasNoVariance) {
  const auto backend = hopper_backend();
  nn::BatchNorm layer(*backend, "bn", {.features = 2});
  Tape tape(*backend);
  tape.set_context({.training = true});
  const Variable x = tape.constant(tensor_of(*backend, {1, 2}, {1, 2}));
  EXPECT_THROW(layer.forward(tape, x), std::invalid_argument);
  tape.set_context({});
  EXPECT_NO_THROW(layer.forward(tape, x));
}

}  // namespace
}  // namespace fp16lab::engine::test
