// GradScaler: seeds, unscaling in every dtype, skipped steps, and the order of calls.
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "tests/engine/amp/scaler_support.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::engine::test {
namespace {

using amp::GradScaler;
using amp::ScalerError;
using amp::ScalerOptions;
using optim::ClearTo;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::message_of;
using Kind = ScalerError::Kind;
using GradScalerTest = ScalerTest;

TEST_F(GradScalerTest, RunsThePolicyOnTheBackEnd) {
  std::vector<double> scales;
  for (const char kind : sequence_a) {
    iterate(kind == 'O' ? infinity : 1.0f);
    scales.push_back(scale());
  }
  EXPECT_EQ(scales, powers_of_two(torch_a));
  EXPECT_EQ(state().iteration, sequence_a.size());
  EXPECT_EQ(state().skipped_steps[0], 6u);
  EXPECT_EQ(state().taken_steps[0], 24u);
  EXPECT_EQ(state().skipped_steps[1] + state().taken_steps[1], 0u) << "the second optimizer took no part";
}

class FixedScalerTest : public ScalerTest {
 protected:
  FixedScalerTest() : ScalerTest({.policy = "fixed", .initial_scale = 2048}) {}
};

TEST_F(FixedScalerTest, KeepsItsScaleAndSkipsOverflows) {
  for (const char kind : sequence_b) iterate(kind == 'O' ? infinity : 1.0f);
  EXPECT_EQ(scale(), 2048.0);
  EXPECT_EQ(state().skipped_steps[0], 6u);
}

class NoScalerTest : public ScalerTest {
 protected:
  NoScalerTest() : ScalerTest({.policy = "none", .initial_scale = 2048}) {}
};

TEST_F(NoScalerTest, ScalesByOneAndSkipsOverflows) {
  for (const char kind : sequence_b) iterate(kind == 'O' ? infinity : 1.0f);
  EXPECT_EQ(scale(), 1.0);
  EXPECT_EQ(state().skipped_steps[0], 6u);
}

/// Paddle's static rule: update_loss_scaling writes zeros (phi/kernels/impl/amp_kernel_impl.h, LazyZeros), an
/// optimizer that is not given found_inf steps.
class ZeroingScalerTest : public ScalerTest {
 protected:
  ZeroingScalerTest()
      : ScalerTest({.policy = "dynamic",
                    .initial_scale = 65536,
                    .growth_interval = 4,
                    .on_overflow = amp::OnOverflow::zero}) {}
};

TEST_F(ZeroingScalerTest, AnOverflowLeavesZerosAndTheOptimizerSteps) {
  iterate(65536.0f);
  const std::vector<float> moved = values_of(*backend, a.value);
  EXPECT_EQ(moved, (std::vector<float>{0.5f, 2.0f - 0x1p-17f}));
  // Momentum goes on without a gradient, of both elements, though one of them was finite.
  float velocity = 1.0f, w = 0.5f;
  for (const auto& [value, dtype] :
       {std::pair{infinity, DType::f32}, {nan, DType::f32}, {infinity, DType::f16}}) {
    begin();
    give(a, value, dtype);
    scaler.unscale(*first);
    scaler.step(*first);
    EXPECT_EQ(values_of(*backend, a.gradient), (std::vector<float>{0.0f, 0.0f}));
    EXPECT_EQ(state().found_inf[0], 1.0f) << "policies and records see it";
    scaler.update();
    velocity *= 0.9f;
    w -= 0.5f * velocity;
    EXPECT_FLOAT_EQ(values_of(*backend, a.value)[0], w);
  }
  EXPECT_EQ(scale(), 8192.0) << "three overflows";
  EXPECT_EQ(state().taken_steps[0], 4u);
  EXPECT_EQ(state().skipped_steps[0], 0u);
  iterate(8192.0f);
  EXPECT_EQ(state().found_inf[0], 0.0f);
}

TEST(ZeroingScaler, NeedsTheCheck) {
  EXPECT_THAT(message_of([] {
                amp::make_scale_policy(
                    {.policy = "fixed", .drop_overflow_update = false, .on_overflow = amp::OnOverflow::zero});
              }),
              HasSubstr("scaler.on_overflow = \"zero\" with scaler.drop_overflow_update = false"));
}

// ---- seeds --------------------------------------------------------------------------------------

TEST_F(GradScalerTest, SeedIsTheScaleAndUnscaleUndoesIt) {
  EXPECT_EQ(values_of(*backend, scaler.seed()), std::vector<float>{65536.0f});
  give(a, 131072.0f);
  scaler.unscale(*first);
  EXPECT_EQ(values_of(*backend, a.gradient), (std::vector<float>{2.0f, 0x1p-16f}));
  EXPECT_EQ(scaler.stage(*first), GradScaler::Stage::unscaled);
}

TEST_F(GradScalerTest, SeedIsRoundedOnceToTheLosssDtype) {
  const Tensor half = scaler.seed(DType::f16), brain = scaler.seed(DType::bf16);
  EXPECT_EQ(half.dtype(), DType::f16);
  EXPECT_EQ(brain.dtype(), DType::bf16);
  EXPECT_EQ(values_of(*backend, half), std::vector<float>{infinity}) << "65520 and above is infinite in f16";
  EXPECT_EQ(values_of(*backend, brain), std::vector<float>{65536.0f});
  Tensor other_step = backend->make_step_state(StepState{});
  GradScaler odd(*backend, {.policy = "fixed", .initial_scale = 4098}, other_step);
  EXPECT_EQ(values_of(*backend, odd.seed(DType::f16)), std::vector<float>{4096.0f}) << "a tie goes to even";
  EXPECT_EQ(values_of(*backend, odd.seed()), std::vector<float>{4098.0f});
}

TEST_F(GradScalerTest, InverseSeedIsTheFactorOfUnscale) {
  // 1/S in FP64, rounded once to FP32. The largest one's reciprocal is subnormal.
  for (const double s : {1.0, 3.0, 1000.0, 65536.0, 0x1p127, 0x1.fffffep126, 0x1.555556p-3, 0x1p-126}) {
    Tensor other_step = backend->make_step_state(StepState{});
    GradScaler fixed(*backend, {.policy = "fixed", .initial_scale = s}, other_step);
    const float expected = static_cast<float>(1.0 / s);
    const Tensor inverse = fixed.inverse_seed();
    EXPECT_EQ(inverse.dtype(), DType::f32);
    EXPECT_EQ(values_of(*backend, inverse), std::vector<float>{expected}) << s;
    EXPECT_EQ(backend->read_step_state(other_step).found_inf, PerOptimizer<float>{}) << s;
    give(a, 1.0f);
    fixed.unscale(*first);
    EXPECT_EQ(values_of(*backend, a.gradient).front(), expected) << s;
  }
}

TEST_F(GradScalerTest, AnotherLossMayFollowAStepButNotAnUnscale) {
  begin();
  give(a, 65536.0f);
  scaler.unscale(*first);
  expect_scaler_error(Kind::seed_after_unscale, "GradScaler::seed", "sgd", "a.weight",
                      [&] { (void)scaler.seed(); });
  scaler.step(*first);
  EXPECT_EQ(values_of(*backend, scaler.seed()), std::vector<float>{65536.0f}) << "a GAN's generator";
  give(b, infinity);
  scaler.step(*second);
  EXPECT_EQ(state().found_inf[0], 0.0f);
  EXPECT_EQ(state().found_inf[1], 1.0f);
  scaler.update();
  EXPECT_EQ(scale(), 32768.0);
  EXPECT_EQ(values_of(*backend, scaler.seed()), std::vector<float>{32768.0f});
}

// ---- gradients of 16 bits -----------------------------------------------------------------------

TEST_F(GradScalerTest, LowGradientsAreWidenedOrRoundedAgainAsTheParameterSays) {
  // 2^-10 / 2^16 = 2^-26 is lost in f16 (the smallest subnormal is 2^-24), not in bf16 or f32.
  for (const DType low : {DType::f16, DType::bf16}) {
    a.dtypes = {.model = low, .gradient = low, .unscaled = DType::f32};
    give(a, 0x1p-10f, low);
    const Tensor before = a.gradient;
    scaler.unscale(*first);
    EXPECT_EQ(a.gradient.dtype(), DType::f32);
    EXPECT_EQ(values_of(*backend, a.gradient), (std::vector<float>{0x1p-26f, 0x1p-16f}));
    EXPECT_EQ(values_of(*backend, before).front(), 0x1p-10f) << "widened into memory of its own";
    scaler.update();

    a.dtypes.unscaled = low;
    give(a, 0x1p-10f, low);
    const std::byte* const memory = a.gradient.data();
    scaler.unscale(*first);
    EXPECT_EQ(a.gradient.dtype(), low);
    EXPECT_EQ(a.gradient.data(), memory);
    EXPECT_EQ(values_of(*backend, a.gradient),
              (std::vector<float>{low == DType::f16 ? 0.0f : 0x1p-26f, 0x1p-16f}));
    scaler.update();
  }
}

TEST_F(GradScalerTest, OneOptimizerMayHaveGradientsOfSeveralDtypes) {
  Parameter c{"c.weight", tensor_of(*backend, {2}, {1, 1})};
  const auto mixed = optim::make_optimizer(*backend, {&a, &b, &c}, {}, 1, 2);
  b.dtypes = {.gradient = DType::f16};
  c.dtypes = {.gradient = DType::bf16, .unscaled = DType::bf16};
  give(a, 65536.0f);
  give(b, 1024.0f, DType::f16);
  give(c, 65536.0f, DType::bf16);
  scaler.unscale(*mixed);
  EXPECT_EQ(values_of(*backend, a.gradient), (std::vector<float>{1.0f, 0x1p-16f}));
  EXPECT_EQ(values_of(*backend, b.gradient), (std::vector<float>{0x1p-6f, 0x1p-16f}));
  EXPECT_EQ(values_of(*backend, c.gradient), (std::vector<float>{1.0f, 0x1p-16f}));
  EXPECT_EQ(b.gradient.dtype(), DType::f32);
  EXPECT_EQ(c.gradient.dtype(), DType::bf16);
  EXPECT_EQ(state().found_inf[2], 0.0f);
}

TEST_F(GradScalerTest, AnOverflowOfAnyDtypeIsFound) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const DType unscaled : {DType::f32, dtype}) {
      for (const float bad : {infinity, -infinity, nan}) {
        a.dtypes = {.gradient = dtype, .unscaled = unscaled};
        give(a, 1.0f, dtype);
        scaler.unscale(*first);
        EXPECT_EQ(state().found_inf[0], 0.0f);
        scaler.update();
        give(a, bad, dtype);
        scaler.unscale(*first);
        EXPECT_EQ(state().found_inf[0], 1.0f) << name_of(dtype) << ' ' << bad;
        scaler.update();
      }
    }
  }
}

