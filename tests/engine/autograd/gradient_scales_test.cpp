// Scales of single gradients in a backward pass: exact in FP32 whatever they are, joined where branches meet,
// gone at the parameters.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "engine/autograd/counting.hpp"
#include "engine/autograd/gradient_scales.hpp"
#include "engine/nn/linear.hpp"
#include "engine/nn/losses.hpp"
#include "engine/nn/models/mlp.hpp"
#include "tests/engine/amp/asked_scales.hpp"
#include "tests/engine/nn/support.hpp"
#include "tests/support/char_model.hpp"
#include "tests/support/lenet5.hpp"

namespace fp16lab::engine::test {
namespace {

using testing::HasSubstr;

/// Another exponent at every question, from -12 to 12 and never twice the same in a row.
std::function<int(const GradientSite&)> wandering(std::uint64_t seed) {
  return [seed, position = std::uint64_t{0}](const GradientSite&) mutable {
    return static_cast<int>(PhiloxStream{.seed = seed, .stream = stream_id("exponents")}.word(position++) %
                            25) -
           12;
  };
}

/// h = relu(fc1(x)), out = head(h + fc3(relu(fc2(h)))): h has two consumers, one of them the shortcut.
class ResidualNet final : public nn::Module {
 public:
  explicit ResidualNet(Backend& backend) {
    for (const char* const name : {"fc1", "fc2", "fc3", "head"})
      layers_.push_back(&add_child(std::make_unique<nn::Linear>(
          backend, name, nn::LinearOptions{.inputs = 6, .outputs = 6, .seed = 5})));
  }
  Variable forward(Tape& tape, const Variable& x) override {
    const Variable h = ops::relu(layers_[0]->forward(tape, x));
    const Variable branch = layers_[2]->forward(tape, ops::relu(layers_[1]->forward(tape, h)));
    return layers_[3]->forward(tape, ops::add(h, branch));
  }

