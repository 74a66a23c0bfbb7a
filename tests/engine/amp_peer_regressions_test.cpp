// Bugs and complaints about other loss scalers, each as a test that ours must pass. Numbers are those of this list:
//    1  an overflow in optimizer A only, in both orders: A steps with B's flag (Paddle's dygraph AmpScaler)
//    2  update with no check counts as a good step (the same)
//    3  scale outside of autocast disables the scaler for good (the same)
//    4  momentum and weight decay move under a skipped step, whose gradients are zeros (Paddle's static decorator)
//    5  growth factors other than 2 are ignored (apex)
//    6  growth reaches inf, which stays inf (flax#2547, Keras 3, pytorch#98828)
//    7  growth one step later than the interval says (flax, DeepSpeed)
//    8  the scale changes inside an accumulation window (several wrappers of torch)
//    9  an overflow in one micro-batch is lost when the next one is finite
//   10  an optimizer without gradients ends the iteration of all (torch's "No inf checks were recorded")
//   11  "Attempting to unscale FP16 gradients" does not say which (torch)
//   12  scaler state is lost over a restart (metaseq#3, transformers#34053)
//   13  positional arguments: DynamicLossScaleManager(4, 3000) sets other things than meant (MindSpore)
//   14  unscale, step and update in a wrong order (accelerate#641, transformers#23935 and others)
//   15  fused optimizers leave gradients scaled where an overflow was found (pytorch PR 97415)
//   16  the learning-rate schedule moves on a skipped step (pytorch#67590)
//   17  gradients that nobody cleared pull the scale down (Paddle#67895)
// Those about floors, hysteresis and histograms belong to the policies that have them.
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/amp/policies/dynamic.hpp"
#include "tests/engine/amp_scaler_support.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::engine::test {
namespace {

using amp::DynamicScaling;
using amp::GradScaler;
using amp::ScalerError;
using amp::ScalerOptions;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::message_of;
using Kind = ScalerError::Kind;
using PeerRegression = ScalerTest;

TEST_F(PeerRegression, N01_EveryOptimizerHasItsOwnFlagWhateverTheOrder) {
  for (const bool unscale_a_first : {true, false}) {
    for (const bool step_a_first : {true, false}) {
      const double before = scale();
      const auto a_before = bytes_of(*backend, a.value), b_before = bytes_of(*backend, b.value);
      begin();
      give(a, infinity);
      give(b, 1.0f);
      scaler.unscale(unscale_a_first ? *first : *second);
      scaler.unscale(unscale_a_first ? *second : *first);
      scaler.step(step_a_first ? *first : *second);
      scaler.step(step_a_first ? *second : *first);
      scaler.update();
      EXPECT_EQ(bytes_of(*backend, a.value), a_before) << "A has overflowed";
      EXPECT_NE(bytes_of(*backend, b.value), b_before) << "B has not";
      EXPECT_EQ(scale(), before / 2) << "the clean optimizer that stepped last hides nothing";
    }
  }
}

TEST_F(PeerRegression, N02_UpdateNeedsACheck) {
  const auto before = bytes_of(*backend, step);
  for (int call = 0; call < 8; ++call)  // twice the growth interval
    expect_scaler_error(Kind::update_without_check, "GradScaler::update", "", "", [&] { scaler.update(); });
  EXPECT_EQ(bytes_of(*backend, step), before) << "no good step was counted";
}

TEST_F(PeerRegression, N03_ASeedOutsideOfAutocastDisablesNothing) {
  Tape tape(*backend);
  ASSERT_EQ(tape.cast_policy(), nullptr);
  begin();
  tape.backward(ops::sum(tape.parameter(a)), scaler.seed());
  EXPECT_EQ(values_of(*backend, a.gradient), (std::vector<float>{65536, 65536})) << "scaled all the same";
  scaler.minimize(*first);
  EXPECT_EQ(values_of(*backend, a.value), (std::vector<float>{0.5f, 1.5f})) << "and unscaled";
  iterate(infinity);
  EXPECT_EQ(scale(), 32768.0);
  EXPECT_TRUE(scaler.enabled() && scaler.checks());
}

TEST_F(PeerRegression, N04_ASkippedStepMovesNeitherMomentumNorDecayedWeights) {
  const auto decayed = optim::make_optimizer(
      *backend, {&b}, {.name = "sgd", .learning_rate = 0.5, .momentum = 0.9, .weight_decay = 0.1}, 100, 1);
  begin();
  give(b, 65536.0f);
  scaler.minimize(*decayed);
  const auto weight = bytes_of(*backend, b.value);
  const auto velocity = bytes_of(*backend, decayed->state().at(0).tensor);
  give(b, nan);
  scaler.minimize(*decayed);
  EXPECT_EQ(bytes_of(*backend, b.value), weight);
  EXPECT_EQ(bytes_of(*backend, decayed->state().at(0).tensor), velocity);
  // Gradients of zeros, what the peer's kernel makes of the overflow, do move both.
  decayed->clear_gradients(optim::ClearTo::zero);
  scaler.minimize(*decayed);
  EXPECT_NE(bytes_of(*backend, b.value), weight);
  EXPECT_NE(bytes_of(*backend, decayed->state().at(0).tensor), velocity);
}

class FactorThree : public ScalerTest {
 protected:
  FactorThree()
      : ScalerTest({.policy = "dynamic",
                    .initial_scale = 64,
                    .growth_factor = 3,
                    .backoff_factor = 0.25,
                    .growth_interval = 2}) {}
};

TEST_F(FactorThree, N05_FactorsAreHonoured) {
  std::vector<double> scales;
  for (const char kind : std::string_view("FFFFOFF")) {
    iterate(kind == 'O' ? infinity : 1.0f);
    scales.push_back(scale());
  }
  EXPECT_EQ(scales, (std::vector<double>{64, 192, 192, 576, 144, 144, 432}));
}

class NearTheTop : public ScalerTest {
 protected:
  NearTheTop() : ScalerTest({.policy = "dynamic", .initial_scale = 0x1p126, .growth_interval = 1}) {}
};

TEST_F(NearTheTop, N06_GrowthStopsBelowInfinityAndALoadedInfinityComesBack) {
  for (int good = 0; good < 5; ++good) iterate(1.0f);
  EXPECT_EQ(scale(), 0x1p127);
  iterate(infinity);
  EXPECT_EQ(scale(), 0x1p126);

  StepState loaded = state();  // a checkpoint of somebody else's scaler
  DynamicScaling::State policy{.scale = infinity, .growth_tracker = 0};
  std::memcpy(loaded.policy.data(), &policy, sizeof(policy));
  loaded.set_scale(static_cast<double>(infinity));
  backend->write_step_state(loaded, step);
  iterate(infinity);
  EXPECT_EQ(scale(), 0x1p126);
  iterate(infinity);
  EXPECT_EQ(scale(), 0x1p125);
}

TEST_F(PeerRegression, N07_GrowthIsDueAfterExactlyTheInterval) {
  std::vector<double> scales;
  for (int good = 0; good < 9; ++good) {
    iterate(1.0f);
    scales.push_back(scale() / 65536.0);
  }
  EXPECT_EQ(scales, (std::vector<double>{1, 1, 1, 2, 2, 2, 2, 4, 4}));
}

class Accumulation : public ScalerTest {
 protected:
  Accumulation() : ScalerTest({.policy = "dynamic", .initial_scale = 8192, .growth_interval = 4}) {}
  /// sum of w * x in f16: the gradient of w is S * x, infinite where that is 65520 or more.
  void add_micro_batch(float x) {
    Tape tape(*backend);
    const Variable low = ops::cast(tape.parameter(a), DType::f16);
    const Variable product = ops::multiply(low, tape.constant(halves_of(*backend, {2}, {x, 0})));
    tape.backward(ops::sum(ops::cast(product, DType::f32)), scaler.seed());
  }
};

TEST_F(Accumulation, N08_TheScaleIsConstantInsideAWindow) {
  // Growth is due after 4 iterations: it must come between two windows of 3 micro-batches, not in one.
  for (int window = 0; window < 5; ++window) {
    const float s = window < 4 ? 8192.0f : 16384.0f;
    begin();
    first->clear_gradients();
    for (const float x : {0x1p-4f, 0x1p-5f, 0x1p-6f}) {
      EXPECT_EQ(values_of(*backend, scaler.seed()), std::vector<float>{s});
      add_micro_batch(x);
    }
    EXPECT_EQ(values_of(*backend, a.gradient), (std::vector<float>{s * 0.109375f, 0}));
    scaler.unscale(*first);
    EXPECT_EQ(values_of(*backend, a.gradient), (std::vector<float>{0.109375f, 0}));
    scaler.step(*first);
    scaler.update();
  }
  EXPECT_EQ(state().taken_steps[0], 5u);
}

TEST_F(Accumulation, N09_OneOverflowingMicroBatchDropsTheWindow) {
  // 8192 * 16 is infinite in f16, wherever it comes and whatever is added to it afterwards (its negative, say).
  const auto window = [&](const std::vector<float>& batches) {
    const StepState before = state();
    begin();
    first->clear_gradients();
    for (const float x : batches) add_micro_batch(x);
    scaler.minimize(*first);
    return state().taken_steps[0] > before.taken_steps[0];
  };
  const float ok = 0x1p-4f;
  for (const std::vector<float>& batches :
       {std::vector<float>{16, ok, ok}, {ok, 16, ok}, {ok, ok, 16}, {16, -16, ok}}) {
    backend->write_step_state(StepState{}, step);
    scaler = GradScaler(*backend, {.policy = "dynamic", .initial_scale = 8192}, step);
    const auto weight = bytes_of(*backend, a.value);
    EXPECT_FALSE(window(batches));
    EXPECT_EQ(bytes_of(*backend, a.value), weight) << "the good micro-batches are gone with it";
    EXPECT_EQ(scaler.nonfinite_parameters(*first), std::vector<std::string>{"a.weight"});
    EXPECT_EQ(state().skipped_steps[0], 1u);
    EXPECT_EQ(scale(), 4096.0);
    EXPECT_TRUE(window({ok, ok, ok})) << "the next window begins anew";
    EXPECT_NE(bytes_of(*backend, a.value), weight);
  }
}

TEST_F(PeerRegression, N10_AnOptimizerWithoutGradientsIsNamedAndTheOthersGoOn) {
  const auto a_before = bytes_of(*backend, a.value), b_before = bytes_of(*backend, b.value);
  begin();
  give(a, 65536.0f);
  expect_scaler_error(Kind::no_gradients, "GradScaler::unscale", "sgd", "b.weight",
                      [&] { scaler.unscale(*second); });
  scaler.unscale(*first);
  expect_scaler_error(Kind::no_gradients, "GradScaler::step", "sgd", "b.weight",
                      [&] { scaler.step(*second); });
  scaler.step(*first);
  scaler.update();
  EXPECT_NE(bytes_of(*backend, a.value), a_before);
  EXPECT_EQ(bytes_of(*backend, b.value), b_before);
  EXPECT_EQ(state().taken_steps[0], 1u);
  EXPECT_EQ(state().taken_steps[1] + state().skipped_steps[1], 0u);
  // Whoever wants such a step all the same clears to zero: zeros count as gradients.
  second->clear_gradients(optim::ClearTo::zero);
  EXPECT_NO_THROW(scaler.minimize(*second));
}

class TorchLike : public ScalerTest {
 protected:
  TorchLike() : ScalerTest({.policy = "dynamic", .allow_low_gradients = false}) {}
};

TEST_F(TorchLike, N11_TheMessageAboutFp16GradientsNamesTheParameter) {
  give(a, 1.0f, DType::f16);
  expect_scaler_error(Kind::gradient_dtype, "GradScaler::unscale", "sgd", "a.weight",
                      [&] { scaler.unscale(*first); });
}

TEST_F(PeerRegression, N12_AGrowthWindowContinuesWhereItStood) {
  for (std::size_t stop = 0; stop <= sequence_a.size(); ++stop) {
    const auto run = [&](GradScaler& scaler_, std::string_view part, std::vector<double>& scales) {
      for (const char kind : part) {
        give(a, kind == 'O' ? infinity : 1.0f);
        scaler_.minimize(*first);
        scales.push_back(scale());
      }
    };
    const ScalerOptions options{.policy = "dynamic", .initial_scale = 65536, .growth_interval = 4};
    std::vector<double> scales;
    backend->write_step_state(StepState{}, step);
    GradScaler before(*backend, options, step);
    run(before, sequence_a.substr(0, stop), scales);
    const StepState saved = state();
    backend->write_step_state(StepState{}, step);
    GradScaler after(*backend, options, step);
    backend->write_step_state(saved, step);
    run(after, sequence_a.substr(stop), scales);
    EXPECT_EQ(scales, powers_of_two(torch_a)) << "stopped after " << stop;
  }
}

template <class Options, class... Values>
concept MadeOf = requires(Values... values) {
  Options{values...};
};
template <class Options>
concept MadeByName = requires {
  Options{.policy = "dynamic", .initial_scale = 4.0, .growth_factor = 2.0};
};

TEST_F(PeerRegression, N13_OptionsHaveNames) {
  static_assert(MadeByName<ScalerOptions> && MadeOf<ScalerOptions>);
  // (4, 3000), (4, 3000, 2000) and the same after a policy, in braces or parentheses.
  static_assert(!MadeOf<ScalerOptions, int, int> && !MadeOf<ScalerOptions, double, double>);
  static_assert(!MadeOf<ScalerOptions, double, double, std::int64_t>);
  static_assert(!MadeOf<ScalerOptions, const char*> && !MadeOf<ScalerOptions, std::string>);
  static_assert(!MadeOf<ScalerOptions, const char*, double, double>);
  static_assert(!MadeOf<ScalerOptions, std::string, double, double, double, std::int64_t>);
  static_assert(!std::is_constructible_v<ScalerOptions, double, double>);
  static_assert(!std::is_constructible_v<ScalerOptions, const char*, double, double>);
  static_assert(!std::is_constructible_v<ScalerOptions, std::string, double, double, double, std::int64_t>);
  // Nor does a scaler take numbers, or a name.
  static_assert(std::is_constructible_v<GradScaler, Backend&, const ScalerOptions&, Tensor>);
  static_assert(!std::is_constructible_v<GradScaler, Backend&, double, Tensor>);
  static_assert(!std::is_constructible_v<GradScaler, Backend&, double, double, Tensor>);
  static_assert(!std::is_constructible_v<GradScaler, Backend&, const char*, Tensor>);
  static_assert(!std::is_convertible_v<double, ScalerOptions>);
}

TEST_F(PeerRegression, N14_CallsInAWrongOrderNameCallOptimizerAndParameter) {
  expect_scaler_error(Kind::scaled_gradients, "clip_grad_norm", "sgd", "a.weight",
                      [&] { optim::clip_grad_norm(*backend, scaler, *first, 1.0, step); });
  expect_scaler_error(Kind::no_gradients, "GradScaler::unscale", "sgd", "a.weight",
                      [&] { scaler.unscale(*first); });
  expect_scaler_error(Kind::no_gradients, "GradScaler::step", "sgd", "a.weight",
                      [&] { scaler.step(*first); });
  give(a, 1.0f);
  expect_scaler_error(Kind::scaled_gradients, "clip_grad_value", "sgd", "a.weight",
                      [&] { optim::clip_grad_value(*backend, scaler, *first, 1.0); });
  scaler.unscale(*first);
  EXPECT_NO_THROW(optim::clip_grad_norm(*backend, scaler, *first, 1.0, step));
  expect_scaler_error(Kind::unscale_twice, "GradScaler::unscale", "sgd", "a.weight",
                      [&] { scaler.unscale(*first); });
  expect_scaler_error(Kind::seed_after_unscale, "GradScaler::seed", "sgd", "a.weight",
                      [&] { (void)scaler.seed(); });
  scaler.step(*first);
  expect_scaler_error(Kind::step_twice, "GradScaler::step", "sgd", "a.weight", [&] { scaler.step(*first); });
  expect_scaler_error(Kind::step_twice, "GradScaler::step", "sgd", "a.weight",
                      [&] { scaler.minimize(*first); });
  expect_scaler_error(Kind::unscale_after_step, "GradScaler::unscale", "sgd", "a.weight",
                      [&] { scaler.unscale(*first); });
  expect_scaler_error(Kind::scaled_gradients, "clip_grad_norm", "sgd", "a.weight",
                      [&] { optim::clip_grad_norm(*backend, scaler, *first, 1.0, step); });
  scaler.update();
  expect_scaler_error(Kind::update_without_check, "GradScaler::update", "", "", [&] { scaler.update(); });

  // Two of a kind are told apart by slot and parameter, one with several parameters by its first.
  const auto both = optim::make_optimizer(*backend, {&b, &a}, {.name = "adam"}, 1, 5);
  const auto none = optim::make_optimizer(*backend, {}, {.name = "adam"}, 1, 6);
  EXPECT_THAT(message_of([&] { scaler.step(*second); }), HasSubstr("GradScaler::step(sgd 1 of b.weight): "));
  EXPECT_THAT(message_of([&] { optim::clip_grad_norm(*backend, scaler, *both, 1.0, step); }),
              HasSubstr("clip_grad_norm(adam 5 of b.weight ...): "));
  EXPECT_THAT(message_of([&] { scaler.step(*none); }), HasSubstr("(adam 6 without parameters): "));
}

TEST_F(PeerRegression, N15_GradientsAreUnscaledAlsoWhereAnOverflowWasFound) {
  const auto both = optim::make_optimizer(*backend, {&a, &b}, {.name = "sgd"}, 1, 2);
  give(a, infinity);
  give(b, 65536.0f);
  scaler.unscale(*both);
  EXPECT_EQ(values_of(*backend, a.gradient), (std::vector<float>{infinity, 0x1p-16f}));
  EXPECT_EQ(values_of(*backend, b.gradient), (std::vector<float>{1.0f, 0x1p-16f}));
}

TEST_F(PeerRegression, N16_ASkippedStepDoesNotMoveTheSchedule) {
  const auto warm = optim::make_optimizer(
      *backend, {&b}, {.name = "sgd", .learning_rate = 1, .schedule = {.warmup_steps = 4}}, 10, 3);
  std::vector<float> rates;
  for (const char kind : std::string_view("FOOFF")) {
    warm->begin_iteration(step);
    rates.push_back(state().learning_rate[3]);
    give(b, kind == 'O' ? infinity : 1.0f);
    scaler.minimize(*warm);
  }
  EXPECT_EQ(rates, (std::vector<float>{0.25f, 0.5f, 0.5f, 0.5f, 0.75f}));
}

TEST_F(PeerRegression, N17_AGradientThatNobodyClearedIsNamedAsTheReason) {
  // The scale falls, as it must while an infinite gradient lies there; the culprit has a name.
  Tape tape(*backend);
  give(a, infinity);
  for (const double expected : {32768.0, 16384.0, 8192.0}) {
    tape.reset();
    tape.backward(ops::sum(tape.parameter(a)), scaler.seed());
    EXPECT_EQ(scaler.nonfinite_parameters(*first), std::vector<std::string>{"a.weight"});
    scaler.minimize(*first);
    EXPECT_EQ(scale(), expected);
  }
  first->clear_gradients();
  tape.reset();
  tape.backward(ops::sum(tape.parameter(a)), scaler.seed());
  EXPECT_TRUE(scaler.nonfinite_parameters(*first).empty());
}

}  // namespace
}  // namespace fp16lab::engine::test
