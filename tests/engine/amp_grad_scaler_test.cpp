// GradScaler: the policies' traces, the state machine's errors, and skipped steps.
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>

#include "engine/amp/grad_scaler.hpp"
#include "engine/amp/policies/dynamic.hpp"
#include "engine/amp/policies/fixed.hpp"
#include "engine/amp/policies/none.hpp"
#include "engine/optim/optimizer.hpp"
#include "tests/engine/autograd_support.hpp"

namespace fp16lab::engine::test {
namespace {

using amp::GradScaler;
using amp::ScalerError;
using amp::ScalerOptions;
using testing::HasSubstr;

// ---- traces -------------------------------------------------------------------------------------
// log2(S) after each step under torch's rule, window 4, init 2^16; F finite, O overflow. Worked out by hand
// from the rule of torch/amp/grad_scaler.py and AmpKernels.cu (amp_update_scale): an overflow halves S and
// restarts the count of good steps; the fourth good step in a row doubles S and restarts the count.
constexpr std::string_view sequence_a = "FFFFFOFFFFOOFFFFFFFFOOOFFFFFFF";
constexpr std::array torch_a = {16, 16, 16, 17, 17, 16, 16, 16, 16, 17, 16, 15, 15, 15, 15,
                                16, 16, 16, 16, 17, 16, 15, 14, 14, 14, 14, 15, 15, 15, 15};
/// Isolated overflows, never a full window.
constexpr std::string_view sequence_b = "FFOFFOFFOFFOFFOFFOFF";
constexpr std::array torch_b = {16, 16, 15, 15, 15, 14, 14, 14, 13, 13,
                                13, 12, 12, 12, 11, 11, 11, 10, 10, 10};

template <class Policy>
std::vector<double> trace(const typename Policy::Params& params, std::string_view sequence) {
  auto state = Policy::initial(params);
  std::vector<double> scales;
  for (const char step : sequence) {
    Policy::update(state, params, step == 'O');
    scales.push_back(static_cast<double>(state.scale));
  }
  return scales;
}

template <std::size_t count>
std::vector<double> powers_of_two(const std::array<int, count>& exponents) {
  std::vector<double> values;
  values.reserve(count);
  for (const int exponent : exponents) values.push_back(std::ldexp(1.0, exponent));
  return values;
}

TEST(DynamicPolicy, FollowsTorchOnBothSequences) {
  const amp::DynamicScaling::Params params{.growth_interval = 4};
  EXPECT_EQ(trace<amp::DynamicScaling>(params, sequence_a), powers_of_two(torch_a));
  EXPECT_EQ(trace<amp::DynamicScaling>(params, sequence_b), powers_of_two(torch_b));
}

TEST(DynamicPolicy, GrowthNeverReachesInfinityAndTheWindowRestarts) {
  // flax#2547, pytorch#98828: a scale that once was infinite never comes back.
  const amp::DynamicScaling::Params params{.initial_scale = 0x1p126f, .growth_interval = 1};
  EXPECT_EQ(trace<amp::DynamicScaling>(params, "FFFO"),
            (std::vector<double>{0x1p127, 0x1p127, 0x1p127, 0x1p126}));
}

TEST(DynamicPolicy, MultipliesInFp32) {
  const amp::DynamicScaling::Params params{
      .initial_scale = 3.0f, .backoff_factor = 0.8f, .growth_interval = 100};
  const float once = 3.0f * 0.8f;
  EXPECT_EQ(trace<amp::DynamicScaling>(params, "OO"), (std::vector<double>{once, once * 0.8f}));
}

TEST(DynamicPolicy, HasNoFloor) {
  const amp::DynamicScaling::Params params{.initial_scale = 1.0f};
  EXPECT_EQ(trace<amp::DynamicScaling>(params, "OOO").back(), 0.125);
}

TEST(FixedAndNone, NeverMove) {
  for (const double scale : trace<amp::FixedScaling>({.scale = 2048.0f}, sequence_a))
    EXPECT_EQ(scale, 2048.0);
  for (const double scale : trace<amp::NoScaling>({}, sequence_a)) EXPECT_EQ(scale, 1.0);
}

TEST(PolicyOptions, ImpossibleValuesAreNamed) {
  const auto message = [](const ScalerOptions& options) -> std::string {
    try {
      amp::make_scale_policy(options);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "accepted";
  };
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {1.0, 0.5, -2.0, 1.0 + 1e-12, infinity, nan}) {
    EXPECT_THAT(message({.policy = "dynamic", .growth_factor = bad}), HasSubstr("growth_factor")) << bad;
  }
  for (const double bad : {1.0, 0.0, -0.5, 1.0 - 1e-12, 1e-60, infinity, nan}) {
    EXPECT_THAT(message({.policy = "dynamic", .backoff_factor = bad}), HasSubstr("backoff_factor")) << bad;
  }
  for (const double bad : {0.0, -1.0, infinity, nan, 1e300, 0.1, 1e-60}) {
    EXPECT_THAT(message({.policy = "dynamic", .initial_scale = bad}), HasSubstr("initial_scale")) << bad;
    EXPECT_THAT(message({.policy = "fixed", .initial_scale = bad}), HasSubstr("initial_scale")) << bad;
  }
  for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{-4}, std::int64_t{1} << 31}) {
    EXPECT_THAT(message({.policy = "dynamic", .growth_interval = bad}), HasSubstr("growth_interval")) << bad;
  }
  EXPECT_THAT(message({.policy = "dynamc"}),
              testing::AllOf(HasSubstr("dynamc"), HasSubstr("none, fixed, dynamic")));
  EXPECT_EQ(message({.policy = "dynamic"}), "accepted");
}

