// Modules: names, shapes, seeded initialisation, forward.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/nn/losses.hpp"
#include "engine/nn/mlp.hpp"
#include "tests/engine/autograd_support.hpp"

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

TEST(Initialization, FillsTheStatedInterval) {
  const auto backend = hopper_backend();
  struct Row {
    nn::Initialization initialization;
    double weight, bias;
  };
  const std::int64_t in = 96, out = 64;
  for (const Row& row : {Row{nn::Initialization::torch_linear, 1 / std::sqrt(96.0), 1 / std::sqrt(96.0)},
                         Row{nn::Initialization::kaiming_uniform, std::sqrt(6.0 / 96), 0},
                         Row{nn::Initialization::xavier_uniform, std::sqrt(6.0 / 160), 0}}) {
    const nn::Linear layer(*backend, "fc",
                           {.inputs = in, .outputs = out, .initialization = row.initialization, .seed = 5});
    const auto weights = values_of(*backend, layer.parameters()[0]->value);
    const auto [low, high] = std::minmax_element(weights.begin(), weights.end());
    // One rounding of the bound to FP32, one of the product with it.
    EXPECT_GE(*low, -row.weight * (1 + 0x1p-23));
    EXPECT_LE(*high, row.weight * (1 + 0x1p-23));
    // P(no element of 6144 in the outer 1 % on a side) = 0.995^6144 < 1e-13.
    EXPECT_LT(*low, -row.weight * 0.99);
    EXPECT_GT(*high, row.weight * 0.99);
    double sum = 0;
    for (const float weight : weights) sum += static_cast<double>(weight);
    // The mean of n uniforms has deviation bound / sqrt(3 n); five of them.
    EXPECT_NEAR(sum / (in * out), 0, 5 * row.weight / std::sqrt(3.0 * in * out))
        << name_of(row.initialization);
    for (const float bias : values_of(*backend, layer.parameters()[1]->value))
      EXPECT_LE(std::fabs(bias), row.bias * (1 + 0x1p-23));
  }
  EXPECT_THROW(nn::initialization_from_name("he"), std::invalid_argument);
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

TEST(Mlp, ImpossibleWidthsAreNamed) {
  const auto backend = hopper_backend();
  EXPECT_THROW(nn::Mlp(*backend, {.widths = {5}}), std::invalid_argument);
  EXPECT_THROW(nn::Mlp(*backend, {.widths = {5, 0, 2}}), std::invalid_argument);
  EXPECT_THROW(nn::activation_from_name("gelu"), std::invalid_argument);
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