TEST_F(GradScalerTest, ClearingGivesGradientsTheDtypeInWhichTheyAddUp) {
  a.dtypes = {.model = DType::f16, .gradient = DType::f16, .unscaled = DType::f32};
  give(a, 1.0f, DType::f16);
  scaler.step(*first);
  scaler.update();
  ASSERT_EQ(a.gradient.dtype(), DType::f32) << "unscaling left a wide one";
  first->clear_gradients(ClearTo::zero);
  EXPECT_EQ(a.gradient.dtype(), DType::f16);
  EXPECT_EQ(values_of(*backend, a.gradient), (std::vector<float>{0, 0}));
  EXPECT_TRUE(a.has_gradient);
}

TEST_F(GradScalerTest, MicroBatchesAddUpInTheDtypeOfTheGradient) {
  // S * 2^-4 + S * 2^-15 = 2048 + 1: a tie in f16, which goes to 2048; exact in FP32. Twice, because
  // unscaling leaves a wide gradient.
  GradScaler fixed(*backend, {.policy = "fixed", .initial_scale = 32768}, step);
  for (const DType gradient : {DType::f16, DType::f32}) {
    a.dtypes = {.model = DType::f16, .gradient = gradient, .unscaled = DType::f32};
    for (int iteration = 0; iteration < 2; ++iteration) {
      begin();
      first->clear_gradients();
      for (const float x : {0x1p-4f, 0x1p-15f}) {
        Tape tape(*backend);
        const Variable product =
            ops::multiply(tape.parameter(a), tape.constant(halves_of(*backend, {2}, {x, x})));
        ASSERT_EQ(product.dtype(), DType::f16);
        tape.backward(ops::sum(ops::cast(product, DType::f32)), fixed.seed());
      }
      EXPECT_EQ(a.gradient.dtype(), gradient);
      fixed.unscale(*first);
      const float sum = gradient == DType::f16 ? 0x1p-4f : 0x1p-4f + 0x1p-15f;
      EXPECT_EQ(values_of(*backend, a.gradient), (std::vector<float>{sum, sum}));
      fixed.step(*first);
      fixed.update();
    }
  }
}