// ---- the state machine --------------------------------------------------------------------------

class GradScalerTest : public testing::Test {
 protected:
  explicit GradScalerTest(const ScalerOptions& options = {.policy = "dynamic",
                                                          .initial_scale = 65536,
                                                          .growth_interval = 4})
      : scaler(*backend, options, step) {
    first =
        optim::make_optimizer(*backend, {&a}, {.name = "sgd", .learning_rate = 0.5, .momentum = 0.9}, 100, 0);
    second = optim::make_optimizer(*backend, {&b}, {.name = "sgd", .learning_rate = 0.5}, 100, 1);
  }
  /// As a backward pass would: a gradient that carries S.
  void give_gradient(Parameter& parameter, float value) {
    parameter.gradient = tensor_of(*backend, {2}, {value, 1.0f});
    parameter.has_gradient = true;
  }
  void iterate(float gradient) {
    first->begin_iteration(step);
    give_gradient(a, gradient);
    scaler.unscale(*first);
    scaler.step(*first);
    scaler.update();
  }
  double scale() { return backend->read_step_state(step).scale; }
  template <class Call>
  void expect_error(ScalerError::Kind kind, const std::string& part, const Call& call) {
    try {
      call();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const ScalerError& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(part));
      EXPECT_THAT(error.what(), HasSubstr(error.call()));
    }
  }

  static constexpr float infinity = std::numeric_limits<float>::infinity();
  std::unique_ptr<Backend> backend = hopper_backend();
  Tensor step = backend->make_step_state(StepState{});
  Parameter a{"a.weight", tensor_of(*backend, {2}, {1, 2})};
  Parameter b{"b.weight", tensor_of(*backend, {2}, {3, 4})};
  GradScaler scaler;
  std::unique_ptr<optim::Optimizer> first, second;
};

TEST_F(GradScalerTest, RunsThePolicyOnTheBackEnd) {
  std::vector<double> scales;
  for (const char kind : sequence_a) {
    iterate(kind == 'O' ? infinity : 1.0f);
    scales.push_back(scale());
  }
  EXPECT_EQ(scales, powers_of_two(torch_a));
  const StepState state = backend->read_step_state(step);
  EXPECT_EQ(state.iteration, sequence_a.size());
  EXPECT_EQ(state.skipped_steps, 6u);
  EXPECT_EQ(state.taken_steps, 24u);
}

