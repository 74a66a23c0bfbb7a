// Initial values: the stated distributions, from streams of seed and path; and the smallest change to them.
#include "engine/nn/initialization.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "engine/nn/linear.hpp"
#include "engine/nn/models/mlp.hpp"
#include "engine/nn/perturbation.hpp"
#include "tests/engine/nn/support.hpp"
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
    // Five deviations each: of the mean, deviation / sqrt(n); of the mean square, sqrt(2 / n) of itself; of
    // the count beyond two deviations, p = 0.0455, sqrt(p (1 - p) n). A uniform distribution has no weight
    // beyond two.
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
  for (const Initialization initialization : every<nn::Initialization>) {
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
  for (const Initialization initialization : every<nn::Initialization>) {
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
  for (const Initialization initialization : every<nn::Initialization>) {
    const nn::Linear layer(
        *backend, "fc",
        {.inputs = inputs, .outputs = outputs, .initialization = initialization, .seed = seed});
    EXPECT_EQ(values_of(*backend, layer.parameters()[0]->value), weights_of(*backend, initialization));
    EXPECT_EQ(values_of(*backend, layer.parameters()[1]->value), biases_of(*backend, initialization));
  }
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

TEST(Perturbation, AnElementMovesInMagnitudeAndChangesNoSign) {
  using nn::moved_by_ulps;
  constexpr float smallest = std::numeric_limits<float>::denorm_min(),
                  largest = std::numeric_limits<float>::max();
  constexpr float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(moved_by_ulps(1.0f, 1, true), 1.0f + 0x1p-23f);
  EXPECT_EQ(moved_by_ulps(1.0f, 1, false), 1.0f - 0x1p-24f) << "below a power of two an ulp is half as wide";
  EXPECT_EQ(moved_by_ulps(-1.0f, 1, true), -1.0f - 0x1p-23f);
  EXPECT_EQ(moved_by_ulps(-1.0f, 3, false), -1.0f + 0x3p-24f);
  for (const float sign : {1.0f, -1.0f}) {
    for (const bool up : {true, false}) {
      // Nothing becomes zero or infinite: such an element goes the other way.
      EXPECT_EQ(moved_by_ulps(sign * smallest, 1, up), sign * 2 * smallest);
      EXPECT_EQ(moved_by_ulps(sign * largest, 1, up), sign * std::nextafter(largest, 0.0f));
      EXPECT_EQ(moved_by_ulps(sign * 4 * smallest, 4, up), sign * 8 * smallest);
      EXPECT_EQ(moved_by_ulps(sign * infinity, 1, up), sign * infinity);
      EXPECT_EQ(std::bit_cast<std::uint32_t>(moved_by_ulps(sign * 0.0f, 1, up)),
                std::bit_cast<std::uint32_t>(sign * 0.0f));
      EXPECT_EQ(moved_by_ulps(sign, 0, up), sign);
    }
  }
  EXPECT_EQ(moved_by_ulps(2 * smallest, 1, false), smallest);
  EXPECT_EQ(moved_by_ulps(std::nextafter(largest, 0.0f), 1, true), largest);
  EXPECT_EQ(moved_by_ulps(0x1p-126f, 1, false), std::nextafter(0x1p-126f, 0.0f)) << "into the subnormals";
  // A NaN keeps its bits.
  const float nan = std::bit_cast<float>(0xffc00123u);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(moved_by_ulps(nan, 1, true)), 0xffc00123u);
}

/// fc of 96 x 64, with values of many exponents and some that must stay.
class PerturbedLayer : public testing::Test {
 protected:
  std::vector<float> values() {
    std::vector<float> all = uniform_values(inputs * outputs, 3, 0.25f);
    for (std::size_t i = 0; i < all.size(); i += 7) all[i] = std::ldexp(all[i], -static_cast<int>(i % 140));
    all[0] = 0.0f;
    all[1] = -0.0f;
    all[2] = std::numeric_limits<float>::infinity();
    all[3] = -std::numeric_limits<float>::infinity();
    all[4] = std::numeric_limits<float>::quiet_NaN();
    return all;
  }
  /// The weight after `ulps`, as bits; other parameters and seeds by argument.
  std::vector<std::uint32_t> perturbed(std::uint64_t ulps, std::uint64_t of_seed,
                                       const std::string& path = "fc") {
    nn::Linear layer(*backend_, path, {.inputs = inputs, .outputs = outputs, .seed = seed});
    Parameter& weight = *layer.parameters()[0];
    weight.value = tensor_of(*backend_, weight.value.shape(), values());
    nn::perturb_parameters(*backend_, layer, ulps, of_seed);
    return bits_of(values_of(*backend_, weight.value));
  }
  static std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
    std::vector<std::uint32_t> bits;
    for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
    return bits;
  }
  const std::unique_ptr<Backend> backend_ = hopper_backend();
};

