// TrainingMethod and its Iteration: groups of parameters, several optimizers in one run, and their records.
#include "engine/train/method.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/engine/train/recipe_support.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::engine::test::method_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing_support::message_of;

/// Supervised, with an optimizer for the first layers (fc1, bn1) and one for the last (fc2). In `poisoned`
/// iterations the gradient of fc2.weight gets an infinity, which no other gradient sees.
class SplitSupervised final : public TrainingMethod {
 public:
  explicit SplitSupervised(std::vector<std::uint64_t> poisoned = {}) : poisoned_(std::move(poisoned)) {}

  std::vector<OptimizerGroup> groups(nn::Module& model) const override {
    std::vector<OptimizerGroup> all{{"body", {}}, {"head", {}}};
    for (Parameter* parameter : model.parameters())
      all[parameter->name.starts_with("fc2") ? 1 : 0].parameters.push_back(parameter);
    return all;
  }
  void run(Iteration& iteration) override {
    {
      const amp::AutocastGuard autocast(iteration.tape(), iteration.autocast());
      for (std::int64_t i = 0; i < iteration.micro_batches(); ++i) {
        const data::Batch batch = iteration.begin_micro_batch(i);
        const Variable loss = evaluate(iteration, batch).loss;
        iteration.record_loss(loss);
        iteration.backward(iteration.accumulated(loss));
        iteration.tape().reset();
      }
    }
    if (std::find(poisoned_.begin(), poisoned_.end(), iteration.number()) != poisoned_.end())
      poison(iteration);
    for (std::size_t group = 0; group < iteration.optimizer_count(); ++group) {
      iteration.unscale(iteration.optimizer(group));
      iteration.clip(iteration.optimizer(group));
      iteration.step(iteration.optimizer(group));
    }
  }
  Evaluation evaluate(Iteration& iteration, const data::Batch& batch) override {
    const Variable input = iteration.network_input(batch.inputs);
    const Variable output = iteration.network_output(iteration.model().forward(iteration.tape(), input));
    return {.loss = iteration.loss_of(output, batch.targets), .output = output};
  }

 private:
  static void poison(Iteration& iteration) {
    Tensor& gradient = iteration.optimizer(1).parameters().front()->gradient;
    std::vector<float> values = values_of(iteration.backend(), gradient);
    values[1] = std::numeric_limits<float>::infinity();
    iteration.backend().upload(std::as_bytes(std::span(values)), gradient);
  }
  std::vector<std::uint64_t> poisoned_;
};

RunSetup adam_at_o1() {
  RunSetup setup;
  setup.train = {.steps = 8, .accumulate = 3, .seed = 3};
  setup.amp.level = Level::O1;
  setup.scaler = {.policy = "dynamic", .initial_scale = 0x1p10, .growth_interval = 3};
  return setup;
}

std::unique_ptr<MethodRun> run_of(const MethodRun::MakeMethod& method, const RunSetup& setup,
                                  int threads = 1) {
  return std::make_unique<MethodRun>(
      class_batches(7), [](Backend& backend) { return std::make_unique<StatefulNet>(backend); }, method,
      setup, LossKind::cross_entropy, threads);
}
std::unique_ptr<MethodRun> split_run(const RunSetup& setup, std::vector<std::uint64_t> poisoned = {},
                                     int threads = 1) {
  return run_of([poisoned] { return std::make_unique<SplitSupervised>(poisoned); }, setup, threads);
}

TEST(TrainMethod, TwoOptimizersOfTheSameKindDoWhatOneDoes) {
  // Updates are elementwise, so dividing the parameters changes no bit of them.
  const RunSetup setup = adam_at_o1();
  const auto one = run_of({}, setup), two = split_run(setup);
  one->trainer.run();
  two->trainer.run();
  EXPECT_EQ(one->trainer.optimizer_count(), 1u);
  EXPECT_EQ(two->trainer.optimizer_count(), 2u);
  EXPECT_EQ(one->weights(), two->weights());
  for (std::size_t i = 0; i < one->recorder.steps.size(); ++i) {
    const StepRow &a = one->recorder.steps[i], &b = two->recorder.steps[i];
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.loss_scale, b.loss_scale);
    EXPECT_EQ(a.lr, b.lr);
    // The norm over both groups: two square roots, two squares, a sum and a square root more than the norm
    // over all, each with a relative error of at most 2^-53; the sums of squares (positive) differ in order
    // by a few of the same.
    EXPECT_NEAR(a.grad_norm, b.grad_norm, 16 * 0x1p-53 * a.grad_norm);
    EXPECT_NE(a.state_hash, b.state_hash) << "the counters of the second optimizer count";
  }
}

