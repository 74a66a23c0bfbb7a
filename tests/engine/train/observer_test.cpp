// Trainer: what observers are shown, and that looking and evaluating change nothing.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/engine/train/mlp_run.hpp"

namespace fp16lab::engine::test {
namespace {

TEST(Trainer, ShowsEveryGradientOnce) {
  for (const bool o1 : {false, true}) {
    MlpRunSetup setup = o1 ? half() : MlpRunSetup{};
    setup.train = {.steps = 4, .accumulate = 3};
    MlpRun run(setup);
    run.recorder.observe_step = 2;
    run.trainer.run();
    const std::uint64_t batch = 8, micro_batches = 3;
    const std::map<std::string, std::uint64_t> elements = {
        {"fc1.weight", 5 * 6}, {"fc1.bias", 5},          {"fc2.weight", 3 * 5},
        {"fc2.bias", 3},       {"fc2.input", batch * 5}, {"loss.prediction", batch * 3}};
    std::map<std::string, std::uint64_t> seen;
    for (const auto& [name, gradient] : run.recorder.gradients) {
      seen[name] = gradient.before.total() / micro_batches;
      EXPECT_EQ(gradient.before.total(), elements.at(name) * micro_batches) << name;
      EXPECT_EQ(gradient.after.total(), elements.at(name) * micro_batches) << name;
      EXPECT_EQ(gradient.dtype, o1 ? DType::f16 : DType::f32) << name;
      EXPECT_EQ(gradient.loss_scale, o1 ? 1024.0 : 1.0);
      const bool weight = name.ends_with("weight") || name.ends_with("bias");
      EXPECT_EQ(gradient.kind, weight ? "weight" : "activation") << name;
    }
    EXPECT_EQ(seen, elements);
    for (const StepRow& record : run.recorder.steps)
      EXPECT_EQ(record.underflow_rate.has_value(), o1 && record.step == 2) << "FP32 has no casts";
  }
}

TEST(Trainer, UnderflowRateIsTheShareOfNonZerosThatBecameZero) {
  const auto observe = [](double scale) {
    MlpRunSetup setup = half();
    setup.train.steps = 1;
    setup.scaler = {.policy = "fixed", .initial_scale = scale};
    MlpRun run(setup);
    run.recorder.observe_step = 1;
    run.trainer.run();
    std::uint64_t became_zero = 0, non_zero = 0;
    for (const auto& [name, gradient] : run.recorder.gradients) {
      became_zero += gradient.after.zero - gradient.before.zero;
      non_zero += gradient.before.finite_nonzero();
    }
    const double rate = run.recorder.steps.at(0).underflow_rate.value();
    EXPECT_EQ(rate, static_cast<double>(became_zero) / static_cast<double>(non_zero)) << "S = " << scale;
    return rate;
  };
  // dL/dy = (softmax - one-hot) / 8 * S has magnitude <= S/8: at S = 2^-24 all of it rounds to zero, and
  // after the loss there are only exact zeros, which are no underflow.
  EXPECT_EQ(observe(0x1p-24), 1.0);
  EXPECT_LT(observe(0x1p-20), 1.0);
  EXPECT_LT(observe(0x1p10), observe(0x1p-20));
}

TEST(Trainer, LookingChangesNoBit) {
  MlpRun blind(half()), watched(half());
  watched.recorder.observe_step = 5;
  blind.trainer.run();
  watched.trainer.run();
  EXPECT_EQ(hashes(blind), hashes(watched));
}

TEST(Trainer, EvaluationChangesNoState) {
  MlpRun run(half());
  run.trainer.train_step();
  const std::uint64_t hash = run.trainer.state_hash();
  const EvaluationRow first = run.trainer.evaluate(), second = run.trainer.evaluate();
  EXPECT_EQ(first.loss, second.loss);
  EXPECT_EQ(first.step, 1u);
  EXPECT_EQ(run.trainer.state_hash(), hash);
  EXPECT_EQ(run.recorder.evaluations.size(), 2u);
}

TEST(Trainer, EvaluatesWhenAsked) {
  MlpRunSetup setup;
  setup.train = {.steps = 7, .evaluate_every = 3};
  MlpRun run(setup);
  run.trainer.run();
  std::vector<std::uint64_t> at;
  for (const EvaluationRow& record : run.recorder.evaluations) at.push_back(record.step);
  EXPECT_EQ(at, (std::vector<std::uint64_t>{3, 6, 7}));
}

}  // namespace
}  // namespace fp16lab::engine::test
