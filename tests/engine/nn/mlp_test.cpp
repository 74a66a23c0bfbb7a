// The perceptron: names, shapes, seeded initialisation, forward.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "engine/nn/losses.hpp"
#include "engine/nn/models/mlp.hpp"
#include "tests/engine/autograd/support.hpp"

namespace fp16lab::engine::test {
namespace {

TEST(Mlp, NamesAndShapesFollowTorch) {
  const auto backend = hopper_backend();
  const nn::Mlp mlp(*backend, {.widths = {784, 16, 10}, .seed = 1});
  std::vector<std::string> described;
  for (const Parameter* parameter : mlp.parameters())
    described.push_back(parameter->name + " " + parameter->value.describe());
  EXPECT_EQ(described, (std::vector<std::string>{"fc1.weight f32 (16, 784)", "fc1.bias f32 (16)",
                                                 "fc2.weight f32 (10, 16)", "fc2.bias f32 (10)"}));
}

TEST(Mlp, InitialWeightsDependOnSeedAndPathOnly) {
  const auto backend = hopper_backend();
  const nn::Mlp one(*backend, {.widths = {8, 4, 4, 2}, .seed = 1}),
      same(*backend, {.widths = {8, 4, 4, 2}, .seed = 1});
  const nn::Mlp other(*backend, {.widths = {8, 4, 4, 2}, .seed = 2}),
      deeper(*backend, {.widths = {8, 4, 4, 2, 2}, .seed = 1});
  for (std::size_t i = 0; i < one.parameters().size(); ++i) {
    const auto values = bytes_of(*backend, one.parameters()[i]->value);
    EXPECT_EQ(values, bytes_of(*backend, same.parameters()[i]->value));
    EXPECT_NE(values, bytes_of(*backend, other.parameters()[i]->value));
    EXPECT_EQ(values, bytes_of(*backend, deeper.parameters()[i]->value))
        << "a later layer must not move the earlier ones";
  }
  EXPECT_NE(bytes_of(*backend, one.parameters()[1]->value), bytes_of(*backend, one.parameters()[3]->value));
}

TEST(Mlp, ForwardIsLinearReluLinear) {
  const auto backend = hopper_backend();
  for (const nn::Activation activation : {nn::Activation::relu, nn::Activation::none}) {
    nn::Mlp mlp(*backend, {.widths = {2, 2, 1}, .activation = activation, .seed = 1});
    const auto parameters = mlp.parameters();
    parameters[0]->value = tensor_of(*backend, {2, 2}, {1, 2, -1, -1});
    parameters[1]->value = tensor_of(*backend, {2}, {0.5f, 1});
    parameters[2]->value = tensor_of(*backend, {1, 2}, {2, 3});
    parameters[3]->value = tensor_of(*backend, {1}, {0.25f});
    Tape tape(*backend);
    const Variable y = mlp.forward(tape, tape.constant(tensor_of(*backend, {1, 2}, {1, 1})));
    // hidden = (3.5, -1); relu -> (3.5, 0)
    const float expected = activation == nn::Activation::relu ? 7.25f : 4.25f;
    EXPECT_EQ(values_of(*backend, y.tensor()), std::vector<float>{expected});
  }
}

TEST(Mlp, EveryActivationIsTheOpOfItsName) {
  const auto backend = hopper_backend();
  EXPECT_EQ(every<nn::Activation>.size(), 5u);
  for (const nn::Activation activation : every<nn::Activation>) {
    nn::Mlp mlp(*backend, {.widths = {1, 1, 1}, .activation = activation, .seed = 1});
    const auto parameters = mlp.parameters();
    parameters[0]->value = tensor_of(*backend, {1, 1}, {2});
    parameters[1]->value = tensor_of(*backend, {1}, {-0.5f});
    parameters[2]->value = tensor_of(*backend, {1, 1}, {1});
    parameters[3]->value = tensor_of(*backend, {1}, {0});
    Tape tape(*backend);
    const Variable y = mlp.forward(tape, tape.constant(tensor_of(*backend, {1, 1}, {1})));
    // f(1.5); our elementary functions are within a few ulp of libm's (2^-21 of 1.5: 4 ulp).
    const double x = 1.5;
    const std::map<nn::Activation, double> expected{
        {nn::Activation::none, x},
        {nn::Activation::relu, x},
        {nn::Activation::tanh, std::tanh(x)},
        {nn::Activation::gelu, x * 0.5 * std::erfc(-x / std::sqrt(2.0))},
        {nn::Activation::sigmoid, 1 / (1 + std::exp(-x))}};
    EXPECT_NEAR(values_of(*backend, y.tensor()).at(0), expected.at(activation), 0x1p-21)
        << name_of(activation);
  }
}

TEST(Mlp, ImpossibleWidthsAreNamed) {
  const auto backend = hopper_backend();
  EXPECT_THROW(nn::Mlp(*backend, {.widths = {5}}), std::invalid_argument);
  EXPECT_THROW(nn::Mlp(*backend, {.widths = {5, 0, 2}}), std::invalid_argument);
}

TEST(Losses, KnownValues) {
  const auto backend = hopper_backend();
  Tape tape(*backend);
  // Equal logits: log(classes), whatever their size. Three exp, a sum, a log: below 4 ulp of 1.1.
  const Variable flat = tape.constant(tensor_of(*backend, {2, 3}, {1e4f, 1e4f, 1e4f, -7, -7, -7}));
  EXPECT_NEAR(values_of(*backend, nn::cross_entropy_loss(flat, index_of(*backend, {0, 2})).tensor()).at(0),
              std::log(3.0), 4 * 0x1p-23);
  const Variable y = tape.constant(tensor_of(*backend, {2, 2}, {1, 2, 3, 4}));
  EXPECT_EQ(values_of(*backend, nn::mse_loss(y, tensor_of(*backend, {2, 2}, {0, 0, 0, 0})).tensor()).at(0),
            7.5f);
}

}  // namespace
}  // namespace fp16lab::engine::test