class TorchLikeScaler : public ScalerTest {
 protected:
  TorchLikeScaler()
      : ScalerTest({.policy = "dynamic", .initial_scale = 65536, .allow_low_gradients = false}) {}
};

TEST_F(TorchLikeScaler, RefusesLowGradientsNamingParameterAndRemedy) {
  const auto both = optim::make_optimizer(*backend, {&a, &b}, {}, 1, 2);
  for (const DType low : {DType::f16, DType::bf16}) {
    give(a, 65536.0f);
    give(b, 1.0f, low);
    const auto a_before = bytes_of(*backend, a.gradient), b_before = bytes_of(*backend, b.gradient);
    expect_scaler_error(Kind::gradient_dtype, "GradScaler::unscale", "sgd", "b.weight",
                        [&] { scaler.unscale(*both); });
    expect_scaler_error(Kind::gradient_dtype, "GradScaler::step", "sgd", "b.weight",
                        [&] { scaler.step(*both); });
    EXPECT_THAT(message_of([&] { scaler.unscale(*both); }),
                AllOf(HasSubstr("the gradient of b.weight is " + b.gradient.describe()),
                      HasSubstr("amp.master_gradients = true")));
    EXPECT_EQ(bytes_of(*backend, a.gradient), a_before);
    EXPECT_EQ(bytes_of(*backend, b.gradient), b_before);
    EXPECT_EQ(scaler.stage(*both), GradScaler::Stage::ready);
  }
  give(b, 1.0f);
  EXPECT_NO_THROW(scaler.unscale(*both));
}

