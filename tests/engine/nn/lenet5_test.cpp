// LeNet-5: its parameters, its gradients by the ops that it is made of, both layouts.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "engine/amp/levels/autocast.hpp"
#include "engine/nn/losses.hpp"
#include "tests/engine/nn/support.hpp"
#include "tests/support/lenet5.hpp"

namespace fp16lab::engine::test {
namespace {

using Strings = std::vector<std::string>;

TEST(LeNet5, Has61706ParametersNamedAsTorch) {
  const auto backend = hopper_backend();
  const LeNet5 model(*backend, {.seed = 1});
  EXPECT_EQ(described_parameters(model),
            (Strings{"conv1.weight (6, 1, 5, 5)", "conv1.bias (6)", "conv2.weight (16, 6, 5, 5)",
                     "conv2.bias (16)", "fc1.weight (120, 400)", "fc1.bias (120)", "fc2.weight (84, 120)",
                     "fc2.bias (84)", "fc3.weight (10, 84)", "fc3.bias (10)"}));
  std::int64_t count = 0;
  for (const Parameter* parameter : model.parameters()) count += parameter->value.element_count();
  EXPECT_EQ(count, 61706);
}

TEST(LeNet5, HasBatchNormAfterEachConvolutionIfAsked) {
  const auto backend = hopper_backend();
  LeNet5 model(*backend, {.batch_norm = true, .seed = 1});
  const Strings names = described_parameters(model);
  ASSERT_EQ(names.size(), 14u);
  EXPECT_EQ(names[2], "bn1.weight (6)");
  EXPECT_EQ(names[7], "bn2.bias (16)");
  ASSERT_EQ(model.buffers().size(), 4u);
  // A convolution that is shifted as a whole is centred again by the statistics of its batch.
  const auto logits = [&] {
    Tape tape(*backend);
    tape.set_context({.training = true});
    Tensor x = backend->empty({4, 1, 32, 32}, DType::f32);
    backend->fill_normal(x, {.seed = 3, .stream = stream_id("x")}, 0.0f, 1.0f);
    return values_of(*backend, model.forward(tape, tape.constant(x)).tensor());
  };
  const std::vector<float> before = logits();
  backend->fill(model.parameters()[1]->value, 0.25);  // conv1.bias
  const std::vector<float> after = logits();
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(after[i], before[i], 1e-4f);
}

TEST(LeNet5, IsTheStatedChainOfOps) {
  const auto backend = hopper_backend();
  LeNet5 model(*backend, {.seed = 1});
  const Tensor images = tensor_of(*backend, {3, 1, 32, 32}, uniform_values(3 * 32 * 32, 6, 1.0f));
  const Tensor labels = index_of(*backend, {3, 1, 4});
  const std::vector<Parameter*> parameters = model.parameters();
  {
    Tape tape(*backend);
    tape.backward(nn::cross_entropy_loss(model.forward(tape, tape.constant(images)), labels));
  }
  Tape tape(*backend);
  std::vector<Variable> p;
  p.reserve(parameters.size());
  for (const Parameter* parameter : parameters) p.push_back(tape.input(parameter->value));
  Variable y = ops::max_pool2d(ops::relu(ops::conv2d(tape.constant(images), p[0], p[1], {})), {});
  y = ops::max_pool2d(ops::relu(ops::conv2d(y, p[2], p[3], {})), {});
  y = ops::relu(ops::linear(ops::reshape(y, {3, 400}), p[4], p[5]));
  y = ops::linear(ops::relu(ops::linear(y, p[6], p[7])), p[8], p[9]);
  const auto gradients = tape.gradients(std::vector{nn::cross_entropy_loss(y, labels)}, {}, p);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_EQ(bytes_of(*backend, parameters[i]->gradient), bytes_of(*backend, gradients[i].tensor()))
        << parameters[i]->name;
  }
}

/// axes: (N, C, H, W) -> (N, H, W, C), and fc1's columns likewise.
TEST(LeNet5, LayoutsAreTheSameFunction) {
  const auto backend = hopper_backend();
  LeNet5 planar(*backend, {.layout = Layout::nchw, .seed = 1}),
      packed(*backend, {.layout = Layout::nhwc, .seed = 1});
  const Tensor columns = planar.parameters()[4]->value.reshaped({120, 16, 5, 5});
  Tensor moved = backend->empty({120, 5, 5, 16}, DType::f32);
  backend->permute(columns, std::array{0, 2, 3, 1}, moved);
  packed.parameters()[4]->value = moved.reshaped({120, 400});

  const Tensor images = tensor_of(*backend, {2, 1, 32, 32}, uniform_values(2 * 32 * 32, 8, 1.0f));
  Tape tape(*backend);
  const auto a = values_of(*backend, planar.forward(tape, tape.constant(images)).tensor());
  const auto b =
      values_of(*backend, packed.forward(tape, tape.constant(images.reshaped({2, 32, 32, 1}))).tensor());
  // Chains of at most 26, 151, 401, 121 and 85 roundings in another order, over activations whose absolute
  // sums are below 1 / sqrt(fan_in) * fan_in * max|x| <= 20 max|x|: 800 u * 20 at the very most, logits of
  // order 0.1.
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 800 * 0x1p-24 * 20) << i;
  EXPECT_GT(std::fabs(*std::max_element(a.begin(), a.end())), 800 * 0x1p-24 * 20 * 8);
}

}  // namespace
}  // namespace fp16lab::engine::test
