// Checkpoints of runs with several optimizers and several scalers: every later step has the same bits.
#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/amp/scalers/grad_scaler.hpp"
#include "engine/train/checkpoint.hpp"
#include "tests/engine/amp/scaler_support.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::engine::test {
namespace {

using amp::GradScaler;
using amp::ScaledOptimizer;
using amp::ScalerOptions;
using testing::AllOf;
using testing::HasSubstr;
using testing_support::message_of;

const ScalerOptions dynamic{.policy = "dynamic", .initial_scale = 1024, .growth_interval = 3};
const ScalerOptions per_loss{
    .policy = "dynamic", .initial_scale = 1024, .growth_interval = 3, .per_loss = true};

/// Two models with an optimizer each, adam in slot 0 and sgd with momentum in slot 1, on backward passes by
/// hand.
class TwoModels {
 public:
  virtual ~TwoModels() = default;

  virtual void iterate() = 0;
  /// The state that the run shares with its checkpoints.
  virtual TrainingState training_state() {
    TrainingState state{.backend = backend.get(),
                        .iteration = read().iteration,
                        .step = step,
                        .tensors = {{"a.weight", a.value}, {"b.weight", b.value}},
                        .policy = "dynamic",
                        .optimizer = "adam, sgd",
                        .counters = {}};
    for (const optim::Optimizer* const optimizer : {of_a.get(), of_b.get()}) {
      for (const optim::NamedTensor& tensor : optimizer->state())
        state.tensors.push_back({"optimizer." + tensor.name, tensor.tensor});
    }
    return state;
  }
  std::uint64_t hash() {
    const TrainingState state = training_state();
    std::uint64_t sum = backend->digest(step, 1), key = 2;
    for (const optim::NamedTensor& tensor : state.tensors) sum += backend->digest(tensor.tensor, key++);
    return sum;
  }
  StepState read() { return backend->read_step_state(step); }

 protected:
  void begin() {
    for (optim::Optimizer* const optimizer : {of_a.get(), of_b.get()}) {
      optimizer->begin_iteration(step);
      optimizer->clear_gradients();
    }
  }
  /// The gradient of S * weight^2 / 2, infinite where `overflows`.
  void backward(Parameter& parameter, const Tensor& seed, bool overflows) {
    const float s = overflows ? std::numeric_limits<float>::infinity() : values_of(*backend, seed).front();
    std::vector<float> gradient = values_of(*backend, parameter.value);
    for (float& value : gradient) value *= s;
    parameter.gradient = tensor_of(*backend, parameter.value.shape(), gradient);
    parameter.has_gradient = true;
  }

  std::unique_ptr<Backend> backend = hopper_backend();
  Tensor step = backend->make_step_state(StepState{});
  Parameter a{"a.weight", tensor_of(*backend, {3}, {1, -2, 0.3f})};
  Parameter b{"b.weight", tensor_of(*backend, {2}, {0.7f, 4})};
  std::unique_ptr<optim::Optimizer> of_a =
      optim::make_optimizer(*backend, {&a}, {.name = optim::Algorithm::adam, .learning_rate = 0.05}, 100, 0);
  std::unique_ptr<optim::Optimizer> of_b = optim::make_optimizer(
      *backend, {&b}, {.learning_rate = 0.1, .momentum = 0.9, .schedule = {.warmup_steps = 8}}, 100, 1);
};

/// One scaler; A overflows in every fifth iteration, B in every seventh.
class OneScaler final : public TwoModels {
 public:
  explicit OneScaler(const ScalerOptions& options = dynamic) : scaler_(*backend, options, step) {}
  void iterate() override {
    begin();
    const std::uint64_t iteration = read().iteration;
    backward(a, scaler_.seed(), iteration % 5 == 0);
    backward(b, scaler_.seed(), iteration % 7 == 0);
    scaler_.unscale(*of_b);
    scaler_.step(*of_a);
    scaler_.step(*of_b);
    scaler_.update();
  }
  TrainingState training_state() override {
    TrainingState state = TwoModels::training_state();
    state.policy = scaler_.policy_name();
    return state;
  }