// ---- why a step is skipped ----------------------------------------------------------------------

TEST_F(GradScalerTest, NonfiniteGradientsAreNamedBeforeAndAfterUnscaling) {
  Parameter c{"c.weight", tensor_of(*backend, {2}, {1, 1})};
  const auto all = optim::make_optimizer(*backend, {&a, &b, &c}, {}, 1, 2);
  c.dtypes = {.gradient = DType::f16};
  give(a, nan);
  give(b, 1.0f);
  give(c, -infinity, DType::f16);
  const std::vector<std::string> expected = {"a.weight", "c.weight"};
  EXPECT_EQ(scaler.nonfinite_parameters(*all), expected);
  scaler.unscale(*all);
  EXPECT_EQ(scaler.nonfinite_parameters(*all), expected);
  scaler.step(*all);
  scaler.update();
  EXPECT_EQ(scaler.nonfinite_parameters(*all), expected);
  all->clear_gradients();
  EXPECT_TRUE(scaler.nonfinite_parameters(*all).empty());
  all->clear_gradients(ClearTo::zero);
  EXPECT_TRUE(scaler.nonfinite_parameters(*all).empty());
}

TEST_F(GradScalerTest, ASkippedStepChangesNoByte) {
  iterate(65536.0f);  // velocity is not zero any more
  const auto weight = bytes_of(*backend, a.value);
  const auto velocity = bytes_of(*backend, first->state().at(0).tensor);
  for (const float bad : {infinity, -infinity, nan}) {
    iterate(bad);
    EXPECT_EQ(bytes_of(*backend, a.value), weight);
    EXPECT_EQ(bytes_of(*backend, first->state().at(0).tensor), velocity);
  }
  iterate(65536.0f);
  EXPECT_NE(bytes_of(*backend, a.value), weight);
}

TEST_F(GradScalerTest, ASkippedAdamStepChangesNoByteInAnySlot) {
  for (const int slot : {0, 1, max_optimizers - 1}) {
    const auto index = static_cast<std::size_t>(slot);
    const auto adam = optim::make_optimizer(
        *backend, {&b}, {.name = optim::Algorithm::adamw, .learning_rate = 0.5, .weight_decay = 0.1}, 100,
        slot);
    const auto iterate_adam = [&](float gradient) {
      adam->begin_iteration(step);
      give(b, gradient);
      scaler.step(*adam);
      scaler.update();
    };
    iterate_adam(1.0f);
    const StepState before = state();
    EXPECT_EQ(before.beta1_power[index], static_cast<double>(0.9f));
    const auto weight = bytes_of(*backend, b.value);
    const auto moments = std::pair(bytes_of(*backend, adam->state().at(0).tensor),
                                   bytes_of(*backend, adam->state().at(1).tensor));
    iterate_adam(infinity);
    EXPECT_EQ(bytes_of(*backend, b.value), weight);
    EXPECT_EQ(bytes_of(*backend, adam->state().at(0).tensor), moments.first);
    EXPECT_EQ(bytes_of(*backend, adam->state().at(1).tensor), moments.second);
    EXPECT_EQ(state().beta1_power, before.beta1_power);
    EXPECT_EQ(state().beta2_power, before.beta2_power);
    EXPECT_EQ(state().taken_steps, before.taken_steps);
    EXPECT_EQ(state().skipped_steps[index], before.skipped_steps[index] + 1);
  }
}

