// Training on a device beside the emulated back end, verb by verb and replayed (train.graph): the promise of
// the project at small sizes. No step, gradient count, evaluation or weight may differ in a bit.
//
// The PTX machine is slow, so networks, batches and step counts are small; each run has what it is about (an
// overflow, a skipped optimizer) in the steps it does.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "engine/nn/conv2d.hpp"
#include "engine/nn/models/mlp.hpp"
#include "engine/train/methods/gan.hpp"
#include "engine/train/methods/gradient_penalty.hpp"
#include "engine/train/methods/two_models.hpp"
#include "tests/engine/backend/cuda/on_device.hpp"
#include "tests/engine/backend/pair.hpp"
#include "tests/engine/train/recipe_support.hpp"
#include "tests/engine/train/tiny_text.hpp"
#include "tests/support/char_model.hpp"
#include "tests/support/gan.hpp"
#include "tests/support/lenet5.hpp"

namespace fp16lab::engine::test {
namespace {

using DeviceTraining = OnDevice;

enum class Replayed { yes, no };

/// Returns the emulated run, so that a test can check what happened in it. Replayed::no: its steps cannot be
/// recorded.
ShownRun expect_the_same_on_both(const PairedRun& run, Replayed replayed = Replayed::yes) {
  ShownRun expected = shown(*emulated_twin(), run);
  for (const bool graph : {false, true}) {
    if (graph && replayed == Replayed::no) continue;
    SCOPED_TRACE(graph ? "replayed" : "verb by verb");
    if (graph) expect_the_same_run(expected, shown(*emulated_twin(), run, graph));
    expect_the_same_run(expected, shown(*device_backend(), run, graph));
  }
  EXPECT_EQ(expected.steps.size(), run.setup.train.steps);
  return expected;
}

std::size_t skipped(const ShownRun& run) {
  return static_cast<std::size_t>(
      std::count_if(run.steps.begin(), run.steps.end(), [](const StepRow& step) { return step.skipped; }));
}

// ---- batches ----

PairedRun::MakeBatches classes(std::size_t count = 4) {
  return [count] { return std::make_unique<FixedBatches>(class_batches(count)); };
}

/// Two images of 32 x 32 with `channels` channels, multiples of 1/32 in [0, 2).
PairedRun::MakeBatches images(std::int64_t channels, Layout layout) {
  return [channels, layout] {
    HostBatch batch{.shape = layout == Layout::nchw ? Shape{2, channels, 32, 32} : Shape{2, 32, 32, channels},
                    .inputs = {},
                    .labels = {3, 8}};
    for (std::int64_t i = 0; i < batch.shape.element_count(); ++i)
      batch.inputs.push_back(static_cast<float>((i * 29 + i / 7 + i * i % 13) % 64) / 32.0f);
    return std::make_unique<FixedBatches>(std::vector{batch});
  };
}

/// Two batches of four squares of 4 x 4.
std::unique_ptr<data::BatchSource> squares() {
  std::vector<HostBatch> batches(2, {.shape = {4, 1, 4, 4}, .inputs = {}, .labels = {0, 1, 2, 1}});
  for (std::size_t b = 0; b < batches.size(); ++b)
    for (std::size_t i = 0; i < 64; ++i)
      batches[b].inputs.push_back(static_cast<float>((i * 37 + b * 53 + i * b) % 64) / 32.0f);
  return std::make_unique<FixedBatches>(batches);
}

// ---- models ----

PairedRun::MakeModel mlp(const std::vector<std::int64_t>& widths) {
  return [widths](Backend& backend) {
    return std::make_unique<nn::Mlp>(backend, nn::MlpOptions{.widths = widths, .seed = 3});
  };
}
std::unique_ptr<nn::Module> stateful(Backend& backend) { return std::make_unique<StatefulNet>(backend); }

/// Convolution, BatchNorm, pooling: buffers beside parameters, and all three products of a convolution.
class NormedConvolution final : public nn::Module {
 public:
  explicit NormedConvolution(Backend& backend)
      : conv_(add_child(std::make_unique<nn::Conv2d>(
            backend, "conv",
            nn::Conv2dOptions{.inputs = 1, .outputs = 4, .geometry = {.padding = {1, 1}}, .seed = 3}))),
        norm_(add_child(std::make_unique<nn::BatchNorm>(backend, "bn", nn::BatchNormOptions{.features = 4}))),
        head_(add_child(std::make_unique<nn::Linear>(
            backend, "head", nn::LinearOptions{.inputs = 4 * 2 * 2, .outputs = 3, .seed = 3}))) {}
  Variable forward(Tape& tape, const Variable& x) override {
    const Variable y = ops::relu(norm_.forward(tape, conv_.forward(tape, x)));
    return head_.forward(tape, ops::reshape(ops::max_pool2d(y, {}), {x.shape()[0], 4 * 2 * 2}));
  }