/// A network with a weight that its forward pass does not use.
class WithSpareWeight final : public nn::Module {
 public:
  explicit WithSpareWeight(Backend& backend)
      : spare_(add_parameter("spare", tensor_of(backend, {2}, {1, -2}))),
        net_(add_child(std::make_unique<StatefulNet>(backend))) {}
  Variable forward(Tape& tape, const Variable& x) override { return net_.forward(tape, x); }
  const Parameter& spare() const { return spare_; }

 private:
  Parameter& spare_;
  StatefulNet& net_;
};

TEST(TrainMethod, GradientsClearedToZerosMoveWhatNoLossReaches) {
  // clear_grad(set_to_zero) of Paddle. SGD by hand: v = 0.5 v + 0.25 w, w -= 0.125 v, all of it exact.
  RunSetup setup = adam_at_o1();
  setup.train.steps = 4;
  setup.optimizer = {.learning_rate = 0.125, .momentum = 0.5, .weight_decay = 0.25};
  const auto trained = [&](bool set_to_zero) {
    setup.optimizer.set_to_zero = set_to_zero;
    auto run = std::make_unique<MethodRun>(
        class_batches(7), [](Backend& backend) { return std::make_unique<WithSpareWeight>(backend); },
        MethodRun::MakeMethod(), setup);
    run->trainer.run();
    return run;
  };
  const auto none = trained(false), zero = trained(true);
  auto others = none->weights(), same = zero->weights();
  EXPECT_THAT(others.front(), ElementsAre(1.0f, -2.0f)) << "it stays";
  for (std::size_t i = 0; i < 2; ++i) {
    float w = i == 0 ? 1.0f : -2.0f, v = 0;
    for (int step = 0; step < 4; ++step) {
      v = 0.5f * v + 0.25f * w;
      w -= 0.125f * v;
    }
    EXPECT_EQ(same.front()[i], w) << "weight decay and momentum act on zeros";
  }
  others.erase(others.begin());
  same.erase(same.begin());
  EXPECT_EQ(others, same) << "all other weights have the same bits";
}

TEST(TrainMethod, SkippingIsPerOptimizerAndBackingOffIsNot) {
  RunSetup setup = adam_at_o1();
  setup.train.steps = 3;
  const auto run = split_run(setup, {1});
  run->trainer.train_step();
  const auto before = run->weights();
  const StepRow record = run->trainer.train_step();
  const auto after = run->weights();
  EXPECT_TRUE(record.found_inf);
  EXPECT_TRUE(record.skipped);
  EXPECT_EQ(record.grad_norm, std::numeric_limits<double>::infinity());
  const std::vector<Parameter*> parameters = run->trainer.parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i)
    EXPECT_EQ(before[i] == after[i], parameters[i]->name.starts_with("fc2")) << parameters[i]->name;
  EXPECT_EQ(run->trainer.step_state().taken_steps[0], 2u);
  EXPECT_EQ(run->trainer.step_state().taken_steps[1], 1u);
  EXPECT_EQ(run->trainer.step_state().skipped_steps[0], 0u);
  EXPECT_EQ(run->trainer.step_state().skipped_steps[1], 1u);
  EXPECT_EQ(run->trainer.step_state().scale, record.loss_scale / 2) << "one of them is enough";

  ASSERT_EQ(run->recorder.overflows.size(), 1u);
  const OverflowRow& overflow = run->recorder.overflows.front();
  EXPECT_EQ(overflow.step, 2u);
  EXPECT_EQ(overflow.loss_scale, record.loss_scale);
  EXPECT_EQ(overflow.kind, OverflowKind::gradient);
  EXPECT_THAT(overflow.optimizers, ElementsAre("head"));
  EXPECT_THAT(overflow.parameters, ElementsAre("fc2.weight"));

  EXPECT_FALSE(run->trainer.train_step().found_inf) << "flags do not stay";
  EXPECT_EQ(run->recorder.overflows.size(), 1u);
}

TEST(TrainMethod, ClippingByValueDoesNotHideWhichParameterOverflowed) {
  RunSetup setup = adam_at_o1();
  setup.train.steps = 1;
  setup.train.clip_value = 0.5;  // it makes the infinity 0.5
  const auto run = split_run(setup, {0});
  run->trainer.run();
  ASSERT_EQ(run->recorder.overflows.size(), 1u);
  EXPECT_THAT(run->recorder.overflows.front().parameters, ElementsAre("fc2.weight"));
}