// ---- the order of calls -------------------------------------------------------------------------

TEST_F(GradScalerTest, StepUnscalesWhatIsStillScaled) {
  give(a, 65536.0f);
  begin();
  scaler.step(*first);
  EXPECT_EQ(values_of(*backend, a.value).at(0), 0.5f);
}

TEST_F(GradScalerTest, MinimizeIsStepAndUpdate) {
  begin();
  give(a, 65536.0f);
  scaler.minimize(*first);
  EXPECT_EQ(values_of(*backend, a.value).at(0), 0.5f);
  EXPECT_EQ(scaler.stage(*first), GradScaler::Stage::ready);
  give(a, infinity);
  scaler.minimize(*first);
  EXPECT_EQ(values_of(*backend, a.value).at(0), 0.5f);
  EXPECT_EQ(scale(), 32768.0);
  give(a, 32768.0f);
  scaler.unscale(*first);  // in front of clipping
  scaler.minimize(*first);
  EXPECT_EQ(state().taken_steps[0], 2u);
}

TEST_F(GradScalerTest, ARefusedCallChangesNothing) {
  give(a, 65536.0f);
  scaler.unscale(*first);
  const auto gradient = bytes_of(*backend, a.gradient);
  const auto step_bytes = bytes_of(*backend, step);
  EXPECT_THROW(scaler.unscale(*first), ScalerError);
  EXPECT_THROW((void)scaler.seed(), ScalerError);
  EXPECT_THROW(scaler.step(*second), ScalerError) << "no gradients";
  EXPECT_EQ(bytes_of(*backend, a.gradient), gradient);
  EXPECT_EQ(bytes_of(*backend, step), step_bytes);
  EXPECT_EQ(scaler.stage(*first), GradScaler::Stage::unscaled);
  EXPECT_EQ(scaler.stage(*second), GradScaler::Stage::ready);
}

TEST_F(GradScalerTest, TwoOptimizersInOneSlotAreRefused) {
  const auto twin = optim::make_optimizer(*backend, {&b}, {.name = optim::Algorithm::adam}, 1, 0);
  give(a, 1.0f);
  give(b, 1.0f);
  scaler.unscale(*first);
  for (const std::string& message :
       {message_of([&] { scaler.unscale(*twin); }), message_of([&] { scaler.step(*twin); })})
    EXPECT_THAT(message, AllOf(HasSubstr("adam 0 of b.weight"), HasSubstr("index of its own")));
  scaler.step(*first);
  scaler.update();
  EXPECT_NO_THROW(scaler.step(*twin)) << "the slot is free again";
}

/// Skip is per optimizer, back-off is global, in either order of unscale and step.
class TwoOptimizers : public ScalerTest, public testing::WithParamInterface<std::tuple<bool, bool, bool>> {};

TEST_P(TwoOptimizers, SkipAloneAndBackOffTogether) {
  const auto [overflow_in_first, unscale_first_first, step_first_first] = GetParam();
  give(a, overflow_in_first ? infinity : 1.0f);
  give(b, overflow_in_first ? 1.0f : infinity);
  const auto a_before = bytes_of(*backend, a.value), b_before = bytes_of(*backend, b.value);
  begin();
  scaler.unscale(unscale_first_first ? *first : *second);
  scaler.unscale(unscale_first_first ? *second : *first);
  scaler.step(step_first_first ? *first : *second);
  scaler.step(step_first_first ? *second : *first);
  scaler.update();
  EXPECT_EQ(bytes_of(*backend, a.value) == a_before, overflow_in_first);
  EXPECT_EQ(bytes_of(*backend, b.value) == b_before, !overflow_in_first);
  EXPECT_EQ(state().skipped_steps[0], overflow_in_first ? 1u : 0u);
  EXPECT_EQ(state().skipped_steps[1], overflow_in_first ? 0u : 1u);
  EXPECT_EQ(state().taken_steps[0] + state().taken_steps[1], 1u);
  EXPECT_EQ(scale(), 32768.0);
  // The next iteration starts with clean flags, even for an optimizer that takes no part in it.
  iterate(1.0f);
  EXPECT_EQ(scale(), 32768.0);
}

INSTANTIATE_TEST_SUITE_P(EveryOrder, TwoOptimizers,
                         testing::Combine(testing::Bool(), testing::Bool(), testing::Bool()));

}  // namespace
}  // namespace fp16lab::engine::test