 private:
  nn::Conv2d& conv_;
  nn::BatchNorm& norm_;
  nn::Linear& head_;
};
std::unique_ptr<nn::Module> normed(Backend& backend) { return std::make_unique<NormedConvolution>(backend); }

/// Dynamic scaling whose first steps overflow, and that grows again at once.
amp::ScalerOptions overflowing(double scale = 0x1p22) {
  return {.policy = "dynamic", .initial_scale = scale, .growth_interval = 2};
}

RunSetup setup_of(const AmpOptions& amp, std::uint64_t steps,
                  const amp::ScalerOptions& scaler = overflowing()) {
  return {.train = {.steps = steps, .seed = 3},
          .amp = amp,
          .scaler = scaler,
          .optimizer = {.learning_rate = 0.0625, .momentum = 0.5}};
}

// ---- one optimizer ----

TEST_F(DeviceTraining, PerceptronUnderO1WithOverflows) {
  PairedRun run{.model = mlp({6, 37, 3}),
                .batches = classes(),
                .setup = setup_of({.level = Level::O1}, 14),
                .observe_every = 3};
  run.setup.train.evaluate_every = 3;
  const ShownRun seen = expect_the_same_on_both(run);
  EXPECT_GT(skipped(seen), 0u);
  EXPECT_LT(skipped(seen), seen.steps.size());
  EXPECT_FALSE(seen.overflows.empty());
  for (const OverflowRow& row : seen.overflows) EXPECT_FALSE(row.parameters.empty()) << row.step;
  run.setup.amp = {};
  expect_the_same_on_both(run);
  if (!device_multiplies_bf16_and_tf32()) return;
  run.setup.amp = {.level = Level::O1, .dtype = DType::bf16};  // nothing overflows
  EXPECT_EQ(skipped(expect_the_same_on_both(run)), 0u);
  run.setup.amp = {.level = Level::O1, .dtype = DType::tf32};
  run.setup.scaler = {};
  expect_the_same_on_both(run);
}

TEST_F(DeviceTraining, GradientsThatAreRoundedByChance) {
  for (const AmpOptions& amp : {AmpOptions{.level = Level::O1, .rounding = amp::LowRounding::stochastic},
                                AmpOptions{.level = Level::O2,
                                .dtype = DType::bf16,
                                .dialect = amp::Dialect::paddle,
                                .master_weights = false,
                                .rounding = amp::LowRounding::stochastic}}) {
    if (amp.dtype == DType::bf16 && !device_multiplies_bf16_and_tf32()) continue;
    PairedRun run{.model = mlp({6, 37, 3}), .batches = classes(), .setup = setup_of(amp, 4, overflowing(16))};
    run.setup.train.accumulate = 2;
    expect_the_same_on_both(run);
  }
}

TEST_F(DeviceTraining, EveryLevelOfEveryDialect) {
  for (const amp::Dialect dialect : every<amp::Dialect>) {
    for (const Level level : amp::levels_of(dialect)) {
      SCOPED_TRACE(std::string(name_of(dialect)) + " " + std::string(name_of(level)));
      const PairedRun run{.model = stateful,
                          .batches = classes(),
                          .setup = setup_of({.level = level, .dialect = dialect}, 3, overflowing(16))};
      EXPECT_EQ(skipped(expect_the_same_on_both(run)), 0u);
    }
  }
}

TEST_F(DeviceTraining, LowModelsWithAndWithoutMasterWeights) {
  for (const bool masters : {false, true})
    for (const DType dtype : {DType::f16, DType::bf16}) {
      if (dtype == DType::bf16 && !device_multiplies_bf16_and_tf32()) continue;
      SCOPED_TRACE(std::string(name_of(dtype)) + (masters ? ", master weights" : ""));
      PairedRun run{.model = stateful,
                    .batches = classes(),
                    .setup = setup_of({.level = Level::O2,
                                       .dtype = dtype,
                                       .dialect = amp::Dialect::paddle,
                                       .master_weights = masters,
                                       .low_loss = true},
                                      5, overflowing(0x1p14))};
      run.setup.optimizer = {.name = optim::Algorithm::adamw, .learning_rate = 0.01, .weight_decay = 0.1};
      run.setup.train.evaluate_every = 1;  // casts of master weights are made once a version
      expect_the_same_on_both(run);
      run.setup.optimizer.kahan = true;  // compensations are state
      if (!masters) expect_the_same_on_both(run);
    }
}

TEST_F(DeviceTraining, ClippingAndAccumulation) {
  PairedRun run{.model = stateful,
                .batches = classes(),
                .setup = setup_of({.level = Level::O1}, 8, overflowing(0x1p18))};
  run.setup.train = {.steps = 8, .accumulate = 3, .clip_norm = 0.25, .clip_value = 0.0625, .seed = 3};
  run.setup.optimizer = {.name = optim::Algorithm::sgd,
                         .learning_rate = 0.125,
                         .momentum = 0.5,
                         .dampening = 0.25,
                         .weight_decay = 0.01};
  const ShownRun seen = expect_the_same_on_both(run);
  EXPECT_GT(skipped(seen), 0u);
  EXPECT_GT(seen.steps.back().grad_norm, 0.25) << "the last step clips";
  // Clipping by value makes infinities finite; the names come from before.
  for (const OverflowRow& row : seen.overflows) EXPECT_FALSE(row.parameters.empty()) << row.step;
  run.setup.train.accumulate_mode = AccumulateMode::sum;
  run.setup.optimizer = {.name = optim::Algorithm::adam, .learning_rate = 0.01, .weight_decay = 0.01};
  expect_the_same_on_both(run);
}

// LAMB's norms stay in device memory, and so does its quotient.
TEST_F(DeviceTraining, EveryOptimizer) {
  for (const optim::Algorithm name : every<optim::Algorithm>) {
    SCOPED_TRACE(name_of(name));
    if (name == optim::Algorithm::muon && !device_multiplies_bf16_and_tf32()) continue;
    PairedRun run{.model = mlp({6, 5, 3}), .batches = classes(), .setup = setup_of({.level = Level::O1}, 5)};
    run.setup.optimizer = {
        .name = name, .learning_rate = 0.003, .momentum = 0.5, .weight_decay = 0.01, .centered = true};
    expect_the_same_on_both(run);
  }
}

TEST_F(DeviceTraining, ALearningRateFollowsTakenSteps) {
  PairedRun run{.model = mlp({6, 5, 3}),
                .batches = classes(),
                .setup = setup_of({.level = Level::O1}, 10, overflowing(0x1p19)),
                .observe_every = 3};
  run.setup.optimizer.schedule = {.name = optim::Schedule::cosine, .warmup_steps = 2, .total_steps = 8};
  const ShownRun seen = expect_the_same_on_both(run);
  EXPECT_NE(seen.steps[6].lr, seen.steps[7].lr);
}

TEST_F(DeviceTraining, TargetsThatAreTheInputs) {
  const auto autoencoded = [] {
    std::vector<HostBatch> batches = class_batches(4);
    for (HostBatch& batch : batches) {
      batch.values = {batch.shape, batch.inputs};
      batch.labels.clear();
    }
    return std::make_unique<FixedBatches>(batches);
  };
  expect_the_same_on_both({.model = mlp({6, 5, 6}),
                           .batches = autoencoded,
                           .setup = setup_of({.level = Level::O1}, 6),
                           .loss = LossKind::mse});
}

TEST_F(DeviceTraining, TheOptimizerDivides) {
  // MindSpore with drop_overflow_update = false: nothing is unscaled or checked, the norm is divided by S
  // alone.
  PairedRun run{.model = mlp({6, 5, 3}),
                .batches = classes(),
                .setup = setup_of({.level = Level::O2, .dialect = amp::Dialect::mindspore}, 3,
                                  {.policy = "fixed", .initial_scale = 1024, .drop_overflow_update = false})};
  run.setup.optimizer.loss_scale = 1024;
  expect_the_same_on_both(run);
}

TEST_F(DeviceTraining, WithoutScaling) {
  for (const char* const policy : {"none", "fixed"}) {
    PairedRun run{.model = mlp({6, 5, 3}),
                  .batches = classes(),
                  .setup = setup_of({.level = Level::O1}, 3, {.policy = policy, .initial_scale = 0x1p20})};
    const ShownRun seen = expect_the_same_on_both(run);
    EXPECT_EQ(skipped(seen), policy == std::string("fixed") ? 3u : 0u);
  }
}

TEST_F(DeviceTraining, ScalesOfLayers) {
  const auto lenet = [](Backend& backend) {
    return std::make_unique<LeNet5>(backend, LeNet5Options{.seed = 3});
  };
  const auto lstm = [](Backend& backend) {
    return std::make_unique<CharLstm>(
        backend, CharLstmOptions{.symbols = 12, .embedding = 10, .hidden = 9, .seed = 3});
  };
  amp::ScalerOptions ada_loss{.policy = "ada-loss", .initial_scale = 4};
  ada_loss.parameters = {{"u_min", 1e-2}, {"use_weights", 1.0}};
  amp::ScalerOptions rarely = ada_loss;
  rarely.parameters = {{"u_min", 1e-2}, {"update_per_n_iteration", 2.0}};
  const amp::ScalerOptions layerwise{
      .policy = "layerwise", .initial_scale = 64, .growth_interval = 2, .groups = {"*1*=2^16", "*=2^12"}};
  const amp::ScalerOptions groups{
      .policy = "groups", .initial_scale = 64, .growth_factor = 1.5, .groups = {"*1*=2^17", "*=256"}};
  for (const amp::ScalerOptions& scaler : {ada_loss, rarely, layerwise, groups}) {
    SCOPED_TRACE(scaler.policy);
    const ShownRun seen = expect_the_same_on_both({.model = mlp({6, 9, 5, 3}),
                                                   .batches = classes(),
                                                   .setup = setup_of({.level = Level::O1}, 10, scaler)},
                                                  Replayed::no);
    EXPECT_EQ(skipped(seen) > 0, scaler.policy != "ada-loss");
    EXPECT_LT(skipped(seen), seen.steps.size());
    bool scaled = false;
    for (const auto& [name, gradient] : seen.gradients.back())
      scaled = scaled || gradient.loss_scale != seen.steps.back().loss_scale;
    EXPECT_TRUE(scaled);
  }
  // Convolutions, and joins over time steps.
  expect_the_same_on_both({.model = lenet,
                           .batches = images(1, Layout::nchw),
                           .setup = setup_of({.level = Level::O1}, 2, ada_loss)},
                          Replayed::no);
  expect_the_same_on_both({.model = lstm,
                           .batches = [] { return std::make_unique<TinyText>(); },
                           .setup = setup_of({.level = Level::O1}, 2, ada_loss)},
                          Replayed::no);
}

TEST_F(DeviceTraining, PoliciesWithStatistics) {
  for (const char* const policy : {"lost-mass", "popart", "openseq2seq-logmax"}) {
    SCOPED_TRACE(policy);
    amp::ScalerOptions scaler = overflowing();
    scaler.policy = policy;
    scaler.parameters = {{"max_scale", 0x1p30}};
    PairedRun run{
        .model = stateful, .batches = classes(), .setup = setup_of({.level = Level::O1}, 10, scaler)};
    run.setup.train.accumulate = 2;
    const ShownRun seen = expect_the_same_on_both(run, Replayed::no);
    EXPECT_GT(skipped(seen), 0u);
    EXPECT_LT(skipped(seen), seen.steps.size());
  }
}

TEST_F(DeviceTraining, RescuedSteps) {
  for (const char* const policy : {"torch", "lost-mass"}) {
    SCOPED_TRACE(policy);
    amp::ScalerOptions scaler = overflowing();
    scaler.policy = policy;
    scaler.rescue = 2;
    PairedRun run{
        .model = stateful, .batches = classes(), .setup = setup_of({.level = Level::O1}, 10, scaler)};
    run.setup.train.accumulate = 2;
    run.setup.train.clip_value = 0.125;
    const ShownRun seen = expect_the_same_on_both(run, Replayed::no);
    std::uint64_t rescues = 0;
    for (const OverflowRow& row : seen.overflows) rescues += row.rescue ? row.rescue->attempts : 0;
    EXPECT_GT(rescues, 0u);
    EXPECT_LT(skipped(seen), seen.steps.size());
  }
}

// ---- other networks ----

/// BF16 and TF32 on tensor cores that have them; others refuse the first product by their capability.
TEST_F(DeviceTraining, ANormedConvolution) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::tf32}) {
    SCOPED_TRACE(name_of(dtype));
    PairedRun run{.model = normed,
                  .batches = squares,
                  .setup = setup_of({.level = Level::O1, .dtype = dtype}, 6),
                  .observe_every = 2};
    if (dtype == DType::f16 || device_multiplies_bf16_and_tf32()) {
      expect_the_same_on_both(run);
      continue;
    }
    EXPECT_THAT([&] { shown(*device_backend(), run); },
                testing::ThrowsMessage<std::invalid_argument>(
                    testing::HasSubstr("whose tensor cores multiply FP16 alone")));
  }
}