TEST_F(PerturbedLayer, EveryElementButZerosMovesByOneUlpByItsPhiloxWord) {
  const std::vector<std::uint32_t> before = bits_of(values()), after = perturbed(1, 9);
  const PhiloxStream stream{.seed = 9, .stream = stream_id("perturb.fc.weight")};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(after[i], before[i]) << i;
  std::size_t moved = 0, up = 0;
  for (std::size_t i = 5; i < before.size(); ++i) {
    if (values()[i] == 0.0f) continue;
    const bool away = (stream.word(i) >> 31) != 0;
    EXPECT_EQ(after[i], away ? before[i] + 1 : before[i] - 1) << i;
    ++moved;
    up += after[i] > before[i] ? 1 : 0;
  }
  // Five deviations of a fair coin.
  const auto n = static_cast<double>(moved);
  EXPECT_GT(n, 6000);
  EXPECT_NEAR(static_cast<double>(up), n / 2, 5 * std::sqrt(n) / 2);
}

TEST_F(PerturbedLayer, SeedAndNameDecideAndNothingElse) {
  EXPECT_EQ(perturbed(0, 9), bits_of(values())) << "no ulps, no change";
  EXPECT_EQ(perturbed(1, 9), perturbed(1, 9));
  EXPECT_NE(perturbed(1, 9), perturbed(1, 10));
  EXPECT_NE(perturbed(1, 9), perturbed(1, 9, "fc2"));
  const auto one = perturbed(1, 9), many = perturbed(1000, 9);
  const std::vector<std::uint32_t> before = bits_of(values());
  std::size_t same_way = 0;
  for (std::size_t i = 5; i < before.size(); ++i) {
    if (before[i] == one[i]) continue;
    ASSERT_EQ(std::max(many[i], before[i]) - std::min(many[i], before[i]), 1000u) << i;
    same_way += (one[i] > before[i]) == (many[i] > before[i]) ? 1 : 0;
  }
  EXPECT_GT(same_way, 6000u) << "the same signs; but next to zero";

  // In a network a parameter moves as it does alone.
  nn::Mlp network(*backend_, {.widths = {5, 4, 3}, .seed = seed});
  const std::vector<Parameter*> parameters = network.parameters();
  const auto copies = [&] {
    std::vector<std::vector<std::uint32_t>> all;
    for (const Parameter* parameter : parameters)
      all.push_back(bits_of(values_of(*backend_, parameter->value)));
    return all;
  };
  const auto initial = copies();
  nn::perturb_parameters(*backend_, network, 1, 9);
  const auto moved = copies();
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const PhiloxStream stream{.seed = 9, .stream = stream_id("perturb." + parameters[p]->name)};
    for (std::size_t i = 0; i < initial[p].size(); ++i)
      EXPECT_EQ(moved[p][i], initial[p][i] + ((stream.word(i) >> 31) != 0 ? 1u : ~0u)) << parameters[p]->name;
  }
}

TEST_F(PerturbedLayer, CastsOfTheValuesAreMadeAgain) {
  nn::Linear layer(*backend_, "fc", {.inputs = 2, .outputs = 2, .seed = seed});
  const std::uint64_t before = layer.parameters()[0]->version;
  nn::perturb_parameters(*backend_, layer, 1, 9);
  EXPECT_GT(layer.parameters()[0]->version, before);
}

TEST_F(PerturbedLayer, OtherFormatsAndHugeStepsAreRefused) {
  nn::Linear layer(*backend_, "fc", {.inputs = 2, .outputs = 2, .seed = seed});
  EXPECT_NO_THROW(nn::perturb_parameters(*backend_, layer, 1u << 22, 9));
  EXPECT_EQ(message_of([&] { nn::perturb_parameters(*backend_, layer, (1u << 22) + 1, 9); }),
            "a perturbation of 4194305 ulps: expected at most 4194304");
  layer.parameters()[1]->value = halves_of(*backend_, {2}, {1, 2});
  EXPECT_EQ(message_of([&] { nn::perturb_parameters(*backend_, layer, 1, 9); }),
            "a perturbation of fc.bias: expected f32, not f16");
  EXPECT_NO_THROW(nn::perturb_parameters(*backend_, layer, 0, 9)) << "nothing is asked";
}

}  // namespace
}  // namespace fp16lab::engine::test
