// Clearing gradients to zero, division by the optimizer, and eight optimizers side by side.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "engine/amp/scalers/grad_scaler.hpp"
#include "engine/optim/optimizer.hpp"
#include "tests/engine/autograd/support.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::engine::test {
namespace {

using optim::ClearTo;
using optim::OptimizerOptions;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::message_of;

class OptimizerModes : public testing::Test {
 protected:
  void give(Parameter& parameter, float value, DType dtype = DType::f32) {
    parameter.gradient = backend->empty({1}, dtype);
    backend->fill(parameter.gradient, static_cast<double>(value));
    parameter.has_gradient = true;
  }
  float value(const Parameter& parameter) { return values_of(*backend, parameter.value).front(); }
  StepState state() { return backend->read_step_state(step); }

  std::unique_ptr<Backend> backend = hopper_backend();
  Tensor step = backend->make_step_state(StepState{});
};

// ---- clearing -----------------------------------------------------------------------------------

TEST_F(OptimizerModes, ClearedToNoneAParameterThatNoBackwardReachesIsLeftAlone) {
  Parameter w{"w", tensor_of(*backend, {1}, {1})}, u{"u", tensor_of(*backend, {1}, {1})};
  const auto optimizer = optim::make_optimizer(
      *backend, {&w, &u}, {.learning_rate = 0.5, .momentum = 0.5, .weight_decay = 0.25}, 10);
  const auto iterate = [&](ClearTo to, bool reaches_u) {
    optimizer->begin_iteration(step);
    optimizer->clear_gradients(to);
    Tape tape(*backend);
    tape.backward(ops::sum(tape.parameter(reaches_u ? u : w)));
    optimizer->apply(step);
  };
  iterate(ClearTo::none, true);
  // d = 1 + 0.25 * 1, v = d, u = 1 - 0.5 * 1.25.
  EXPECT_EQ(value(u), 0.375f);
  EXPECT_EQ(value(w), 1.0f);
  EXPECT_EQ(optimizer->gradients().size(), 1u);
  iterate(ClearTo::none, false);
  EXPECT_EQ(value(u), 0.375f) << "not its momentum, not its decay";
  const float before = value(w);
  iterate(ClearTo::zero, false);
  // d = 0 + 0.25 * 0.375, v = 0.5 * 1.25 + d, u = 0.375 - 0.5 * v: zeros are gradients.
  EXPECT_EQ(value(u), 0.375f - 0.5f * (0.625f + 0.09375f));
  EXPECT_NE(value(w), before);
  EXPECT_EQ(optimizer->gradients().size(), 2u);
  optimizer->clear_gradients();
  EXPECT_TRUE(optimizer->gradients().empty());
}

TEST_F(OptimizerModes, ClearedToZeroAGradientThatWasNeverThereIsOneOfZeros) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    Parameter w{"w", tensor_of(*backend, {3}, {1, 2, 3})};
    w.dtypes.gradient = dtype;
    const auto optimizer = optim::make_optimizer(*backend, {&w}, {}, 1);
    ASSERT_FALSE(w.gradient.defined());
    optimizer->clear_gradients(ClearTo::zero);
    EXPECT_TRUE(w.has_gradient);
    EXPECT_EQ(w.gradient.dtype(), dtype);
    EXPECT_EQ(w.gradient.shape(), (Shape{3}));
    EXPECT_EQ(values_of(*backend, w.gradient), (std::vector<float>{0, 0, 0}));
    const std::byte* const memory = w.gradient.data();
    backend->fill(w.gradient, 7);
    optimizer->clear_gradients(ClearTo::zero);
    EXPECT_EQ(values_of(*backend, w.gradient), (std::vector<float>{0, 0, 0}));
    EXPECT_EQ(w.gradient.data(), memory) << "the memory is kept";
  }
}

TEST_F(OptimizerModes, BackwardAddsToClearedZeros) {
  for (const ClearTo to : {ClearTo::none, ClearTo::zero}) {
    Parameter w{"w", tensor_of(*backend, {2}, {1, 2})};
    const auto optimizer = optim::make_optimizer(*backend, {&w}, {}, 1);
    for (int iteration = 0; iteration < 2; ++iteration) {
      optimizer->clear_gradients(to);
      Tape tape(*backend);
      tape.backward(ops::sum(ops::scale(tape.parameter(w), 3.0f)));
      EXPECT_EQ(values_of(*backend, w.gradient), (std::vector<float>{3, 3}));
    }
  }
}

// ---- loss_scale ---------------------------------------------------------------------------------

