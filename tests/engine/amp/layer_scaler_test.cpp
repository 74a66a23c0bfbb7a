// Scales of layers: their options, and what they make of overflows.
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "engine/amp/scalers/layer_scaler.hpp"
#include "engine/train/workload.hpp"
#include "tests/engine/autograd/support.hpp"

namespace fp16lab::engine::test {
namespace {

using amp::LayerScale;
using testing::ElementsAre;
using testing::HasSubstr;

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

// ---- options

TEST(ScaleGroups, AreRead) {
  EXPECT_EQ(amp::scale_group("fc1.*=2^8"), (amp::ScaleGroup{"fc1.*", 256}));
  EXPECT_EQ(amp::scale_group("*=2^-4"), (amp::ScaleGroup{"*", 0.0625}));
  EXPECT_EQ(amp::scale_group("head=4096"), (amp::ScaleGroup{"head", 4096}));
  EXPECT_EQ(amp::scale_group("a=b=3"), (amp::ScaleGroup{"a=b", 3}));
  for (const char* const bad : {"", "fc1", "fc1=", "=2^8", "fc1=2^", "fc1=2^1.5", "fc1=0", "fc1=-2",
                                "fc1=nan", "fc1=inf", "fc1=2^128", "fc1=8x", "fc1= 8"})
    EXPECT_THAT(message_of([&] { amp::scale_group(bad); }), HasSubstr("expected PATTERN=SCALE")) << bad;
}

TEST(ScaleGroups, BelongToTheirPolicies) {
  EXPECT_TRUE(amp::scales_layers({.policy = "ada-loss"}));
  EXPECT_TRUE(amp::scales_layers({.policy = "groups", .groups = {"*=2"}}));
  EXPECT_FALSE(amp::scales_layers({.policy = "ada-loss", .enabled = false}));
  EXPECT_FALSE(amp::scales_layers({.policy = "torch"}));
  for (const char* const policy : {"layerwise", "groups"})
    EXPECT_THAT(message_of([&] { amp::scales_layers({.policy = policy}); }), HasSubstr("scaler.groups"));
  for (const char* const policy : {"ada-loss", "torch"})
    EXPECT_THAT(message_of([&] { amp::scales_layers({.policy = policy, .groups = {"*=2"}}); }),
                HasSubstr("expected []"));
}

TEST(ScaleGroups, StepsWithThemAreNotRecorded) {
  EXPECT_THAT(message_of([] { check(TrainOptions{.graph = true}, {.policy = "ada-loss"}); }),
              HasSubstr("train.graph = true"));
  EXPECT_NO_THROW(check(TrainOptions{}, {.policy = "ada-loss"}));
  EXPECT_NO_THROW(check(TrainOptions{.graph = true}, {.policy = "ada-loss", .enabled = false}));
}

TEST(LayerPolicies, AreInTheTable) {
  for (const char* const name : {"ada-loss", "layerwise", "groups"}) {
    const amp::PolicyDescription& policy = amp::scale_policy(name);
    EXPECT_TRUE(policy.per_layer) << name;
    EXPECT_EQ(policy.find("initial_scale")->fallback, 1) << name;
    EXPECT_THAT(message_of([&] { amp::make_scale_policy({.policy = name, .drop_overflow_update = false}); }),
                HasSubstr("drop_overflow_update"));
    // S stays where it begins.
    const amp::ScalePolicy made = amp::make_scale_policy({.policy = name, .initial_scale = 64});
    StepState step = made.initial;
    for (const bool overflow : {true, false, true}) {
      amp::advance(made, step, {.found_inf = overflow});
      EXPECT_EQ(step.scale, 64);
    }
  }
  EXPECT_FALSE(amp::scale_policy("torch").per_layer);
  const auto fallback = [](const char* policy, const char* parameter) {
    return amp::scale_policy(policy).find(parameter)->fallback;
  };
  EXPECT_EQ(fallback("ada-loss", "n_uf_threshold"), 1e-3);
  EXPECT_EQ(fallback("ada-loss", "u_min"), 6e-8);
  EXPECT_EQ(fallback("ada-loss", "u_max"), 6e4);
  EXPECT_EQ(fallback("ada-loss", "scale_upper_bound"), 16);
  EXPECT_EQ(fallback("ada-loss", "accum_upper_bound"), 1024);
  EXPECT_EQ(fallback("ada-loss", "update_per_n_iteration"), 1);
  EXPECT_EQ(fallback("layerwise", "growth_interval"), 10000);
  EXPECT_EQ(fallback("layerwise", "min_scale"), 0x1p-126);
  EXPECT_EQ(fallback("layerwise", "max_scale"), 0x1p127);
  EXPECT_FALSE(amp::inexact_unscaling({.policy = "groups"})) << "what is applied is a power of two";
  EXPECT_TRUE(amp::inexact_unscaling({.policy = "groups", .initial_scale = 3}));
}

// ---- the scaler by itself

/// Weights fc1 to fc4 with biases, gradients of one element.
class Layers : public testing::Test {
 protected:
  struct Optimizer final : amp::ScaledOptimizer {
    std::vector<Parameter*> all;
    int index() const override { return 0; }
    std::string_view name() const override { return "test"; }
    std::span<Parameter* const> parameters() const override { return all; }
    void apply(Tensor&) override {}
  };
  Layers() : backend_(hopper_backend()), step_(backend_->make_step_state({})) {
    for (const char* const name : {"fc1", "fc2", "fc3", "fc4"}) {
      add(std::string(name) + ".weight", {1, 1});
      add(std::string(name) + ".bias", {1});
    }
  }
  void add(const std::string& name, const Shape& shape) {
    parameters_.push_back(std::make_unique<Parameter>(name, tensor_of(*backend_, shape, {1})));
    optimizer_.all.push_back(parameters_.back().get());
  }
  std::unique_ptr<amp::LayerScaler> make(const amp::ScalerOptions& options) {
    return amp::make_layer_scaler(*backend_, options, optimizer_.all);
  }
  int ask(amp::LayerScaler& scaler, std::size_t layer, int exponent = 0) {
    const Tensor cotangent = tensor_of(*backend_, {1, 1}, {1});
    return scaler.exponent_at({.scope = "",
                               .op = Op::linear,
                               .weight = layer == 0 ? nullptr : optimizer_.all[2 * layer - 2],
                               .cotangent = cotangent,
                               .operand = cotangent,
                               .exponent = exponent});
  }
  /// One iteration whose backward pass meets `order`, with infinite gradients of the weights in
  /// `overflowing`.
  void iterate(amp::LayerScaler& scaler, const std::vector<std::size_t>& order,
               const std::vector<std::size_t>& overflowing) {
    scaler.begin_iteration();
    for (const std::size_t layer : order) ask(scaler, layer);
    StepState state = backend_->read_step_state(step_);
    state.found_inf[0] = overflowing.empty() ? 0.0f : 1.0f;
    backend_->write_step_state(state, step_);
    for (Parameter* parameter : optimizer_.all) {
      parameter->gradient = tensor_of(*backend_, parameter->value.shape(), {0.5f});
      parameter->has_gradient = true;
    }
    for (const std::size_t layer : overflowing)
      optimizer_.all[2 * layer - 2]->gradient =
          tensor_of(*backend_, {1, 1}, {std::numeric_limits<float>::infinity()});
    scaler.note_gradients(optimizer_, step_);
    scaler.update();
  }
  static std::vector<float> scales(const amp::LayerScaler& scaler) {
    std::vector<float> all;
    for (const LayerScale& layer : scaler.scales()) all.push_back(layer.scale);
    return all;
  }

