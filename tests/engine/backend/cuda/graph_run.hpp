// What the tests of replayed steps share: small runs on any back end, and all that they show.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/nn/conv2d.hpp"
#include "engine/nn/models/model_pair.hpp"
#include "engine/train/methods/gradient_penalty.hpp"
#include "engine/train/methods/two_models.hpp"
#include "tests/engine/backend/cuda/on_device.hpp"
#include "tests/engine/train/mlp_run.hpp"
#include "tests/engine/train/training_run.hpp"

namespace fp16lab::engine::test::graph {

inline std::uint64_t bits_of(double value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

/// A gradient as an observer saw it.
struct SeenGradient {
  std::uint64_t step = 0;
  std::string tensor;
  DType dtype = DType::f32;
  ExponentHistogram before, after;
  bool operator==(const SeenGradient&) const = default;
};
inline void PrintTo(const SeenGradient& seen, std::ostream* out) {
  *out << seen.tensor << " in step " << seen.step << ": " << seen.before.total() << " values";
}

/// All that a run shows, but its seconds.
struct Shown {
  /// step, loss, loss_scale, found_inf, skipped, grad_norm, learning_rate, underflow_rate, state_hash;
  /// real numbers by their bits.
  using Row = std::tuple<std::uint64_t, std::uint64_t, double, bool, bool, std::uint64_t, double, double,
                         std::uint64_t>;
  std::vector<Row> steps;
  std::vector<SeenGradient> gradients;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> evaluations;  ///< step, bits of the loss
  std::vector<OverflowRow> overflows;
  std::uint64_t skipped = 0;
};

struct Watcher final : TrainObserver {
  std::uint64_t observe_every = 0;
  std::uint64_t count_ops_at = 0;
  std::filesystem::path checkpoint;  ///< of step `checkpoint_at`
  std::uint64_t checkpoint_at = 0;
  std::function<void(std::uint64_t)> after_step;
  Shown shown;

  bool wants_gradients(std::uint64_t step) override { return observe_every > 0 && step % observe_every == 0; }
  void on_gradient(const HistogramRow& record) override {
    shown.gradients.push_back({record.step, record.tensor, record.dtype, record.before, record.after});
  }
  void on_step(const StepRow& record) override {
    // A norm that is not finite may be any of the non-finite ones: only that it is one is compared.
    const double norm = record.found_inf ? -1.0 : record.grad_norm;
    shown.steps.emplace_back(record.step, bits_of(record.loss), record.loss_scale, record.found_inf,
                             record.skipped, bits_of(norm), record.lr, record.underflow_rate.value_or(-1.0),
                             record.state_hash);
    shown.skipped += record.skipped ? 1 : 0;
    if (after_step) after_step(record.step);
  }
  void on_evaluation(const EvaluationRow& record) override {
    shown.evaluations.emplace_back(record.step, bits_of(record.loss));
  }
  bool wants_overflows() override { return true; }
  void on_overflow(const OverflowRow& record) override { shown.overflows.push_back(record); }
  bool wants_op_statistics(std::uint64_t step) override { return step == count_ops_at; }
  bool wants_checkpoint(std::uint64_t step, RunMoment) override { return step == checkpoint_at; }
  void on_checkpoint(const TrainingState& state) override { save_checkpoint(checkpoint, state, {}); }
};

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

inline data::Dataset squares() { return meaningless(4, 4); }

enum class Network { mlp, stateful, convolution, two_models, gradient_penalty };

struct Case {
  Network network = Network::mlp;
  data::Targets targets = data::Targets::labels;
  TrainOptions train{.steps = 10, .seed = 3, .evaluate_every = 3};
  AmpOptions amp{.level = Level::O1};
  /// Overflows in the first steps, then grows every third one and overflows again.
  ScalerOptions scaler{.policy = "dynamic", .initial_scale = 0x1p19, .growth_interval = 2};
  OptimizerOptions optimizer{.learning_rate = 0.1, .momentum = 0.9};
  std::uint64_t observe_every = 3;
  std::uint64_t count_ops_at = 0;
};

struct World {
  World(std::unique_ptr<Backend> made, const Case& setup, bool graph)
      : backend(std::move(made)),
        dataset(setup.network == Network::convolution ? squares() : synthetic()),
        training(dataset, data::unit_normalisation(), loader(setup, true)),
        evaluation(dataset, data::unit_normalisation(), loader(setup, false)),
        workload(make_workload(setup)),
        trainer(*backend, workload, with_graph(setup.train, graph), setup.amp, setup.scaler, setup.optimizer,
                watcher) {
    watcher.observe_every = setup.observe_every;
    watcher.count_ops_at = setup.count_ops_at;
  }
  static TrainOptions with_graph(TrainOptions train, bool graph) {
    train.graph = graph;
    return train;
  }
  static data::LoaderOptions loader(const Case& setup, bool training) {
    data::LoaderOptions options{
        .batch_size = training ? 8 : 16, .targets = setup.targets, .shuffle = training, .seed = 3};
    if (setup.network == Network::convolution) options.layout = Layout::nchw;
    return options;
  }
  Workload make_workload(const Case& setup) {
    const auto mlp = [&](const char* path) {
      return std::make_unique<nn::Mlp>(*backend,
                                       nn::MlpOptions{.widths = {6, 5, 3}, .path = path, .seed = 3});
    };
    Workload made;
    made.training = &training;
    made.evaluation = &evaluation;
    switch (setup.network) {
      case Network::mlp:
        made.model = std::make_unique<nn::Mlp>(
            *backend,
            nn::MlpOptions{.widths = {6, 5, setup.targets == data::Targets::inputs ? 6 : 3}, .seed = 3});
        break;
      case Network::stateful:
        made.model = std::make_unique<StatefulNet>(*backend);
        break;
      case Network::convolution:
        made.model = std::make_unique<NormedConvolution>(*backend);
        break;
      case Network::two_models:
        made.model = std::make_unique<nn::ModelPair>(mlp("model0"), mlp("model1"));
        made.method = std::make_unique<TwoModels>();
        break;
      case Network::gradient_penalty:
        made.model = mlp("");
        made.method = std::make_unique<GradientPenalty>();
        break;
    }
    if (setup.targets == data::Targets::inputs) made.loss = LossKind::mse;
    return made;
  }

  std::unique_ptr<Backend> backend;
  data::Dataset dataset;
  data::Loader training, evaluation;
  Watcher watcher;
  Workload workload;
  Trainer trainer;
};

inline Shown shown_by(std::unique_ptr<Backend> backend, const Case& setup, bool graph) {
  World world(std::move(backend), setup, graph);
  world.trainer.run();
  return world.watcher.shown;
}

inline void expect_same(const Shown& expected, const Shown& actual, const char* what) {
  EXPECT_EQ(expected.steps, actual.steps) << what;
  EXPECT_EQ(expected.gradients, actual.gradients) << what;
  EXPECT_EQ(expected.evaluations, actual.evaluations) << what;
  EXPECT_EQ(expected.overflows, actual.overflows) << what;
}

/// Returns what all three show.
inline Shown expect_three_alike(const Case& setup) {
  Shown emulated = shown_by(emulated_twin(), setup, false);
  const Shown eager = shown_by(device_backend(), setup, false);
  expect_same(emulated, eager, "verb by verb");
  expect_same(emulated, shown_by(device_backend(), setup, true), "replayed");
  EXPECT_EQ(emulated.steps.size(), setup.train.steps);
  return emulated;
}

}  // namespace fp16lab::engine::test::graph