 private:
  GradScaler scaler_;
};

/// A scaler for each of two losses; the first moves both models, the second only B.
class ScalerForEachLoss final : public TwoModels {
 public:
  explicit ScalerForEachLoss(int losses = 2) : scaler_(*backend, per_loss, step, losses) {}
  void iterate() override {
    begin();
    const std::uint64_t iteration = read().iteration;
    const Tensor seed = scaler_.seed(0);
    backward(a, seed, iteration % 5 == 0);
    backward(b, seed, false);
    scaler_.collect(0, std::array<ScaledOptimizer*, 2>{of_a.get(), of_b.get()});
    backward(b, scaler_.seed(1), iteration % 4 == 0);
    scaler_.collect(1, std::array<ScaledOptimizer*, 1>{of_b.get()});
    scaler_.step(*of_a);
    scaler_.step(*of_b);
    scaler_.update();
  }
  TrainingState training_state() override {
    TrainingState state = TwoModels::training_state();
    for (const amp::NamedTensor& loss : scaler_.states()) state.tensors.push_back(loss);
    return state;
  }
  double scale(int loss) const { return scaler_.scale(loss); }

 private:
  GradScaler scaler_;
};

/// Hashes of 24 steps; a run that was resumed after every one of them has the same.
template <class Run>
void expect_resumable(const std::function<void(Run&)>& look_at_the_end) {
  const testing_support::TemporaryFolder folder;
  constexpr std::size_t steps = 24;
  Run whole;
  std::vector<std::uint64_t> hashes;
  for (std::size_t done = 0; done < steps; ++done) {
    whole.iterate();
    hashes.push_back(whole.hash());
    save_checkpoint(folder.path() / std::to_string(done), whole.training_state(), {});
  }
  look_at_the_end(whole);
  for (std::size_t done = 0; done < steps; ++done) {
    Run resumed;
    TrainingState state = resumed.training_state();
    CheckpointFile(folder.path() / std::to_string(done)).load(state);
    EXPECT_EQ(resumed.hash(), hashes[done]);
    for (std::size_t next = done + 1; next < steps; ++next) {
      resumed.iterate();
      ASSERT_EQ(resumed.hash(), hashes[next]) << "resumed after " << done + 1 << ", step " << next + 1;
    }
  }
}

TEST(ScalerCheckpoint, TwoOptimizersContinueWithTheSameBits) {
  expect_resumable<OneScaler>([](OneScaler& run) {
    // Each has its own counters: 24 iterations, 4 overflows of A (5 .. 20), 3 of B (7, 14, 21).
    const StepState state = run.read();
    EXPECT_EQ(state.skipped_steps[0], 4u);
    EXPECT_EQ(state.skipped_steps[1], 3u);
    EXPECT_EQ(state.taken_steps[0], 20u);
    EXPECT_EQ(state.taken_steps[1], 21u);
    EXPECT_NE(state.beta1_power[0], state.beta1_power[1]);
  });
}

TEST(ScalerCheckpoint, AScaleForEachLossContinuesWithTheSameBits) {
  expect_resumable<ScalerForEachLoss>([](ScalerForEachLoss& run) {
    // Loss 0 overflows in 5, 10, 15, 20 and grows after 3 good steps: 1024 * 2 at 3, / 2 at 5, * 2 at 8, / 2
    // at 10, and so on, * 2 at 23. Loss 1 overflows in 4, 8, ..., 24, each time after three good steps.
    EXPECT_EQ(run.scale(0), 2048.0);
    EXPECT_EQ(run.scale(1), 1024.0);
    EXPECT_EQ(run.read().skipped_steps[0], 4u);
    EXPECT_EQ(run.read().skipped_steps[1], 6u) << "only its own loss overflows for B";
  });
}

TEST(ScalerCheckpoint, WhatDoesNotFitIsNamed) {
  const testing_support::TemporaryFolder folder;
  const std::filesystem::path one = folder.path() / "one", two = folder.path() / "two";
  OneScaler plain;
  plain.iterate();
  save_checkpoint(one, plain.training_state(), {});
  ScalerForEachLoss per_loss;
  per_loss.iterate();
  save_checkpoint(two, per_loss.training_state(), {});

  const auto error = [](const std::filesystem::path& file, TwoModels& into) {
    return message_of([&] {
      TrainingState state = into.training_state();
      CheckpointFile(file).load(state);
    });
  };
  EXPECT_THAT(error(one, per_loss), HasSubstr("tensor 'scaler.loss0' is missing"));
  EXPECT_THAT(error(two, plain), HasSubstr("tensor 'scaler.loss0' (U8 (" + std::to_string(sizeof(StepState)) +
                                           ")) belongs to nothing"));
  ScalerForEachLoss three(3);
  EXPECT_THAT(error(two, three), HasSubstr("tensor 'scaler.loss2' is missing"));
  OneScaler disabled({.policy = "dynamic", .enabled = false});
  EXPECT_THAT(error(one, disabled),
              AllOf(HasSubstr("scaler.policy = \"torch\""), HasSubstr("this run has \"disabled\"")));
}

}  // namespace
}  // namespace fp16lab::engine::test