TEST_F(DeviceTraining, LeNet5InBothLayouts) {
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    SCOPED_TRACE(layout == Layout::nchw ? "NCHW" : "NHWC");
    const PairedRun run{.model =
                            [layout](Backend& backend) {
                              return std::make_unique<LeNet5>(backend,
                                                              LeNet5Options{.layout = layout, .seed = 3});
                            },
                        .batches = images(1, layout),
                        .setup = setup_of({.level = Level::O1}, 2, overflowing(0x1p10))};
    expect_the_same_on_both(run);
  }
}

TEST_F(DeviceTraining, CharacterModels) {
  const auto text = [] { return std::make_unique<TinyText>(); };
  PairedRun run{
      .model =
          [](Backend& backend) {
            return std::make_unique<CharLstm>(
                backend,
                CharLstmOptions{.symbols = 12, .embedding = 10, .hidden = 9, .dropout = 0.25f, .seed = 3});
          },
      .batches = text,
      .setup = setup_of({.level = Level::O1}, 3, overflowing(0x1p17))};
  expect_the_same_on_both(run);
  run.model = [](Backend& backend) {
    return std::make_unique<CharTransformer>(backend, CharTransformerOptions{.symbols = 12,
                                                                             .context = 6,
                                                                             .embedding = 8,
                                                                             .heads = 2,
                                                                             .layers = 1,
                                                                             .dropout = 0.25f,
                                                                             .seed = 3});
  };
  run.setup.optimizer = {.name = optim::Algorithm::adam, .learning_rate = 0.01};
  expect_the_same_on_both(run);
}

