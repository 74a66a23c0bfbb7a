// Trainer: steps, accumulation, determinism, scales, skipping and the ends of a run.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/backend/emulated/backend_impl.hpp"
#include "engine/nn/losses.hpp"
#include "tests/engine/train/mlp_run.hpp"
#include "tests/support/floating_point_mode.hpp"

namespace fp16lab::engine::test {
namespace {

TEST(Trainer, LossFallsInBothPrecisionsAndTasks) {
  for (const bool regression : {false, true}) {
    for (const bool o1 : {false, true}) {
      MlpRunSetup setup = o1 ? half() : MlpRunSetup{};
      setup.train.steps = 60;
      if (regression) setup.targets = data::Targets::inputs;
      MlpRun run(setup);
      const double before = run.trainer.evaluate().loss;
      const RunResult result = run.trainer.run();
      EXPECT_EQ(result.end, RunResult::End::finished);
      EXPECT_EQ(result.steps, 60u);
      EXPECT_EQ(result.skipped_steps, 0u);
      EXPECT_LT(result.evaluation.value().loss, 0.6 * before)
          << (regression ? "regression" : "classes") << " O1 " << o1;
      EXPECT_EQ(result.evaluation->accuracy.has_value(), !regression);
      EXPECT_GT(result.evaluation->accuracy.value_or(1), 0.9);
      EXPECT_EQ(result.final_train_loss, run.recorder.steps.back().loss);
      EXPECT_EQ(result.state_hash, run.trainer.state_hash());
    }
  }
}

TEST(Trainer, FirstLossIsThatOfTheInitialWeights) {
  MlpRun run(MlpRunSetup{});
  Tape tape(*run.backend);
  const data::Batch batch = run.training.batch(*run.backend, 0);
  const Variable loss =
      nn::cross_entropy_loss(run.workload.model->forward(tape, tape.constant(batch.inputs)), batch.targets);
  const double expected = static_cast<double>(values_of(*run.backend, loss.tensor()).at(0));
  EXPECT_EQ(run.trainer.train_step().loss, expected);
}

TEST(Trainer, StateHashIsReproducible) {
  for (const MlpRunSetup& setup : {MlpRunSetup{}, half()}) {
    MlpRunSetup two_threads = setup;
    two_threads.threads = 2;
    MlpRunSetup other_seed = setup;
    other_seed.seed = 4;
    MlpRun first(setup), second(setup), threaded(two_threads), other(other_seed);
    for (MlpRun* run : {&first, &second, &threaded, &other}) run->trainer.run();
    EXPECT_EQ(hashes(first), hashes(second));
    EXPECT_EQ(hashes(first), hashes(threaded));
    EXPECT_NE(hashes(first).back(), hashes(other).back());
    const auto all = hashes(first);
    for (std::size_t i = 1; i < all.size(); ++i)
      EXPECT_NE(all[i], all[i - 1]) << "every step changes the state";
  }
}

TEST(Trainer, StateHashSeesWeightsOptimizerStateAndScaler) {
  MlpRun run(MlpRunSetup{});
  run.trainer.train_step();
  const std::uint64_t hash = run.trainer.state_hash();
  EXPECT_EQ(run.trainer.state_hash(), hash);
  Tensor velocity = run.trainer.optimizer().state().at(0).tensor;
  const auto before = values_of(*run.backend, velocity);
  auto changed = before;
  changed.back() += 1.0f;
  run.backend->upload(std::as_bytes(std::span(changed)), velocity);
  EXPECT_NE(run.trainer.state_hash(), hash);
  run.backend->upload(std::as_bytes(std::span(before)), velocity);
  EXPECT_EQ(run.trainer.state_hash(), hash);
}

TEST(Trainer, MicroBatchesSumToTheBatch) {
  // One SGD step with lr 1 from 2 micro-batches of 8, 4 of 4, and 1 of 16, on the same 16 examples. A weight
  // gradient is the mean of 16 terms of magnitude <= 1 (pixels <= 1, softmax errors <= 1, |weights| <=
  // 1/sqrt(5) and at most 5 of them); each term is off by its at most 6-term chains of fma and about ten
  // elementwise roundings, the sum by its order: at most (6 + 5 + 10 + 16) u, on both sides, and one rounding
  // of the weight (<= 1): below 80 u with u = 2^-24.
  MlpRunSetup whole;
  whole.batch_size = 16;
  whole.shuffle = false;
  whole.optimizer = {.learning_rate = 1.0};
  MlpRun reference(whole);
  const double whole_loss = reference.trainer.train_step().loss;
  for (const std::int64_t count : {2, 4}) {
    MlpRunSetup parts = whole;
    parts.batch_size = 16 / count;
    parts.train.accumulate = count;
    MlpRun run(parts);
    EXPECT_NEAR(run.trainer.train_step().loss, whole_loss, 80 * 0x1p-24);
    const auto expected = reference.weight_values(), actual = run.weight_values();
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 80 * 0x1p-24) << i;
  }
}

TEST(Trainer, SumModeIsMeanModeTimesTheCount) {
  // 4 micro-batches and factors of 4 = 2^2: scaling by a power of two is exact, so the weights agree bit for
  // bit.
  MlpRunSetup mean;
  mean.train = {.steps = 3, .accumulate = 4};
  mean.optimizer = {.learning_rate = 0.5};
  MlpRunSetup sum = mean;
  sum.train.accumulate_mode = AccumulateMode::sum;
  sum.optimizer.learning_rate = 0.125;
  MlpRun a(mean), b(sum);
  a.trainer.run();
  b.trainer.run();
  EXPECT_EQ(a.weights(), b.weights());
}

TEST(Trainer, APowerOfTwoScaleChangesNoBitInFp32) {
  MlpRunSetup scaled;
  scaled.scaler = {.policy = "fixed", .initial_scale = 4096};
  MlpRun a(MlpRunSetup{}), b(scaled);
  a.trainer.run();
  b.trainer.run();
  EXPECT_EQ(a.weights(), b.weights());
  EXPECT_EQ(b.recorder.steps.at(0).loss_scale, 4096.0);
  EXPECT_EQ(a.recorder.steps.at(3).loss, b.recorder.steps.at(3).loss) << "the recorded loss is unscaled";
  EXPECT_EQ(a.recorder.steps.at(3).grad_norm, b.recorder.steps.at(3).grad_norm) << "and so is the norm";
}

TEST(Trainer, ScaleColumnIsTheScaleThatTheStepUsed) {
  MlpRunSetup setup = half();
  setup.train = {.steps = 6, .accumulate = 3};
  setup.scaler = {.policy = "dynamic", .initial_scale = 8, .growth_interval = 2};
  MlpRun run(setup);
  const RunResult result = run.trainer.run();
  std::vector<double> scales;
  for (const StepRow& record : run.recorder.steps) scales.push_back(record.loss_scale);
  EXPECT_EQ(scales, (std::vector<double>{8, 8, 16, 16, 32, 32}))
      << "constant over the micro-batches of a step";
  EXPECT_EQ(result.final_loss_scale, 64.0);
}

TEST(Trainer, AnOverflowSkipsTheWholeStep) {
  // S = 2^60 overflows the FP16 cast in front of the loss.
  MlpRunSetup setup = half();
  setup.scaler = {.policy = "fixed", .initial_scale = 0x1p60};
  setup.train = {.steps = 20, .skip_limit = 4};
  MlpRun run(setup);
  const auto before = run.weights();
  const RunResult result = run.trainer.run();
  EXPECT_EQ(run.weights(), before);
  EXPECT_EQ(result.end, RunResult::End::diverged);
  EXPECT_EQ(result.steps, 4u);
  EXPECT_EQ(result.skipped_steps, 4u);
  for (const StepRow& record : run.recorder.steps) {
    EXPECT_TRUE(record.found_inf && record.skipped);
    EXPECT_FALSE(std::isfinite(record.grad_norm));
    EXPECT_TRUE(std::isfinite(record.loss));
  }
  EXPECT_TRUE(run.recorder.evaluations.empty());
}

TEST(Trainer, DynamicScalingRecoversFromOverflow) {
  MlpRunSetup setup = half();
  setup.scaler = {.policy = "dynamic", .initial_scale = 0x1p30};
  setup.train.steps = 60;
  MlpRun run(setup);
  const RunResult result = run.trainer.run();
  EXPECT_EQ(result.end, RunResult::End::finished);
  EXPECT_GT(result.skipped_steps, 5u);
  EXPECT_LT(result.skipped_steps, 30u);
  EXPECT_EQ(result.final_loss_scale, std::ldexp(1.0, 30 - static_cast<int>(result.skipped_steps)));
}

TEST(Trainer, FiftyNonFiniteLossesEndTheRun) {
  MlpRunSetup setup;
  setup.optimizer = {.learning_rate = 1e38};
  setup.train.steps = 200;
  MlpRun run(setup);
  const RunResult result = run.trainer.run();
  EXPECT_EQ(result.end, RunResult::End::diverged);
  EXPECT_LT(result.steps, 60u);
  EXPECT_FALSE(std::isfinite(result.final_train_loss));
}

// Fewer than fifty, but the last one among them: what was trained is lost.
TEST(Trainer, ARunWhoseLastLossIsNotFiniteHasDiverged) {
  MlpRunSetup setup;
  setup.optimizer = {.learning_rate = 1e38};
  setup.train.steps = 20;
  MlpRun run(setup);
  const RunResult result = run.trainer.run();
  EXPECT_EQ(result.end, RunResult::End::diverged);
  EXPECT_EQ(result.steps, 20u);
  ASSERT_TRUE(result.diagnosis.has_value());
  EXPECT_NE(result.diagnosis->reason.find("the loss was not finite in "), std::string::npos);
  EXPECT_NE(result.diagnosis->text.find("optimizer.lr"), std::string::npos);
  EXPECT_EQ(result.evaluation.has_value(), !run.recorder.evaluations.empty());
  // A run that is cut before its last loss does not count as diverged.
  MlpRun stopped(setup);
  stopped.recorder.stop_after = 5;
  EXPECT_EQ(stopped.trainer.run().end, RunResult::End::stopped);
}

TEST(Trainer, StopsOnRequest) {
  MlpRunSetup setup;
  setup.train.steps = 50;
  MlpRun run(setup);
  run.recorder.stop_after = 5;
  const RunResult result = run.trainer.run();
  EXPECT_EQ(result.end, RunResult::End::stopped);
  EXPECT_EQ(result.steps, 5u);
}

TEST(Trainer, ClippingBoundsTheUpdate) {
  MlpRunSetup setup = half();
  setup.train = {.steps = 1, .clip_norm = 1e-3};
  setup.optimizer = {.learning_rate = 1.0};
  MlpRun run(setup);
  const auto before = run.weight_values();
  const StepRow record = run.trainer.train_step();
  EXPECT_GT(record.grad_norm, 1e-2) << "the norm before clipping";
  double square = 0;
  const auto after = run.weight_values();
  for (std::size_t i = 0; i < after.size(); ++i)
    square += std::pow(static_cast<double>(after[i]) - static_cast<double>(before[i]), 2);
  // The step has norm clip_norm; every weight (below 1) rounds to u = 2^-24, 53 weights: sqrt(53) * u < 8 u.
  EXPECT_NEAR(std::sqrt(square), 1e-3, 8 * 0x1p-24 + 1e-3 * (1e-4));
}

TEST(Trainer, AllocatesNothingOnceWarm) {
  for (const MlpRunSetup& setup : {MlpRunSetup{}, half()}) {
    MlpRun run(setup);
    const auto& emulated = dynamic_cast<const EmulatedBackend&>(*run.backend);
    run.trainer.train_step();
    run.trainer.train_step();
    const PoolStatistics warm = emulated.memory_statistics();
    for (int step = 0; step < 5; ++step) run.trainer.train_step();
    const PoolStatistics later = emulated.memory_statistics();
    EXPECT_GT(later.allocations, warm.allocations);
    EXPECT_EQ(later.system_allocations, warm.system_allocations);
    EXPECT_EQ(later.bytes_in_use, warm.bytes_in_use) << "a step leaves nothing allocated";
  }
}

TEST(Trainer, ImpossibleOptionsAreNamed) {
  MlpRunSetup setup;
  setup.train.accumulate = 0;
  EXPECT_THROW(MlpRun{setup}, std::invalid_argument);
  setup = {};
  setup.train.clip_norm = -1;
  EXPECT_THROW(MlpRun{setup}, std::invalid_argument);
  setup = {};
  setup.scaler.policy = "static";
  EXPECT_THROW(MlpRun{setup}, std::invalid_argument);
}

#if defined(__x86_64__)
TEST(Trainer, NoFloatingPointModeOfTheCallerChangesABitOrIsChanged) {
  for (const int threads : {1, 2}) {
    MlpRunSetup setup = half();
    setup.threads = threads;
    setup.amp.dtype = DType::bf16;
    setup.train = {.steps = 12, .clip_norm = 0.5, .evaluate_every = 5};
    setup.optimizer = {.name = optim::Algorithm::adam, .learning_rate = 0.01};
    MlpRun expected(setup);
    expected.trainer.run();
    for (const unsigned mode : testing_support::floating_point_modes) {
      bool untouched = false;
      std::vector<std::uint64_t> actual;
      double loss = 0;
      {
        MlpRun run(setup);
        const testing_support::FloatingPointMode caller(mode);
        run.trainer.run();
        untouched = caller.untouched();
        actual = hashes(run);
        loss = run.recorder.evaluations.back().loss;
      }
      EXPECT_EQ(actual, hashes(expected)) << std::hex << mode;
      EXPECT_EQ(loss, expected.recorder.evaluations.back().loss) << std::hex << mode;
      EXPECT_TRUE(untouched) << std::hex << mode;
    }
  }
}
#endif

}  // namespace
}  // namespace fp16lab::engine::test
