// GradientPenalty: a case by hand, an FP64 twin with its error bound, invariance under S, and gradients of
// zero.
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include "engine/nn/linear.hpp"
#include "engine/nn/models/mlp.hpp"
#include "engine/train/methods/gradient_penalty.hpp"
#include "tests/engine/nn/scalar_twin.hpp"
#include "tests/engine/train/recipe_support.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::engine::test::gradient_penalty_test {
namespace {

constexpr double u32 = 0x1p-24, u16 = 0x1p-11;

std::unique_ptr<TrainingMethod> penalty_method() { return std::make_unique<GradientPenalty>(); }

ScalerOptions fixed(double scale) { return {.policy = "fixed", .initial_scale = scale}; }

void set_values(Backend& backend, Parameter& parameter, const std::vector<float>& values) {
  backend.upload(std::as_bytes(std::span(values)), parameter.value);
}

/// y = w x + b with 4 inputs and given w, b.
struct LineRun : MethodRun {
  LineRun(const RunSetup& setup, float target)
      : MethodRun(
            {HostBatch{
                .shape = {1, 4}, .inputs = {3, 2, 1, -1}, .values = {.shape = {1, 1}, .values = {target}}}},
            [](Backend& memory) {
              auto line = std::make_unique<nn::Linear>(
                  memory, "line", nn::LinearOptions{.inputs = 4, .outputs = 1, .seed = 3});
              set_values(memory, *line->parameters()[0], {0.5f, -0.25f, 0.125f, -1.0f});
              set_values(memory, *line->parameters()[1], {0.375f});
              return line;
            },
            penalty_method, setup, LossKind::mse) {}
};

TEST(GradientPenalty, ACaseByHandIsExactAtEveryLevelAndScale) {
  // y = 1.5 - 0.5 + 0.125 + 1 + 0.375 = 2.5 and target 0.5: e = 2, loss = e^2 = 4, its gradient 2 e (3, 2, 1,
  // -1, 1) = (12, 8, 4, -4, 4), of norm 2 e sqrt(9 + 4 + 1 + 1 + 1) = 2 e 4 = 16. So total = e^2 + 8 |e| =
  // 20, and its gradient (2 e + 8) (3, 2, 1, -1, 1) = (36, 24, 12, -12, 12). Every number on the way, the
  // direction (3, 2, 1, -1, 1) / 4 included, is exact in FP16 up to S = 2^10 (36 S < 65504).
  for (const Level level : {Level::O0, Level::O1}) {
    for (const double scale : {1.0, 16.0, 1024.0}) {
      RunSetup setup;
      setup.train = {.steps = 1};
      setup.amp = {.level = level};
      setup.scaler = fixed(scale);
      setup.optimizer = {.learning_rate = 0.125};
      LineRun run(setup, 0.5f);
      EXPECT_EQ(run.trainer.train_step().loss, 20.0);
      EXPECT_EQ(run.gradients(), (HostValues{{36, 24, 12, -12}, {12}})) << name_of(level) << " S = " << scale;
      EXPECT_EQ(run.weights(), (HostValues{{-4.0f, -3.25f, -1.375f, 0.5f}, {-1.125f}}));
    }
  }
}

TEST(GradientPenalty, WeightScalesThePenaltyAndZeroIsPlainTraining) {
  for (const float weight : {0.0f, 0.5f, 2.0f}) {
    RunSetup setup;
    setup.train = {.steps = 1};
    setup.amp = {};
    setup.scaler = {};
    LineRun run(setup, 0.5f);
    run.workload.method = std::make_unique<GradientPenalty>(GradientPenaltyOptions{.weight = weight});
    Trainer trainer(*run.backend, run.workload, setup.train, setup.amp, {}, setup.optimizer, run.recorder);
    EXPECT_EQ(trainer.train_step().loss, 4.0 + 16.0 * static_cast<double>(weight));
    const float slope = 4.0f + 8.0f * weight;
    EXPECT_EQ(run.gradients(), (HostValues{{3 * slope, 2 * slope, slope, -slope}, {slope}}));
  }
  EXPECT_THROW(GradientPenalty({.weight = -1.0f}), std::invalid_argument);
  EXPECT_THROW(GradientPenalty({.weight = std::numeric_limits<float>::infinity()}), std::invalid_argument);
}

TEST(GradientPenalty, AllZeroGradientsTrainOnWithoutNaN) {
  // The target is the output: loss, gradient and penalty are zero, and so must be the gradient of the total.
  for (const Level level : {Level::O0, Level::O1}) {
    RunSetup setup;
    setup.train = {.steps = 1};
    setup.amp = {.level = level};
    setup.scaler = fixed(0x1p16);
    LineRun run(setup, 2.5f);
    const auto before = run.weights();
    const StepRow record = run.trainer.train_step();
    EXPECT_EQ(record.loss, 0.0);
    EXPECT_EQ(record.grad_norm, 0.0);
    EXPECT_FALSE(record.found_inf);
    EXPECT_EQ(run.gradients(), (HostValues{{0, 0, 0, 0}, {0}}));
    EXPECT_EQ(run.weights(), before);
  }
}

// ---- against FP64 -----------------------------------------------------------------------------------------

/// A perceptron 3-4-2 with tanh and MSE over a batch of 3: all numbers are multiples of 1/64, exact in FP16.
struct Tiny {
  static constexpr std::size_t rows = 3;
  std::vector<float> inputs = shuffled(rows * 3, -1.0f, 1);
  std::vector<float> targets = shuffled(rows * 2, -0.75f, 4);
  HostValues weights{shuffled(12, -0.9375f, 2), shuffled(4, -0.5f, 3), shuffled(8, -0.875f, 5),
                     shuffled(2, -0.25f, 6)};