// ---- methods ----

TEST_F(DeviceTraining, TwoModelsWithOneScaleAndWithTwo) {
  // The second model's hidden units are 256 times as large and its last weights as much smaller: its
  // gradients overflow at smaller scales than the first one's, and the optimizers skip different steps.
  const auto model = [](Backend& backend) -> std::unique_ptr<nn::Module> {
    const auto one = [&](const std::string& path) {
      return std::make_unique<nn::Mlp>(backend, nn::MlpOptions{.widths = {6, 5, 3}, .path = path, .seed = 3});
    };
    auto large = one("model1");
    const auto parameters = large->parameters();
    for (std::size_t p = 0; p < 3; ++p)
      backend.scale(parameters[p]->value, p < 2 ? 256.0f : 0x1p-8f, parameters[p]->value);
    return std::make_unique<nn::ModelPair>(one("model0"), std::move(large));
  };
  for (const bool per_loss : {false, true}) {
    amp::ScalerOptions scaler = overflowing(0x1p14);
    scaler.per_loss = per_loss;
    PairedRun run{.model = model,
                  .batches = classes(5),
                  .setup = setup_of({.level = Level::O1}, 8, scaler),
                  .method = [] { return std::make_unique<TwoModels>(); }};
    run.setup.train.clip_norm = 0.25;
    const ShownRun seen = expect_the_same_on_both(run);
    EXPECT_GT(skipped(seen), 0u);
    EXPECT_LT(skipped(seen), seen.steps.size());
  }
}