  std::unique_ptr<Backend> backend_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  Optimizer optimizer_;
  Tensor step_;
};

TEST_F(Layers, LayerwiseScalesAreThoseOfTheNamedLayers) {
  const auto scaler = make({.policy = "layerwise", .groups = {"fc2=256", "fc?.weight=20"}});
  EXPECT_THAT(scaler->names(), ElementsAre("fc1.weight", "fc2.weight", "fc3.weight", "fc4.weight"));
  EXPECT_EQ(scales(*scaler), (std::vector<float>{20, 256, 20, 20}));
  scaler->begin_iteration();
  EXPECT_EQ(ask(*scaler, 2, 3), 8);
  EXPECT_EQ(ask(*scaler, 1, 8), 4) << "the power of two below 20";
  EXPECT_EQ(ask(*scaler, 0, 4), 4) << "no layer's: as it came";
}

TEST_F(Layers, OthersHaveTheScaleOne) {
  const auto scaler = make({.policy = "layerwise", .groups = {"fc2=256"}});
  EXPECT_THAT(scaler->names(), ElementsAre("fc2.weight"));
  scaler->begin_iteration();
  EXPECT_EQ(ask(*scaler, 2), 8);
  EXPECT_EQ(ask(*scaler, 1, 8), 0);
}

TEST_F(Layers, PatternsThatMatchNothingAreErrors) {
  EXPECT_THAT(message_of([&] { make({.policy = "layerwise", .groups = {"fc5=2"}}); }),
              HasSubstr("scaler.groups = \"fc5=2\": it matches no weight"));
  EXPECT_THAT(message_of([&] {
                make({.policy = "groups", .groups = {"*=2", "fc1=2"}});
              }),
              HasSubstr("fc1.weight, fc2.weight, fc3.weight, fc4.weight"));
}

TEST_F(Layers, SixteenBitGradientsAreErrors) {
  parameters_[2]->dtypes.gradient = DType::f16;
  EXPECT_THAT(message_of([&] { make({.policy = "ada-loss"}); }),
              HasSubstr("gradients of fc2.weight add up in f16"));
}

TEST_F(Layers, LayerwiseBacksOffEveryLayerThatShowsItAndTheOneBefore) {
  const auto scaler = make({.policy = "layerwise", .growth_interval = 2, .groups = {"*=16"}});
  iterate(*scaler, {4, 3, 2, 1}, {2, 1});  // an infinity from fc3's input gradient, or fc2's own
  EXPECT_EQ(scales(*scaler), (std::vector<float>{8, 8, 8, 16}));
  iterate(*scaler, {4, 3, 2, 1}, {});
  EXPECT_EQ(scales(*scaler), (std::vector<float>{8, 8, 8, 32})) << "fc4: two good steps";
  iterate(*scaler, {4, 3, 2, 1}, {4});
  EXPECT_EQ(scales(*scaler), (std::vector<float>{16, 16, 16, 16})) << "no layer is before fc4";
}

TEST_F(Layers, GroupsBlameTheFirstOnTheWayDown) {
  const auto scaler = make({.policy = "groups",
                            .growth_factor = 4,
                            .backoff_factor = 0.5,
                            .groups = {"fc1.*=256", "fc2=64", "fc?=16"}});
  EXPECT_THAT(scaler->names(), ElementsAre("fc1.*", "fc2", "fc?"));
  scaler->begin_iteration();
  EXPECT_EQ(ask(*scaler, 4), 4);
  EXPECT_EQ(ask(*scaler, 3, 4), 4);
  EXPECT_EQ(ask(*scaler, 2, 4), 6);
  EXPECT_EQ(ask(*scaler, 1, 6), 8);
  iterate(*scaler, {4, 3, 2, 1}, {3, 2, 1});
  EXPECT_EQ(scales(*scaler), (std::vector<float>{1024, 256, 8}))
      << "fc3, whose group fc4 before it is in too";
  iterate(*scaler, {4, 3, 2, 1}, {1});
  EXPECT_EQ(scales(*scaler), (std::vector<float>{512, 128, 32})) << "fc1, or fc2's input gradient";
  iterate(*scaler, {4, 3}, {});
  EXPECT_EQ(scales(*scaler), (std::vector<float>{512, 128, 128})) << "groups without a part in the step stay";
}

TEST_F(Layers, AnOverflowOfABiasIsItsLayers) {
  const auto scaler = make({.policy = "layerwise", .groups = {"*=16"}});
  scaler->begin_iteration();
  ask(*scaler, 1);
  StepState state = backend_->read_step_state(step_);
  state.found_inf[0] = 1.0f;
  backend_->write_step_state(state, step_);
  optimizer_.all[1]->gradient = tensor_of(*backend_, {1}, {std::numeric_limits<float>::infinity()});
  optimizer_.all[1]->has_gradient = true;
  scaler->note_gradients(optimizer_, step_);
  scaler->update();
  EXPECT_EQ(scales(*scaler), (std::vector<float>{8, 16, 16, 16}));
}

TEST_F(Layers, AnOverflowThatNoLayerShowsIsEverybodys) {
  add("norm.weight", {1});
  const auto scaler = make({.policy = "groups", .backoff_factor = 0.5, .groups = {"fc1=16", "*=64"}});
  scaler->begin_iteration();
  ask(*scaler, 4);
  ask(*scaler, 1);
  StepState state = backend_->read_step_state(step_);
  state.found_inf[0] = 1.0f;
  backend_->write_step_state(state, step_);
  optimizer_.all.back()->gradient = tensor_of(*backend_, {1}, {std::numeric_limits<float>::infinity()});
  optimizer_.all.back()->has_gradient = true;
  scaler->note_gradients(optimizer_, step_);
  scaler->update();
  EXPECT_EQ(scales(*scaler), (std::vector<float>{8, 32}));
}

TEST_F(Layers, AdaLossLooksEveryNthIteration) {
  amp::ScalerOptions options{.policy = "ada-loss"};
  options.parameters = {
      {"update_per_n_iteration", 3.0}, {"scale_upper_bound", 65536.0}, {"accum_upper_bound", 0x1p40}};
  const auto scaler = make(options);
  const auto step = [&](float magnitude) {
    const Tensor cotangent = tensor_of(*backend_, {1, 2}, {magnitude, -magnitude});
    scaler->begin_iteration();
    const int exponent = scaler->exponent_at({.scope = "fc1",
                                              .op = Op::linear,
                                              .weight = optimizer_.all[0],
                                              .cotangent = cotangent,
                                              .operand = cotangent,
                                              .exponent = 0});
    scaler->update();
    return exponent;
  };
  // 4.787e-5 / 2^-20 = 50.2, and for 2^-26 64 times as much: 3212.
  EXPECT_EQ(step(0x1p-20f), 5);
  EXPECT_EQ(step(0x1p-26f), 5);
  EXPECT_EQ(step(0x1p-26f), 5);
  EXPECT_EQ(step(0x1p-26f), 11);
  EXPECT_EQ(step(0x1p-20f), 11);
  EXPECT_EQ(step(8.0f), 11) << "8 * 2^11 fits";
  EXPECT_EQ(step(0x1p-26f), 11);
  EXPECT_EQ(step(1024.0f), 5)
      << "6e4 / 1024 = 58.6: a factor of yesterday is bounded by the gradient of today";
}

TEST_F(Layers, StateGoesThroughItsTensors) {
  const amp::ScalerOptions options{.policy = "layerwise", .growth_interval = 3, .groups = {"*=16"}};
  const auto one = make(options), other = make(options);
  iterate(*one, {4, 3, 2, 1}, {2});
  iterate(*one, {4, 3, 2, 1}, {});
  ASSERT_EQ(one->states().size(), 2u);
  EXPECT_EQ(one->states()[0].name, "scaler.layer_scales");
  EXPECT_EQ(one->states()[1].name, "scaler.layer_counts");
  for (std::size_t i = 0; i < 2; ++i) {
    Tensor tensor = other->states()[i].tensor;
    backend_->copy(one->states()[i].tensor, tensor);
  }
  other->reload();
  for (int step = 0; step < 4; ++step) {
    iterate(*one, {4, 3, 2, 1}, {});
    iterate(*other, {4, 3, 2, 1}, {});
    EXPECT_EQ(scales(*other), scales(*one));
  }
}

}  // namespace
}  // namespace fp16lab::engine::test