class FixedScalerTest : public GradScalerTest {
 protected:
  FixedScalerTest() : GradScalerTest({.policy = "fixed", .initial_scale = 2048}) {}
};

TEST_F(FixedScalerTest, KeepsItsScaleAndSkipsOverflows) {
  for (const char kind : sequence_b) iterate(kind == 'O' ? infinity : 1.0f);
  EXPECT_EQ(scale(), 2048.0);
  EXPECT_EQ(backend->read_step_state(step).skipped_steps, 6u);
}

class NoScalerTest : public GradScalerTest {
 protected:
  NoScalerTest() : GradScalerTest({.policy = "none", .initial_scale = 2048}) {}
};

TEST_F(NoScalerTest, ScalesByOneAndSkipsOverflows) {
  for (const char kind : sequence_b) iterate(kind == 'O' ? infinity : 1.0f);
  EXPECT_EQ(scale(), 1.0);
  EXPECT_EQ(backend->read_step_state(step).skipped_steps, 6u);
}

TEST_F(GradScalerTest, SeedIsTheScaleAndUnscaleUndoesIt) {
  EXPECT_EQ(values_of(*backend, scaler.seed()), std::vector<float>{65536.0f});
  give_gradient(a, 131072.0f);
  scaler.unscale(*first);
  EXPECT_EQ(values_of(*backend, a.gradient), (std::vector<float>{2.0f, 0x1p-16f}));
  EXPECT_EQ(scaler.stage(*first), GradScaler::Stage::unscaled);
}

TEST_F(GradScalerTest, StepUnscalesIfNobodyDid) {
  give_gradient(a, 65536.0f);
  first->begin_iteration(step);
  scaler.step(*first);
  EXPECT_EQ(values_of(*backend, a.value).at(0), 0.5f);
}

TEST_F(GradScalerTest, MisuseIsOneTypedError) {
  using Kind = ScalerError::Kind;
  expect_error(Kind::update_without_check, "GradScaler::update", [&] { scaler.update(); });
  expect_error(Kind::no_gradients, "a.weight", [&] { scaler.unscale(*first); });
  expect_error(Kind::no_gradients, "a.weight", [&] { scaler.step(*first); });
  expect_error(Kind::scaled_gradients, "clip_grad_norm",
               [&] { optim::clip_grad_norm(*backend, scaler, *first, 1.0, step); });
  expect_error(Kind::scaled_gradients, "clip_grad_value",
               [&] { optim::clip_grad_value(*backend, scaler, *first, 1.0); });
  give_gradient(a, 1.0f);
  expect_error(Kind::scaled_gradients, "clip_grad_value",
               [&] { optim::clip_grad_value(*backend, scaler, *first, 1.0); });
  scaler.unscale(*first);
  expect_error(Kind::unscale_twice, "GradScaler::unscale(sgd)", [&] { scaler.unscale(*first); });
  expect_error(Kind::seed_after_unscale, "GradScaler::seed", [&] { (void)scaler.seed(); });
  scaler.step(*first);
  expect_error(Kind::step_twice, "GradScaler::step(sgd)", [&] { scaler.step(*first); });
  expect_error(Kind::unscale_after_step, "GradScaler::unscale(sgd)", [&] { scaler.unscale(*first); });
  expect_error(Kind::scaled_gradients, "clip_grad_norm",
               [&] { optim::clip_grad_norm(*backend, scaler, *first, 1.0, step); });
  scaler.update();
  expect_error(Kind::update_without_check, "GradScaler::update", [&] { scaler.update(); });
  a.gradient = halves_of(*backend, {2}, {1, 1});
  expect_error(Kind::gradient_dtype, "gradient of a.weight is f16", [&] { scaler.unscale(*first); });
}

