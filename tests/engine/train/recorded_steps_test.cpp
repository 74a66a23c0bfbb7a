// Recorded steps: the same run as verb by verb, and a step as a program that is fed, run and asked.
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "engine/nn/models/mlp.hpp"
#include "engine/train/methods/gan.hpp"
#include "engine/train/methods/two_models.hpp"
#include "engine/train/recorded_steps.hpp"
#include "tests/engine/backend/pair.hpp"
#include "tests/engine/train/recipe_support.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::engine::test::recorded_steps_test {
namespace {

using testing::HasSubstr;
using testing_support::message_of;

/// Overflows at first, and grows again.
const amp::ScalerOptions overflowing{
    .policy = "paddle-static", .initial_scale = 0x1p24, .growth_interval = 2};

std::unique_ptr<nn::Module> mlp(Backend& backend, const std::string& path) {
  return std::make_unique<nn::Mlp>(backend, nn::MlpOptions{.widths = {6, 9, 3}, .path = path, .seed = 3});
}

RunSetup setup_of(Level level, std::int64_t accumulate) {
  return {.train = {.steps = 24,
                    .accumulate = accumulate,
                    .clip_norm = 1,
                    .clip_value = 0.25,
                    .seed = 3,
                    .evaluate_every = 5},
          .amp = {.level = level, .dialect = amp::Dialect::paddle},
          .scaler = overflowing,
          .optimizer = {.learning_rate = 0.0625, .momentum = 0.5}};
}

/// Counts of every third step, names of what overflowed although values are clipped, and evaluations between
/// replays.
TEST(RecordedSteps, ShowWhatVerbByVerbShows) {
  for (const bool two_models : {false, true}) {
    PairedRun run{.model = [&](Backend& backend) -> std::unique_ptr<nn::Module> {
                    if (!two_models) return mlp(backend, "model");
                    return std::make_unique<nn::ModelPair>(mlp(backend, "model0"), mlp(backend, "model1"));
                  },
                  .batches = [] { return std::make_unique<FixedBatches>(class_batches(4)); },
                  .setup = setup_of(Level::O1, 2),
                  .observe_every = 3};
    if (two_models) run.method = [] { return std::make_unique<TwoModels>(); };
    const ShownRun expected = shown(*hopper_backend(1), run);
    expect_the_same_run(expected, shown(*hopper_backend(1), run, true));
    EXPECT_GT(expected.overflows.size(), 2u) << "some in recorded steps";
    EXPECT_FALSE(expected.overflows.back().parameters.empty());
    EXPECT_LT(expected.overflows.size(), run.setup.train.steps / 2);
  }
}

/// Fed by hand, with the loss asked for by name, it trains as a Trainer does.
TEST(RecordedSteps, AreAProgramThatIsFedRunAndAsked) {
  RunSetup setup = setup_of(Level::O2, 1);
  setup.scaler.initial_scale = 1024;  // NaN equals nothing
  const std::vector<HostBatch> batches = class_batches(4);
  MethodRun expected(
      batches, [](Backend& backend) { return mlp(backend, "model"); }, {}, setup);

  const auto backend = hopper_backend(1);
  Workload workload{.model = mlp(*backend, "model")};
  Supervised method;
  TrainOptions train = setup.train;
  train.graph = true;
  const TrainingPlan plan = plan_training(train, setup.amp, setup.scaler, setup.optimizer);
  Iteration parts(*backend, workload, method, plan);
  RecordedSteps program(*backend, method, parts);
  const auto asked = [&](const std::string& name) { return values_of(*backend, program.fetch(name)); };
  for (std::uint64_t step = 0; step < 8; ++step) {
    const StepRow row = expected.trainer.train_step();
    const HostBatch& batch = batches[step % batches.size()];
    program.feed("inputs", tensor_of(*backend, batch.shape, batch.inputs));
    program.feed("targets", index_of(*backend, batch.labels));
    program.run();
    EXPECT_EQ(asked("loss"), std::vector{static_cast<float>(row.loss)}) << step;
    EXPECT_EQ(asked("loss_scale"), std::vector{static_cast<float>(expected.trainer.step_state().scale)});
    for (const Parameter* parameter : expected.trainer.parameters()) {
      EXPECT_EQ(asked(parameter->name), values_of(*expected.backend, parameter->value)) << step;
      EXPECT_EQ(asked(parameter->name + ".gradient"), values_of(*expected.backend, parameter->gradient));
    }
  }
  EXPECT_EQ(backend->read_step_state(parts.step_memory()).iteration, 8u);
}

TEST(RecordedSteps, SayWhatIsFedAndFetchedWrongly) {
  const auto backend = hopper_backend(1);
  Workload workload{.model = mlp(*backend, "model")};
  Supervised method;
  RunSetup setup = setup_of(Level::O1, 2);
  setup.train.graph = true;
  Iteration parts(*backend, workload, method,
                  plan_training(setup.train, setup.amp, setup.scaler, setup.optimizer));
  RecordedSteps program(*backend, method, parts);
  const HostBatch batch = class_batches(1).front();
  const Tensor inputs = tensor_of(*backend, batch.shape, batch.inputs),
               labels = index_of(*backend, batch.labels);
  EXPECT_EQ(message_of([&] { program.fetch("loss"); }), "fetch: nothing was run");
  EXPECT_EQ(message_of([&] { program.feed("image", inputs); }),
            "feed: a step takes no \"image\"; expected \"inputs.0\" or \"targets.1\"");
  for (const char* name : {"inputs.0", "inputs.1"}) program.feed(name, inputs);
  program.feed("targets.0", labels);
  EXPECT_EQ(message_of([&] { program.run(); }), "run: \"targets.1\" was not fed");
  program.feed("targets.1", labels);
  program.run();
  EXPECT_EQ(message_of([&] { program.feed("inputs.1", labels); }),
            "feed: inputs.1 is i32 (4); expected f32 (4, 6), as it was fed first");
  EXPECT_THAT(message_of([&] { program.fetch("fc9"); }),
              testing::AllOf(HasSubstr("fetch: a step has no \"fc9\"; it has loss, loss_scale, "),
                             HasSubstr("fc1.weight, "), HasSubstr("fc1.weight.gradient, ")));
}

TEST(RecordedSteps, RefuseWhatTheyCannotHold) {
  const auto backend = hopper_backend(1);
  EXPECT_NO_THROW(check_graph({.graph = true}, *backend, Supervised()));
  EXPECT_THAT(
      message_of([&] { check_graph({.graph = true}, *backend, AdversarialTraining()); }),
      HasSubstr("train.graph = true: the training method (train.method) reads numbers from the host"));
  Workload workload{.model = mlp(*backend, "model")};
  Supervised method;
  Iteration parts(*backend, workload, method, plan_training({.steps = 1}, {}, {}, {}));
  EXPECT_THAT(message_of([&] { RecordedSteps(*backend, method, parts); }), HasSubstr("train.graph = false"));
}

}  // namespace
}  // namespace fp16lab::engine::test::recorded_steps_test