  static std::vector<float> shuffled(std::size_t count, float low, std::size_t seed) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i)
      values[i] = low + static_cast<float>((i * 37 + seed * 11 + 5) % 120) / 64.0f;
    return values;
  }

  MethodRun run(const RunSetup& setup) const {
    return MethodRun(
        {HostBatch{.shape = {rows, 3}, .inputs = inputs, .values = {.shape = {rows, 2}, .values = targets}}},
        [this](Backend& backend) {
          auto mlp = std::make_unique<nn::Mlp>(
              backend, nn::MlpOptions{.widths = {3, 4, 2}, .activation = nn::Activation::tanh, .seed = 1});
          const auto parameters = mlp->parameters();
          for (std::size_t p = 0; p < parameters.size(); ++p) set_values(backend, *parameters[p], weights[p]);
          return mlp;
        },
        penalty_method, setup, LossKind::mse);
  }

  /// loss + ||gradient of loss|| on the graph; `leaves` are the weights in order, one by one.
  Real total(ScalarGraph& graph, const std::vector<Real>& leaves) const {
    const Real* w1 = leaves.data();
    const Real *b1 = w1 + 12, *w2 = b1 + 4, *b2 = w2 + 8;
    Real loss = graph.leaf(0.0);
    for (std::size_t row = 0; row < rows; ++row) {
      std::vector<Real> hidden;
      for (std::size_t j = 0; j < 4; ++j) {
        Real sum = b1[j];
        for (std::size_t i = 0; i < 3; ++i)
          sum = sum + w1[j * 3 + i] * static_cast<double>(inputs[row * 3 + i]);
        hidden.push_back(tanh(sum));
      }
      for (std::size_t k = 0; k < 2; ++k) {
        Real sum = b2[k];
        for (std::size_t j = 0; j < 4; ++j) sum = sum + w2[k * 4 + j] * hidden[j];
        const Real error = sum + -static_cast<double>(targets[row * 2 + k]);
        loss = loss + error * error;
      }
    }
    loss = loss / static_cast<double>(rows * 2);
    Real squares = graph.leaf(0.0);
    for (const Real& g : graph.gradients(loss, leaves)) squares = squares + g * g;
    return loss + sqrt(squares);
  }
  std::vector<Real> leaves(ScalarGraph& graph, const std::vector<double>& at) const {
    std::vector<Real> all;
    all.reserve(at.size());
    for (const double value : at) all.push_back(graph.leaf(value));
    return all;
  }
  std::vector<double> flat() const {
    std::vector<double> all;
    for (const auto& part : weights) all.insert(all.end(), part.begin(), part.end());
    return all;
  }
};

