// Trainer: steps, accumulation, determinism, observation, skipping and the ends of a run.
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/backend/emulated/backend_impl.hpp"
#include "engine/data/loader.hpp"
#include "engine/nn/losses.hpp"
#include "engine/nn/mlp.hpp"
#include "engine/train/trainer.hpp"
#include "tests/engine/autograd_support.hpp"
#include "tests/engine/synthetic_images.hpp"

namespace fp16lab::engine::test {
namespace {

struct Recorder : TrainObserver {
  struct Gradient {
    GradientKind kind;
    DType dtype;
    double loss_scale;
    CastProbe probe;
  };
  std::vector<StepRecord> steps;
  std::vector<EvaluationRecord> evaluations;
  std::map<std::string, Gradient> gradients;
  std::uint64_t observe_step = 0;
  std::uint64_t stop_after = 0;

  bool wants_gradients(std::uint64_t step) override { return step == observe_step; }
  void on_gradient(const GradientRecord& record) override {
    EXPECT_EQ(record.step, observe_step);
    gradients[std::string(record.tensor)] = {record.kind, record.dtype, record.loss_scale, record.probe};
  }
  void on_step(const StepRecord& record) override { steps.push_back(record); }
  void on_evaluation(const EvaluationRecord& record) override { evaluations.push_back(record); }
  bool stop_requested() override { return stop_after != 0 && steps.size() >= stop_after; }
};

struct RunSetup {
  std::int64_t batch_size = 8;
  data::Targets targets = data::Targets::labels;
  bool shuffle = true;
  std::uint64_t seed = 3;
  int threads = 1;
  TrainOptions train{.steps = 10};
  AmpOptions amp{};
  ScalerOptions scaler{};
  OptimizerOptions optimizer{.learning_rate = 0.1, .momentum = 0.9};
};

/// Everything a run needs, with its lifetime.
struct TrainingRun {
  explicit TrainingRun(const RunSetup& setup)
      : backend(hopper_backend(setup.threads)),
        training(dataset, data::unit_normalisation(),
                 {setup.batch_size, setup.targets, setup.shuffle, setup.seed}),
        evaluation(dataset, data::unit_normalisation(), {setup.batch_size, setup.targets, false, 0}),
        workload(make_workload(setup)),
        trainer(*backend, workload, setup.train, setup.amp, setup.scaler, setup.optimizer, recorder) {}

