// Policies with statistics in training: they get what an observer sees, and nothing of other runs changes.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "engine/amp/scalers/grad_scaler.hpp"
#include "engine/nn/losses.hpp"
#include "engine/nn/models/mlp.hpp"
#include "tests/engine/train/recipe_support.hpp"

namespace fp16lab::engine::test {
namespace {

using testing::HasSubstr;

/// Sums what it sees of a step, by itself.
struct Summing final : Tap {
  bool watches = true;
  amp::GradientStatistics low, all;  ///< tensors of 16 bits, and all tensors
  bool any_low = false;
  std::vector<StepRow> steps;
  std::vector<amp::GradientStatistics> statistics;  ///< by step

  bool wants(const Site& site) override { return watches && site.what == What::gradients; }
  void see(const Event& event) override {
    if (const auto* row = event.as<HistogramRow>()) add(*row);
    if (const auto* row = event.as<StepRow>()) end(*row);
  }
  void add(const HistogramRow& record) {
    const bool weight = record.kind == "weight";
    (weight ? all.weight : all.activation) += record.before;
    if (record.dtype == DType::f32) return;
    any_low = true;
    (weight ? low.weight : low.activation) += record.before;
  }
  void end(const StepRow& record) {
    steps.push_back(record);
    statistics.push_back(any_low ? low : all);
    low = all = {};
    any_low = false;
  }
};

struct World {
  World(const ScalerOptions& scaler, Level level, bool watches)
      : trainer(*backend, fill(), {.steps = 20, .accumulate = 3, .seed = 3}, {.level = level}, scaler,
                {.name = optim::Algorithm::adam, .learning_rate = 0.01}, seen) {
    seen.watches = watches;
    trainer.run();
  }
  Workload& fill() {
    workload.model = std::make_unique<StatefulNet>(*backend);
    workload.training = &batches;
    return workload;
  }
  std::vector<std::uint64_t> hashes() const {
    std::vector<std::uint64_t> all;
    for (const StepRow& record : seen.steps) all.push_back(record.state_hash);
    return all;
  }
  std::unique_ptr<Backend> backend = hopper_backend();
  FixedBatches batches{class_batches(5)};
  Workload workload;
  Summing seen;
  Trainer trainer;
};

TEST(Statistics, ThePolicyDecidesByWhatAnObserverSees) {
  for (const char* const policy : {"lost-mass", "popart", "openseq2seq-logmax"})
    for (const Level level : {Level::O0, Level::O1}) {
      SCOPED_TRACE(std::string(policy) + " " + std::string(name_of(level)));
      const ScalerOptions scaler{
          .policy = policy, .initial_scale = 0x1p20, .parameters = {{"max_scale", 0x1p30}}};
      World world(scaler, level, true);
      const amp::ScalePolicy rule = amp::make_scale_policy(scaler);
      StepState step = rule.initial;
      std::map<double, int> scales;
      for (std::size_t i = 0; i < world.seen.steps.size(); ++i) {
        const StepRow& record = world.seen.steps[i];
        EXPECT_EQ(record.loss_scale, step.scale) << "step " << record.step;
        ++scales[record.loss_scale];
        EXPECT_GT(world.seen.statistics[i].weight.total(), 0u);
        EXPECT_GT(world.seen.statistics[i].activation.total(), 0u);
        amp::advance(rule, step, {.found_inf = record.found_inf, .statistics = &world.seen.statistics[i]});
      }
      EXPECT_GT(scales.size(), 1u) << "a constant scale would prove nothing";
      // And the policy needs no observer.
      EXPECT_EQ(World(scaler, level, false).hashes(), world.hashes());
    }
}

TEST(Statistics, AreRefusedWhereTheyCannotBeHad) {
  const auto message = [](const auto& work) -> std::string {
    try {
      work();
    } catch (const std::exception& error) {
      return error.what();
    }
    return "accepted";
  };
  const ScalerOptions lost_mass{.policy = "lost-mass", .per_loss = true};
  EXPECT_THAT(message([&] { check(TrainOptions{.graph = true}, lost_mass); }),
              HasSubstr("train.graph = true with scaler.policy = \"lost-mass\""));
  EXPECT_EQ(message([&] { check(TrainOptions{.graph = true}, {.policy = "torch"}); }), "accepted");
  EXPECT_THAT(message([&] { check_per_loss({.policy = "popart", .per_loss = true}, 2); }),
              HasSubstr("scaler.per_loss = true with scaler.policy = \"popart\""));
  const auto backend = hopper_backend();
  Tensor step = backend->make_step_state({});
  EXPECT_THAT(message([&] { amp::GradScaler(*backend, lost_mass, step, 2); }), HasSubstr("lost-mass"));
}

TEST(Statistics, AScalerThatLacksThemSaysSo) {
  const auto backend = hopper_backend();
  nn::Mlp model(*backend, {.widths = {6, 3}, .seed = 3});
  Tensor step = backend->make_step_state({});
  const auto optimizer = optim::make_optimizer(*backend, model.parameters(), {.learning_rate = 0.1}, 4, 0);
  amp::GradScaler scaler(*backend, {.policy = "lost-mass"}, step);
  EXPECT_TRUE(scaler.wants_statistics());
  const auto backward = [&] {
    Tape tape(*backend);
    const data::Batch batch = FixedBatches(class_batches(1)).batch(*backend, 0);
    tape.backward(nn::cross_entropy_loss(model.forward(tape, tape.constant(batch.inputs)), batch.targets),
                  scaler.seed());
  };
  backward();
  scaler.step(*optimizer);
  try {
    scaler.update();
    FAIL();
  } catch (const amp::ScalerError& error) {
    EXPECT_EQ(error.kind(), amp::ScalerError::Kind::missing_statistics);
    EXPECT_THAT(error.what(), HasSubstr("\"lost-mass\" decides by the counts"));
  }
  amp::GradientStatistics statistics;
  statistics.weight.bins[static_cast<std::size_t>(9 - ExponentHistogram::min_exponent)] = 1;
  statistics.weight.bins[0] = 1;
  const StepState before = backend->read_step_state(step);
  EXPECT_EQ(scaler.next_scale(before, &statistics), 0x1p20);
  EXPECT_EQ(backend->read_step_state(step).scale, 65536.0) << "asking changes nothing";
  scaler.update(&statistics);
  EXPECT_EQ(backend->read_step_state(step).scale, 0x1p20);
  // A disabled scaler does not need any, whatever its policy.
  EXPECT_FALSE(amp::GradScaler(*backend, {.policy = "lost-mass", .enabled = false}, step).wants_statistics());
}

}  // namespace
}  // namespace fp16lab::engine::test
