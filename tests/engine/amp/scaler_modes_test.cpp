// The scaler that is switched off, the one that leaves the division to the optimizer, and what they have in
// common: the weights of loops written by hand.
#include <string>
#include <vector>

#include "tests/engine/amp/scaler_support.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::engine::test {
namespace {

using amp::GradScaler;
using amp::ScalerError;
using amp::ScalerOptions;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::message_of;
using Kind = ScalerError::Kind;

/// Two f16 layers with FP32 master weights, and batches: a training run without a Trainer.
class Model {
 public:
  explicit Model(Backend& backend, const optim::OptimizerOptions& options)
      : backend_(&backend), tape_(backend), step_(backend.make_step_state(StepState{})) {
    fill(weight1_.value, 1);
    fill(weight2_.value, 2);
    optimizer_ = optim::make_optimizer(backend, {&weight1_, &weight2_}, options, 100);
  }

  /// The loss of batch number `index`; `factor` makes its inputs, and so its gradients, larger.
  Variable loss(std::uint32_t index, float factor = 1.0f) {
    tape_.reset();
    Tensor inputs = backend_->empty({4, 6}, DType::f32), targets = backend_->empty({4, 3}, DType::f32);
    fill(inputs, 10 + index);
    fill(targets, 100 + index);
    backend_->scale(inputs, factor, inputs);
    const auto low = [&](const Variable& x) { return ops::cast(x, DType::f16); };
    const Variable hidden =
        ops::relu(ops::linear(low(tape_.constant(inputs)), low(tape_.parameter(weight1_)), {}));
    const Variable output = ops::linear(hidden, low(tape_.parameter(weight2_)), {});
    return ops::mse_loss(ops::cast(output, DType::f32), tape_.constant(targets));
  }
  /// A digest of both: equal numbers, equal bits.
  std::uint64_t weights() {
    return backend_->digest(weight1_.value, 1) + backend_->digest(weight2_.value, 2);
  }
  Tape& tape() { return tape_; }
  Tensor& step() { return step_; }
  optim::Optimizer& optimizer() { return *optimizer_; }

 private:
  void fill(Tensor& tensor, std::uint32_t iteration) {
    backend_->fill_uniform(tensor, {.seed = 7, .stream = 1, .iteration = iteration}, -1.0f, 1.0f);
  }

