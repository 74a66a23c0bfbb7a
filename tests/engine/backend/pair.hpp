// One training run on two back ends, or verb by verb and replayed: whatever a run shows must be the same, bit
// for bit, step by step.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/data/batch_source.hpp"
#include "engine/train/trainer.hpp"
#include "numerics/formats/bits.hpp"
#include "tests/engine/train/training_run.hpp"

namespace fp16lab::engine::test {

/// A run that any back end can do.
struct PairedRun {
  using MakeModel = std::function<std::unique_ptr<nn::Module>(Backend&)>;
  using MakeMethod = std::function<std::unique_ptr<TrainingMethod>()>;
  using MakeBatches = std::function<std::unique_ptr<data::BatchSource>()>;

  MakeModel model;
  MakeBatches batches;
  RunSetup setup;
  MakeMethod method = {};  ///< empty: Supervised
  LossKind loss = LossKind::cross_entropy;
  std::uint64_t observe_every = 1;
};

/// All that it shows.
struct ShownRun {
  struct Gradient {
    std::string kind{};
    DType dtype{};
    ExponentHistogram before, after;
    double loss_scale = 1;  ///< S, times the layer's
    bool operator==(const Gradient&) const = default;
  };
  using Gradients = std::map<std::string, Gradient>;

  std::vector<StepRow> steps;
  std::vector<Gradients> gradients;  ///< by step
  std::vector<OverflowRow> overflows;
  std::vector<EvaluationRow> evaluations;
  std::map<std::string, std::vector<std::byte>> weights;
};

struct ShowingTap final : Tap {
  ShownRun shown;
  std::uint64_t observe_every = 1;
  std::filesystem::path checkpoint;  ///< that of step `checkpoint_at`
  std::uint64_t checkpoint_at = 0;
  std::function<void()> after_step = [] {};

  bool wants(const Site& site) override {
    return (site.what == What::gradients && site.step % observe_every == 0) || site.what == What::overflows ||
           (site.what == What::checkpoint && site.step == checkpoint_at);
  }
  void see(const Event& event) override {
    if (const auto* row = event.as<HistogramRow>()) {
      shown.gradients.resize(row->step);
      shown.gradients.back()[row->tensor] = {row->kind, row->dtype, row->before, row->after, row->loss_scale};
    }
    if (const auto* row = event.as<StepRow>()) {
      shown.steps.push_back(*row);
      after_step();
    }
    if (const auto* row = event.as<EvaluationRow>()) shown.evaluations.push_back(*row);
    if (const auto* row = event.as<OverflowRow>()) shown.overflows.push_back(*row);
    if (const auto* state = event.as<TrainingState>()) save_checkpoint(checkpoint, *state, {});
  }
};

/// The run on a back end, with `graph` by recorded steps.
struct PairedTraining {
  PairedTraining(Backend& on, const PairedRun& run, bool graph = false)
      : backend(&on),
        batches(run.batches()),
        workload{.model = run.model(on),
                 .training = batches.get(),
                 .evaluation = batches.get(),
                 .loss = run.loss,
                 .method = run.method ? run.method() : nullptr},
        trainer(on, workload, with_graph(run.setup.train, graph), run.setup.amp, run.setup.scaler,
                run.setup.optimizer, tap) {
    tap.observe_every = run.observe_every;
  }
  static TrainOptions with_graph(TrainOptions train, bool graph) {
    train.graph = graph;
    return train;
  }
  ShownRun run() {
    trainer.run();
    for (const Parameter* parameter : trainer.parameters())
      tap.shown.weights[parameter->name] = bytes_of(*backend, parameter->value);
    return std::move(tap.shown);
  }

  Backend* backend;
  std::unique_ptr<data::BatchSource> batches;
  Workload workload;
  ShowingTap tap;
  Trainer trainer;
};

inline ShownRun shown(Backend& backend, const PairedRun& run, bool graph = false) {
  return PairedTraining(backend, run, graph).run();
}

inline std::uint64_t word(double value) { return bits_of(value); }

/// Numbers as bit patterns, so that a NaN equals itself and -0 is not +0.
inline std::vector<std::uint64_t> words_of(const StepRow& record) {
  return {record.step,
          word(record.loss),
          word(record.loss_scale),
          std::uint64_t{record.found_inf},
          std::uint64_t{record.skipped},
          word(record.grad_norm),
          word(record.lr),
          word(record.underflow_rate.value_or(-1.0)),
          record.state_hash};
}

/// Reports the first step that differs, and which of its gradients do.
inline void expect_the_same_run(const ShownRun& expected, const ShownRun& actual) {
  ASSERT_EQ(expected.steps.size(), actual.steps.size());
  ASSERT_EQ(expected.gradients.size(), actual.gradients.size());
  for (std::size_t i = 0; i < expected.steps.size(); ++i) {
    EXPECT_EQ(words_of(expected.steps[i]), words_of(actual.steps[i]))
        << "step " << i + 1 << ": step, loss, scale, found_inf, skipped, norm, rate, underflow, state hash";
    if (i < expected.gradients.size()) {
      ASSERT_EQ(expected.gradients[i].size(), actual.gradients[i].size()) << "step " << i + 1;
      for (const auto& [name, gradient] : expected.gradients[i]) {
        const auto found = actual.gradients[i].find(name);
        ASSERT_NE(found, actual.gradients[i].end()) << name;
        EXPECT_TRUE(found->second == gradient)
            << "step " << i + 1 << ": histograms of the gradient of " << name;
      }
    }
    if (testing::Test::HasFailure()) return;  // all that follows differs too
  }
  const auto losses = [](const ShownRun& run) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> words;
    for (const EvaluationRow& record : run.evaluations) words.emplace_back(record.step, word(record.loss));
    return words;
  };
  EXPECT_EQ(losses(expected), losses(actual)) << "evaluations";
  EXPECT_EQ(expected.weights, actual.weights);
  ASSERT_EQ(expected.overflows.size(), actual.overflows.size());
  for (std::size_t i = 0; i < expected.overflows.size(); ++i) {
    EXPECT_TRUE(expected.overflows[i] == actual.overflows[i])
        << "overflow of step " << expected.overflows[i].step;
  }
}

}  // namespace fp16lab::engine::test
