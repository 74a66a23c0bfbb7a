// Initial values: the stated distributions, from streams of seed and path.
#include "engine/nn/initialization.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/nn/linear.hpp"
#include "tests/engine/autograd_support.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::engine::test {
namespace {

using nn::Initialization;
using testing_support::message_of;

constexpr std::int64_t inputs = 96, outputs = 64;
constexpr std::uint64_t seed = 5;

std::vector<float> weights_of(Backend& backend, Initialization initialization) {
  return values_of(backend, nn::initial_weight(backend, {outputs, inputs}, initialization, inputs, outputs,
                                               seed, "fc.weight"));
}
std::vector<float> biases_of(Backend& backend, Initialization initialization) {
  return values_of(backend, nn::initial_bias(backend, {outputs}, initialization, inputs, seed, "fc.bias"));
}

double mean_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value);
  return sum / static_cast<double>(values.size());
}

TEST(Initialization, UniformOnesFillTheStatedInterval) {
  const auto backend = hopper_backend();
  struct Row {
    Initialization initialization;
    double bound;
  };
  for (const Row& row : {Row{Initialization::torch_linear, 1 / std::sqrt(96.0)},
                         Row{Initialization::kaiming_uniform, std::sqrt(6.0 / 96)},
                         Row{Initialization::xavier_uniform, std::sqrt(6.0 / 160)}}) {
    const std::vector<float> weights = weights_of(*backend, row.initialization);
    const auto [low, high] = std::minmax_element(weights.begin(), weights.end());
    // One rounding of the bound to FP32, one of the product with it.
    EXPECT_GE(*low, -row.bound * (1 + 0x1p-23));
    EXPECT_LE(*high, row.bound * (1 + 0x1p-23));
    // P(no element of 6144 in the outer 1 % on a side) = 0.995^6144 < 1e-13.
    EXPECT_LT(*low, -row.bound * 0.99);
    EXPECT_GT(*high, row.bound * 0.99);
    // The mean of n uniforms has deviation bound / sqrt(3 n); five of them.
    EXPECT_NEAR(mean_of(weights), 0, 5 * row.bound / std::sqrt(3.0 * inputs * outputs))
        << name_of(row.initialization);
  }
}

TEST(Initialization, NormalOnesHaveTheStatedDeviation) {
  const auto backend = hopper_backend();
  struct Row {
    Initialization initialization;
    double deviation;
  };
  constexpr double n = inputs * outputs;
  for (const Row& row : {Row{Initialization::kaiming_normal, std::sqrt(2.0 / 96)},
                         Row{Initialization::xavier_normal, std::sqrt(2.0 / 160)},
                         Row{Initialization::normal_002, 0.02}, Row{Initialization::mindspore_lenet, 0.02}}) {
    const std::vector<float> weights = weights_of(*backend, row.initialization);
    double squares = 0, outside = 0;
    for (const float weight : weights) {
      squares += static_cast<double>(weight) * static_cast<double>(weight);
      outside += std::fabs(weight) > 2 * row.deviation ? 1 : 0;
    }
    // Five deviations each: of the mean, deviation / sqrt(n); of the mean square, sqrt(2 / n) of itself; of the count
    // beyond two deviations, p = 0.0455, sqrt(p (1 - p) n). A uniform distribution has nobody beyond two.
    EXPECT_NEAR(mean_of(weights), 0, 5 * row.deviation / std::sqrt(n)) << name_of(row.initialization);
    EXPECT_NEAR(squares / n / (row.deviation * row.deviation), 1, 5 * std::sqrt(2 / n));
    const double p = std::erfc(std::sqrt(2.0));
    EXPECT_NEAR(outside, p * n, 5 * std::sqrt(p * (1 - p) * n));
  }
}

TEST(Initialization, MindSporesIsWiderForDenseLayersThanForConvolutions) {
  const auto backend = hopper_backend();
  const auto drawn = [&](Initialization initialization) {
    return values_of(*backend,
                     nn::initial_weight(*backend, {6, 4, 5, 5}, initialization, 100, 150, seed, "c"));
  };
  const std::vector<float> convolution = drawn(Initialization::mindspore_lenet);
  EXPECT_EQ(convolution, values_of(*backend, nn::normal_parameter(*backend, {6, 4, 5, 5}, seed, "c", 0.01f)));
  EXPECT_NE(convolution, drawn(Initialization::normal_002)) << "which knows one deviation for all";
}