TEST_F(OptimizerModes, LossScaleMultipliesGradientsByItsReciprocalFirst) {
  // One rounding of g * float(1 / S) in FP32, in front of weight decay and momentum; Adam alike.
  // 1.1 is no FP32 number: the reciprocal of its FP32 neighbour would be another one.
  for (const double s : {1.0, 1024.0, 1000.0, 1.1}) {
    const float factor = static_cast<float>(1.0 / s);
    // A step of LAMB with one weight has the size of the weight, whatever the gradient.
    using enum optim::Algorithm;
    for (const optim::Algorithm name : {sgd, adam, adamw, rmsprop, adam_weight_decay}) {
      const auto run = [&](double loss_scale, float gradient_factor) {
        const OptimizerOptions options{.name = name,
                                       .learning_rate = 0.125,
                                       .momentum = 0.5,
                                       .weight_decay = 0.25,
                                       .epsilon = 0.125,  // large: else Adam's step hardly depends on it
                                       .loss_scale = loss_scale};
        backend->write_step_state(StepState{}, step);
        Parameter w{"w", tensor_of(*backend, {1}, {1})};
        const auto optimizer = optim::make_optimizer(*backend, {&w}, options, 10);
        std::vector<float> weights;
        for (const float gradient : {0.3f, -700.0f, 1e-6f}) {
          optimizer->begin_iteration(step);
          give(w, gradient * gradient_factor);
          optimizer->apply(step);
          weights.push_back(value(w));
        }
        return weights;
      };
      EXPECT_EQ(run(s, 1), run(1, factor)) << name_of(name) << ' ' << s;
      EXPECT_EQ(run(s, 1) == run(1, 1), s == 1.0) << name_of(name) << ' ' << s;
    }
  }
}

TEST_F(OptimizerModes, LossScaleIsChecked) {
  const double infinity = std::numeric_limits<double>::infinity();
  // 1e-45 and 1e46: the reciprocal is infinite or 0 in FP32.
  for (const double bad : {0.0, -1.0, infinity, std::nan(""), 1e-45, 1e46}) {
    EXPECT_THAT(message_of([&] { optim::make_optimizer(*backend, {}, {.loss_scale = bad}, 1); }),
                AllOf(HasSubstr("optimizer.loss_scale = "), HasSubstr("finite and above 0")))
        << bad;
  }
  EXPECT_NO_THROW(optim::make_optimizer(*backend, {}, {.loss_scale = 0x1p-100}, 1));
  EXPECT_NO_THROW(optim::make_optimizer(*backend, {}, {.loss_scale = 0x1p120}, 1));
}

// ---- eight optimizers ---------------------------------------------------------------------------

TEST_F(OptimizerModes, EightOptimizersAreEightRunsOfOne) {
  // Each has its own schedule, counters, beta powers and skips; a lone run of the same optimizer, without the
  // iterations that it skipped, has the same weights.
  constexpr int iterations = 12;
  const auto options_of = [](int index) {
    OptimizerOptions options{.name = every<optim::Algorithm>[static_cast<std::size_t>(index % 3)],
                             .learning_rate = 0.1 / (index + 1),
                             .momentum = 0.5,
                             .weight_decay = 0.01};
    options.schedule = {.warmup_steps = static_cast<std::uint64_t>(index)};
    return options;
  };
  const auto skips = [](int index, int iteration) { return (iteration + index) % 5 == 0; };
  const auto gradient = [](int index, int iteration) {
    return static_cast<float>((iteration * 7 + index * 3) % 11 - 5);
  };

  std::vector<std::unique_ptr<Parameter>> parameters;
  std::vector<std::unique_ptr<optim::Optimizer>> optimizers;
  amp::GradScaler scaler(*backend, {.policy = "fixed", .initial_scale = 64}, step);
  for (int index = 0; index < max_optimizers; ++index) {
    parameters.push_back(
        std::make_unique<Parameter>("w" + std::to_string(index), tensor_of(*backend, {1}, {1})));
    optimizers.push_back(
        optim::make_optimizer(*backend, {parameters.back().get()}, options_of(index), iterations, index));
  }
  for (int iteration = 0; iteration < iterations; ++iteration) {
    for (const auto& optimizer : optimizers) optimizer->begin_iteration(step);
    for (int index = 0; index < max_optimizers; ++index) {
      const auto i = static_cast<std::size_t>(index);
      const float infinity = std::numeric_limits<float>::infinity();
      give(*parameters[i], skips(index, iteration) ? infinity : 64.0f * gradient(index, iteration));
    }
    for (const auto& optimizer : optimizers) scaler.step(*optimizer);
    scaler.update();
  }
  EXPECT_EQ(state().iteration, 12u) << "counted once, by the first";

  const StepState together = state();
  for (int index = 0; index < max_optimizers; ++index) {
    const auto i = static_cast<std::size_t>(index);
    Tensor lone_step = backend->make_step_state(StepState{});
    Parameter lone{"w", tensor_of(*backend, {1}, {1})};
    const auto optimizer = optim::make_optimizer(*backend, {&lone}, options_of(index), iterations);
    std::uint64_t taken = 0;
    for (int iteration = 0; iteration < iterations; ++iteration) {
      if (skips(index, iteration)) continue;
      ++taken;
      optimizer->begin_iteration(lone_step);
      give(lone, gradient(index, iteration));
      optimizer->apply(lone_step);
    }
    EXPECT_EQ(value(*parameters[i]), value(lone)) << index;
    EXPECT_EQ(together.taken_steps[i], taken);
    EXPECT_EQ(together.skipped_steps[i], static_cast<std::uint64_t>(iterations) - taken);
    const StepState alone = backend->read_step_state(lone_step);
    EXPECT_EQ(together.beta1_power[i], alone.beta1_power[0]);
    EXPECT_EQ(together.beta2_power[i], alone.beta2_power[0]);
    for (std::size_t j = 0; j < optimizers[i]->state().size(); ++j) {
      EXPECT_EQ(bytes_of(*backend, optimizers[i]->state()[j].tensor),
                bytes_of(*backend, optimizer->state()[j].tensor));
    }
  }
}

}  // namespace
}  // namespace fp16lab::engine::test
