// What the tests of the trainer share: a run of a small perceptron on synthetic images, and a recorder of
// what it shows.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/data/loader.hpp"
#include "engine/nn/models/mlp.hpp"
#include "engine/train/trainer.hpp"
#include "tests/engine/autograd/support.hpp"
#include "tests/engine/nn/synthetic_images.hpp"

namespace fp16lab::engine::test {

/// Keeps all that a run shows; the gradients of one step.
struct MlpRecorder final : Tap {
  std::vector<StepRow> steps;
  std::vector<EvaluationRow> evaluations;
  std::map<std::string, HistogramRow> gradients;
  std::uint64_t observe_step = 0;
  std::uint64_t stop_after = 0;

  bool wants(const Site& site) override {
    return (site.what == What::gradients && site.step == observe_step) ||
           (site.what == What::stop && stop_after != 0 && steps.size() >= stop_after);
  }
  void see(const Event& event) override {
    if (const auto* row = event.as<HistogramRow>()) {
      EXPECT_EQ(row->step, observe_step);
      gradients[row->tensor] = *row;
    }
    if (const auto* row = event.as<StepRow>()) steps.push_back(*row);
    if (const auto* row = event.as<EvaluationRow>()) evaluations.push_back(*row);
  }
};

struct MlpRunSetup {
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
struct MlpRun {
  explicit MlpRun(const MlpRunSetup& setup)
      : backend(hopper_backend(setup.threads)),
        training(dataset, data::unit_normalisation(),
                 {setup.batch_size, setup.targets, setup.shuffle, setup.seed}),
        evaluation(dataset, data::unit_normalisation(), {setup.batch_size, setup.targets, false, 0}),
        workload(make_workload(setup)),
        trainer(*backend, workload, setup.train, setup.amp, setup.scaler, setup.optimizer, recorder) {}

  Workload make_workload(const MlpRunSetup& setup) {
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
  MlpRecorder recorder;
  Workload workload;
  Trainer trainer;
};

/// At O1, with a scale that neither grows nor overflows.
inline MlpRunSetup half(MlpRunSetup setup = {}) {
  setup.amp.level = Level::O1;
  setup.scaler = {.policy = "dynamic", .initial_scale = 1024, .growth_interval = 1000};
  return setup;
}

inline std::vector<std::uint64_t> hashes(const MlpRun& run) {
  std::vector<std::uint64_t> all;
  for (const StepRow& record : run.recorder.steps) all.push_back(record.state_hash);
  return all;
}

}  // namespace fp16lab::engine::test
