// Training with scales of layers: the bits of one global scale where nothing is lost, overflows, and runs
// that continue.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "engine/nn/models/mlp.hpp"
#include "engine/train/methods/gan.hpp"
#include "engine/train/methods/gradient_penalty.hpp"
#include "engine/train/methods/two_models.hpp"
#include "tests/engine/backend/pair.hpp"
#include "tests/engine/train/recipe_support.hpp"
#include "tests/engine/train/tiny_text.hpp"
#include "tests/support/char_model.hpp"
#include "tests/support/gan.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::engine::test::layer_scales_test {
namespace {

using testing::HasSubstr;

PairedRun classifier(const RunSetup& setup) {
  return {.model = [](Backend& b) -> std::unique_ptr<nn::Module> {
            return std::make_unique<nn::Mlp>(b, nn::MlpOptions{.widths = {6, 9, 7, 5, 3}, .seed = 3});
          },
          .batches = [] { return std::make_unique<FixedBatches>(class_batches(4)); },
          .setup = setup};
}

PairedRun text_model(bool transformer, const RunSetup& setup) {
  return {.model = [transformer](Backend& b) -> std::unique_ptr<nn::Module> {
            if (transformer)
              return std::make_unique<CharTransformer>(
                  b, CharTransformerOptions{
                         .symbols = 12, .context = 6, .embedding = 8, .heads = 2, .layers = 2, .seed = 3});
            return std::make_unique<CharLstm>(
                b, CharLstmOptions{.symbols = 12, .embedding = 6, .hidden = 5, .layers = 2, .seed = 3});
          },
          .batches = [] { return std::make_unique<TinyText>(); },
          .setup = setup};
}

PairedRun two_models(const RunSetup& setup) {
  return {
      .model = [](Backend& b) -> std::unique_ptr<nn::Module> {
        const auto one = [&](const std::string& path) {
          return std::make_unique<nn::Mlp>(b, nn::MlpOptions{.widths = {6, 5, 3}, .path = path, .seed = 3});
        };
        return std::make_unique<nn::ModelPair>(one("model0"), one("model1"));
      },
      .batches = [] { return std::make_unique<FixedBatches>(class_batches(5)); },
      .setup = setup,
      .method = [] { return std::make_unique<TwoModels>(); }};
}

/// Passes through a discriminator whose weights are frozen, and two optimizers.
PairedRun adversaries(const RunSetup& setup) {
  return {.model = [](Backend& b) -> std::unique_ptr<nn::Module> {
            return gan_of(b, {4, 8, 6}, {6, 5, 1});
          },
          .batches = [] { return std::make_unique<FixedBatches>(class_batches(4)); },
          .setup = setup,
          .method = [] { return std::make_unique<AdversarialTraining>(); }};
}

RunSetup setup_of(Level level, std::uint64_t steps, const amp::ScalerOptions& scaler) {
  return {.train = {.steps = steps, .clip_norm = 0.5, .seed = 3},
          .amp = {.level = level},
          .scaler = scaler,
          .optimizer = {.learning_rate = 0.0625, .momentum = 0.5}};
}

/// What a step computes; state hashes have the layers' own state in them.
std::vector<std::uint64_t> numbers_of(const StepRow& record) {
  return {record.step,
          word(record.loss),
          word(record.loss_scale),
          std::uint64_t{record.found_inf},
          std::uint64_t{record.skipped},
          word(record.grad_norm)};
}

/// Losses, norms and all weights. Gives how many gradients carried more or less than S.
std::size_t expect_the_same_numbers(const PairedRun& expected_run, const PairedRun& actual_run) {
  const auto backend = hopper_backend();
  const ShownRun expected = shown(*backend, expected_run), actual = shown(*backend, actual_run);
  EXPECT_EQ(expected.steps.size(), actual.steps.size());
  for (std::size_t i = 0; i < std::min(expected.steps.size(), actual.steps.size()); ++i)
    EXPECT_EQ(numbers_of(expected.steps[i]), numbers_of(actual.steps[i])) << "step " << i + 1;
  EXPECT_EQ(expected.weights, actual.weights);
  std::size_t scaled = 0;
  for (std::size_t i = 0; i < actual.gradients.size(); ++i)
    for (const auto& [name, gradient] : actual.gradients[i])
      scaled += gradient.loss_scale != actual.steps[i].loss_scale ? 1 : 0;
  return scaled;
}

amp::ScalerOptions ada_loss(double scale = 1) {
  amp::ScalerOptions options{.policy = "ada-loss", .initial_scale = scale};
  // The gradients of these small networks are large: a threshold at which factors differ from layer to layer.
  options.parameters = {{"u_min", 0.5}, {"scale_upper_bound", 4096}, {"accum_upper_bound", 0x1p30}};
  return options;
}

/// Layer policies with S = `scale`, whose scales move in a run.
std::vector<amp::ScalerOptions> layer_policies(double scale) {
  amp::ScalerOptions weights = ada_loss(scale);
  weights.parameters["use_weights"] = 1;
  amp::ScalerOptions rarely = ada_loss(scale);
  rarely.parameters["update_per_n_iteration"] = 2;
  return {
      ada_loss(scale),
      weights,
      rarely,
      {.policy = "layerwise", .initial_scale = scale, .growth_interval = 2, .groups = {"*1*=2", "*=1024"}},
      {.policy = "groups", .initial_scale = scale, .growth_factor = 4, .groups = {"*1*=32", "*=0.125"}}};
}

// ---- the same as one global scale

TEST(LayerScales, GiveTheBitsOfOneGlobalScaleInFp32) {
  for (const amp::ScalerOptions& scaler : layer_policies(256)) {
    SCOPED_TRACE(scaler.policy);
    const amp::ScalerOptions plain{.policy = "fixed", .initial_scale = 256};
    const auto compare = [&](const std::function<PairedRun(const RunSetup&)>& run, std::int64_t accumulate) {
      RunSetup one = setup_of(Level::O0, 5, plain), other = setup_of(Level::O0, 5, scaler);
      one.train.accumulate = other.train.accumulate = accumulate;
      EXPECT_GT(expect_the_same_numbers(run(one), run(other)), 0u) << "nothing was scaled";
    };
    compare(classifier, 1);
    compare(classifier, 3);
    compare([](const RunSetup& setup) { return text_model(false, setup); }, 1);
    compare([](const RunSetup& setup) { return text_model(true, setup); }, 2);
    compare(two_models, 1);
    compare(adversaries, 1);
    compare(
        [](const RunSetup& setup) {
          PairedRun run = classifier(setup);
          run.method = [] { return std::make_unique<GradientPenalty>(); };
          return run;
        },
        1);
  }
}

TEST(LayerScales, WithAScaleForEachLossToo) {
  // Per loss, per group and per layer in one model, against one scale for all: powers of two in FP32.
  amp::ScalerOptions both = layer_policies(64)[4];
  both.per_loss = true;
  const amp::ScalerOptions plain{.policy = "fixed", .initial_scale = 64, .per_loss = true};
  EXPECT_GT(expect_the_same_numbers(two_models(setup_of(Level::O0, 5, plain)),
                                    two_models(setup_of(Level::O0, 5, both))),
            0u);
}

TEST(LayerScales, AreNothingInFp16WhereAllAreOne) {
  amp::ScalerOptions ones{.policy = "layerwise", .initial_scale = 1024, .groups = {"*=1"}};
  const amp::ScalerOptions plain{.policy = "fixed", .initial_scale = 1024};
  for (const auto& run : {std::function<PairedRun(const RunSetup&)>(classifier),
                          std::function<PairedRun(const RunSetup&)>(
                              [](const RunSetup& setup) { return text_model(true, setup); })})
    EXPECT_EQ(expect_the_same_numbers(run(setup_of(Level::O1, 4, plain)), run(setup_of(Level::O1, 4, ones))),
              0u);
}

// ---- overflows

std::unique_ptr<MethodRun> overflowing_run(const amp::ScalerOptions& scaler, int threads = 1) {
  RunSetup setup = setup_of(Level::O1, 12, scaler);
  setup.train.accumulate = 2;
  return std::make_unique<MethodRun>(
      class_batches(5),
      [](Backend& b) {
        return std::make_unique<nn::Mlp>(b, nn::MlpOptions{.widths = {6, 9, 7, 3}, .seed = 3});
      },
      MethodRun::MakeMethod{}, setup, LossKind::cross_entropy, threads);
}

std::vector<amp::ScalerOptions> overflowing_policies() {
  return {{.policy = "layerwise",
           .initial_scale = 64,
           .growth_interval = 2,
           .groups = {"fc1=2^17", "fc2=2^14", "fc3=2^10"}},
          {.policy = "groups", .initial_scale = 64, .growth_factor = 1.5, .groups = {"fc1=2^18", "*=2^12"}}};
}

TEST(LayerScales, AnyLayersOverflowSkipsTheStep) {
  for (const amp::ScalerOptions& scaler : overflowing_policies()) {
    SCOPED_TRACE(scaler.policy);
    const auto run = overflowing_run(scaler);
    const auto weights = run->weights();
    run->trainer.train_step();
    EXPECT_TRUE(run->recorder.steps[0].skipped);
    EXPECT_EQ(run->weights(), weights);
    const RunResult result = run->trainer.run();
    EXPECT_GT(result.skipped_steps, 0u);
    EXPECT_LT(result.skipped_steps, 12u) << "and the run gets going";
    EXPECT_NE(run->weights(), weights);
    EXPECT_EQ(result.final_loss_scale, 64) << "S itself stays";
  }
}

TEST(LayerScales, AScaleThatIsTooMuchIsTheCulprit) {
  const auto run = overflowing_run({.policy = "layerwise", .initial_scale = 64, .groups = {"fc2=2^30"}});
  run->recorder.explain = true;
  run->trainer.train_step();
  ASSERT_EQ(run->recorder.overflows.size(), 1u);
  const auto& culprits = run->recorder.culprits;
  ASSERT_EQ(culprits.size(), 1u);
  EXPECT_EQ(culprits[0].pass, CulpritPass::backward);
  EXPECT_EQ(culprits[0].op, "linear");
  EXPECT_EQ(culprits[0].part, "scale");
  EXPECT_EQ(culprits[0].layer, "fc2");
}

TEST(LayerScales, RunsContinueWithTheSameBits) {
  for (const amp::ScalerOptions& scaler : overflowing_policies()) {
    SCOPED_TRACE(scaler.policy);
    const testing_support::TemporaryFolder folder;
    expect_the_same_after_resuming([&] { return overflowing_run(scaler); }, folder.path());
    expect_the_same_with_two_threads([&](int threads) { return overflowing_run(scaler, threads); });
  }
}

TEST(LayerScales, AdaLossContinuesWithTheSameBits) {
  amp::ScalerOptions scaler = ada_loss(16);
  scaler.parameters["update_per_n_iteration"] = 4;
  const testing_support::TemporaryFolder folder;
  const auto whole = overflowing_run(scaler);
  whole->recorder.folder = folder.path();
  whole->trainer.run();
  for (std::uint64_t after = 1; after < 12; ++after) {
    const auto tail = overflowing_run(scaler);
    tail->trainer.resume(CheckpointFile(folder.path() / std::to_string(after)));
    tail->trainer.run();
    expect_same_tail(whole->recorder.steps, tail->recorder.steps, after);
    EXPECT_EQ(tail->weights(), whole->weights()) << "after " << after;
  }
  expect_the_same_with_two_threads([&](int threads) { return overflowing_run(scaler, threads); });
}

TEST(LayerScales, OtherPoliciesCheckpointsAreRefused) {
  const testing_support::TemporaryFolder folder;
  const auto whole = overflowing_run(overflowing_policies()[0]);
  whole->recorder.folder = folder.path();
  whole->trainer.train_step();
  save_checkpoint(folder.path() / "one", whole->trainer.training_state(), {});
  amp::ScalerOptions two = overflowing_policies()[0];
  two.groups.pop_back();
  EXPECT_THROW(overflowing_run(two)->trainer.resume(CheckpointFile(folder.path() / "one")),
               std::runtime_error);
  EXPECT_THROW(overflowing_run({.policy = "fixed", .initial_scale = 64})
                   ->trainer.resume(CheckpointFile(folder.path() / "one")),
               std::runtime_error);
}

TEST(LayerScales, NeedWideGradients) {
  for (const amp::Dialect dialect : every<amp::Dialect>)
    for (const Level level : amp::levels_of(dialect)) {
      SCOPED_TRACE(std::string(name_of(dialect)) + " " + std::string(name_of(level)));
      RunSetup setup = setup_of(level, 2, {.policy = "ada-loss", .initial_scale = 16});
      setup.amp.dialect = dialect;
      const auto backend = hopper_backend();
      const auto train = [&] { return shown(*backend, classifier(setup)); };
      std::string refused;
      try {
        EXPECT_FALSE(train().steps.back().skipped);
      } catch (const std::invalid_argument& error) {
        refused = error.what();
        EXPECT_THAT(refused, HasSubstr("gradients of this level add up in f16"));
      }
      if (refused.empty()) continue;
      setup.amp.master_gradients = true;
      EXPECT_NO_THROW(train()) << "what the message asks for";
    }
}

}  // namespace
}  // namespace fp16lab::engine::test::layer_scales_test