 private:
  std::vector<nn::Linear*> layers_;
};

/// A model with inputs for it.
struct Net {
  std::string name;
  std::function<std::unique_ptr<nn::Module>(Backend&)> make;
  std::function<Tensor(Backend&)> input;
};

std::vector<Net> nets() {
  const auto rows = [](Backend& b) { return tensor_of(b, {4, 6}, uniform_values(24, 7, 2.0f)); };
  const auto text = [](Backend& b) { return symbols_of(b, {2, 5}, {3, 1, 4, 1, 5, 9, 2, 6, 5, 3}); };
  return {{"perceptron",
           [](Backend& b) {
             return std::make_unique<nn::Mlp>(b, nn::MlpOptions{.widths = {6, 9, 7, 5}, .seed = 3});
           },
           rows},
          {"residual", [](Backend& b) { return std::make_unique<ResidualNet>(b); }, rows},
          {"lenet5", [](Backend& b) { return std::make_unique<LeNet5>(b, LeNet5Options{.seed = 3}); },
           [](Backend& b) {
             return tensor_of(b, {2, 1, 32, 32}, uniform_values(2048, 9, 1.0f));
           }},
          {"lstm",
           [](Backend& b) {
             return std::make_unique<CharLstm>(
                 b, CharLstmOptions{.symbols = 12, .embedding = 6, .hidden = 5, .layers = 2, .seed = 3});
           },
           text},
          {"transformer",
           [](Backend& b) {
             return std::make_unique<CharTransformer>(
                 b, CharTransformerOptions{
                        .symbols = 12, .context = 5, .embedding = 8, .heads = 2, .layers = 2, .seed = 3});
           },
           text}};
}

struct Pass {
  float seed = 1.0f;
  amp::Level level = amp::Level::O0;
  GradientScales* scales = nullptr;
  Tap* tap = nullptr;
  int backwards = 1;  ///< over the same graph
};

/// The parameters' gradients, by name.
std::map<std::string, std::vector<std::byte>> gradients_of(Backend& backend, const Net& net,
                                                           const Pass& pass) {
  const auto model = net.make(backend);
  Tape tape(backend);
  amp::Autocast autocast(tape, {.level = pass.level});
  tape.set_gradient_scales(pass.scales);
  std::optional<CountingGuard> counted;
  if (pass.tap != nullptr) counted.emplace(tape, *pass.tap);
  Variable loss;
  {
    const amp::AutocastGuard guard(tape, autocast);
    const Tensor x = net.input(backend);
    const Variable y = model->forward(tape, tape.constant(x));
    loss = directed_sum(tape, ops::cast(y, DType::f32));
  }
  for (int i = 0; i < pass.backwards; ++i)
    tape.backward(loss, tensor_of(backend, Shape{}, {pass.seed}), {.retain_graph = i + 1 < pass.backwards});
  std::map<std::string, std::vector<std::byte>> all;
  for (const Parameter* parameter : model->parameters())
    all[parameter->name] = bytes_of(backend, parameter->gradient);
  return all;
}

TEST(GradientScales, AnyExponentsGiveTheSameBitsInFp32) {
  const auto backend = hopper_backend();
  for (const Net& net : nets()) {
    for (const int backwards : {1, 2}) {
      const auto plain = gradients_of(*backend, net, {.backwards = backwards});
      for (const std::uint64_t seed : {1u, 2u, 3u}) {
        SCOPED_TRACE(net.name + ", exponents " + std::to_string(seed));
        AskedScales scales(wandering(seed));
        EXPECT_EQ(gradients_of(*backend, net, {.scales = &scales, .backwards = backwards}), plain);
        bool moved = false;
        for (const auto& question : scales.asked) moved = moved || question.exponent != 0;
        EXPECT_TRUE(moved) << "no exponent ever travelled";
      }
    }
  }
}

TEST(GradientScales, EveryProductIsAskedOnceAndKnowsItsWeight) {
  const auto backend = hopper_backend();
  for (const amp::Level level : {amp::Level::O0, amp::Level::O1}) {
    AskedScales scales([](const GradientSite& site) { return site.exponent + 1; });
    gradients_of(*backend, nets()[1], {.level = level, .scales = &scales});
    ASSERT_EQ(scales.asked.size(), 4u);
    const char* const order[] = {"head", "fc3", "fc2", "fc1"};
    // The shortcut brings fc1 the head's exponent; it meets fc2's, which is larger, and fits.
    const int exponents[] = {0, 1, 2, 3};
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(scales.asked[i].scope, order[i]);
      EXPECT_EQ(scales.asked[i].weight, order[i] + std::string(".weight"));
      EXPECT_EQ(scales.asked[i].op, Op::linear);
      EXPECT_EQ(scales.asked[i].exponent, exponents[i]);
    }
  }
}

TEST(GradientScales, OneExponentEverywhereIsALargerSeed) {
  // In FP16 as well, where nothing under- or overflows on either way: the products see the same numbers.
  const auto backend = hopper_backend();
  for (const Net& net : {nets()[0], nets()[1]}) {
    const auto plain = gradients_of(*backend, net, {.seed = 256.0f, .level = amp::Level::O1});
    AskedScales none([](const GradientSite&) { return 0; });
    EXPECT_EQ(gradients_of(*backend, net, {.seed = 256.0f, .level = amp::Level::O1, .scales = &none}), plain);
    AskedScales four([](const GradientSite&) { return 4; });
    EXPECT_EQ(gradients_of(*backend, net, {.seed = 16.0f, .level = amp::Level::O1, .scales = &four}),
              gradients_of(*backend, net, {.seed = 16.0f, .level = amp::Level::O1}))
        << net.name << ": exact in FP16 too, as long as nothing is subnormal";
  }
}

TEST(GradientScales, ObserversLearnWhatAGradientCarried) {
  struct Exponents final : Tap {
    std::map<std::string, std::vector<int>> by_name;
    std::map<std::string, ExponentHistogram> before;
    void see(const Event& event) override {
      const auto* const counted = event.as<CountedTensor>();
      if (counted == nullptr || counted->intermediate) return;
      by_name[std::string(counted->name)].push_back(counted->exponent);
      before[std::string(counted->name)] = counted->probe.before;
    }
  };
  const auto backend = hopper_backend();
  const Net net = nets()[0];
  const std::map<std::string, int> wanted = {{"fc1", 7}, {"fc2", -2}, {"fc3", 3}};
  AskedScales scales([&](const GradientSite& site) { return wanted.at(std::string(site.scope)); });
  Exponents seen, plain;
  gradients_of(*backend, net, {.scales = &scales, .tap = &seen});
  gradients_of(*backend, net, {.tap = &plain});
  ASSERT_EQ(seen.by_name.size(), plain.by_name.size());
  for (const auto& [name, exponents] : seen.by_name) {
    const int exponent = wanted.at(name.substr(0, 3));
    EXPECT_EQ(exponents, std::vector<int>{exponent}) << name;
    EXPECT_EQ(plain.by_name.at(name), std::vector<int>{0}) << name;
    for (int bin = -60; bin < 60; ++bin)
      EXPECT_EQ(seen.before.at(name).at(bin + exponent), plain.before.at(name).at(bin))
          << name << ", bin " << bin;
  }
}

// ---- what else there is

TEST(GradientScales, GradientsForTheCallerCarryTheSeedAlone) {
  const auto backend = hopper_backend();
  const Net net = nets()[0];
  const auto model = net.make(*backend);
  const auto gradients = [&](GradientScales* scales, bool create_graph) {
    Tape tape(*backend);
    tape.set_gradient_scales(scales);
    const Variable x = tape.input(net.input(*backend));
    const Variable y = directed_sum(tape, model->forward(tape, x));
    const Variable dx = tape.gradients(std::vector{y}, {}, std::vector{x}, {.create_graph = create_graph})[0];
    std::vector<std::vector<std::byte>> all = {bytes_of(*backend, dx.tensor())};
    if (create_graph) {  // a penalty: its backward pass runs over recorded vjps, with scales
      for (Parameter* parameter : model->parameters()) parameter->clear_gradient();
      tape.backward(ops::sum(ops::multiply(dx, dx)));
      for (const Parameter* parameter : model->parameters())
        if (parameter->has_gradient) all.push_back(bytes_of(*backend, parameter->gradient));
    }
    return all;
  };
  for (const bool create_graph : {false, true}) {
    AskedScales scales(wandering(4));
    EXPECT_EQ(gradients(&scales, create_graph), gradients(nullptr, create_graph));
    EXPECT_EQ(scales.asked.empty(), !create_graph);
  }
}

TEST(GradientScales, SixteenBitGradientsAreRefused) {
  const auto backend = hopper_backend();
  Parameter weight("fc1.weight", halves_of(*backend, {1, 1}, {1}));
  weight.dtypes = {.model = DType::f16, .gradient = DType::f16, .unscaled = DType::f16};
  const auto backward = [&](int exponent) {
    Tape tape(*backend);
    AskedScales scales([exponent](const GradientSite&) { return exponent; });
    tape.set_gradient_scales(&scales);
    const Variable x = tape.constant(halves_of(*backend, {1, 1}, {1}));
    tape.backward(ops::linear(x, tape.parameter(weight), {}));
  };
  EXPECT_NO_THROW(backward(0));
  try {
    backward(3);
    FAIL();
  } catch (const std::logic_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("fc1.weight is kept in f16"));
    EXPECT_THAT(error.what(), HasSubstr("2^3"));
    EXPECT_THAT(error.what(), HasSubstr("master_gradients = true"));
  }
}

TEST(GradientScales, GradientsAddUpWithoutTheirScales) {
  // Two losses, other exponents in each: the sum is that of two passes without scales.
  const auto backend = hopper_backend();
  const Net net = nets()[1];
  const auto summed = [&](bool scaled) {
    const auto model = net.make(*backend);
    for (const std::uint64_t loss : {0u, 1u}) {
      Tape tape(*backend);
      AskedScales scales(wandering(loss));
      if (scaled) tape.set_gradient_scales(&scales);
      const Variable y = model->forward(tape, tape.constant(net.input(*backend)));
      tape.backward(loss == 0 ? directed_sum(tape, y) : ops::sum(ops::multiply(y, y)));
    }
    std::vector<std::vector<float>> all;
    for (const Parameter* parameter : model->parameters())
      all.push_back(values_of(*backend, parameter->gradient));
    return all;
  };
  EXPECT_EQ(summed(true), summed(false));
}

}  // namespace
}  // namespace fp16lab::engine::test