TEST_F(DeviceTraining, GradientPenalties) {
  PairedRun run{.model = mlp({6, 5, 3}),
                .batches = classes(),
                .setup = setup_of({.level = Level::O1}, 6, overflowing(0x1p17)),
                .method = [] { return std::make_unique<GradientPenalty>(); }};
  run.setup.train.accumulate = 2;
  EXPECT_GT(skipped(expect_the_same_on_both(run)), 0u);
}

TEST_F(DeviceTraining, AdversarialNetworks) {
  PairedRun run{.model =
                    [](Backend& backend) {
                      return gan_of(backend, {4, 8, 6}, {6, 5, 1});
                    },
                .batches = classes(),
                .setup = setup_of({.level = Level::O1}, 6, overflowing(0x1p18)),
                .method = [] { return std::make_unique<AdversarialTraining>(); }};
  EXPECT_GT(skipped(expect_the_same_on_both(run, Replayed::no)), 0u);
}

// ---- replays ----

TEST_F(DeviceTraining, BatchesOfAnotherShapeAreDoneVerbByVerb) {
  const auto growing = [] {
    std::vector<HostBatch> batches = class_batches(5);
    HostBatch &large = batches[3], &last = batches.back();
    large.shape = {8, 6};
    large.inputs.insert(large.inputs.end(), last.inputs.begin(), last.inputs.end());
    large.labels.insert(large.labels.end(), last.labels.begin(), last.labels.end());
    return std::make_unique<FixedBatches>(batches);
  };
  expect_the_same_on_both({.model = mlp({6, 5, 3}),
                           .batches = growing,
                           .setup = setup_of({.level = Level::O1}, 9),
                           .observe_every = 3});
}