  Workload make_workload(const RunSetup& setup) {
    const bool classify = setup.targets == data::Targets::labels;
    Workload made;
    made.model = std::make_unique<nn::Mlp>(
        *backend, nn::MlpOptions{.widths = {6, 5, classify ? 3 : 6}, .seed = setup.seed});
    made.training = &training;
    made.evaluation = &evaluation;
    made.loss = classify ? LossKind::cross_entropy : LossKind::mse;
    made.accuracy = classify;
    return made;
  }
  std::vector<std::byte> weights() {
    std::vector<std::byte> all;
    for (const Parameter* parameter : trainer.parameters()) {
      const auto bytes = bytes_of(*backend, parameter->value);
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  }
  std::vector<float> weight_values() {
    std::vector<float> all;
    for (const Parameter* parameter : trainer.parameters()) {
      const auto values = values_of(*backend, parameter->value);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  data::Dataset dataset = synthetic();
  std::unique_ptr<Backend> backend;
  data::Loader training, evaluation;
  Recorder recorder;
  Workload workload;
  Trainer trainer;
};

RunSetup half(RunSetup setup = {}) {
  setup.amp.level = Level::O1;
  setup.scaler = {.policy = "dynamic", .initial_scale = 1024, .growth_interval = 1000};
  return setup;
}

std::vector<std::uint64_t> hashes(const TrainingRun& run) {
  std::vector<std::uint64_t> all;
  for (const StepRecord& record : run.recorder.steps) all.push_back(record.state_hash);
  return all;
}

TEST(Trainer, LossFallsInBothPrecisionsAndTasks) {
  for (const bool regression : {false, true}) {
    for (const bool o1 : {false, true}) {
      RunSetup setup = o1 ? half() : RunSetup{};
      setup.train.steps = 60;
      if (regression) setup.targets = data::Targets::inputs;
      TrainingRun run(setup);
      const double before = run.trainer.evaluate().loss;
      const RunResult result = run.trainer.run();
      EXPECT_EQ(result.end, RunResult::End::finished);
      EXPECT_EQ(result.steps, 60u);
      EXPECT_EQ(result.skipped_steps, 0u);
      EXPECT_LT(result.evaluation_loss.value(), 0.6 * before)
          << (regression ? "regression" : "classes") << " O1 " << o1;
      EXPECT_EQ(result.evaluation_accuracy.has_value(), !regression);
      if (result.evaluation_accuracy) {
        EXPECT_GT(*result.evaluation_accuracy, 0.9);
      }
      EXPECT_EQ(result.final_train_loss, run.recorder.steps.back().loss);
      EXPECT_EQ(result.state_hash, run.trainer.state_hash());
    }
  }
}

TEST(Trainer, FirstLossIsThatOfTheInitialWeights) {
  TrainingRun run(RunSetup{});
  Tape tape(*run.backend);
  const data::Batch batch = run.training.batch(*run.backend, 0);
  const Variable loss =
      nn::cross_entropy_loss(run.workload.model->forward(tape, tape.constant(batch.inputs)), batch.targets);
  const double expected = static_cast<double>(values_of(*run.backend, loss.tensor()).at(0));
  EXPECT_EQ(run.trainer.train_step().loss, expected);
}

TEST(Trainer, StateHashIsReproducible) {
  for (const RunSetup& setup : {RunSetup{}, half()}) {
    RunSetup two_threads = setup;
    two_threads.threads = 2;
    RunSetup other_seed = setup;
    other_seed.seed = 4;
    TrainingRun first(setup), second(setup), threaded(two_threads), other(other_seed);
    for (TrainingRun* run : {&first, &second, &threaded, &other}) run->trainer.run();
    EXPECT_EQ(hashes(first), hashes(second));
    EXPECT_EQ(hashes(first), hashes(threaded));
    EXPECT_NE(hashes(first).back(), hashes(other).back());
    const auto all = hashes(first);
    for (std::size_t i = 1; i < all.size(); ++i)
      EXPECT_NE(all[i], all[i - 1]) << "every step changes the state";
  }
}

TEST(Trainer, StateHashSeesWeightsOptimizerStateAndScaler) {
  TrainingRun run(RunSetup{});
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
  RunSetup whole;
  whole.batch_size = 16;
  whole.shuffle = false;
  whole.optimizer = {.learning_rate = 1.0};
  TrainingRun reference(whole);
  const double whole_loss = reference.trainer.train_step().loss;
  for (const std::int64_t count : {2, 4}) {
    RunSetup parts = whole;
    parts.batch_size = 16 / count;
    parts.train.accumulate = count;
    TrainingRun run(parts);
    EXPECT_NEAR(run.trainer.train_step().loss, whole_loss, 80 * 0x1p-24);
    const auto expected = reference.weight_values(), actual = run.weight_values();
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 80 * 0x1p-24) << i;
  }
}

TEST(Trainer, SumModeIsMeanModeTimesTheCount) {
  // 4 micro-batches and factors of 4 = 2^2: scaling by a power of two is exact, so the weights agree bit for
  // bit.
  RunSetup mean;
  mean.train = {.steps = 3, .accumulate = 4};
  mean.optimizer = {.learning_rate = 0.5};
  RunSetup sum = mean;
  sum.train.accumulate_mode = AccumulateMode::sum;
  sum.optimizer.learning_rate = 0.125;
  TrainingRun a(mean), b(sum);
  a.trainer.run();
  b.trainer.run();
  EXPECT_EQ(a.weights(), b.weights());
}

TEST(Trainer, APowerOfTwoScaleChangesNoBitInFp32) {
  RunSetup scaled;
  scaled.scaler = {.policy = "fixed", .initial_scale = 4096};
  TrainingRun a(RunSetup{}), b(scaled);
  a.trainer.run();
  b.trainer.run();
  EXPECT_EQ(a.weights(), b.weights());
  EXPECT_EQ(b.recorder.steps.at(0).loss_scale, 4096.0);
  EXPECT_EQ(a.recorder.steps.at(3).loss, b.recorder.steps.at(3).loss) << "the recorded loss is unscaled";
  EXPECT_EQ(a.recorder.steps.at(3).grad_norm, b.recorder.steps.at(3).grad_norm) << "and so is the norm";
}

TEST(Trainer, ScaleColumnIsTheScaleThatTheStepUsed) {
  RunSetup setup = half();
  setup.train = {.steps = 6, .accumulate = 3};
  setup.scaler = {.policy = "dynamic", .initial_scale = 8, .growth_interval = 2};
  TrainingRun run(setup);
  const RunResult result = run.trainer.run();
  std::vector<double> scales;
  for (const StepRecord& record : run.recorder.steps) scales.push_back(record.loss_scale);
  EXPECT_EQ(scales, (std::vector<double>{8, 8, 16, 16, 32, 32}))
      << "constant over the micro-batches of a step";
  EXPECT_EQ(result.final_loss_scale, 64.0);
}

TEST(Trainer, ShowsEveryGradientOnce) {
  for (const bool o1 : {false, true}) {
    RunSetup setup = o1 ? half() : RunSetup{};
    setup.train = {.steps = 4, .accumulate = 3};
    TrainingRun run(setup);
    run.recorder.observe_step = 2;
    run.trainer.run();
    const std::uint64_t batch = 8, micro_batches = 3;
    const std::map<std::string, std::uint64_t> elements = {
        {"fc1.weight", 5 * 6}, {"fc1.bias", 5},          {"fc2.weight", 3 * 5},
        {"fc2.bias", 3},       {"fc2.input", batch * 5}, {"loss.prediction", batch * 3}};
    std::map<std::string, std::uint64_t> seen;
    for (const auto& [name, gradient] : run.recorder.gradients) {
      seen[name] = gradient.probe.before.total() / micro_batches;
      EXPECT_EQ(gradient.probe.before.total(), elements.at(name) * micro_batches) << name;
      EXPECT_EQ(gradient.probe.after.total(), elements.at(name) * micro_batches) << name;
      EXPECT_EQ(gradient.dtype, o1 ? DType::f16 : DType::f32) << name;
      EXPECT_EQ(gradient.loss_scale, o1 ? 1024.0 : 1.0);
      const bool weight = name.ends_with("weight") || name.ends_with("bias");
      EXPECT_EQ(gradient.kind, weight ? GradientKind::weight : GradientKind::activation) << name;
    }
    EXPECT_EQ(seen, elements);
    for (const StepRecord& record : run.recorder.steps)
      EXPECT_EQ(record.underflow_rate.has_value(), record.step == 2);
  }
}

TEST(Trainer, UnderflowRateIsTheShareOfNonZerosThatBecameZero) {
  const auto observe = [](double scale) {
    RunSetup setup = half();
    setup.train.steps = 1;
    setup.scaler = {.policy = "fixed", .initial_scale = scale};
    TrainingRun run(setup);
    run.recorder.observe_step = 1;
    run.trainer.run();
    std::uint64_t became_zero = 0, non_zero = 0;
    for (const auto& [name, gradient] : run.recorder.gradients) {
      became_zero += gradient.probe.after.zero - gradient.probe.before.zero;
      non_zero += gradient.probe.before.finite_nonzero();
    }
    const double rate = run.recorder.steps.at(0).underflow_rate.value();
    EXPECT_EQ(rate, static_cast<double>(became_zero) / static_cast<double>(non_zero)) << "S = " << scale;
    return rate;
  };
  // dL/dy = (softmax - one-hot) / 8 * S has magnitude <= S/8: at S = 2^-24 all of it rounds to zero, and
  // behind the loss there are only exact zeros, which are no underflow.
  EXPECT_EQ(observe(0x1p-24), 1.0);
  EXPECT_LT(observe(0x1p-20), 1.0);
  EXPECT_LT(observe(0x1p10), observe(0x1p-20));
}

TEST(Trainer, LookingChangesNoBit) {
  TrainingRun blind(half()), watched(half());
  watched.recorder.observe_step = 5;
  blind.trainer.run();
  watched.trainer.run();
  EXPECT_EQ(hashes(blind), hashes(watched));
}

TEST(Trainer, EvaluationChangesNoState) {
  TrainingRun run(half());
  run.trainer.train_step();
  const std::uint64_t hash = run.trainer.state_hash();
  const EvaluationRecord first = run.trainer.evaluate(), second = run.trainer.evaluate();
  EXPECT_EQ(first.loss, second.loss);
  EXPECT_EQ(first.step, 1u);
  EXPECT_EQ(run.trainer.state_hash(), hash);
  EXPECT_EQ(run.recorder.evaluations.size(), 2u);
}

TEST(Trainer, EvaluatesWhenAsked) {
  RunSetup setup;
  setup.train = {.steps = 7, .evaluate_every = 3};
  TrainingRun run(setup);
  run.trainer.run();
  std::vector<std::uint64_t> at;
  for (const EvaluationRecord& record : run.recorder.evaluations) at.push_back(record.step);
  EXPECT_EQ(at, (std::vector<std::uint64_t>{3, 6, 7}));
}

TEST(Trainer, AnOverflowSkipsTheWholeStep) {
  // S = 2^60 overflows the FP16 cast in front of the loss.
  RunSetup setup = half();
  setup.scaler = {.policy = "fixed", .initial_scale = 0x1p60};
  setup.train = {.steps = 20, .skip_limit = 4};
  TrainingRun run(setup);
  const auto before = run.weights();
  const RunResult result = run.trainer.run();
  EXPECT_EQ(run.weights(), before);
  EXPECT_EQ(result.end, RunResult::End::diverged);
  EXPECT_EQ(result.steps, 4u);
  EXPECT_EQ(result.skipped_steps, 4u);
  for (const StepRecord& record : run.recorder.steps) {
    EXPECT_TRUE(record.found_inf && record.skipped);
    EXPECT_FALSE(std::isfinite(record.grad_norm));
    EXPECT_TRUE(std::isfinite(record.loss));
  }
  EXPECT_TRUE(run.recorder.evaluations.empty());
}

TEST(Trainer, DynamicScalingRecoversFromOverflow) {
  RunSetup setup = half();
  setup.scaler = {.policy = "dynamic", .initial_scale = 0x1p30};
  setup.train.steps = 60;
  TrainingRun run(setup);
  const RunResult result = run.trainer.run();
  EXPECT_EQ(result.end, RunResult::End::finished);
  EXPECT_GT(result.skipped_steps, 5u);
  EXPECT_LT(result.skipped_steps, 30u);
  EXPECT_EQ(result.final_loss_scale, std::ldexp(1.0, 30 - static_cast<int>(result.skipped_steps)));
}

TEST(Trainer, FiftyNonFiniteLossesEndTheRun) {
  RunSetup setup;
  setup.optimizer = {.learning_rate = 1e38};
  setup.train.steps = 200;
  TrainingRun run(setup);
  const RunResult result = run.trainer.run();
  EXPECT_EQ(result.end, RunResult::End::diverged);
  EXPECT_LT(result.steps, 60u);
  EXPECT_FALSE(std::isfinite(result.final_train_loss));
}

TEST(Trainer, StopsOnRequest) {
  RunSetup setup;
  setup.train.steps = 50;
  TrainingRun run(setup);
  run.recorder.stop_after = 5;
  const RunResult result = run.trainer.run();
  EXPECT_EQ(result.end, RunResult::End::stopped);
  EXPECT_EQ(result.steps, 5u);
}

TEST(Trainer, ClippingBoundsTheUpdate) {
  RunSetup setup = half();
  setup.train = {.steps = 1, .clip_norm = 1e-3};
  setup.optimizer = {.learning_rate = 1.0};
  TrainingRun run(setup);
  const auto before = run.weight_values();
  const StepRecord record = run.trainer.train_step();
  EXPECT_GT(record.grad_norm, 1e-2) << "the norm before clipping";
  double square = 0;
  const auto after = run.weight_values();
  for (std::size_t i = 0; i < after.size(); ++i)
    square += std::pow(static_cast<double>(after[i]) - static_cast<double>(before[i]), 2);
  // The step has norm clip_norm; every weight (below 1) rounds to u = 2^-24, 53 weights: sqrt(53) * u < 8 u.
  EXPECT_NEAR(std::sqrt(square), 1e-3, 8 * 0x1p-24 + 1e-3 * (1e-4));
}

TEST(Trainer, AllocatesNothingOnceWarm) {
  for (const RunSetup& setup : {RunSetup{}, half()}) {
    TrainingRun run(setup);
    const auto& emulated = dynamic_cast<const EmulatedBackend&>(*run.backend);
    run.trainer.train_step();
    run.trainer.train_step();
    const PoolStatistics warm = emulated.memory_statistics();
    for (int step = 0; step < 5; ++step) run.trainer.train_step();
    const PoolStatistics later = emulated.memory_statistics();
    EXPECT_GT(later.allocations, warm.allocations);
    EXPECT_EQ(later.system_allocations, warm.system_allocations);
    EXPECT_EQ(later.bytes_in_use, warm.bytes_in_use) << "a step keeps nothing behind";
  }
}

TEST(Trainer, ImpossibleOptionsAreNamed) {
  RunSetup setup;
  setup.train.accumulate = 0;
  EXPECT_THROW(TrainingRun{setup}, std::invalid_argument);
  setup = {};
  setup.train.clip_norm = -1;
  EXPECT_THROW(TrainingRun{setup}, std::invalid_argument);
  setup = {};
  setup.scaler.policy = "static";
  EXPECT_THROW(TrainingRun{setup}, std::invalid_argument);
}

}  // namespace
}  // namespace fp16lab::engine::test