std::vector<float> flat(const HostValues& values) {
  std::vector<float> all;
  for (const auto& part : values) all.insert(all.end(), part.begin(), part.end());
  return all;
}

TEST(GradientPenalty, GradientIsThatOfThePenalisedLossInFp64) {
  const Tiny tiny;
  ScalarGraph graph;
  const std::vector<Real> leaves = tiny.leaves(graph, tiny.flat());
  const Real total = tiny.total(graph, leaves);
  const std::vector<Real> expected = graph.gradients(total, leaves);

  // The twin itself against central differences of the total, in FP64: h = 2^-17 leaves h^2 f'''/6, below
  // 1e-8 for third derivatives below 1e3, and 2^-53 |f| / h, below 1e-10.
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const auto total_at = [&](double shift) {
      ScalarGraph fresh;
      auto at = tiny.flat();
      at[i] += shift;
      return tiny.total(fresh, tiny.leaves(fresh, at)).value();
    };
    EXPECT_NEAR(expected[i].value(), (total_at(0x1p-17) - total_at(-0x1p-17)) / 0x1p-16, 1e-8) << i;
  }

  // The engine: rounding_bound(g) is the first-order bound in units of u of an evaluation that rounds every
  // operation once; twice that for operations that round twice (tanh is good to an ulp = 2 u) and for second
  // order. In FP16 the same count holds with u = 2^-11: every operation rounds once to FP16 where it is not
  // exact or in FP32. The scale keeps the smallest numbers normal.
  for (const Level level : {Level::O0, Level::O1}) {
    SCOPED_TRACE(name_of(level));
    RunSetup setup;
    setup.train = {.steps = 1};
    setup.amp = {.level = level};
    setup.scaler = fixed(256);
    MethodRun run = tiny.run(setup);
    const double u = level == Level::O0 ? u32 : u16;
    EXPECT_NEAR(run.trainer.train_step().loss, total.value(), 2 * u * graph.rounding_bound(total));
    const std::vector<float> gradient = flat(run.gradients());
    ASSERT_EQ(gradient.size(), expected.size());
    double error = 0, size = 0, bounds = 0;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const double bound = 2 * u * graph.rounding_bound(expected[i]);
      EXPECT_NEAR(static_cast<double>(gradient[i]), expected[i].value(), bound) << i;
      error += std::fabs(static_cast<double>(gradient[i]) - expected[i].value());
      size += std::fabs(expected[i].value());
      bounds += bound;
    }
    // The bound must catch a wrong gradient: without the penalty it would be off by a third or more.
    EXPECT_LT(bounds, 0.25 * size);
    RecordProperty(level == Level::O0 ? "error_o0" : "error_o1", std::to_string(error / size));
  }
}

TEST(GradientPenalty, APowerOfTwoScaleChangesNoBit) {
  const Tiny tiny;
  const auto after = [&](Level level, const ScalerOptions& scaler) {
    RunSetup setup;
    setup.train = {.steps = 3};
    setup.amp = {.level = level};
    setup.scaler = scaler;
    setup.optimizer = {.learning_rate = 0.0625, .momentum = 0.5};
    MethodRun run = tiny.run(setup);
    run.trainer.run();
    std::vector<double> losses;
    for (const StepRow& record : run.recorder.steps) losses.push_back(record.loss);
    return std::pair(run.weights(), losses);
  };
  const auto plain = after(Level::O0, {});
  EXPECT_EQ(after(Level::O0, fixed(0x1p16)), plain);
  EXPECT_EQ(after(Level::O0, fixed(0x1p40)), plain);
  EXPECT_EQ(after(Level::O0, fixed(0x1p-20)), plain);
  EXPECT_NE(after(Level::O0, fixed(1000)), plain) << "1000 is not a power of two";
  // FP16: gradients between 2^-10 and 4 or so are normal for S from 1 to 2^12.
  const auto low = after(Level::O1, fixed(16));
  EXPECT_EQ(after(Level::O1, fixed(64)), low);
  EXPECT_EQ(after(Level::O1, fixed(4096)), low);
  EXPECT_NE(after(Level::O1, fixed(1000)), low);
  EXPECT_NE(low, plain) << "O1 rounds";
}

