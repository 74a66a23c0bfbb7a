// The chain rule claim of every loss-scaling tutorial: scale the loss by S, divide the gradients by S, and
// nothing has changed. True bit for bit when S is a power of two and nothing under- or overflows; else it is
// true up to rounding:
//   * S = 2^k shifts exponents. Round(2^k x) = 2^k Round(x) as long as x and 2^k x lie in the same (normal)
//     precision, so that every cast, product, sum and accumulator alignment of the backward pass commutes
//     with it; and float(1/S) = 2^-k is exact, as is the product with it.
//   * S = 1000 = 0x1.f4p9 changes significands: every later rounding falls elsewhere, and 1/1000 is no FP32
//     number.
// The data are chosen so that the premise holds, and the premise is checked on the histograms of every
// gradient that is rounded to FP16.
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "engine/amp/levels/autocast.hpp"
#include "engine/amp/scalers/grad_scaler.hpp"
#include "engine/autograd/counting.hpp"
#include "engine/nn/linear.hpp"
#include "engine/nn/losses.hpp"
#include "engine/nn/models/mlp.hpp"
#include "engine/optim/optimizer.hpp"
#include "numerics/arithmetic/arithmetic.hpp"
#include "numerics/convert/convert.hpp"
#include "tests/engine/nn/support.hpp"
#include "tests/support/lenet5.hpp"