TEST(TrainMethod, ResumingKeepsEveryOptimizersState) {
  const testing_support::TemporaryFolder folder;
  RunSetup setup = adam_at_o1();
  // Skips of both (overflow of the loss scale at first), of one alone, and growth of the scale.
  setup.scaler.initial_scale = 0x1p22;
  expect_the_same_after_resuming([&] { return split_run(setup, {4}); }, folder.path());
}

TEST(TrainMethod, ThreadsChangeNoBit) {
  expect_the_same_with_two_threads([](int threads) { return split_run(adam_at_o1(), {2}, threads); });
}

TEST(TrainMethod, ACheckpointOfOtherOptimizersIsRefused) {
  const testing_support::TemporaryFolder folder;
  const auto two = split_run(adam_at_o1());
  two->recorder.folder = folder.path();
  two->trainer.run();
  const auto one = run_of({}, adam_at_o1());
  EXPECT_THAT(message_of([&] { one->trainer.resume(CheckpointFile(folder.path() / "3")); }),
              HasSubstr("optimizer.name = \"body: adam, head: adam\", but this run has \"adam\""));
}

TEST(TrainMethod, AGradientDumpHoldsTheGroupsAsTheyWereUnscaled) {
  const testing_support::TemporaryFolder folder;
  const auto one = run_of({}, adam_at_o1()), two = split_run(adam_at_o1());
  one->trainer.dump_gradients(2, folder.path() / "one");
  two->trainer.dump_gradients(2, folder.path() / "two");
  one->trainer.run();
  two->trainer.run();
  const SafetensorsReader expected(folder.path() / "one"), actual(folder.path() / "two");
  ASSERT_EQ(actual.entries().size(), expected.entries().size());
  for (const SafetensorsEntry& entry : expected.entries()) {
    const SafetensorsEntry* found = actual.find(entry.name);
    ASSERT_NE(found, nullptr) << entry.name;
    EXPECT_EQ(actual.read(*found), expected.read(entry)) << entry.name;
  }
  EXPECT_EQ(actual.metadata(), expected.metadata());
  EXPECT_EQ(actual.metadata().at("scaled"), "0");
}

/// Its groups are what a test makes them; it never runs.
class AnyGroups : public TrainingMethod {
 public:
  using Make = std::function<std::vector<OptimizerGroup>(nn::Module&)>;
  explicit AnyGroups(Make make) : make_(std::move(make)) {}
  std::vector<OptimizerGroup> groups(nn::Module& model) const override { return make_(model); }
  void run(Iteration&) override {}
  Evaluation evaluate(Iteration&, const data::Batch&) override { return {}; }

 private:
  Make make_;
};

TEST(TrainMethod, ImpossibleGroupsAreNamed) {
  const auto error_of = [](const AnyGroups::Make& make) {
    return message_of([&] { run_of([&] { return std::make_unique<AnyGroups>(make); }, adam_at_o1()); });
  };
  EXPECT_THAT(error_of([](nn::Module&) { return std::vector<OptimizerGroup>{}; }), HasSubstr("0 optimizers"));
  EXPECT_THAT(error_of([](nn::Module& model) {
                return std::vector<OptimizerGroup>(static_cast<std::size_t>(max_optimizers) + 1,
                                                   {"one", {model.parameters().front()}});
              }),
              HasSubstr("9 optimizers: must be from 1 to 8"));
  EXPECT_THAT(error_of([](nn::Module& model) {
                return std::vector<OptimizerGroup>{{"first", model.parameters()},
                                                   {"second", {model.parameters().front()}}};
              }),
              AllOf(HasSubstr("fc1.weight"), HasSubstr("more than one optimizer"), HasSubstr("second")));
  const auto backend = hopper_backend();
  Parameter foreign("foreign.weight", tensor_of(*backend, {1}, {1.0f}));
  EXPECT_THAT(error_of([&](nn::Module&) {
                return std::vector<OptimizerGroup>{{"strangers", {&foreign}}};
              }),
              AllOf(HasSubstr("strangers"), HasSubstr("foreign.weight")));
}

TEST(TrainMethod, AnIterationWithoutALossIsAMistakeOfTheMethod) {
  const auto run = run_of(
      [] {
        return std::make_unique<AnyGroups>([](nn::Module& model) {
          return std::vector<OptimizerGroup>{{"all", model.parameters()}};
        });
      },
      adam_at_o1());
  EXPECT_THAT(message_of([&] { run->trainer.train_step(); }), HasSubstr("recorded no loss in iteration 1"));
}

}  // namespace
}  // namespace fp16lab::engine::test::method_test
