// Rescue of overflowed steps: the same bits as a step that began at the lower scale, and nothing else
// changed.
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "engine/nn/models/mlp.hpp"
#include "engine/train/methods/gradient_penalty.hpp"
#include "engine/train/rescue.hpp"
#include "tests/engine/train/recipe_support.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::engine::test {
namespace {

using testing::HasSubstr;

/// BatchNorm, dropout, Adam, clipping, three micro-batches.
RunSetup setup_of(const ScalerOptions& scaler, std::uint64_t steps = 8) {
  RunSetup setup;
  setup.train = {.steps = steps, .accumulate = 3, .clip_norm = 0.25, .clip_value = 0.125, .seed = 3};
  setup.scaler = scaler;
  return setup;
}

std::vector<std::vector<std::byte>> bytes_of_all(TrainingRun& run) {
  std::vector<std::vector<std::byte>> all;
  for (const auto& [name, tensor] : run.trainer.training_state().tensors)
    all.push_back(bytes_of(*run.backend, tensor));
  for (const Parameter* parameter : run.trainer.parameters())
    all.push_back(bytes_of(*run.backend, parameter->gradient));
  return all;
}

TEST(Rescue, AStepThatBeganAtTheLowerScaleHasTheSameBits) {
  for (const std::int64_t accumulate : {1, 3})
    for (const AccumulateMode mode : {AccumulateMode::mean, AccumulateMode::sum}) {
      RunSetup high =
          setup_of({.policy = "torch", .initial_scale = 0x1p24, .growth_interval = 1000, .rescue = 40}, 3);
      // Three steps: a fourth may overflow at the scale that the first came down to, and only one of them
      // rescues it.
      high.train.accumulate = accumulate;
      high.train.accumulate_mode = mode;
      TrainingRun rescued(high);
      rescued.trainer.run();
      const StepRow& first = rescued.recorder.steps.front();
      const std::uint64_t rescues = rescued.recorder.rescues(1);
      ASSERT_GE(rescues, 2u);
      EXPECT_FALSE(first.found_inf);
      EXPECT_FALSE(first.skipped);
      EXPECT_LT(first.loss_scale, 0x1p24);

      RunSetup low = high;
      low.scaler.initial_scale = first.loss_scale;
      low.scaler.rescue = 0;
      TrainingRun straight(low);
      straight.trainer.run();
      ASSERT_EQ(rescued.recorder.steps.size(), straight.recorder.steps.size());
      // All of the state: weights, running statistics, moments, and StepState with its counters and the
      // policy's.
      for (std::size_t i = 0; i < straight.recorder.steps.size(); ++i) {
        const StepRow &expected = straight.recorder.steps[i], &actual = rescued.recorder.steps[i];
        EXPECT_EQ(actual.state_hash, expected.state_hash) << i;
        EXPECT_EQ(actual.loss, expected.loss);
        EXPECT_EQ(actual.grad_norm, expected.grad_norm);
        EXPECT_EQ(actual.loss_scale, expected.loss_scale);
        EXPECT_EQ(actual.skipped, expected.skipped);
        EXPECT_EQ(rescued.recorder.rescues(actual.step), i == 0 ? rescues : 0u);
      }
      EXPECT_TRUE(bytes_of_all(rescued) == bytes_of_all(straight));
      EXPECT_EQ(rescued.trainer.step_state().skipped_steps[0], 0u);
      EXPECT_TRUE(straight.recorder.overflows.empty());
      ASSERT_EQ(rescued.recorder.overflows.size(), 1u);
      const OverflowRow& overflow = rescued.recorder.overflows.front();
      EXPECT_EQ(overflow.loss_scale, 0x1p24);
      EXPECT_EQ(overflow.rescue,
                (RescueRow{.attempts = rescues, .loss_scale = first.loss_scale, .rescued = true}));
      EXPECT_NE(overflow.kind, OverflowKind::loss);
      EXPECT_TRUE(overflow.optimizers.empty());
      EXPECT_FALSE(overflow.parameters.empty());
    }
}

TEST(Rescue, InTheMiddleOfARunToo) {
  // S grows after every second step and overflows again. Each rescued step is done once more, from the
  // checkpoint before it, at the scale that it ended with.
  const testing_support::TemporaryFolder folder;
  const RunSetup setup =
      setup_of({.policy = "torch", .initial_scale = 0x1p17, .growth_interval = 2, .rescue = 3}, 24);
  TrainingRun run(setup, folder.path());
  run.trainer.run();
  EXPECT_EQ(run.trainer.step_state().skipped_steps[0], 0u);
  RunSetup plain = setup;
  plain.scaler.rescue = 0;
  std::size_t rescued = 0;
  for (const StepRow& record : run.recorder.steps) {
    if (run.recorder.rescues(record.step) == 0 || record.step == 1) continue;
    ++rescued;
    TrainingRun again(plain);
    again.resume(folder.path() / std::to_string(record.step - 1));
    TrainingState state = again.trainer.training_state();
    StepState step = again.backend->read_step_state(state.step);
    step.set_scale(record.loss_scale);
    const auto scale = static_cast<float>(record.loss_scale);
    std::memcpy(step.policy.data(), &scale, sizeof(scale));  // TorchScaling::State begins with it
    again.backend->write_step_state(step, state.step);
    const StepRow redone = again.trainer.train_step();
    EXPECT_FALSE(redone.found_inf);
    EXPECT_EQ(redone.loss, record.loss);
    EXPECT_EQ(redone.grad_norm, record.grad_norm);

    TrainingRun until(setup);
    until.resume(folder.path() / std::to_string(record.step - 1));
    until.trainer.train_step();
    EXPECT_TRUE(bytes_of_all(until) == bytes_of_all(again)) << "step " << record.step;
  }
  EXPECT_GE(rescued, 3u);
}

TEST(Rescue, WhatStaysSkippedIsSkippedOnce) {
  TrainingRun run(
      setup_of({.policy = "torch", .initial_scale = 0x1p40, .growth_interval = 1000, .rescue = 2}, 3));
  run.trainer.run();
  for (std::size_t i = 0; i < 3; ++i) {
    const StepRow& record = run.recorder.steps[i];
    EXPECT_TRUE(record.skipped);
    EXPECT_TRUE(record.found_inf);
    // The policy has seen three overflows a step.
    EXPECT_EQ(record.loss_scale, std::ldexp(1.0, 40 - 3 * static_cast<int>(i) - 2));
    const OverflowRow& overflow = run.recorder.overflows[i];
    EXPECT_EQ(overflow.loss_scale, std::ldexp(1.0, 40 - 3 * static_cast<int>(i)));
    EXPECT_EQ(overflow.rescue, (RescueRow{.attempts = 2, .loss_scale = record.loss_scale, .rescued = false}));
    EXPECT_EQ(overflow.optimizers, (std::vector<std::string>{"model"}));
  }
  const StepState state = run.trainer.step_state();
  EXPECT_EQ(state.skipped_steps[0], 3u);
  EXPECT_EQ(state.taken_steps[0], 0u);
  EXPECT_EQ(state.scale, 0x1p31);
}

TEST(Rescue, IsNotTriedWhereItCannotHelp) {
  // The floor holds S where it is.
  TrainingRun floored(setup_of({.policy = "torch",
                                .initial_scale = 0x1p30,
                                .growth_interval = 1000,
                                .parameters = {{"min_scale", 0x1p30}},
                                .rescue = 5},
                               2));
  floored.trainer.run();
  for (const StepRow& record : floored.recorder.steps) {
    EXPECT_TRUE(record.skipped);
    EXPECT_EQ(floored.recorder.rescues(record.step), 0u);
  }
  EXPECT_FALSE(floored.recorder.overflows.front().rescue);
  // The loss is NaN: so is every gradient, at any scale.
  TrainingRun nan(setup_of({.policy = "torch", .initial_scale = 1024, .rescue = 5}, 2));
  Tensor weight = nan.trainer.parameters().front()->value;
  std::vector<float> values = values_of(*nan.backend, weight);
  values.front() = std::numeric_limits<float>::quiet_NaN();
  nan.backend->upload(std::as_bytes(std::span(values)), weight);
  nan.trainer.train_step();
  ASSERT_EQ(nan.recorder.overflows.size(), 1u);
  EXPECT_FALSE(nan.recorder.overflows.front().rescue);
  EXPECT_EQ(nan.trainer.step_state().scale, 512.0);
}

TEST(Rescue, OffIsOffAndOnChangesNoStepWithoutOverflow) {
  const ScalerOptions off{.policy = "torch", .initial_scale = 1024, .growth_interval = 1000};
  ScalerOptions on = off;
  on.rescue = 3;
  TrainingRun without(setup_of(off)), with(setup_of(on));
  without.trainer.run();
  with.trainer.run();
  for (std::size_t i = 0; i < without.recorder.steps.size(); ++i)
    EXPECT_EQ(without.recorder.steps[i].state_hash, with.recorder.steps[i].state_hash);
  EXPECT_GT(with.backend->memory_statistics().peak_bytes_in_use,
            without.backend->memory_statistics().peak_bytes_in_use)
      << "graphs of three micro-batches are kept";
}

TEST(Rescue, IsExplainedWithTheSameBits) {
  const RunSetup setup =
      setup_of({.policy = "torch", .initial_scale = 0x1p22, .growth_interval = 1000, .rescue = 20}, 2);
  TrainingRun plain(setup), explained(setup);
  explained.recorder.explain = true;
  plain.trainer.run();
  explained.trainer.run();
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_EQ(plain.recorder.steps[i].state_hash, explained.recorder.steps[i].state_hash);
  ASSERT_FALSE(explained.recorder.overflows.empty());
  const OverflowRow& overflow = explained.recorder.overflows.front();
  EXPECT_TRUE(overflow.rescue.value().rescued);
  ASSERT_FALSE(explained.recorder.culprits.empty());
  EXPECT_EQ(explained.recorder.culprits.front().step, overflow.step);
  EXPECT_EQ(explained.recorder.culprits.front().pass, CulpritPass::backward);
  EXPECT_EQ(explained.recorder.culprits.front().loss_scale, 0x1p22) << "of the pass that overflowed first";
}

/// Any policy, loss and level.
std::unique_ptr<MethodRun> perceptron_run(const RunSetup& setup, int threads = 1) {
  return std::make_unique<MethodRun>(
      class_batches(4),
      [](Backend& backend) {
        return std::make_unique<nn::Mlp>(backend, nn::MlpOptions{.widths = {6, 16, 3}, .seed = 3});
      },
      nullptr, setup, LossKind::cross_entropy, threads);
}

TEST(Rescue, With16BitLossesAndLostMass) {
  // The loss times S is beyond FP16 at first, and so is the seed itself.
  RunSetup setup;
  setup.train = {.steps = 4, .seed = 3};
  setup.amp = {.level = Level::O2, .dialect = amp::Dialect::paddle, .low_loss = true};
  setup.scaler = {.policy = "lost-mass", .initial_scale = 0x1p18, .rescue = 20};
  const auto run = perceptron_run(setup);
  run->trainer.run();
  EXPECT_GE(run->recorder.rescues(1), 1u);
  for (const StepRow& record : run->recorder.steps) EXPECT_FALSE(record.skipped);
  for (const OverflowRow& overflow : run->recorder.overflows) EXPECT_TRUE(overflow.rescue.value().rescued);
  EXPECT_TRUE(run->recorder.loss_overflow(1));
}

TEST(Rescue, ResumesWithTheSameBits) {
  for (const char* const policy : {"torch", "lost-mass", "popart", "openseq2seq-logmax"}) {
    SCOPED_TRACE(policy);
    const testing_support::TemporaryFolder folder;
    RunSetup setup;
    setup.train = {.steps = 10, .accumulate = 2, .seed = 3};
    setup.scaler = {.policy = policy, .initial_scale = 0x1p28, .growth_interval = 2, .rescue = 1};
    // One overflow is enough for it.
    if (policy == std::string("openseq2seq-logmax")) setup.scaler.rescue = 0;
    setup.scaler.parameters = {{"max_scale", 0x1p60}};
    expect_the_same_after_resuming([&] { return perceptron_run(setup); }, folder.path());
    expect_the_same_with_two_threads([&](int threads) { return perceptron_run(setup, threads); });
  }
}

TEST(Rescue, ObservedGradientsAreThoseOfTheLastPass) {
  struct Watcher final : Tap {
    std::vector<double> scales;
    std::uint64_t infinite = 0, values = 0, rescues = 0;
    bool wants(const Site& site) override {
      return site.what == What::gradients || site.what == What::overflows;
    }
    void see(const Event& event) override {
      if (const auto* overflow = event.as<OverflowRow>()) rescues = overflow->rescue.value().attempts;
      const auto* const row = event.as<HistogramRow>();
      if (row == nullptr) return;
      scales.push_back(row->loss_scale);
      infinite += row->after.infinite + row->after.nan;
      if (row->tensor == "fc1.weight") values += row->before.total();
    }
  } watcher;
  const auto backend = hopper_backend();
  FixedBatches batches(class_batches(4));
  Workload workload;
  workload.model = std::make_unique<nn::Mlp>(*backend, nn::MlpOptions{.widths = {6, 16, 3}, .seed = 3});
  workload.training = &batches;
  Trainer trainer(*backend, workload, {.steps = 1, .accumulate = 2}, {.level = Level::O1},
                  {.policy = "torch", .initial_scale = 0x1p24, .rescue = 40}, {.learning_rate = 0.1},
                  watcher);
  const StepRow record = trainer.train_step();
  EXPECT_GT(watcher.rescues, 0u);
  EXPECT_THAT(watcher.scales, testing::Each(record.loss_scale));
  EXPECT_EQ(watcher.infinite, 0u);
  EXPECT_EQ(watcher.values, 2u * 6 * 16) << "two micro-batches, one pass each";
}

TEST(Rescue, IsRefusedWhereItCannotBeHad) {
  const Supervised supervised;
  const GradientPenalty penalty;
  const auto message = [](const ScalerOptions& scaler, const TrainingMethod& method) -> std::string {
    try {
      check_rescue(scaler, method);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message({.policy = "torch", .rescue = 1}, supervised), "accepted");
  EXPECT_EQ(message({.policy = "none"}, penalty), "accepted");
  EXPECT_THAT(message({.policy = "none", .rescue = 1}, supervised),
              HasSubstr("scaler.rescue = 1 with scaler.policy"));
  EXPECT_THAT(message({.policy = "fixed", .rescue = 1}, supervised), HasSubstr("never decreases"));
  EXPECT_THAT(message({.policy = "torch", .rescue = -1}, supervised), HasSubstr("from 0 to 1000"));
  EXPECT_THAT(message({.policy = "torch", .per_loss = true, .rescue = 1}, supervised), HasSubstr("per_loss"));
  EXPECT_THAT(message({.policy = "torch", .rescue = 1}, penalty), HasSubstr("training method"));
  try {
    check(TrainOptions{.graph = true}, ScalerOptions{.policy = "torch", .rescue = 1});
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("train.graph = true with scaler.rescue = 1"));
  }
}

}  // namespace
}  // namespace fp16lab::engine::test