namespace fp16lab::engine::test::chain_rule_test {
namespace {

using amp::Level;

/// A network, one batch and a loss: `gain` times the cross-entropy, which lifts all gradients above 2^-14.
struct Case {
  std::string name;
  std::function<std::unique_ptr<nn::Module>(Backend&)> make;
  Shape input;
  std::vector<std::int32_t> labels;
  float bound = 1;  ///< weights and inputs are uniform in [-bound, bound]
  float gain = 1;
  std::uint64_t seed = 1;  ///< the inputs' seed
};

/// Names the case where a test fails.
[[maybe_unused]] void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

struct Pass {
  std::vector<std::vector<float>> gradients;  ///< unscaled, by parameter
  GradientRecorder seen;                      ///< still scaled
  bool found_inf = false;
};

Pass run(const Case& c, Level level, double scale) {
  const auto backend = hopper_backend();
  const auto model = c.make(*backend);
  randomise(*backend, *model, c.bound);
  std::int64_t count = 1;
  for (const std::int64_t extent : c.input.extents()) count *= extent;
  const Tensor x =
      tensor_of(*backend, c.input, uniform_values(static_cast<std::size_t>(count), c.seed, 1.0f));

  Tensor step = backend->make_step_state(StepState{});
  amp::GradScaler scaler(*backend, {.policy = "fixed", .initial_scale = scale}, step);
  const auto optimizer = optim::make_optimizer(*backend, model->parameters(), {.learning_rate = 0.1}, 1);
  Tape tape(*backend);
  amp::Autocast autocast(tape, {.level = level});
  Pass pass;
  const CountingGuard counted(tape, pass.seen);
  {
    const amp::AutocastGuard guard(tape, autocast);
    const Variable logits = model->forward(tape, tape.constant(x));
    const Variable loss = nn::cross_entropy_loss(logits, index_of(*backend, c.labels));
    tape.backward(ops::scale(loss, c.gain), scaler.seed());
  }
  scaler.unscale(*optimizer);
  pass.found_inf = backend->read_step_state(step).found_inf[0] != 0;
  for (const Parameter* parameter : model->parameters())
    pass.gradients.push_back(values_of(*backend, parameter->gradient));
  return pass;
}

/// All gradients that were rounded: above 2^-14 or exactly zero before, none lost, none infinite. (Gradients
/// that are not observed are not rounded: those of relu and of pooling windows that do not overlap are copies
/// or zeros.)
void expect_normal_range(const Pass& pass, const std::string& what) {
  for (const auto& [name, probe] : pass.seen.probes) {
    std::uint64_t below = 0;
    for (int e = ExponentHistogram::min_exponent; e < Binary16::emin; ++e) below += probe.before.at(e);
    EXPECT_EQ(below, 0u) << what << ", " << name << ": at most 2^-14";
    EXPECT_EQ(probe.after.zero, probe.before.zero) << what << ", " << name << ": lost";
    EXPECT_EQ(probe.after.infinite + probe.after.nan, 0u) << what << ", " << name << ": overflow";
    EXPECT_GT(probe.before.finite_nonzero(), 0u) << what << ", " << name << " has something to round";
  }
  EXPECT_FALSE(pass.found_inf) << what;
}

std::vector<std::uint32_t> bits_of_all(const Pass& pass) {
  std::vector<std::uint32_t> bits;
  for (const std::vector<float>& gradient : pass.gradients)
    for (const float value : gradient) bits.push_back(bits_of(value));
  return bits;
}

std::size_t differing(const Pass& a, const Pass& b) {
  const auto x = bits_of_all(a), y = bits_of_all(b);
  std::size_t count = 0;
  for (std::size_t i = 0; i < x.size(); ++i) count += x[i] != y.at(i) ? 1 : 0;
  return count;
}

const Case mlp{.name = "MLP",
               .make = [](Backend& backend) -> std::unique_ptr<nn::Module> {
                 return std::make_unique<nn::Mlp>(backend, nn::MlpOptions{.widths = {12, 16, 8, 4}});
               },
               .input = {4, 12},
               .labels = {0, 3, 1, 2},
               .bound = 0.5f,
               .gain = 16};

const Case lenet5{.name = "LeNet-5",
                  .make = [](Backend& backend) -> std::unique_ptr<nn::Module> {
                    return std::make_unique<LeNet5>(backend, LeNet5Options{});
                  },
                  .input = {1, 1, 32, 32},
                  .labels = {7},
                  .bound = 0.25f,
                  .gain = 8,
                  .seed = 39};  // among the first forty, a seed with no gradient below 2^-13 or above 2^6

class ChainRule : public testing::TestWithParam<Case> {};

TEST_P(ChainRule, APowerOfTwoScaleChangesNoBit) {
  const Case& c = GetParam();
  for (const Level level : {Level::O0, Level::O1}) {
    const std::string at = c.name + (level == Level::O0 ? " at O0" : " at O1");
    const Pass unscaled = run(c, level, 1);
    for (const auto& [name, dtype] : unscaled.seen.dtypes)
      EXPECT_EQ(dtype, level == Level::O0 ? DType::f32 : DType::f16) << at << ", " << name;
    expect_normal_range(unscaled, at + ", S = 1");
    for (const double scale : {2.0, 16.0, 256.0}) {
      const Pass scaled = run(c, level, scale);
      expect_normal_range(scaled, at + ", S = " + std::to_string(scale));
      EXPECT_EQ(bits_of_all(scaled), bits_of_all(unscaled)) << at << ", S = " << scale;
    }
  }
}

TEST_P(ChainRule, AScaleOf1000ChangesBitsAlthoughNothingIsLost) {
  const Case& c = GetParam();
  for (const Level level : {Level::O0, Level::O1}) {
    const Pass unscaled = run(c, level, 1), scaled = run(c, level, 1000);
    expect_normal_range(scaled, c.name + ", S = 1000");
    EXPECT_GT(differing(unscaled, scaled), 0u) << c.name;
  }
}

TEST_P(ChainRule, WhereGradientsUnderflowAPowerOfTwoChangesBitsToo) {
  Case c = GetParam();
  c.gain *= 0x1p-20f;  // the premise fails at S = 1, and holds again at S = 2^20
  const Pass unscaled = run(c, Level::O1, 1), scaled = run(c, Level::O1, 0x1p20);
  std::uint64_t lost = 0;
  for (const auto& [name, probe] : unscaled.seen.probes) lost += probe.after.zero - probe.before.zero;
  EXPECT_GT(lost, 0u) << c.name;
  expect_normal_range(scaled, c.name + ", S = 2^20");
  EXPECT_GT(differing(unscaled, scaled), 0u) << c.name;
}

INSTANTIATE_TEST_SUITE_P(Networks, ChainRule, testing::Values(mlp, lenet5),
                         [](const auto& network) { return network.param.name == "MLP" ? "Mlp" : "LeNet5"; });

TEST(ChainRuleScalar, WhyAScaleOf1000ChangesAGradient) {
  using Single = SmallFloat<Binary32>;
  const Float16 gradient = Float16::from_bits(0x3c01);  // 1 + 2^-10
  // 1000 (1 + 2^-10) = 1000.9765625, between 1000.5 and 1001: FP16 has steps of 1/2 there.
  const Float16 scaled = convert<Binary16>(mul(convert<Binary32>(gradient), narrow<Binary32>(1000.0f)));
  EXPECT_EQ(widen(scaled), 1001.0f);
  // float(1/1000) is 0.001000000047497451...: 1001 times it is about 1.00100005, not 1.0009765625.
  const float inverse = static_cast<float>(1.0 / 1000.0);
  EXPECT_EQ(bits_of(inverse), 0x3a83126fu);
  const float unscaled =
      widen(mul(Single::from_bits(bits_of(widen(scaled))), Single::from_bits(bits_of(inverse))));
  EXPECT_NE(unscaled, 1.0009765625f);
  // The rounding to 11 bits moved it by 0.0234375/1000.9765625 = 2.3e-5, below u = 2^-11; FP32's part is
  // below 2^-23.
  EXPECT_NEAR(static_cast<double>(unscaled), 1.0009765625, 1.0009765625 * (0x1p-11 + 0x1p-23));
  // A power of two: exact both ways.
  const Float16 shifted = convert<Binary16>(mul(convert<Binary32>(gradient), narrow<Binary32>(1024.0f)));
  EXPECT_EQ(shifted.bits(), gradient.bits() + (10u << 10)) << "ten more in the exponent field";
  EXPECT_EQ(widen(shifted) * 0x1p-10f, 1.0009765625f);
}

// ---- how far apart

/// Three linear layers whose activations can be looked at.
struct Layers {
  std::vector<std::unique_ptr<nn::Linear>> layers;
  std::vector<Variable> inputs;  ///< one per layer, from the last forward pass