// ---- as a training method ---------------------------------------------------------------------------------

std::unique_ptr<nn::Module> classifier(Backend& backend) {
  return std::make_unique<nn::Mlp>(
      backend, nn::MlpOptions{.widths = {6, 5, 3}, .activation = nn::Activation::tanh, .seed = 3});
}

RunSetup o1_setup() {
  RunSetup setup;
  setup.train = {.steps = 8, .accumulate = 2, .evaluate_every = 3};
  setup.amp = {.level = Level::O1};
  // Overflows at first: see train_recipes_test.
  setup.scaler = {.policy = "dynamic", .initial_scale = 0x1p20, .growth_interval = 3};
  setup.optimizer = {.name = optim::Algorithm::adam, .learning_rate = 0.01};
  return setup;
}

TEST(GradientPenalty, MicroBatchesAverageTheirPenalisedLosses) {
  // Halving and adding two gradients: the engine halves the loss (exact), so only the sum rounds, as here.
  const auto batches = class_batches(2);
  RunSetup setup;
  setup.train = {.steps = 1};
  setup.amp = {};
  setup.scaler = {};
  MethodRun first({batches[0]}, classifier, penalty_method, setup);
  MethodRun second({batches[1]}, classifier, penalty_method, setup);
  setup.train.accumulate = 2;
  MethodRun both(batches, classifier, penalty_method, setup);
  for (MethodRun* run : {&first, &second, &both}) run->trainer.run();
  HostValues expected = first.gradients();
  add_to(expected, second.gradients());
  for (auto& part : expected)
    for (float& g : part) g *= 0.5f;
  EXPECT_EQ(both.gradients(), expected);
}

TEST(GradientPenalty, AnOverflowInTheFirstBackwardSkipsTheStep) {
  RunSetup setup = o1_setup();
  setup.train.steps = 1;
  setup.scaler.initial_scale = 0x1p24;
  MethodRun run(class_batches(5), classifier, penalty_method, setup);
  const auto before = run.weights();
  const StepRow record = run.trainer.train_step();
  EXPECT_TRUE(record.skipped);
  EXPECT_FALSE(std::isfinite(record.loss)) << "the penalty is that of infinite gradients";
  EXPECT_EQ(run.weights(), before);
  EXPECT_EQ(run.trainer.step_state().scale, 0x1p23);
}

TEST(GradientPenalty, ObserversSeeTheGradientsOfTheTotalOnce) {
  struct Counter final : Tap {
    std::map<std::string, std::uint64_t> counts;
    bool wants(const Site& site) override { return site.what == What::gradients; }
    void see(const Event& event) override {
      if (const auto* row = event.as<HistogramRow>()) counts[row->tensor] = row->after.total();
    }
  } counter;
  RunSetup setup;
  setup.train = {.steps = 1};
  setup.amp = {.level = Level::O1};
  MethodRun run(class_batches(1), classifier, penalty_method, setup);
  Trainer trainer(*run.backend, run.workload, setup.train, setup.amp, fixed(64), setup.optimizer, counter);
  trainer.train_step();
  EXPECT_EQ(counter.counts.at("fc1.weight"), 30u);
  EXPECT_EQ(counter.counts.at("fc2.weight"), 15u);
  EXPECT_EQ(counter.counts.at("fc2.input"), 20u);
}

TEST(GradientPenalty, EveryLevelOfEveryDialectTrains) {
  expect_every_level_trains(o1_setup(), [](const RunSetup& setup) {
    return MethodRun(class_batches(4), classifier, penalty_method, setup);
  });
}

TEST(GradientPenalty, TheSameBitsWithTwoThreadsAndAfterResuming) {
  const auto make = [](int threads) {
    return std::make_unique<MethodRun>(class_batches(5), classifier, penalty_method, o1_setup(),
                                       LossKind::cross_entropy, threads);
  };
  expect_the_same_with_two_threads(make);
  const testing_support::TemporaryFolder folder;
  expect_the_same_after_resuming([&] { return make(1); }, folder.path());
}

}  // namespace
}  // namespace fp16lab::engine::test::gradient_penalty_test