/// A checkpoint of step 4 that the one wrote continues on the other.
TEST_F(DeviceTraining, ACheckpointInTheMiddleContinuesOnEitherSide) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / ("device_training_test." + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  PairedRun run{.model = stateful,
                .batches = classes(),
                .setup = setup_of({.level = Level::O1}, 9),
                .observe_every = 3};
  run.setup.train.evaluate_every = 2;
  const auto whole = [&](const std::unique_ptr<Backend>& backend, bool graph, const char* name) {
    PairedTraining training(*backend, run, graph);
    training.tap.checkpoint = folder / name;
    training.tap.checkpoint_at = 4;
    return training.run();
  };
  const ShownRun emulated = whole(emulated_twin(), false, "emulated");
  expect_the_same_run(emulated, whole(device_backend(), true, "device"));
  const auto rest = [&](const std::unique_ptr<Backend>& backend, bool graph, const char* name) {
    PairedTraining training(*backend, run, graph);
    training.trainer.resume(CheckpointFile(folder / name));
    expect_same_tail(emulated.steps, training.run().steps, 4);
  };
  rest(device_backend(), true, "emulated");
  rest(device_backend(), true, "device");
  rest(emulated_twin(), false, "device");
  std::filesystem::remove_all(folder);
}

// The evidence that steps are replayed at all: verb by verb a step takes every tensor from the pool, a replay
// takes those of its batch and of what is read from it. And once every kind of step has been recorded, the
// pool has all the memory that it will ever need, evaluations in between included.
TEST_F(DeviceTraining, WarmReplaysTakeBatchesOnlyAndThePoolStaysAsItIs) {
  const auto counts = [](bool graph) {
    PairedRun run{.model = mlp({6, 5, 3}),
                  .batches = classes(),
                  .setup = setup_of({.level = Level::O1}, 14, overflowing(0x1p19)),
                  .observe_every = 3};
    run.setup.train.evaluate_every = 2;
    const std::unique_ptr<Backend> backend = device_backend();
    PairedTraining training(*backend, run, graph);
    std::vector<std::pair<std::uint64_t, std::uint64_t>> taken;  // after step i + 1
    training.tap.after_step = [&] {
      const PoolStatistics pool = backend->memory_statistics();
      taken.emplace_back(pool.allocations, pool.system_allocations);
    };
    training.run();
    return taken;
  };
  const auto eager = counts(false), replayed = counts(true);
  // Step 11 is not observed, and no evaluation lies between it and step 10... but one after step 10: so step
  // 13's allocations are counted from the end of step 12, evaluation included, in both.
  const auto step_and_evaluation = [](const auto& taken) { return taken[12].first - taken[11].first; };
  const auto step_alone = [](const auto& taken) { return taken[10].first - taken[9].first; };
  EXPECT_LT(step_and_evaluation(replayed), step_and_evaluation(eager));
  EXPECT_LT(step_alone(replayed), step_alone(eager));
  // Observed steps are 3 (verb by verb), 6 (recorded), 9, 12; others are recorded in step 2.
  EXPECT_EQ(replayed[13].second, replayed[7].second) << "pool growth in warm steps";
}

}  // namespace
}  // namespace fp16lab::engine::test