TEST(Initialization, BiasesAreZeroButForTorchs) {
  const auto backend = hopper_backend();
  for (const Initialization initialization : nn::all_initializations()) {
    const std::vector<float> biases = biases_of(*backend, initialization);
    if (initialization != Initialization::torch_linear) {
      EXPECT_EQ(biases, std::vector<float>(outputs)) << name_of(initialization);
      continue;
    }
    const float bound = nn::torch_bound(inputs);
    EXPECT_EQ(bound, static_cast<float>(1 / std::sqrt(96.0)));
    for (const float bias : biases) EXPECT_TRUE(bias != 0.0f && std::fabs(bias) <= bound) << bias;
  }
}

TEST(Initialization, ValuesComeFromTheStreamOfSeedAndPath) {
  const auto backend = hopper_backend();
  const std::vector<float> weights = weights_of(*backend, Initialization::torch_linear);
  Tensor expected = backend->empty({outputs, inputs}, DType::f32);
  const auto bound = static_cast<float>(std::sqrt(1.0 / 96));
  backend->fill_uniform(expected, {.seed = seed, .stream = stream_id("fc.weight")}, -bound, bound);
  EXPECT_EQ(weights, values_of(*backend, expected));
  backend->fill_normal(expected, {.seed = seed, .stream = stream_id("fc.weight")}, 0.0f, 0.02f);
  EXPECT_EQ(weights_of(*backend, Initialization::normal_002), values_of(*backend, expected));
  EXPECT_EQ(values_of(*backend, nn::normal_parameter(*backend, {outputs, inputs}, seed, "fc.weight", 0.02f)),
            values_of(*backend, expected));
  for (const Initialization initialization : nn::all_initializations()) {
    const auto draw = [&](std::uint64_t other_seed, const char* path) {
      return values_of(*backend,
                       nn::initial_weight(*backend, {4, 4}, initialization, 4, 4, other_seed, path));
    };
    EXPECT_EQ(draw(1, "a.weight"), draw(1, "a.weight"));
    EXPECT_NE(draw(1, "a.weight"), draw(2, "a.weight"));
    EXPECT_NE(draw(1, "a.weight"), draw(1, "b.weight"));
  }
}

TEST(Initialization, LayersUseThem) {
  const auto backend = hopper_backend();
  for (const Initialization initialization : nn::all_initializations()) {
    const nn::Linear layer(
        *backend, "fc",
        {.inputs = inputs, .outputs = outputs, .initialization = initialization, .seed = seed});
    EXPECT_EQ(values_of(*backend, layer.parameters()[0]->value), weights_of(*backend, initialization));
    EXPECT_EQ(values_of(*backend, layer.parameters()[1]->value), biases_of(*backend, initialization));
  }
}

TEST(Initialization, NamesAreThoseOfTheEnumerators) {
  for (const Initialization initialization : nn::all_initializations())
    EXPECT_EQ(nn::initialization_from_name(name_of(initialization)), initialization);
  const std::string unknown = message_of([] { nn::initialization_from_name("kaiming_norml"); });
  EXPECT_THROW(nn::initialization_from_name("kaiming_norml"), std::invalid_argument);
  for (const Initialization initialization : nn::all_initializations())
    EXPECT_NE(unknown.find(name_of(initialization)), std::string::npos) << unknown;
}

TEST(Initialization, ImpossibleFansAreNamed) {
  const auto backend = hopper_backend();
  EXPECT_EQ(message_of([&] {
              nn::initial_weight(*backend, {3, 0}, Initialization::kaiming_normal, 0, 3, seed, "fc1.weight");
            }),
            "initial value of fc1.weight: fan_in is 0; it must be >= 1");
  EXPECT_THROW(nn::initial_weight(*backend, {0, 3}, Initialization::normal_002, 3, 0, seed, "w"),
               std::invalid_argument);
  EXPECT_THROW(nn::initial_bias(*backend, {3}, Initialization::torch_linear, 0, seed, "b"),
               std::invalid_argument);
  EXPECT_THROW(nn::normal_parameter(*backend, {3}, seed, "w", -0.5f), std::invalid_argument);
}

}  // namespace
}  // namespace fp16lab::engine::test
