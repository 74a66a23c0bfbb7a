// GradScaler with a scale for each loss: sums of unscaled gradients, and one decision for each optimizer.
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "engine/amp/scalers/grad_scaler.hpp"
#include "tests/engine/amp/scaler_support.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::engine::test {
namespace {

using amp::GradScaler;
using amp::ScaledOptimizer;
using amp::ScalerError;
using amp::ScalerOptions;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::message_of;
using Kind = ScalerError::Kind;

class PerLossScalerTest : public testing::Test {
 protected:
  /// Gradients as backward passes with the seed of `loss` would leave them: S_i * g in the first element, 0
  /// in the second; g may be infinite.
  void backward(int loss, float a_gradient) { backward(scaler, loss, a_gradient); }
  void backward(int loss, float a_gradient, float b_gradient) {
    backward(scaler, loss, a_gradient, &b_gradient);
  }
  void backward(GradScaler& with, int loss, float a_gradient, const float* b_gradient = nullptr) {
    const float s = values_of(*backend, with.seed(loss)).front();
    add(a, s * a_gradient);
    if (b_gradient != nullptr) add(b, s * *b_gradient);
  }
  void add(Parameter& parameter, float value) {
    const Tensor contribution = tensor_of(*backend, {2}, {value, 0});
    if (parameter.has_gradient) {
      backend->binary(BinaryOp::add, parameter.gradient, contribution, parameter.gradient);
    } else {
      if (!parameter.gradient.defined() || parameter.gradient.dtype() != DType::f32)
        parameter.gradient = backend->empty({2}, DType::f32);
      backend->copy(contribution, parameter.gradient);
    }
    parameter.has_gradient = true;
  }
  void collect(int loss, std::vector<ScaledOptimizer*> optimizers) { scaler.collect(loss, optimizers); }
  void begin() {
    for (optim::Optimizer* const optimizer : {of_a.get(), of_b.get()}) {
      optimizer->begin_iteration(step);
      optimizer->clear_gradients();
    }
  }
  float value(const Parameter& parameter) { return values_of(*backend, parameter.value).front(); }
  StepState state() { return backend->read_step_state(step); }
  std::vector<double> scales() { return {scaler.scale(0), scaler.scale(1)}; }