  Backend* backend_;
  Parameter weight1_{"fc1.weight", backend_->empty({5, 6}, DType::f32)};
  Parameter weight2_{"fc2.weight", backend_->empty({3, 5}, DType::f32)};
  Tape tape_;
  Tensor step_;
  std::unique_ptr<optim::Optimizer> optimizer_;
};

/// The weights after each step of a loop with the scaler; `clip` as clip_grad_norm. The last batch overflows
/// in f16.
std::vector<std::uint64_t> train_with(Backend& backend, const ScalerOptions& options,
                                      const optim::OptimizerOptions& optimizer, double clip = 0) {
  Model model(backend, optimizer);
  GradScaler scaler(backend, options, model.step());
  std::vector<std::uint64_t> weights;
  for (std::uint32_t index = 0; index < 6; ++index) {
    model.optimizer().begin_iteration(model.step());
    model.optimizer().clear_gradients();
    const Variable loss = model.loss(index, index == 5 ? 1e30f : 1.0f);
    model.tape().backward(loss, scaler.seed());
    if (clip > 0) {
      scaler.unscale(model.optimizer());
      optim::clip_grad_norm(backend, scaler, model.optimizer(), clip, model.step());
    }
    scaler.step(model.optimizer());
    scaler.update();
    weights.push_back(model.weights());
  }
  return weights;
}

/// The same loop without loss scaling.
std::vector<std::uint64_t> train_without(Backend& backend, const optim::OptimizerOptions& optimizer,
                                         double clip = 0) {
  Model model(backend, optimizer);
  std::vector<std::uint64_t> weights;
  for (std::uint32_t index = 0; index < 6; ++index) {
    model.optimizer().begin_iteration(model.step());
    model.optimizer().clear_gradients();
    model.tape().backward(model.loss(index, index == 5 ? 1e30f : 1.0f));
    if (clip > 0) {
      backend.global_norm(model.optimizer().gradients(), model.step());
      backend.clip_by_norm(model.optimizer().gradients(), clip, model.step());
    }
    model.optimizer().apply(model.step());
    weights.push_back(model.weights());
  }
  return weights;
}

const std::vector<optim::OptimizerOptions> optimizers = {
    {.learning_rate = 0.125},
    {.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.01},
    {.name = optim::Algorithm::adamw, .learning_rate = 0.01, .weight_decay = 0.1}};

// ---- enabled = false ----------------------------------------------------------------------------

TEST(DisabledScaler, HasTheBitsOfALoopWithoutScaler) {
  const auto backend = hopper_backend();
  for (const auto& optimizer : optimizers) {
    for (const double clip : {0.0, 0.25}) {
      const auto expected = train_without(*backend, optimizer, clip);
      // Whatever the policy would have been.
      for (const char* const policy : {"none", "fixed", "dynamic"}) {
        EXPECT_EQ(train_with(*backend, {.policy = policy, .initial_scale = 1024, .enabled = false}, optimizer,
                             clip),
                  expected)
            << name_of(optimizer.name) << ' ' << policy << ' ' << clip;
      }
      // The yardstick sees a difference: policy none skips the last batch, which overflows.
      EXPECT_NE(train_with(*backend, {.policy = "none"}, optimizer, clip), expected);
    }
    EXPECT_NE(train_without(*backend, optimizer, 0.25), train_without(*backend, optimizer)) << "it clips";
  }
}

class DisabledScalerTest : public ScalerTest {
 protected:
  DisabledScalerTest()
      : ScalerTest(
            {.policy = "dynamic", .initial_scale = 65536, .enabled = false, .allow_low_gradients = false}) {}
};

TEST_F(DisabledScalerTest, LeavesGradientsAndStateAsTheyAre) {
  EXPECT_FALSE(scaler.enabled());
  EXPECT_FALSE(scaler.checks());
  EXPECT_EQ(scaler.policy_name(), "disabled");
  EXPECT_EQ(scale(), 1.0);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    EXPECT_EQ(values_of(*backend, scaler.seed(dtype)), std::vector<float>{1.0f});
  EXPECT_EQ(values_of(*backend, scaler.inverse_seed()), std::vector<float>{1.0f});

  give(a, nan, DType::f16);  // neither widened, nor checked, nor refused
  const std::byte* const memory = a.gradient.data();
  const auto gradient = bytes_of(*backend, a.gradient);
  const auto before = bytes_of(*backend, step);
  scaler.unscale(*first);
  EXPECT_EQ(a.gradient.data(), memory);
  EXPECT_EQ(bytes_of(*backend, a.gradient), gradient);
  EXPECT_NO_THROW(scaler.require_unscaled(*first, "clip_grad_norm"));
  EXPECT_EQ(scaler.nonfinite_parameters(*first), std::vector<std::string>{"a.weight"});
  scaler.update();
  EXPECT_EQ(bytes_of(*backend, step), before);
}

TEST_F(DisabledScalerTest, TakesEveryStep) {
  for (const char kind : sequence_b) iterate(kind == 'O' ? infinity : 1.0f);
  EXPECT_EQ(state().taken_steps[0], sequence_b.size());
  EXPECT_EQ(state().skipped_steps[0], 0u);
  EXPECT_EQ(state().found_inf, PerOptimizer<float>{});
}

TEST_F(DisabledScalerTest, StillKnowsTheOrderOfCalls) {
  // A program that works with a disabled scaler works with it enabled.
  expect_scaler_error(Kind::update_without_check, "GradScaler::update", "", "", [&] { scaler.update(); });
  expect_scaler_error(Kind::no_gradients, "GradScaler::step", "sgd", "a.weight",
                      [&] { scaler.step(*first); });
  give(a, 1.0f);
  expect_scaler_error(Kind::scaled_gradients, "clip_grad_norm", "sgd", "a.weight",
                      [&] { optim::clip_grad_norm(*backend, scaler, *first, 1.0, step); });
  scaler.unscale(*first);
  expect_scaler_error(Kind::unscale_twice, "GradScaler::unscale", "sgd", "a.weight",
                      [&] { scaler.unscale(*first); });
  expect_scaler_error(Kind::seed_after_unscale, "GradScaler::seed", "sgd", "a.weight",
                      [&] { (void)scaler.seed(); });
  scaler.step(*first);
  expect_scaler_error(Kind::step_twice, "GradScaler::step", "sgd", "a.weight", [&] { scaler.step(*first); });
  expect_scaler_error(Kind::unscale_after_step, "GradScaler::unscale", "sgd", "a.weight",
                      [&] { scaler.unscale(*first); });
  scaler.update();
}

TEST_F(DisabledScalerTest, ForgetsFlagsThatItFinds) {
  // A StepState with a flag in it (of a scaler that checked) must not skip steps for ever.
  StepState flagged{};
  flagged.found_inf.fill(1.0f);
  flagged.set_scale(512.0);
  for (const ScalerOptions& options : {ScalerOptions{.policy = "dynamic", .enabled = false},
                                       ScalerOptions{.policy = "fixed", .drop_overflow_update = false}}) {
    backend->write_step_state(flagged, step);
    GradScaler fresh(*backend, options, step);
    EXPECT_EQ(state().found_inf, PerOptimizer<float>{});
    backend->write_step_state(flagged, step);  // as loading a checkpoint does
    begin();
    give(a, 1.0f);
    fresh.minimize(*first);
    EXPECT_EQ(state().found_inf, PerOptimizer<float>{});
  }
  EXPECT_EQ(state().taken_steps[0], 1u);
}

TEST(DisabledScaler, ItsOptionsAreChecked) {
  const auto backend = hopper_backend();
  const Tensor step = backend->make_step_state(StepState{});
  EXPECT_THROW(GradScaler(*backend, {.policy = "dynamc", .enabled = false}, step), std::invalid_argument);
  EXPECT_THROW(GradScaler(*backend, {.policy = "fixed", .initial_scale = -1, .enabled = false}, step),
               std::invalid_argument);
}

// ---- drop_overflow_update = false ---------------------------------------------------------------

class MindSporeScalerTest : public ScalerTest {
 protected:
  MindSporeScalerTest()
      : ScalerTest({.policy = "fixed", .initial_scale = 1024, .drop_overflow_update = false}) {}
};

TEST_F(MindSporeScalerTest, NeitherChecksNorUnscalesAndTakesEveryStep) {
  EXPECT_TRUE(scaler.enabled());
  EXPECT_FALSE(scaler.checks());
  EXPECT_EQ(values_of(*backend, scaler.seed()), std::vector<float>{1024.0f});
  EXPECT_EQ(values_of(*backend, scaler.inverse_seed()), std::vector<float>{0x1p-10f}) << "for a custom step";
  begin();
  give(a, 1024.0f, DType::f16);
  const auto gradient = bytes_of(*backend, a.gradient);
  scaler.unscale(*first);
  EXPECT_EQ(bytes_of(*backend, a.gradient), gradient);
  scaler.step(*first);
  scaler.update();
  EXPECT_EQ(values_of(*backend, a.value), (std::vector<float>{1.0f - 512.0f, 1.5f})) << "no division";
  iterate(infinity);
  EXPECT_EQ(values_of(*backend, a.value).at(0), -infinity);
  EXPECT_EQ(state().taken_steps[0], 2u);
  EXPECT_EQ(state().found_inf[0], 0.0f);
  EXPECT_EQ(scale(), 1024.0);
}

TEST_F(MindSporeScalerTest, ScaledGradientsAreNotClipped) {
  give(a, 1024.0f);
  const auto refuse = [&] {
    const auto clip = [&] { optim::clip_grad_norm(*backend, scaler, *first, 1.0, step); };
    expect_scaler_error(Kind::scaled_gradients, "clip_grad_norm", "sgd", "a.weight", clip);
    EXPECT_THAT(message_of(clip),
                AllOf(HasSubstr("drop_overflow_update"), HasSubstr("optimizer.loss_scale")));
    expect_scaler_error(Kind::scaled_gradients, "clip_grad_value", "sgd", "a.weight",
                        [&] { optim::clip_grad_value(*backend, scaler, *first, 1.0); });
  };
  refuse();
  scaler.unscale(*first);  // does not help
  refuse();
}

TEST(MindSporeScaler, GradientsWithoutAScaleMayBeClipped) {
  const auto backend = hopper_backend();
  for (const ScalerOptions& options :
       {ScalerOptions{.policy = "none", .drop_overflow_update = false},
        ScalerOptions{.policy = "fixed", .initial_scale = 1, .drop_overflow_update = false}}) {
    for (const auto& optimizer : optimizers)
      EXPECT_EQ(train_with(*backend, options, optimizer, 0.25), train_without(*backend, optimizer, 0.25));
  }
}

/// The weights after each of five steps with `options` and the optimizer's own loss_scale; the batch that
/// overflows is left out.
std::vector<std::uint64_t> five_steps(Backend& backend, const ScalerOptions& options,
                                      optim::OptimizerOptions optimizer, double loss_scale,
                                      float divide_by_hand = 0) {
  optimizer.loss_scale = loss_scale;
  Model model(backend, optimizer);
  GradScaler scaler(backend, options, model.step());
  std::vector<std::uint64_t> weights;
  for (std::uint32_t index = 0; index < 5; ++index) {
    model.optimizer().begin_iteration(model.step());
    model.optimizer().clear_gradients();
    model.tape().backward(model.loss(index), scaler.seed());
    if (divide_by_hand != 0) {
      for (Tensor& gradient : model.optimizer().gradients())
        backend.divide(gradient, divide_by_hand, gradient);
    }
    scaler.minimize(model.optimizer());
    weights.push_back(model.weights());
  }
  return weights;
}

TEST(MindSporeScaler, DivisionByTheOptimizerIsUnscalingByTheScaler) {
  // Both multiply FP32 gradients by the same number, float(1 / S), and round once: the same bits for *every*
  // S.
  const auto backend = hopper_backend();
  for (const double s : {1024.0, 1000.0, 3.0}) {
    for (const auto& optimizer : optimizers) {
      const auto by_scaler = five_steps(*backend, {.policy = "fixed", .initial_scale = s}, optimizer, 1);
      const ScalerOptions leave_it{.policy = "fixed", .initial_scale = s, .drop_overflow_update = false};
      EXPECT_EQ(five_steps(*backend, leave_it, optimizer, s), by_scaler) << s;
      // Forgotten, and done twice: both are other weights.
      EXPECT_NE(five_steps(*backend, leave_it, optimizer, 1), by_scaler) << s;
      EXPECT_NE(five_steps(*backend, {.policy = "fixed", .initial_scale = s}, optimizer, s), by_scaler) << s;
    }
  }
}

TEST(MindSporeScaler, AQuotientInACustomStepIsTheSameForPowersOfTwoOnly) {
  // x / 1024 and x * 2^-10 are both exact here (nothing comes near FP32's subnormals); x / 1000 is rounded
  // once, x * float(1 / 1000) is the product with a rounded number.
  const auto backend = hopper_backend();
  for (const auto& optimizer : optimizers) {
    for (const float s : {1024.0f, 1000.0f}) {
      const auto by_scaler = five_steps(*backend, {.policy = "fixed", .initial_scale = s}, optimizer, 1);
      const ScalerOptions leave_it{.policy = "fixed", .initial_scale = s, .drop_overflow_update = false};
      const auto by_hand = five_steps(*backend, leave_it, optimizer, 1, s);
      EXPECT_EQ(by_hand == by_scaler, s == 1024.0f) << name_of(optimizer.name) << ' ' << s;
    }
  }
}

TEST(MindSporeScaler, PowersOfTwoChangeNothingThatDoesNotUnderflow) {
  // The chain-rule claim, without under- or overflow: S = 2^k gives the weights of S = 1, and 1000 does not.
  const auto backend = hopper_backend();
  for (const auto& optimizer : optimizers) {
    const auto plain = five_steps(*backend, {.policy = "none"}, optimizer, 1);
    EXPECT_EQ(five_steps(*backend, {.policy = "fixed", .initial_scale = 64}, optimizer, 1), plain);
    EXPECT_NE(five_steps(*backend, {.policy = "fixed", .initial_scale = 1000}, optimizer, 1), plain);
  }
}

}  // namespace
}  // namespace fp16lab::engine::test