  explicit Layers(Backend& backend, const std::vector<std::int64_t>& widths) {
    for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
      layers.push_back(std::make_unique<nn::Linear>(
          backend, "fc" + std::to_string(i + 1),
          nn::LinearOptions{.inputs = widths[i], .outputs = widths[i + 1], .seed = 1}));
      randomise(backend, *layers.back(), 0.5f);
    }
  }
  Variable forward(Tape& tape, Variable x) {
    inputs.clear();
    for (std::size_t i = 0; i < layers.size(); ++i) {
      inputs.push_back(x);
      x = layers[i]->forward(tape, x);
      if (i + 1 < layers.size()) x = ops::relu(x);
    }
    return x;
  }
  Parameter& weight(std::size_t layer) const { return *layers[layer]->parameters().front(); }
};

using Matrix = std::vector<std::vector<double>>;  ///< magnitudes, (rows, columns)
Matrix magnitudes(Backend& backend, const Tensor& tensor) {
  // As the product sees them: FP16.
  Tensor low = backend.empty(tensor.shape(), DType::f16);
  backend.cast(tensor, low);
  const std::vector<float> values = values_of(backend, low);
  const auto columns = static_cast<std::size_t>(tensor.shape()[1]);
  Matrix matrix(values.size() / columns, std::vector<double>(columns));
  for (std::size_t i = 0; i < values.size(); ++i)
    matrix[i / columns][i % columns] = std::fabs(static_cast<double>(values[i]));
  return matrix;
}

// Both gradients are near the same exact number: that of the backward pass in exact arithmetic over the
// recorded FP16 activations and weights, which do not depend on S. A term of a weight gradient of layer l (of
// L) passes
//   FP16 roundings: the cast of dL/dlogits, L - l input gradients, the weight gradient itself: L - l + 2, u =
//   2^-11 each accumulators: L - l + 1 tensor-core products of K <= 16 terms, one block of the hopper row
//   each, which cuts its 17
//     addends below 2^-25 of the largest (F = 25) and the sum below 2^-23: at most 17 2^-25 + 2^-23 < 2^-20
//     of the sum of magnitudes
//   FP32 roundings: at most four from the softmax to dL/dlogits (with gain and seed), the product with 1/S
//   and its own
//     rounding: six, 2^-24 each
// so each of the two differs from it by at most ((1 + u)^(L-l+2) (1 + 2^-20)^(L-l+1) (1 + 2^-24)^6 - 1) A,
// where A is the same sum with all terms positive, and they differ from each other by at most twice that.
// dL/dlogits itself is read back as FP16, so A is that of the exact one up to (1 + u), which the factor 1.001
// covers.
TEST(ChainRuleBound, AScaleOf1000MovesEveryElementLessThanItsRoundings) {
  const std::vector<std::int64_t> widths{12, 16, 8, 4};
  const auto backend = hopper_backend();
  Layers network(*backend, widths);
  const Tensor x = tensor_of(*backend, {4, 12}, uniform_values(48, 1, 1.0f));
  const Tensor labels = index_of(*backend, {0, 3, 1, 2});
  constexpr float gain = 16;

  std::vector<std::vector<std::vector<float>>> gradients;  // [S = 1, S = 1000][layer]
  std::vector<Matrix> bounds(network.layers.size());       // A of every weight
  for (const double scale : {1.0, 1000.0}) {
    Tensor step = backend->make_step_state(StepState{});
    amp::GradScaler scaler(*backend, {.policy = "fixed", .initial_scale = scale}, step);
    std::vector<Parameter*> parameters;
    for (const auto& layer : network.layers)
      for (Parameter* parameter : layer->parameters()) parameters.push_back(parameter);
    const auto optimizer = optim::make_optimizer(*backend, parameters, {.learning_rate = 0.1}, 1);
    optimizer->clear_gradients();
    Tape tape(*backend);
    amp::Autocast autocast(tape, {.level = Level::O1});
    Variable logits, loss;
    {
      const amp::AutocastGuard guard(tape, autocast);
      logits = network.forward(tape, tape.constant(x));
      loss = ops::scale(nn::cross_entropy_loss(logits, labels), gain);
    }
    if (scale == 1.0) {
      const std::vector<Variable> of_logits =
          tape.gradients(std::vector{loss}, {}, std::vector{logits}, {.retain_graph = true});
      Matrix above = magnitudes(*backend, of_logits.front().tensor());
      for (std::size_t layer = network.layers.size(); layer-- > 0;) {
        const Matrix inputs = magnitudes(*backend, network.inputs[layer].tensor());
        const Matrix weights = magnitudes(*backend, network.weight(layer).value);
        bounds[layer].assign(weights.size(), std::vector<double>(weights[0].size(), 0.0));
        Matrix below(inputs.size(), std::vector<double>(inputs[0].size(), 0.0));
        for (std::size_t row = 0; row < inputs.size(); ++row)
          for (std::size_t o = 0; o < weights.size(); ++o)
            for (std::size_t i = 0; i < weights[0].size(); ++i) {
              bounds[layer][o][i] += above[row][o] * inputs[row][i];
              below[row][i] +=
                  inputs[row][i] > 0 ? above[row][o] * weights[o][i] : 0;  // relu passes where it was > 0
            }
        above = below;
      }
    }
    tape.backward(loss, scaler.seed());
    scaler.unscale(*optimizer);
    gradients.emplace_back();
    for (std::size_t layer = 0; layer < network.layers.size(); ++layer)
      gradients.back().push_back(values_of(*backend, network.weight(layer).gradient));
  }

  for (std::size_t layer = 0; layer < network.layers.size(); ++layer) {
    const auto above = static_cast<double>(network.layers.size() - 1 - layer);
    const double relative =
        2.001 *
        (std::pow(1 + 0x1p-11, above + 2) * std::pow(1 + 0x1p-20, above + 1) * std::pow(1 + 0x1p-24, 6) - 1);
    double largest = 0, widest = 0, moved = 0;
    for (std::size_t o = 0; o < bounds[layer].size(); ++o)
      for (std::size_t i = 0; i < bounds[layer][o].size(); ++i) {
        const std::size_t at = o * bounds[layer][o].size() + i;
        const auto one = static_cast<double>(gradients[0][layer][at]);
        const auto thousand = static_cast<double>(gradients[1][layer][at]);
        EXPECT_LE(std::fabs(thousand - one), relative * bounds[layer][o][i])
            << "fc" << layer + 1 << " " << o << "," << i;
        largest = std::max(largest, std::fabs(one));
        widest = std::max(widest, relative * bounds[layer][o][i]);
        moved = std::max(moved, std::fabs(thousand - one));
      }
    EXPECT_GT(moved, 0) << "fc" << layer + 1;
    EXPECT_LT(widest, 0x1p-5 * largest) << "fc" << layer + 1 << ": the bound has no teeth";
  }
}

}  // namespace
}  // namespace fp16lab::engine::test::chain_rule_test
