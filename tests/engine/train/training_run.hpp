// What the tests of checkpoints and dumps share: a small training run with every kind of state, and its
// recorder.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/data/loader.hpp"
#include "engine/nn/dropout.hpp"
#include "engine/nn/linear.hpp"
#include "engine/nn/normalization.hpp"
#include "engine/train/checkpoint.hpp"
#include "engine/train/trainer.hpp"
#include "tests/engine/autograd/support.hpp"
#include "tests/engine/nn/synthetic_images.hpp"

namespace fp16lab::engine::test {

/// Everything that has state besides its parameters: running statistics and random masks.
class StatefulNet final : public nn::Module {
 public:
  explicit StatefulNet(Backend& backend)
      : fc1_(add_child(std::make_unique<nn::Linear>(
            backend, "fc1", nn::LinearOptions{.inputs = 6, .outputs = 5, .seed = 3}))),
        bn1_(add_child(std::make_unique<nn::BatchNorm>(backend, "bn1", nn::BatchNormOptions{.features = 5}))),
        dropout_(add_child(std::make_unique<nn::Dropout>("dropout", 0.25f))),
        fc2_(add_child(std::make_unique<nn::Linear>(
            backend, "fc2", nn::LinearOptions{.inputs = 5, .outputs = 3, .seed = 3}))) {}
  Variable forward(Tape& tape, const Variable& x) override {
    return fc2_.forward(tape, dropout_.forward(tape, ops::relu(bn1_.forward(tape, fc1_.forward(tape, x)))));
  }

 private:
  nn::Linear& fc1_;
  nn::BatchNorm& bn1_;
  nn::Dropout& dropout_;
  nn::Linear& fc2_;
};

struct RunSetup {
  TrainOptions train{.steps = 12, .accumulate = 3, .seed = 3, .evaluate_every = 2};
  AmpOptions amp{.level = Level::O1};
  /// Overflows at the start, then grows every 3 good steps: most checkpoints are inside a window.
  ScalerOptions scaler{.policy = "dynamic", .initial_scale = 0x1p22, .growth_interval = 3};
  OptimizerOptions optimizer{.name = optim::Algorithm::adam, .learning_rate = 0.01};
};

/// Keeps a run's records, and its checkpoints if there is a folder for them.
struct Recorder final : Tap {
  std::vector<StepRow> steps;
  std::vector<EvaluationRow> evaluations;
  std::vector<RunMoment> moments;
  std::vector<OverflowRow> overflows;
  std::vector<std::uint64_t> explained;  ///< steps
  std::vector<CulpritRow> culprits;      ///< over all of them
  std::vector<amp::OpStatistics> op_statistics;
  std::uint64_t count_ops_at = 0;  ///< a step; 0: none
  bool explain = false;            ///< asks for culprits
  std::filesystem::path folder;
  std::uint64_t stop_after = 0;

  bool wants(const Site& site) override {
    if (site.what == What::checkpoint) {
      EXPECT_EQ(site.step, steps.back().step);
      moments.push_back(site.moment);
    }
    return site.what == What::overflows || (site.what == What::culprits && explain) ||
           (site.what == What::op_statistics && site.step == count_ops_at) ||
           (site.what == What::stop && stop_after != 0 && steps.back().step >= stop_after) ||
           (site.what == What::checkpoint && !folder.empty());
  }
  void see(const Event& event) override {
    if (const auto* row = event.as<StepRow>()) steps.push_back(*row);
    if (const auto* row = event.as<EvaluationRow>()) evaluations.push_back(*row);
    if (const auto* row = event.as<OverflowRow>()) overflows.push_back(*row);
    if (const auto* found = event.as<Culprits>()) {
      explained.push_back(found->step);
      culprits.insert(culprits.end(), found->rows.begin(), found->rows.end());
    }
    if (const auto* ops = event.as<CountedOps>()) {
      EXPECT_EQ(ops->step, count_ops_at);
      op_statistics.push_back(ops->statistics);
    }
    if (const auto* state = event.as<TrainingState>()) {
      EXPECT_EQ(state->iteration, steps.back().step);
      EXPECT_EQ(state->state_hash, steps.back().state_hash);
      save_checkpoint(folder / std::to_string(state->iteration), *state,
                      {{"config", "[train]\nsteps = 12\n"}});
    }
  }
  /// What overflowed in the step; nullptr: nothing.
  const OverflowRow* overflow_of(std::uint64_t step) const {
    for (const OverflowRow& row : overflows)
      if (row.step == step) return &row;
    return nullptr;
  }
  bool loss_overflow(std::uint64_t step) const {
    const OverflowRow* const row = overflow_of(step);
    return row != nullptr && row->kind != OverflowKind::gradient;
  }
  /// Backward passes of the step that were done again.
  std::uint64_t rescues(std::uint64_t step) const {
    const OverflowRow* const row = overflow_of(step);
    return row != nullptr && row->rescue ? row->rescue->attempts : 0;
  }
};

struct TrainingRun {
  explicit TrainingRun(const RunSetup& setup, const std::filesystem::path& folder = {})
      : workload(make_workload()),
        trainer(*backend, workload, setup.train, setup.amp, setup.scaler, setup.optimizer, recorder) {
    recorder.folder = folder;
  }
  Workload make_workload() {
    Workload made;
    made.model = std::make_unique<StatefulNet>(*backend);
    made.training = &training;
    made.evaluation = &evaluation;
    made.accuracy = true;
    return made;
  }
  void resume(const std::filesystem::path& file) { trainer.resume(CheckpointFile(file)); }

  data::Dataset dataset = synthetic();
  std::unique_ptr<Backend> backend = hopper_backend();
  data::Loader training{dataset, data::unit_normalisation(), {.batch_size = 8, .seed = 3}};
  data::Loader evaluation{dataset, data::unit_normalisation(), {.batch_size = 8, .shuffle = false}};
  Recorder recorder;
  Workload workload;
  Trainer trainer;
};

inline void expect_same_tail(const std::vector<StepRow>& whole, const std::vector<StepRow>& tail,
                             std::uint64_t after) {
  ASSERT_EQ(tail.size() + after, whole.size());
  for (std::size_t i = 0; i < tail.size(); ++i) {
    const StepRow &expected = whole[i + after], &actual = tail[i];
    EXPECT_EQ(actual.step, expected.step);
    EXPECT_EQ(actual.state_hash, expected.state_hash) << "step " << expected.step << " after " << after;
    if (std::isnan(expected.loss)) {
      EXPECT_TRUE(std::isnan(actual.loss));
    } else {
      EXPECT_EQ(actual.loss, expected.loss);
    }
    EXPECT_EQ(actual.loss_scale, expected.loss_scale);
    EXPECT_EQ(actual.found_inf, expected.found_inf);
    EXPECT_EQ(actual.lr, expected.lr);
    if (!expected.found_inf) {
      EXPECT_EQ(actual.grad_norm, expected.grad_norm);
    }
  }
}

}  // namespace fp16lab::engine::test
