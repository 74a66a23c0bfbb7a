// Steps that the back end replays (train.graph) have the bits of steps done verb by verb, and both those of
// the emulated back end: every number of every record, every histogram, every name.
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/train/methods/gan.hpp"
#include "tests/engine/backend/cuda/graph_run.hpp"

namespace fp16lab::engine::test::graph {
namespace {

using testing::HasSubstr;

using CudaGraph = OnDevice;

TEST_F(CudaGraph, AMixedRunWithOverflowsAndSkipsHasTheSameBits) {
  const Shown shown = expect_three_alike({});
  EXPECT_GT(shown.skipped, 0u);
  EXPECT_LT(shown.skipped, shown.steps.size());
  EXPECT_FALSE(shown.gradients.empty());
  EXPECT_FALSE(shown.overflows.empty());
  for (const OverflowRow& row : shown.overflows) EXPECT_FALSE(row.parameters.empty()) << row.step;
}

TEST_F(CudaGraph, InFullPrecisionToo) {
  expect_three_alike({.amp = {.level = Level::O0}, .scaler = {.policy = "none"}});
}

/// BF16 and TF32 on tensor cores that have them; others refuse the first product by their capability.
TEST_F(CudaGraph, Bf16AndTf32HaveTheSameBits) {
  for (const DType dtype : {DType::bf16, DType::tf32}) {
    SCOPED_TRACE(name_of(dtype));
    for (const Network network : {Network::mlp, Network::convolution}) {
      const Case setup{.network = network, .amp = {.level = Level::O1, .dtype = dtype}};
      if (device_multiplies_bf16_and_tf32()) {
        expect_three_alike(setup);
        continue;
      }
      try {
        shown_by(device_backend(), setup, false);
        FAIL() << "it trained";
      } catch (const std::invalid_argument& error) {
        EXPECT_THAT(error.what(), HasSubstr("whose tensor cores multiply FP16 alone"));
      }
    }
  }
}

TEST_F(CudaGraph, AccumulatedMicroBatchesAndAClippedNormHaveTheSameBits) {
  expect_three_alike(
      {.train = {.steps = 10, .accumulate = 3, .clip_norm = 0.25, .seed = 3, .evaluate_every = 4},
       .optimizer = {.name = "adamw", .learning_rate = 0.01, .weight_decay = 0.1}});
}

TEST_F(CudaGraph, MasksFollowTheIterationAndBuffersTheBatches) {
  expect_three_alike({.network = Network::stateful,
                      .train = {.steps = 8, .accumulate = 2, .seed = 3, .evaluate_every = 2},
                      .optimizer = {.name = "adam", .learning_rate = 0.01}});
}

TEST_F(CudaGraph, ANormedConvolutionHasTheSameBits) {
  expect_three_alike(
      {.network = Network::convolution, .train = {.steps = 6, .seed = 3, .evaluate_every = 4}});
}

TEST_F(CudaGraph, ALearningRateFollowsTakenSteps) {
  const Shown shown = expect_three_alike(
      {.optimizer = {.learning_rate = 0.1,
                     .momentum = 0.9,
                     .schedule = {.name = "cosine", .warmup_steps = 2, .total_steps = 8}}});
  EXPECT_NE(std::get<6>(shown.steps[6]), std::get<6>(shown.steps[7]));
}

// LAMB's norms stay in device memory, and so does its quotient.
TEST_F(CudaGraph, EveryOptimizerHasTheSameBits) {
  for (const std::string_view name : optim::optimizer_names()) {
    SCOPED_TRACE(name);
    expect_three_alike({.train = {.steps = 6, .seed = 3},
                        .optimizer = {.name = std::string(name),
                                      .learning_rate = 0.003,
                                      .momentum = 0.5,
                                      .weight_decay = 0.01,
                                      .centered = true}});
  }
}

// Compensations are state, and random bits follow the iteration that the device counts.
TEST_F(CudaGraph, LowWeightsAreStoredWithTheSameBits) {
  const AmpOptions low{.level = Level::O2, .dialect = amp::Dialect::paddle, .master_weights = false};
  AmpOptions stochastic = low;
  stochastic.rounding = amp::LowRounding::stochastic;
  expect_three_alike(
      {.train = {.steps = 8, .seed = 3},
       .amp = low,
       .optimizer = {.name = "adamw", .learning_rate = 0.003, .weight_decay = 0.1, .kahan = true}});
  expect_three_alike({.train = {.steps = 8, .seed = 3},
                      .amp = stochastic,
                      .optimizer = {.name = "adam", .learning_rate = 0.003}});
}

// Gradients of 16 bits that unscaling replaces by FP32 ones, and casts of master weights once a version.
TEST_F(CudaGraph, LowModelsHaveTheSameBits) {
  for (const amp::Dialect dialect : {amp::Dialect::apex, amp::Dialect::paddle, amp::Dialect::mindspore}) {
    SCOPED_TRACE(name_of(dialect));
    expect_three_alike({.train = {.steps = 6, .seed = 3, .evaluate_every = 1},
                        .amp = {.level = Level::O2, .dialect = dialect},
                        .observe_every = 2});
  }
}

TEST_F(CudaGraph, TargetsThatAreTheInputsHaveTheSameBits) {
  expect_three_alike({.targets = data::Targets::inputs});
}

// Clipping by value makes infinities finite; the names come from before.
TEST_F(CudaGraph, NamesOutliveClippingByValue) {
  const Shown shown =
      expect_three_alike({.train = {.steps = 10, .clip_value = 0.01, .seed = 3}, .observe_every = 4});
  ASSERT_FALSE(shown.overflows.empty());
  for (const OverflowRow& row : shown.overflows) EXPECT_FALSE(row.parameters.empty()) << row.step;
}

TEST_F(CudaGraph, OtherMethodsThatAreRecordableHaveTheSameBits) {
  expect_three_alike({.network = Network::two_models, .train = {.steps = 5, .clip_norm = 1, .seed = 3}});
  expect_three_alike({.network = Network::gradient_penalty, .train = {.steps = 5, .seed = 3}});
}

TEST_F(CudaGraph, AScaleForEachLossIsReplayed) {
  expect_three_alike(
      {.network = Network::two_models,
       .train = {.steps = 6, .accumulate = 2, .seed = 3},
       .scaler = {.policy = "dynamic", .initial_scale = 0x1p19, .growth_interval = 2, .per_loss = true}});
}

// Steps whose ops are counted are done verb by verb, in the middle of replayed ones.
TEST_F(CudaGraph, StepsBetweenReplaysChangeNothing) {
  expect_three_alike({.train = {.steps = 8, .seed = 3}, .count_ops_at = 5});
  for (const amp::Dialect dialect : {amp::Dialect::apex, amp::Dialect::paddle})
    expect_three_alike({.train = {.steps = 8, .seed = 3},
                        .amp = {.level = Level::O2, .dialect = dialect},
                        .count_ops_at = 5});
}

// A batch of another size is done verb by verb, and the recording is still good for the next one.
TEST_F(CudaGraph, BatchesOfAnotherShapeChangeNothing) {
  struct Growing final : data::BatchSource {
    explicit Growing(const data::Dataset& set)
        : usual(set, data::unit_normalisation(), {.batch_size = 8, .seed = 3}),
          larger(set, data::unit_normalisation(), {.batch_size = 12, .seed = 3}) {}
    std::uint64_t batches_per_epoch() const override { return usual.batches_per_epoch(); }
    std::int64_t rows_per_batch() const override { return 8; }
    data::Batch batch(Backend& backend, std::uint64_t index) override {
      return (index % 4 == 3 ? larger : usual).batch(backend, index);
    }
    data::Loader usual, larger;
  };
  const auto run = [](std::unique_ptr<Backend> backend, bool graph) {
    World world(std::move(backend), {.train = {.steps = 9, .seed = 3}}, graph);
    Growing growing(world.dataset);
    world.workload.training = &growing;
    world.trainer.run();
    return world.watcher.shown;
  };
  const Shown emulated = run(emulated_twin(), false);
  expect_same(emulated, run(device_backend(), false), "verb by verb");
  expect_same(emulated, run(device_backend(), true), "replayed");
}

/// A checkpoint of step 4 that the one wrote continues on the other.
TEST_F(CudaGraph, ACheckpointInTheMiddleContinuesOnEitherSide) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / ("cuda_graph_test." + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const Case setup{.network = Network::stateful, .train = {.steps = 9, .seed = 3, .evaluate_every = 2}};
  const auto whole = [&](std::unique_ptr<Backend> backend, bool graph, const char* name) {
    World world(std::move(backend), setup, graph);
    world.watcher.checkpoint = folder / name;
    world.watcher.checkpoint_at = 4;
    world.trainer.run();
    return world.watcher.shown;
  };
  const Shown emulated = whole(emulated_twin(), false, "emulated");
  expect_same(emulated, whole(device_backend(), true, "device"), "replayed");
  const auto rest = [&](std::unique_ptr<Backend> backend, bool graph, const char* name) {
    World world(std::move(backend), setup, graph);
    world.trainer.resume(CheckpointFile(folder / name));
    world.trainer.run();
    const std::vector<Shown::Row> tail(emulated.steps.begin() + 4, emulated.steps.end());
    EXPECT_EQ(world.watcher.shown.steps, tail) << name;
  };
  rest(device_backend(), true, "emulated");
  rest(device_backend(), true, "device");
  rest(emulated_twin(), false, "device");
  std::filesystem::remove_all(folder);
}

// The evidence that steps are replayed at all: verb by verb a step takes every tensor from the pool, a replay
// takes those of its batch and of what is read from it. And once every kind of step has been recorded, the
// pool has all the memory that it will ever need, evaluations in between included.
TEST_F(CudaGraph, WarmReplaysTakeBatchesOnlyAndThePoolStaysAsItIs) {
  const auto counts = [](bool graph) {
    World world(device_backend(), {.train = {.steps = 14, .seed = 3, .evaluate_every = 2}}, graph);
    std::vector<std::pair<std::uint64_t, std::uint64_t>> taken;  // after step i + 1
    world.watcher.after_step = [&](std::uint64_t) {
      const PoolStatistics pool = world.backend->memory_statistics();
      taken.emplace_back(pool.allocations, pool.system_allocations);
    };
    world.trainer.run();
    return taken;
  };
  const auto eager = counts(false), replayed = counts(true);
  // Step 11 is not observed, and no evaluation lies between it and step 10... but one behind step 10: so step
  // 13's allocations are counted from the end of step 12, evaluation included, in both.
  const auto step_and_evaluation = [](const auto& taken) { return taken[12].first - taken[11].first; };
  const auto step_alone = [](const auto& taken) { return taken[10].first - taken[9].first; };
  EXPECT_LT(step_and_evaluation(replayed), step_and_evaluation(eager));
  EXPECT_LT(step_alone(replayed), step_alone(eager));
  // Observed steps are 3 (verb by verb), 6 (recorded), 9, 12; others are recorded in step 2.
  EXPECT_EQ(replayed[13].second, replayed[7].second) << "pool growth in warm steps";
}

// A replay writes wherever its recording did. Nobody else may have got that memory in the meantime.
TEST_F(CudaGraph, MemoryOfARecordingIsNobodyElsesBetweenReplays) {
  const std::unique_ptr<Backend> backend = device_backend();
  const Shape shape{300};
  Tensor before = backend->empty(shape, DType::f32), result = backend->empty(shape, DType::f32);
  const auto recording = backend->record([&] {
    backend->fill(before, 5.0);
    before = {};  // given back while it is recorded
    Tensor inside = backend->empty(shape, DType::f32);
    backend->fill(inside, 7.0);
    backend->copy(inside, result);
  });
  std::vector<Tensor> others(3);
  for (Tensor& other : others) {
    other = backend->empty(shape, DType::f32);
    backend->fill(other, 1.0);
  }
  recording->replay();
  for (const Tensor& other : others) EXPECT_THAT(values_of(*backend, other), testing::Each(1.0f));
  EXPECT_THAT(values_of(*backend, result), testing::Each(7.0f));
  // Another recording may have it: between replays it holds nothing.
  const std::uint64_t taken = backend->memory_statistics().system_allocations;
  const auto second = backend->record([&] {
    Tensor inside = backend->empty(shape, DType::f32);
    backend->fill(inside, 9.0);
    backend->copy(inside, result);
  });
  EXPECT_EQ(backend->memory_statistics().system_allocations, taken);
  second->replay();
  EXPECT_THAT(values_of(*backend, result), testing::Each(9.0f));
}

TEST_F(CudaGraph, WhatCannotBeRecordedIsRefused) {
  const auto refusal = [](std::unique_ptr<Backend> backend, std::unique_ptr<TrainingMethod> method) {
    try {
      check_graph({.graph = true}, *backend, *method);
      return std::string("accepted");
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(refusal(device_backend(), std::make_unique<Supervised>()), "accepted");
  EXPECT_THAT(refusal(emulated_twin(), std::make_unique<Supervised>()),
              HasSubstr("backend.device = \"cuda\""));
  EXPECT_THAT(refusal(device_backend(), std::make_unique<AdversarialTraining>()),
              HasSubstr("train.graph = true"));
  EXPECT_THROW(World(emulated_twin(), {}, true), std::invalid_argument);
}

}  // namespace
}  // namespace fp16lab::engine::test::graph
