// TwoModels against a loop written by hand: one scaler, two optimizers, every case of who overflows.
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/nn/models/mlp.hpp"
#include "engine/train/methods/two_models.hpp"
#include "tests/engine/autograd/twin.hpp"
#include "tests/engine/train/recipe_support.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::engine::test::two_models_test {
namespace {

constexpr float learning_rate = 0.03125f, momentum = 0.5f;

/// Which models have hidden units that are 256 times as large, and weights after them that are 256 times as
/// small: the same function (ReLU is homogeneous), but gradients of the second weights that overflow 256
/// times earlier.
struct Large {
  bool model0 = false, model1 = false;
};

std::unique_ptr<nn::Mlp> make_mlp(Backend& backend, const std::string& path, bool large) {
  auto mlp = std::make_unique<nn::Mlp>(backend, nn::MlpOptions{.widths = {6, 5, 3}, .path = path, .seed = 3});
  const auto parameters = mlp->parameters();  // fc1.weight, fc1.bias, fc2.weight, fc2.bias
  for (std::size_t p = 0; p < 3 && large; ++p)
    backend.scale(parameters[p]->value, p < 2 ? 256.0f : 0x1p-8f, parameters[p]->value);
  return mlp;
}

std::unique_ptr<nn::Module> make_pair(Backend& backend, Large large) {
  return std::make_unique<nn::ModelPair>(make_mlp(backend, "model0", large.model0),
                                         make_mlp(backend, "model1", large.model1));
}

std::unique_ptr<TrainingMethod> two_models() { return std::make_unique<TwoModels>(); }

RunSetup setup_of(Level level, double scale) {
  RunSetup setup;
  setup.train = {.steps = 8, .clip_norm = 0.25};
  setup.amp = {.level = level};
  setup.scaler = {.policy = "dynamic", .initial_scale = scale, .growth_interval = 4};
  setup.optimizer = {.learning_rate = learning_rate, .momentum = momentum};
  return setup;
}

MethodRun run_of(const RunSetup& setup, Large large) {
  return MethodRun(
      class_batches(5), [large](Backend& backend) { return make_pair(backend, large); }, two_models, setup);
}

struct HandResult {
  HandModel models[2];
  struct Step {
    double scale, loss;
    bool found_inf[2];
    bool operator==(const Step&) const = default;
  };
  std::vector<Step> steps;
};

/// The steps of PyTorch's example, on ops with explicit casts and in host arithmetic.
HandResult hand_loop(const RunSetup& setup, Large large) {
  const auto backend = hopper_backend();
  const bool o1 = setup.amp.level == Level::O1;
  const auto batches = class_batches(5);
  HandResult result{.models = {hand_model(*backend, *make_mlp(*backend, "model0", large.model0)),
                               hand_model(*backend, *make_mlp(*backend, "model1", large.model1))},
                    .steps = {}};
  HandScale scale{.scale = setup.scaler.initial_scale.value(),
                  .interval = static_cast<std::int64_t>(setup.scaler.growth_interval.value())};
  for (std::uint64_t step = 0; step < setup.train.steps; ++step) {
    const HostBatch& batch = batches[step % batches.size()];
    Tape tape(*backend);
    std::vector<Variable> leaves[2], all;
    Variable outputs[2];
    const Variable x = low_if(o1, tape.constant(tensor_of(*backend, batch.shape, batch.inputs)));
    for (std::size_t m = 0; m < 2; ++m) {
      leaves[m] = result.models[m].leaves(tape);
      all.insert(all.end(), leaves[m].begin(), leaves[m].end());
      outputs[m] = perceptron(low_if(o1, leaves[m]), x);
    }
    const auto loss_of = [&](float of_a, float of_b) {
      const Variable mixed = ops::add(ops::scale(outputs[0], of_a), ops::scale(outputs[1], of_b));
      return ops::softmax_cross_entropy(ops::cast(mixed, DType::f32), index_of(*backend, batch.labels));
    };
    const Variable loss0 = loss_of(2, 3), loss1 = loss_of(3, -5);
    HostValues sum = scaled_gradients(tape, loss0, static_cast<float>(scale.scale), all, true);
    add_to(sum, scaled_gradients(tape, loss1, static_cast<float>(scale.scale), all));

    const auto middle = sum.begin() + 4;
    HostValues gradients[2] = {{sum.begin(), middle}, {middle, sum.end()}};
    HandResult::Step record{.scale = scale.scale, .loss = 0, .found_inf = {}};
    const float total = values_of(*backend, loss0.tensor())[0] + values_of(*backend, loss1.tensor())[0];
    record.loss = static_cast<double>(total);
    for (std::size_t m = 0; m < 2; ++m) record.found_inf[m] = unscale_by_hand(gradients[m], scale.scale);
    if (setup.train.clip_norm > 0) clip_by_hand(gradients[0], setup.train.clip_norm);
    for (std::size_t m = 0; m < 2; ++m)
      result.models[m].step(gradients[m], record.found_inf[m], learning_rate, momentum);
    scale.update(record.found_inf[0] || record.found_inf[1]);
    result.steps.push_back(record);
  }
  return result;
}

struct Case {
  std::string name;
  Level level = Level::O1;
  double scale = 64;
  Large large = {};
  bool overflows[2] = {};  ///< in the first step
};

void PrintTo(const Case& test_case, std::ostream* out) { *out << test_case.name; }

class WhoOverflows : public testing::TestWithParam<Case> {};

TEST_P(WhoOverflows, SkipsAloneWhileTheScaleBacksOffForAllBitForBit) {
  const Case& test_case = GetParam();
  const RunSetup setup = setup_of(test_case.level, test_case.scale);
  const HandResult hand = hand_loop(setup, test_case.large);
  for (std::size_t m = 0; m < 2; ++m)
    EXPECT_EQ(hand.steps[0].found_inf[m], test_case.overflows[m]) << "the case is what its name says";
  const bool any = test_case.overflows[0] || test_case.overflows[1];
  EXPECT_EQ(hand.steps[1].scale, any ? test_case.scale / 2 : test_case.scale);

  MethodRun run = run_of(setup, test_case.large);
  std::vector<HandResult::Step> steps;
  for (std::uint64_t step = 0; step < setup.train.steps; ++step) {
    const StepRow record = run.trainer.train_step();
    const StepState state = run.trainer.step_state();
    steps.push_back({.scale = record.loss_scale,
                     .loss = record.loss,
                     .found_inf = {state.found_inf[0] != 0.0f, state.found_inf[1] != 0.0f}});
    EXPECT_EQ(record.found_inf, state.found_inf[0] + state.found_inf[1] > 0.0f);
    EXPECT_EQ(record.skipped, record.found_inf);
  }
  for (std::size_t step = 0; step < steps.size(); ++step) {
    EXPECT_EQ(steps[step].scale, hand.steps[step].scale) << step;
    EXPECT_EQ(steps[step].loss, hand.steps[step].loss) << step;
    EXPECT_EQ(steps[step].found_inf[0], hand.steps[step].found_inf[0]) << step;
    EXPECT_EQ(steps[step].found_inf[1], hand.steps[step].found_inf[1]) << step;
  }
  HostValues expected = hand.models[0].weights;
  expected.insert(expected.end(), hand.models[1].weights.begin(), hand.models[1].weights.end());
  EXPECT_EQ(run.weights(), expected);
  const StepState state = run.trainer.step_state();
  for (std::size_t m = 0; m < 2; ++m) {
    EXPECT_EQ(state.taken_steps[m], hand.models[m].taken);
    EXPECT_EQ(state.skipped_steps[m], hand.models[m].skipped);
  }
}

// A gradient of the logits of a loss is below S/4 times the factor, 5 at most, so weights after hidden units
// of about 1 stay finite up to S = 2^14; those after units of about 256 overflow at 2^13.
INSTANTIATE_TEST_SUITE_P(
    Cases, WhoOverflows,
    testing::Values(
        Case{.name = "fp32", .level = Level::O0, .scale = 1}, Case{.name = "nobody"},
        Case{.name = "only_model_0", .scale = 0x1p13, .large = {.model0 = true}, .overflows = {true, false}},
        Case{.name = "only_model_1", .scale = 0x1p13, .large = {.model1 = true}, .overflows = {false, true}},
        Case{.name = "both",
             .scale = 0x1p13,
             .large = {.model0 = true, .model1 = true},
             .overflows = {true, true}}),
    [](const auto& named) { return named.param.name; });

TEST(TwoModels, OnlyModel0IsClipped) {
  RunSetup setup = setup_of(Level::O0, 1);
  setup.train.steps = 1;
  MethodRun clipped = run_of(setup, {});
  setup.train.clip_norm = 0;
  MethodRun free = run_of(setup, {});
  clipped.trainer.run();
  free.trainer.run();
  const auto norm = [](const HostValues& gradients, bool first) {
    const auto middle = gradients.begin() + 4;
    return norm_by_hand(first ? HostValues(gradients.begin(), middle) : HostValues(middle, gradients.end()));
  };
  const HostValues with = clipped.gradients(), without = free.gradients();
  EXPECT_GT(norm(without, true), 0.25);
  // The factor's and the products' roundings, and the 1e-6 of the factor's denominator.
  EXPECT_NEAR(norm(with, true), 0.25, 0.25 * (4 * 0x1p-24 + 1e-6 / 0.25));
  EXPECT_GT(norm(without, false), 0.25);
  EXPECT_EQ(norm(with, false), norm(without, false));
  const double first = norm(without, true), second = norm(without, false);
  EXPECT_EQ(clipped.recorder.steps[0].grad_norm, std::sqrt(first * first + second * second))
      << "over both models, before clipping";
}

/// The scale of model 1 alone begins so high that its layers overflow.
RunSetup scales_of_layers(const std::string& policy) {
  RunSetup setup = setup_of(Level::O1, 1);
  setup.train = {.steps = 40, .clip_norm = 0.25};
  setup.optimizer.learning_rate = 0x1p-10;
  setup.scaler = {.policy = policy, .groups = {"model0.*=16", "model1.*=2^20"}};
  return setup;
}

TEST(TwoModels, LayersOfTheSecondModelComeDownTooAndStepsAreTakenAgain) {
  for (const std::string policy : {"layerwise", "groups"}) {
    MethodRun run = run_of(scales_of_layers(policy), {});
    const RunResult result = run.trainer.run();
    EXPECT_GT(result.skipped_steps, 0u) << policy << ": the case is what it should be";
    EXPECT_LT(result.skipped_steps, result.steps) << policy;
    EXPECT_FALSE(run.recorder.steps.back().found_inf) << policy;
    for (const StepRow& record : run.recorder.steps)
      EXPECT_EQ(std::isfinite(record.grad_norm), !record.found_inf) << policy << ", step " << record.step;
  }
}

TEST(TwoModels, TheNormOfAnOverflowInEitherModelIsNotFinite) {
  for (const bool per_loss : {false, true}) {
    RunSetup setup = setup_of(Level::O1, 0x1p13);
    setup.scaler.per_loss = per_loss;
    for (const Large large : {Large{.model0 = true}, Large{.model1 = true}}) {
      MethodRun run = run_of(setup, large);
      run.trainer.run();
      EXPECT_TRUE(run.recorder.steps.front().found_inf);
      for (const StepRow& record : run.recorder.steps)
        EXPECT_EQ(std::isfinite(record.grad_norm), !record.found_inf) << "step " << record.step;
    }
  }
}

TEST(TwoModels, BothModelsAreInTheDump) {
  const testing_support::TemporaryFolder folder;
  for (const bool per_loss : {false, true}) {
    RunSetup setup = setup_of(Level::O1, 64);
    setup.scaler.per_loss = per_loss;
    setup.train.clip_norm = 0;
    MethodRun run = run_of(setup, {});
    run.trainer.dump_gradients(1, folder.path() / "dump");
    run.trainer.train_step();
    const SafetensorsReader reader(folder.path() / "dump");
    const HostValues gradients = run.gradients();
    for (std::size_t p = 0; p < gradients.size(); ++p) {
      const std::string& name = run.trainer.parameters()[p]->name;
      ASSERT_NE(reader.find(name), nullptr) << name;
      ASSERT_NE(reader.find("parameter." + name), nullptr) << name;
      std::vector<float> dumped(gradients[p].size());
      reader.read(*reader.find(name), std::as_writable_bytes(std::span(dumped)));
      EXPECT_EQ(dumped, gradients[p]) << name;
    }
  }
}

TEST(TwoModels, NeedsAPairAndNamesItsOptimizers) {
  const auto backend = hopper_backend();
  const auto pair = make_pair(*backend, {});
  const auto groups = TwoModels().groups(*pair);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].name, "model0");
  EXPECT_EQ(groups[1].parameters.at(0)->name, "model1.fc1.weight");
  const auto alone = make_mlp(*backend, "", false);
  expect_rejected([&] { TwoModels().groups(*alone); }, {"TwoModels", "ModelPair"});
  expect_rejected([] { nn::ModelPair(nullptr, nullptr); }, {"ModelPair", "first", "null"});
}

TEST(TwoModels, EveryLevelOfEveryDialectTrains) {
  expect_every_level_trains(setup_of(Level::O1, 16), [](const RunSetup& setup) { return run_of(setup, {}); });
}

TEST(TwoModels, TheSameBitsWithTwoThreadsAndAfterResuming) {
  RunSetup setup = setup_of(Level::O1, 0x1p13);
  setup.train = {.steps = 7, .accumulate = 2, .clip_norm = 0.25, .evaluate_every = 3};
  setup.optimizer = {.name = optim::Algorithm::adam, .learning_rate = 0.01};
  const auto make = [&](int threads) {
    return std::make_unique<MethodRun>(
        class_batches(5), [](Backend& backend) { return make_pair(backend, {.model1 = true}); }, two_models,
        setup, LossKind::cross_entropy, threads);
  };
  expect_the_same_with_two_threads(make);
  const testing_support::TemporaryFolder folder;
  expect_the_same_after_resuming([&] { return make(1); }, folder.path());
}

}  // namespace
}  // namespace fp16lab::engine::test::two_models_test
