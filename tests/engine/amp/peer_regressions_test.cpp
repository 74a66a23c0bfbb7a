// Bugs and complaints about other loss scalers that are about their callers, each as a test that ours must
// pass. The numbers go on from peer_bugs_test.cpp:
//   20  an overflow in one micro-batch is lost when the next one is finite
//   21  unscale, step and update in a wrong order (accelerate#641, transformers#23935 and others)
//   22  fused optimizers leave gradients scaled where an overflow was found (pytorch PR 97415)
//   23  the learning-rate schedule moves on a skipped step (pytorch#67590)
//   24  gradients that the caller did not clear pull the scale down (Paddle#67895)
#include <string>
#include <string_view>
#include <vector>

#include "tests/engine/amp/scaler_support.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::engine::test {
namespace {

using amp::GradScaler;
using amp::ScalerError;
using testing::HasSubstr;
using testing_support::message_of;
using Kind = ScalerError::Kind;
using PeerRegression = ScalerTest;

using Accumulation = AccumulationTest;

TEST_F(Accumulation, N20_OneOverflowingMicroBatchDropsTheWindow) {
  // 8192 * 16 is infinite in f16, wherever it comes and whatever is added to it afterwards (its negative,
  // say).
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

TEST_F(PeerRegression, N21_CallsInAWrongOrderNameCallOptimizerAndParameter) {
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

  // Messages distinguish two optimizers of a kind by slot and parameter, and name one with several parameters
  // by its first.
  const auto both = optim::make_optimizer(*backend, {&b, &a}, {.name = optim::Algorithm::adam}, 1, 5);
  const auto none = optim::make_optimizer(*backend, {}, {.name = optim::Algorithm::adam}, 1, 6);
  EXPECT_THAT(message_of([&] { scaler.step(*second); }), HasSubstr("GradScaler::step(sgd 1 of b.weight): "));
  EXPECT_THAT(message_of([&] { optim::clip_grad_norm(*backend, scaler, *both, 1.0, step); }),
              HasSubstr("clip_grad_norm(adam 5 of b.weight ...): "));
  EXPECT_THAT(message_of([&] { scaler.step(*none); }), HasSubstr("(adam 6 without parameters): "));
}

TEST_F(PeerRegression, N22_GradientsAreUnscaledAlsoWhereAnOverflowWasFound) {
  const auto both = optim::make_optimizer(*backend, {&a, &b}, {}, 1, 2);
  give(a, infinity);
  give(b, 65536.0f);
  scaler.unscale(*both);
  EXPECT_EQ(values_of(*backend, a.gradient), (std::vector<float>{infinity, 0x1p-16f}));
  EXPECT_EQ(values_of(*backend, b.gradient), (std::vector<float>{1.0f, 0x1p-16f}));
}

TEST_F(PeerRegression, N23_ASkippedStepDoesNotMoveTheSchedule) {
  const auto warm =
      optim::make_optimizer(*backend, {&b}, {.learning_rate = 1, .schedule = {.warmup_steps = 4}}, 10, 3);
  std::vector<float> rates;
  for (const char kind : std::string_view("FOOFF")) {
    warm->begin_iteration(step);
    rates.push_back(state().learning_rate[3]);
    give(b, kind == 'O' ? infinity : 1.0f);
    scaler.minimize(*warm);
  }
  EXPECT_EQ(rates, (std::vector<float>{0.25f, 0.5f, 0.5f, 0.5f, 0.75f}));
}

TEST_F(PeerRegression, N24_AGradientThatWasNotClearedIsNamedAsTheReason) {
  // The scale falls, as it must while that tensor has an infinite gradient; the culprit has a name.
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