TEST_F(GradScalerTest, ARefusedCallChangesNothing) {
  give_gradient(a, 65536.0f);
  scaler.unscale(*first);
  const auto gradient = bytes_of(*backend, a.gradient);
  EXPECT_THROW(scaler.unscale(*first), ScalerError);
  EXPECT_EQ(bytes_of(*backend, a.gradient), gradient);
}

TEST_F(GradScalerTest, ASkippedStepChangesNoByte) {
  iterate(65536.0f);  // velocity is not zero any more
  const auto weight = bytes_of(*backend, a.value);
  const auto velocity = bytes_of(*backend, first->state().at(0).tensor);
  for (const float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    iterate(bad);
    EXPECT_EQ(bytes_of(*backend, a.value), weight);
    EXPECT_EQ(bytes_of(*backend, first->state().at(0).tensor), velocity);
  }
  iterate(65536.0f);
  EXPECT_NE(bytes_of(*backend, a.value), weight);
}

TEST_F(GradScalerTest, ASkippedAdamStepChangesNoByte) {
  auto adam = optim::make_optimizer(*backend, {&b},
                                    {.name = "adamw", .learning_rate = 0.5, .weight_decay = 0.1}, 100, 0);
  const auto iterate_adam = [&](float gradient) {
    adam->begin_iteration(step);
    give_gradient(b, gradient);
    scaler.step(*adam);
    scaler.update();
  };
  iterate_adam(1.0f);
  const StepState before = backend->read_step_state(step);
  const auto weight = bytes_of(*backend, b.value);
  const auto moments = std::pair(bytes_of(*backend, adam->state().at(0).tensor),
                                 bytes_of(*backend, adam->state().at(1).tensor));
  iterate_adam(infinity);
  const StepState after = backend->read_step_state(step);
  EXPECT_EQ(bytes_of(*backend, b.value), weight);
  EXPECT_EQ(bytes_of(*backend, adam->state().at(0).tensor), moments.first);
  EXPECT_EQ(bytes_of(*backend, adam->state().at(1).tensor), moments.second);
  EXPECT_EQ(after.beta1_power, before.beta1_power);
  EXPECT_EQ(after.beta2_power, before.beta2_power);
  EXPECT_EQ(after.taken_steps, before.taken_steps);
}

/// Skip is per optimizer, back-off is global, in either order of unscale and step (Paddle's scaler fails
/// these).
class TwoOptimizers : public GradScalerTest,
                      public testing::WithParamInterface<std::tuple<bool, bool, bool>> {};

TEST_P(TwoOptimizers, SkipAloneAndBackOffTogether) {
  const auto [overflow_in_first, unscale_first_first, step_first_first] = GetParam();
  give_gradient(a, overflow_in_first ? infinity : 1.0f);
  give_gradient(b, overflow_in_first ? 1.0f : infinity);
  const auto a_before = bytes_of(*backend, a.value), b_before = bytes_of(*backend, b.value);
  first->begin_iteration(step);
  scaler.unscale(unscale_first_first ? *first : *second);
  scaler.unscale(unscale_first_first ? *second : *first);
  scaler.step(step_first_first ? *first : *second);
  scaler.step(step_first_first ? *second : *first);
  scaler.update();
  EXPECT_EQ(bytes_of(*backend, a.value) == a_before, overflow_in_first);
  EXPECT_EQ(bytes_of(*backend, b.value) == b_before, !overflow_in_first);
  EXPECT_EQ(scale(), 32768.0);
  // The next iteration starts with clean flags, even for an optimizer that takes no part in it.
  iterate(1.0f);
  EXPECT_EQ(scale(), 32768.0);
}

INSTANTIATE_TEST_SUITE_P(EveryOrder, TwoOptimizers,
                         testing::Combine(testing::Bool(), testing::Bool(), testing::Bool()));

}  // namespace
}  // namespace fp16lab::engine::test