  static constexpr float infinity = std::numeric_limits<float>::infinity();
  static ScalerOptions options() {
    return {.policy = "dynamic", .initial_scale = 1024, .growth_interval = 4, .per_loss = true};
  }
  std::unique_ptr<Backend> backend = hopper_backend();
  Tensor step = backend->make_step_state(StepState{});
  Parameter a{"a.weight", tensor_of(*backend, {2}, {100, 0})};
  Parameter b{"b.weight", tensor_of(*backend, {2}, {200, 0})};
  std::unique_ptr<optim::Optimizer> of_a =
      optim::make_optimizer(*backend, {&a}, {.learning_rate = 1}, 100, 0);
  std::unique_ptr<optim::Optimizer> of_b =
      optim::make_optimizer(*backend, {&b}, {.learning_rate = 1}, 100, 1);
  GradScaler scaler{*backend, options(), step, 2};
};

TEST_F(PerLossScalerTest, GradientsOfSeveralScalesAddUpUnscaled) {
  // Losses 2a + 3b and 3a - 5b: gradients 5 and -2, whatever the scales.
  const auto iterate = [&](float last_of_first_loss) {
    begin();
    backward(0, 2, last_of_first_loss);
    collect(0, {of_a.get(), of_b.get()});
    backward(1, 3, -5);
    collect(1, {of_a.get(), of_b.get()});
    scaler.step(*of_a);
    scaler.step(*of_b);
    scaler.update();
  };
  iterate(3);
  EXPECT_EQ(value(a), 95.0f);
  EXPECT_EQ(value(b), 202.0f);
  iterate(infinity);  // only b's gradient of loss 0: b is skipped, a is not
  EXPECT_EQ(scales(), (std::vector<double>{512, 1024}));
  EXPECT_EQ(value(a), 90.0f);
  EXPECT_EQ(value(b), 202.0f);
  iterate(3);  // with two scales now
  EXPECT_EQ(value(a), 85.0f);
  EXPECT_EQ(value(b), 204.0f);
  EXPECT_EQ(values_of(*backend, a.gradient), (std::vector<float>{5, 0}));
  EXPECT_EQ(state().scale, 1.0) << "the shared state has no scale";
  EXPECT_EQ(state().skipped_steps[0], 0u);
  EXPECT_EQ(state().skipped_steps[1], 1u);
}

TEST_F(PerLossScalerTest, AnOverflowSkipsWhomThatLossReachedAndLowersThatScaleOnly) {
  // Loss 0 reaches both optimizers, loss 1 only b's.
  const auto iterate = [&](float of_loss_0, float of_loss_1, bool first_loss_first) {
    begin();
    for (const int loss : first_loss_first ? std::array{0, 1} : std::array{1, 0}) {
      if (loss == 0) {
        backward(0, of_loss_0, of_loss_0);
        collect(0, {of_a.get(), of_b.get()});
      } else {
        const float s = values_of(*backend, scaler.seed(1)).front();
        add(b, s * of_loss_1);
        collect(1, {of_b.get()});
      }
    }
    const float a_before = value(a), b_before = value(b);
    scaler.step(*of_b);
    scaler.step(*of_a);
    scaler.update();
    return std::pair(value(a) != a_before, value(b) != b_before);
  };
  for (const bool order : {true, false}) {
    const double s0 = scaler.scale(0), s1 = scaler.scale(1);
    EXPECT_EQ(iterate(infinity, 1, order), std::pair(false, false));
    EXPECT_EQ(scales(), (std::vector<double>{s0 / 2, s1}));
    EXPECT_EQ(iterate(1, infinity, order), std::pair(true, false));
    EXPECT_EQ(scales(), (std::vector<double>{s0 / 2, s1 / 2}));
    EXPECT_EQ(iterate(1, 1, order), std::pair(true, true)) << "no flag is left over";
    EXPECT_EQ(scales(), (std::vector<double>{s0 / 2, s1 / 2}));
  }
}

TEST_F(PerLossScalerTest, ALossWithoutAPartKeepsItsScaleAndItsCount) {
  const auto iterate = [&](const std::vector<int>& losses) {
    begin();
    for (const int loss : losses) {
      backward(loss, 1);
      collect(loss, {of_a.get()});
    }
    scaler.step(*of_a);
    scaler.update();
  };
  for (int good = 0; good < 3; ++good) iterate({0, 1});
  for (int good = 0; good < 5; ++good) iterate({1});
  EXPECT_EQ(scales(), (std::vector<double>{1024, 4096})) << "8 good steps of loss 1, 3 of loss 0";
  iterate({0});
  EXPECT_EQ(scales(), (std::vector<double>{2048, 4096})) << "the fourth";
}

TEST_F(PerLossScalerTest, WithOneLossItIsAGradScaler) {
  // The same weights, counters and scales, step by step, on a sequence with overflows.
  Parameter twin{"a.weight", tensor_of(*backend, {2}, {100, 0})};
  Tensor twin_step = backend->make_step_state(StepState{});
  const auto of_twin = optim::make_optimizer(*backend, {&twin}, {.learning_rate = 1}, 100, 0);
  ScalerOptions one_scale = options();
  one_scale.per_loss = false;
  GradScaler reference(*backend, one_scale, twin_step), single(*backend, options(), step, 1);
  float gradient = 0.1f;
  for (const char kind : sequence_a) {
    gradient = kind == 'O' ? infinity : 0.1f;
    begin();
    backward(single, 0, gradient);
    single.collect(0, std::array<ScaledOptimizer*, 1>{of_a.get()});
    single.step(*of_a);
    single.update();

    of_twin->begin_iteration(twin_step);
    const float s = values_of(*backend, reference.seed()).front();
    twin.gradient = tensor_of(*backend, {2}, {s * gradient, 0});
    twin.has_gradient = true;
    reference.minimize(*of_twin);

    EXPECT_EQ(value(a), value(twin));
    EXPECT_EQ(single.scale(0), backend->read_step_state(twin_step).scale);
    EXPECT_EQ(state().found_inf, backend->read_step_state(twin_step).found_inf);
    EXPECT_EQ(state().taken_steps, backend->read_step_state(twin_step).taken_steps);
    EXPECT_EQ(state().skipped_steps, backend->read_step_state(twin_step).skipped_steps);
  }
}

TEST_F(PerLossScalerTest, LowGradientsAreWidenedBeforeTheyAreUnscaled) {
  // 2^-15 / 2^10 is lost in f16; the sum of both losses is handed on in FP32.
  a.dtypes = {.model = DType::f16, .gradient = DType::f16, .unscaled = DType::f16};
  for (const int loss : {0, 1}) {
    EXPECT_EQ(values_of(*backend, scaler.seed(loss, DType::f16)), std::vector<float>{1024});
    a.gradient = halves_of(*backend, {2}, {0x1p-15f, 0});
    a.has_gradient = true;
    collect(loss, {of_a.get()});
  }
  scaler.unscale(*of_a);
  EXPECT_EQ(a.gradient.dtype(), DType::f32);
  EXPECT_EQ(values_of(*backend, a.gradient), (std::vector<float>{0x1p-24f, 0}));
}

TEST_F(PerLossScalerTest, MicroBatchesOfALossMayComeTogetherOrOneByOne) {
  begin();
  backward(0, 1);
  backward(0, 2);  // adds up, scaled
  collect(0, {of_a.get()});
  backward(1, 4);
  collect(1, {of_a.get()});
  backward(0, 8);  // once more
  collect(0, {of_a.get()});
  scaler.step(*of_a);
  scaler.update();
  EXPECT_EQ(value(a), 85.0f);
  // An overflow that was collected first is not forgotten by a good one.
  begin();
  backward(0, infinity);
  collect(0, {of_a.get()});
  backward(0, 1);
  collect(0, {of_a.get()});
  scaler.step(*of_a);
  scaler.update();
  EXPECT_EQ(value(a), 85.0f);
  EXPECT_EQ(scales(), (std::vector<double>{512, 1024}));
}

TEST_F(PerLossScalerTest, ClippingSeesTheSum) {
  begin();
  backward(0, 3);
  collect(0, {of_a.get()});
  backward(1, 1);
  collect(1, {of_a.get()});
  expect_scaler_error(Kind::scaled_gradients, "clip_grad_norm", "sgd", "a.weight",
                      [&] { optim::clip_grad_norm(*backend, scaler, *of_a, 1.0, step); });
  scaler.unscale(*of_a);
  optim::clip_grad_norm(*backend, scaler, *of_a, 0, step);
  EXPECT_EQ(state().grad_norm, 4.0);
  optim::clip_grad_value(*backend, scaler, *of_a, 2.5);
  scaler.step(*of_a);
  EXPECT_EQ(value(a), 97.5f);
  expect_scaler_error(Kind::scaled_gradients, "clip_grad_value", "sgd", "a.weight",
                      [&] { optim::clip_grad_value(*backend, scaler, *of_a, 1.0); });
}

TEST_F(PerLossScalerTest, AnotherLossMayFollowAStep) {
  // A GAN: the generator's loss also leaves gradients in the discriminator's parameters (a), which are not
  // its own.
  for (int iteration = 0; iteration < 2; ++iteration) {
    begin();
    backward(0, 1);
    collect(0, {of_a.get()});
    scaler.step(*of_a);
    const float a_before = value(a), b_before = value(b);
    backward(1, 7, 2);
    collect(1, {of_b.get()});
    scaler.step(*of_b);
    scaler.update();
    EXPECT_EQ(value(a), a_before);
    EXPECT_EQ(value(b), b_before - 2.0f);
    EXPECT_EQ(value(a), 99.0f - static_cast<float>(iteration));
  }
}

TEST_F(PerLossScalerTest, LeftoversOfOtherLossesNeverEnterAStep) {
  const auto of_both = optim::make_optimizer(*backend, {&a, &b}, {.learning_rate = 1}, 100, 2);
  of_both->begin_iteration(step);
  of_both->clear_gradients();
  backward(0, 2);
  collect(0, {of_both.get()});
  add(b, 1e6f);  // what some backward pass without a scale of its own may leave
  scaler.step(*of_both);
  EXPECT_EQ(value(a), 98.0f);
  EXPECT_EQ(value(b), 200.0f);
}

TEST_F(PerLossScalerTest, WhatWasCollectedWithoutAStepIsForgotten) {
  for (const float gradient : {64.0f, 1.0f}) {
    begin();
    backward(0, gradient);
    collect(0, {of_a.get()});
    if (gradient == 1.0f) scaler.step(*of_a);
    scaler.update();
  }
  EXPECT_EQ(value(a), 99.0f);
}

TEST_F(PerLossScalerTest, DisabledItOnlyAddsUp) {
  GradScaler disabled(*backend, {.policy = "dynamic", .enabled = false, .per_loss = true}, step, 2);
  EXPECT_FALSE(disabled.enabled());
  for (const float gradient : {0.1f, infinity}) {
    begin();
    for (const int loss : {0, 1}) {
      EXPECT_EQ(values_of(*backend, disabled.seed(loss)), std::vector<float>{1});
      add(a, gradient);
      disabled.collect(loss, std::array<ScaledOptimizer*, 1>{of_a.get()});
    }
    disabled.step(*of_a);
    disabled.update();
    EXPECT_EQ(value(a), gradient == infinity ? -infinity : 100.0f - (0.1f + 0.1f));
  }
  EXPECT_EQ(disabled.scale(0), 1.0);
  EXPECT_EQ(state().taken_steps[0], 2u);
}

TEST_F(PerLossScalerTest, CallsInAWrongOrderAreTypedErrorsAndChangeNothing) {
  const auto call = [](const char* name) { return std::string("GradScaler::") + name; };
  const auto expect_error = [&](Kind kind, const char* name, bool named, const auto& misuse) {
    const auto before = bytes_of(*backend, step);
    expect_scaler_error(kind, call(name), named ? "sgd" : "", named ? "a.weight" : "", misuse);
    EXPECT_EQ(bytes_of(*backend, step), before);
  };
  expect_error(Kind::update_without_check, "update", false, [&] { scaler.update(); });
  expect_error(Kind::unseeded_loss, "collect", false, [&] { collect(0, {of_a.get()}); });
  expect_error(Kind::no_gradients, "step", true, [&] { scaler.step(*of_a); });
  begin();
  (void)scaler.seed(0);
  expect_error(Kind::no_gradients, "collect", true, [&] { collect(0, {of_a.get()}); });
  backward(0, 1);
  expect_error(Kind::uncollected_loss, "seed", false, [&] { (void)scaler.seed(1); });
  expect_error(Kind::unseeded_loss, "collect", false, [&] { collect(1, {of_a.get()}); });
  expect_error(Kind::uncollected_loss, "update", false, [&] { scaler.update(); });
  expect_error(Kind::uncollected_loss, "step", false, [&] { scaler.step(*of_a); });
  EXPECT_THAT(message_of([&] { scaler.step(*of_a); }), HasSubstr("collect(0, ...)"));
  collect(0, {of_a.get()});
  expect_error(Kind::unseeded_loss, "collect", false, [&] { collect(0, {of_a.get()}); });
  scaler.unscale(*of_a);
  expect_error(Kind::unscale_twice, "unscale", true, [&] { scaler.unscale(*of_a); });
  expect_error(Kind::seed_after_unscale, "seed", true, [&] { (void)scaler.seed(1); });
  scaler.step(*of_a);
  expect_error(Kind::step_twice, "step", true, [&] { scaler.step(*of_a); });
  expect_error(Kind::unscale_after_step, "unscale", true, [&] { scaler.unscale(*of_a); });
  backward(1, 1);
  expect_error(Kind::unscale_after_step, "collect", true, [&] { collect(1, {of_a.get()}); });
  a.clear_gradient();
  add(b, 1024.0f);
  collect(1, {of_b.get()});
  scaler.update();
  EXPECT_EQ(value(a), 99.0f);
  EXPECT_EQ(value(b), 200.0f) << "collected, but no optimizer stepped";
  expect_error(Kind::no_gradients, "step", true, [&] { scaler.step(*of_a); });

  for (const int loss : {-1, 2}) {
    EXPECT_THAT(message_of([&] { (void)scaler.seed(loss); }),
                AllOf(HasSubstr("loss " + std::to_string(loss)), HasSubstr("2 losses")));
    EXPECT_THROW(collect(loss, {of_a.get()}), std::invalid_argument);
    EXPECT_THROW((void)scaler.loss_state(loss), std::invalid_argument);
  }
  EXPECT_THROW((void)scaler.inverse_seed(), std::logic_error) << "of which scale?";
  EXPECT_THROW((void)scaler.next_scale(state(), nullptr), std::logic_error);
}

TEST_F(PerLossScalerTest, ARefusedCollectLeavesTheGradients) {
  begin();
  backward(0, 1);
  const auto gradient = bytes_of(*backend, a.gradient);
  EXPECT_THROW(collect(0, {of_a.get(), of_b.get()}), ScalerError) << "b has none";
  EXPECT_TRUE(a.has_gradient);
  EXPECT_EQ(bytes_of(*backend, a.gradient), gradient);
  collect(0, {of_a.get()});
  scaler.step(*of_a);
  EXPECT_EQ(value(a), 99.0f);
}

TEST_F(PerLossScalerTest, OptionsAreChecked) {
  const auto make = [&](const ScalerOptions& with, int losses) {
    return message_of([&] { GradScaler(*backend, with, step, losses); });
  };
  EXPECT_THAT(make(options(), 0), HasSubstr("losses = 0"));
  EXPECT_THAT(make({.policy = "fixed", .drop_overflow_update = false, .per_loss = true}, 2),
              AllOf(HasSubstr("drop_overflow_update"), HasSubstr("one scale")));
  EXPECT_THAT(make({.policy = "fxed", .enabled = false, .per_loss = true}, 2), HasSubstr("fxed"));
}

}  // namespace
}  // namespace fp16lab::engine::test
