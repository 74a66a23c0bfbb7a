// What optimizers keep, schedules, clipping, option checks.
#include <chrono>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "engine/amp/scalers/grad_scaler.hpp"
#include "engine/optim/optimizer.hpp"
#include "engine/optim/schedule.hpp"
#include "tests/engine/autograd/support.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::engine::test {
namespace {

using optim::Algorithm;
using optim::OptimizerOptions;
using optim::Schedule;
using testing::HasSubstr;
using testing_support::message_of;

class OptimizerTest : public testing::Test {
 protected:
  std::unique_ptr<Backend> backend = hopper_backend();
};

TEST_F(OptimizerTest, AStepKeepsNoShareOfTheGradients) {
  // Where unscaling widens gradients, the FP32 ones must not outlive them beside the next step's 16-bit ones.
  Tensor step = backend->make_step_state(StepState{});
  amp::GradScaler scaler(*backend, {.policy = "none"}, step);
  Parameter weight{"w", tensor_of(*backend, {256}, std::vector<float>(256, 1.0f))};
  const auto optimizer = optim::make_optimizer(*backend, {&weight}, {}, 1);
  optimizer->begin_iteration(step);
  weight.gradient = tensor_of(*backend, {256}, std::vector<float>(256, 0.5f));
  weight.has_gradient = true;
  scaler.unscale(*optimizer);
  optim::clip_grad_norm(*backend, scaler, *optimizer, 1.0, step);
  scaler.step(*optimizer);
  const std::size_t before = backend->memory_statistics().bytes_in_use;
  weight.gradient = {};
  EXPECT_EQ(backend->memory_statistics().bytes_in_use, before - 1024);
}

TEST_F(OptimizerTest, StateNamesFollowTheParameter) {
  Parameter weight{"fc1.weight", tensor_of(*backend, {2}, {1, 1})};
  const auto names = [&](const OptimizerOptions& options) {
    const auto optimizer = optim::make_optimizer(*backend, {&weight}, options, 1);
    std::vector<std::string> result;
    for (const optim::NamedTensor& state : optimizer->state()) result.push_back(state.name);
    return result;
  };
  EXPECT_EQ(names({}), std::vector<std::string>{});
  EXPECT_EQ(names({.momentum = 0.9}), std::vector<std::string>{"fc1.weight.velocity"});
  EXPECT_EQ(names({.name = Algorithm::adam}),
            (std::vector<std::string>{"fc1.weight.first_moment", "fc1.weight.second_moment"}));
}

TEST_F(OptimizerTest, OptionsAreChecked) {
  const auto message = [&](const OptimizerOptions& options, int index = 0) -> std::string {
    try {
      optim::make_optimizer(*backend, {}, options, 1, index);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(message({.learning_rate = -1}), HasSubstr("learning_rate"));
  EXPECT_THAT(message({.learning_rate = std::nan("")}), HasSubstr("learning_rate"));
  EXPECT_THAT(message({.nesterov = true}), HasSubstr("momentum"));
  EXPECT_THAT(message({.name = Algorithm::adam, .beta1 = 1.0}), HasSubstr("beta1"));
  EXPECT_THAT(message({.name = Algorithm::adam, .beta2 = -0.1}), HasSubstr("beta2"));
  EXPECT_EQ(message({.name = Algorithm::adam}, max_optimizers - 1), "accepted")
      << "every slot counts its own beta powers";
  EXPECT_THAT(message({.name = Algorithm::adam}, max_optimizers), HasSubstr("index"));
}

TEST_F(OptimizerTest, ClippingScalesToTheNormAndRecordsIt) {
  Tensor step = backend->make_step_state(StepState{});
  amp::GradScaler scaler(*backend, {.policy = "fixed", .initial_scale = 4}, step);
  Parameter weight{"w", tensor_of(*backend, {2}, {0, 0})};
  const auto optimizer = optim::make_optimizer(*backend, {&weight}, {.learning_rate = 1}, 1);
  weight.gradient = tensor_of(*backend, {2}, {12, 16});  // S = 4 times (3, 4)
  weight.has_gradient = true;
  scaler.unscale(*optimizer);
  optim::clip_grad_norm(*backend, scaler, *optimizer, 0.0, step);
  EXPECT_EQ(backend->read_step_state(step).grad_norm, 5.0);
  EXPECT_EQ(values_of(*backend, weight.gradient), (std::vector<float>{3, 4})) << "0 switches clipping off";
  optim::clip_grad_norm(*backend, scaler, *optimizer, 2.5, step);
  const auto clipped = values_of(*backend, weight.gradient);
  // Factor 2.5 / (5 + 1e-6), off from 1/2 by 1e-7; two roundings more.
  EXPECT_NEAR(clipped[0], 1.5, 1.5 * (2e-7 + 0x1p-23));
  EXPECT_NEAR(clipped[1], 2.0, 2.0 * (2e-7 + 0x1p-23));
  EXPECT_THROW(optim::clip_grad_norm(*backend, scaler, *optimizer, -1.0, step), std::invalid_argument);
}

// ---- schedules ----------------------------------------------------------------------------------

TEST(Schedule, ConstantNeedsOneEntry) {
  EXPECT_EQ(optim::learning_rate_table({}, 0.1, 1000), std::vector<float>{0.1f});
}

TEST(Schedule, WarmupIsLinear) {
  EXPECT_EQ(optim::learning_rate_table({.warmup_steps = 4}, 1.0, 6),
            (std::vector<float>{0.25f, 0.5f, 0.75f, 1, 1, 1}));
}

TEST(Schedule, StepDrops) {
  EXPECT_EQ(
      optim::learning_rate_table({.name = Schedule::step, .step_interval = 2, .step_factor = 0.5}, 1.0, 6),
      (std::vector<float>{1, 1, 0.5f, 0.5f, 0.25f, 0.25f}));
  EXPECT_EQ(optim::learning_rate_table(
                {.name = Schedule::step, .warmup_steps = 3, .step_interval = 2, .step_factor = 0.5}, 3.0, 6),
            (std::vector<float>{1, 2, 3, 1.5f, 0.75f, 0.75f}))
      << "a warm-up hides drops and does not put them off";
  // Factors that are no powers of two are multiplied one after the other.
  const auto table =
      optim::learning_rate_table({.name = Schedule::step, .step_interval = 3, .step_factor = 0.7}, 0.3, 100);
  for (std::size_t step = 0; step < table.size(); ++step) {
    double factor = 1.0;
    for (std::size_t drop = 3; drop <= step; drop += 3) factor *= 0.7;
    EXPECT_EQ(table[step], static_cast<float>(0.3 * factor)) << step;
  }
}

TEST(Schedule, StepCostsNoMoreThanLinearTime) {
  const auto seconds = [](const optim::ScheduleOptions& options) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(optim::learning_rate_table(options, 1.0, 200000).size(), 200000u);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const double cosine = seconds({.name = Schedule::cosine, .total_steps = 200000});
  // A product over all drops for every entry takes 10^10 multiplications, the cosine some 10^7.
  EXPECT_LT(seconds({.name = Schedule::step, .step_interval = 1, .step_factor = 0.9}), 30 * cosine);
}

TEST(Schedule, CosineIsTheCosine) {
  const auto table = optim::learning_rate_table(
      {.name = Schedule::cosine, .warmup_steps = 10, .total_steps = 110, .minimum_factor = 0.1}, 2.0, 200);
  ASSERT_EQ(table.size(), 200u);
  for (std::size_t step = 10; step < 200; ++step) {
    const double progress = std::min(static_cast<double>(step - 10) / 100.0, 1.0);
    const double expected = 2.0 * (0.1 + 0.9 * 0.5 * (1 + std::cos(3.14159265358979323846 * progress)));
    // The table rounds once to FP32 (relative u = 2^-24); the FP64 arithmetic before it is off by a few
    // 2^-52.
    EXPECT_NEAR(static_cast<double>(table[step]), expected, expected * 0x1p-24 + 0x1p-48) << step;
  }
}

TEST(Schedule, LinearFallsToItsEnd) {
  EXPECT_EQ(optim::learning_rate_table({.name = Schedule::linear, .total_steps = 4}, 1.0, 6),
            (std::vector<float>{1, 0.75f, 0.5f, 0.25f, 0, 0}));
  EXPECT_EQ(
      optim::learning_rate_table(
          {.name = Schedule::linear, .warmup_steps = 2, .total_steps = 6, .minimum_factor = 0.5}, 2.0, 8),
      (std::vector<float>{1, 2, 2, 1.75f, 1.5f, 1.25f, 1, 1}));
}

TEST(Schedule, PolynomialIsThePower) {
  for (const double power : {0.25, 0.5, 0.9, 1.0, 1.5, 2.0, 3.0, 16.0, 16.5, 200.0}) {
    const auto table = optim::learning_rate_table({.name = Schedule::polynomial,
                                                   .warmup_steps = 10,
                                                   .total_steps = 1010,
                                                   .minimum_factor = 0.01,
                                                   .power = power},
                                                  2.0, 1100);
    for (std::size_t step = 10; step < table.size(); ++step) {
      const double left = std::max(1.0 - static_cast<double>(step - 10) / 1000.0, 0.0);
      const double expected = 2.0 * (0.01 + 0.99 * std::pow(left, power));
      // One rounding to FP32 (u = 2^-24); before it the FP64 power is off by |ln| of itself, which is at most
      // 750 where it is not 0, times a few 2^-53, and libm's by less.
      EXPECT_NEAR(static_cast<double>(table[step]), expected, expected * 0x1p-24 + 0x1p-41)
          << power << ' ' << step;
    }
    EXPECT_EQ(table.back(), static_cast<float>(2.0 * 0.01));
  }
  const optim::ScheduleOptions linear{.name = Schedule::linear, .total_steps = 77, .minimum_factor = 0.3};
  optim::ScheduleOptions first_power = linear;
  first_power.name = Schedule::polynomial;
  EXPECT_EQ(optim::learning_rate_table(linear, 0.1, 100), optim::learning_rate_table(first_power, 0.1, 100));
}

TEST(Schedule, ExponentialMultipliesAtEveryStep) {
  EXPECT_EQ(optim::learning_rate_table({.name = Schedule::exponential, .gamma = 0.5}, 1.0, 4),
            (std::vector<float>{1, 0.5f, 0.25f, 0.125f}));
  EXPECT_EQ(
      optim::learning_rate_table({.name = Schedule::exponential, .warmup_steps = 2, .gamma = 0.5}, 1.0, 5),
      (std::vector<float>{0.5f, 1, 1, 0.5f, 0.25f}))
      << "it begins after the warm-up";
  const auto table = optim::learning_rate_table({.name = Schedule::exponential, .gamma = 0.999}, 0.1, 5000);
  for (std::size_t step = 0; step < table.size(); ++step) {
    // One rounding to FP32, and 5000 products of FP64 in front of it.
    const double expected = 0.1 * std::pow(0.999, static_cast<double>(step));
    EXPECT_NEAR(static_cast<double>(table[step]), expected, expected * (0x1p-24 + 5002 * 0x1p-53)) << step;
  }
}

TEST(Schedule, OptionsAreChecked) {
  for (const Schedule name : {Schedule::linear, Schedule::polynomial})
    EXPECT_THROW(optim::learning_rate_table({.name = name}, 1, 1), std::invalid_argument) << name_of(name);
  for (const double bad : {0.0, -1.0, std::nan(""), HUGE_VAL})
    EXPECT_THAT(message_of([&] {
                  optim::learning_rate_table({.name = Schedule::polynomial, .total_steps = 1, .power = bad},
                                             1, 1);
                }),
                HasSubstr("schedule.power = "));
  for (const double bad : {0.0, 1.5, std::nan("")})
    EXPECT_THAT(
        message_of([&] { optim::learning_rate_table({.name = Schedule::exponential, .gamma = bad}, 1, 1); }),
        HasSubstr("schedule.gamma = "));
  EXPECT_THROW(optim::learning_rate_table({.name = Schedule::cosine}, 1, 1), std::invalid_argument);
  EXPECT_THROW(optim::learning_rate_table({.name = Schedule::step}, 1, 1), std::invalid_argument);
}

TEST(Schedule, MessagesShowCountsAsIntegersAndFactorsAsGiven) {
  EXPECT_EQ(message_of([] {
              optim::learning_rate_table({.name = Schedule::cosine, .warmup_steps = 50, .total_steps = 40}, 1,
                                         1);
            }),
            "schedule.total_steps = 40: must be above warmup_steps = 50 for cosine");
  EXPECT_EQ(message_of([] {
              optim::learning_rate_table({.name = Schedule::step, .step_interval = 1, .step_factor = 1.5}, 1,
                                         1);
            }),
            "schedule.step_factor = 1.5: must be in (0, 1]");
}

TEST_F(OptimizerTest, TheScheduleCountsTakenSteps) {
  Tensor step = backend->make_step_state(StepState{});
  amp::GradScaler scaler(*backend, {.policy = "none"}, step);
  Parameter weight{"w", tensor_of(*backend, {1}, {1.0f})};
  const auto optimizer =
      optim::make_optimizer(*backend, {&weight}, {.learning_rate = 1, .schedule = {.warmup_steps = 4}}, 8);
  std::vector<float> rates;
  for (const float gradient : {0.0f, INFINITY, 0.0f, INFINITY, INFINITY, 0.0f}) {
    optimizer->begin_iteration(step);
    rates.push_back(backend->read_step_state(step).learning_rate[0]);
    weight.gradient = tensor_of(*backend, {1}, {gradient});
    weight.has_gradient = true;
    scaler.step(*optimizer);
    scaler.update();
  }
  EXPECT_EQ(rates, (std::vector<float>{0.25f, 0.5f, 0.5f, 0.75f, 0.75f, 0.75f}));
}

TEST_F(OptimizerTest, ClipGradValueClampsEveryElement) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const auto clipped = [&](double max_value) {
    Tensor step = backend->make_step_state(StepState{});
    amp::GradScaler scaler(*backend, {.policy = "none"}, step);
    Parameter weight{"w", tensor_of(*backend, {6}, {1, 1, 1, 1, 1, 1})},
        other{"o", tensor_of(*backend, {1}, {1})};
    const auto optimizer = optim::make_optimizer(*backend, {&weight, &other}, {}, 1);
    weight.gradient = tensor_of(*backend, {6}, {0.25f, -0.25f, 0.5f, -3.0f, infinity, nan});
    weight.has_gradient = true;  // `other` has none, and is left out
    scaler.unscale(*optimizer);
    optim::clip_grad_value(*backend, scaler, *optimizer, max_value);
    return values_of(*backend, weight.gradient);
  };
  const std::vector<float> half = clipped(0.5);
  EXPECT_EQ(std::vector<float>(half.begin(), half.begin() + 5),
            (std::vector<float>{0.25f, -0.25f, 0.5f, -0.5f, 0.5f}));
  EXPECT_TRUE(std::isnan(half[5]));
  const std::vector<float> off = clipped(0);
  EXPECT_EQ(std::vector<float>(off.begin(), off.begin() + 5),
            (std::vector<float>{0.25f, -0.25f, 0.5f, -3.0f, infinity}));
  EXPECT_EQ(clipped(0.1)[3], -0.1f) << "the bound is rounded to FP32";
  for (const double bad : {-1.0, 1e-60, 1e300, static_cast<double>(nan), static_cast<double>(infinity)})
    EXPECT_THROW(clipped(bad), std::invalid_argument) << bad;
}

}  // namespace
}  // namespace fp16lab::engine::test
