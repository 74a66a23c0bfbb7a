// What is counted of activations, weights, updates and optimizer state, against counts made here from the
// values themselves: with frexp and the compiler's _Float16, without a line of the library's counting.
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/data/loader.hpp"
#include "engine/nn/linear.hpp"
#include "engine/train/trainer.hpp"
#include "tests/engine/autograd/support.hpp"
#include "tests/engine/nn/synthetic_images.hpp"
#include "tests/engine/train/mlp_run.hpp"

namespace fp16lab::engine::test {
namespace {

constexpr ObservedSet everything{Observed::gradients, Observed::activations, Observed::weights,
                                 Observed::updates, Observed::optimizer_state};

struct Counts {
  std::map<int, std::uint64_t> bins{};  ///< by e, of magnitudes in (2^e, 2^(e+1)]
  std::uint64_t zero = 0, infinite = 0, nan = 0;
  bool operator==(const Counts&) const = default;
};

Counts counts_of(const std::vector<float>& values) {
  Counts counts;
  for (const float value : values) {
    int e = 0;
    if (std::isnan(value)) {
      ++counts.nan;
    } else if (std::isinf(value)) {
      ++counts.infinite;
    } else if (value == 0) {
      ++counts.zero;
    } else {
      const float significand = std::frexp(std::abs(value), &e);  // in [1/2, 1)
      ++counts.bins[significand == 0.5f ? e - 2 : e - 1];
    }
  }
  return counts;
}

Counts counts_of(const ExponentHistogram& histogram) {
  Counts counts{.zero = histogram.zero, .infinite = histogram.infinite, .nan = histogram.nan};
  for (int e = ExponentHistogram::min_exponent; e <= ExponentHistogram::max_exponent; ++e)
    if (histogram.at(e) != 0) counts.bins[e] = histogram.at(e);
  return counts;
}

std::vector<float> in_f16(std::vector<float> values) {
  for (float& value : values) value = static_cast<float>(static_cast<_Float16>(value));
  return values;
}

/// Two layers; keeps what went through them in every forward pass of training.
class OpenNet final : public nn::Module {
 public:
  explicit OpenNet(Backend& backend)
      : fc1_(add_child(std::make_unique<nn::Linear>(
            backend, "fc1", nn::LinearOptions{.inputs = 6, .outputs = 5, .seed = 3}))),
        fc2_(add_child(std::make_unique<nn::Linear>(
            backend, "fc2", nn::LinearOptions{.inputs = 5, .outputs = 3, .seed = 3}))) {}
  Variable forward(Tape& tape, const Variable& x) override {
    const Variable y = fc1_.forward(tape, x);
    const Variable z = ops::relu(y);
    const Variable out = fc2_.forward(tape, z);
    if (!tape.context().training) return out;
    for (const auto& [name, value] :
         {std::pair{"fc1.input", x}, {"fc1.output", y}, {"fc2.input", z}, {"fc2.output", out}}) {
      const std::vector<float> values = values_of(tape.backend(), value.tensor());
      seen[name].insert(seen[name].end(), values.begin(), values.end());
    }
    return out;
  }
  std::map<std::string, std::vector<float>> seen;

 private:
  nn::Linear& fc1_;
  nn::Linear& fc2_;
};

struct Watcher final : Tap {
  ObservedSet wanted = everything;
  std::function<bool(std::string_view)> named;
  std::map<std::pair<Observed, std::string>, HistogramRow> rows;  ///< the last step's
  std::vector<StepRow> steps;
  std::uint64_t every = 1;
  bool wants(const Site& site) override {
    if (site.what == What::gradients && site.name.empty()) rows.clear();
    return contains(wanted, site.what) && site.step % every == 0 &&
           (site.name.empty() || !named || named(site.name));
  }
  void see(const Event& event) override {
    if (const auto* row = event.as<HistogramRow>()) {
      EXPECT_TRUE(rows.emplace(std::pair(row->observed, row->tensor), *row).second)
          << row->tensor << " twice";
    }
    if (const auto* row = event.as<StepRow>()) steps.push_back(*row);
  }
};

struct OpenRun {
  OpenRun(const AmpOptions& amp, const OptimizerOptions& optimizer, const ScalerOptions& scaler = {},
          TrainOptions train = {.steps = 20, .accumulate = 2, .seed = 3}) {
    auto net = std::make_unique<OpenNet>(*backend);
    model = net.get();
    workload.model = std::move(net);
    workload.training = &training;
    workload.evaluation = &evaluation;
    trainer = std::make_unique<Trainer>(*backend, workload, train, amp, scaler, optimizer, watcher);
  }
  std::map<std::string, std::vector<float>> weights() {
    std::map<std::string, std::vector<float>> all;
    for (const Parameter* parameter : trainer->parameters())
      all[parameter->name] = values_of(*backend, parameter->value);
    return all;
  }
  const HistogramRow& row(Observed observed, const std::string& name) const {
    return watcher.rows.at({observed, name});
  }

  data::Dataset dataset = synthetic();
  std::unique_ptr<Backend> backend = hopper_backend();
  data::Loader training{dataset, data::unit_normalisation(), {.batch_size = 8, .seed = 3}};
  data::Loader evaluation{dataset, data::unit_normalisation(), {.batch_size = 8, .shuffle = false}};
  Workload workload;
  OpenNet* model = nullptr;
  Watcher watcher;
  std::unique_ptr<Trainer> trainer;
};

const AmpOptions o1{.level = Level::O1};
const AmpOptions masters{.level = Level::O2, .dialect = amp::Dialect::paddle};
const AmpOptions no_masters{.level = Level::O2, .dialect = amp::Dialect::paddle, .master_weights = false};
const OptimizerOptions sgd{.learning_rate = 0.1, .momentum = 0.9};
const OptimizerOptions adam{.name = optim::Algorithm::adam, .learning_rate = 1e-3};

TEST(ObservedTensors, ActivationsAreTheValuesOfTheForwardPass) {
  for (const bool low : {false, true}) {
    OpenRun run(low ? o1 : AmpOptions{}, sgd);
    run.trainer->train_step();
    for (const auto& [name, values] : run.model->seen) {
      const HistogramRow& row = run.row(Observed::activations, name);
      EXPECT_EQ(row.dtype, low ? DType::f16 : DType::f32) << name;
      EXPECT_EQ(row.kind, "activation");
      EXPECT_EQ(row.loss_scale, 1.0);
      EXPECT_EQ(counts_of(row.after), counts_of(low ? in_f16(values) : values)) << name;
      EXPECT_EQ(row.before.total(), values.size()) << "both micro-batches";
    }
    // The network's input is cast on its way into the first layer; fc2's is 16 bits already.
    const auto& seen = run.model->seen;
    EXPECT_EQ(counts_of(run.row(Observed::activations, "fc1.input").before), counts_of(seen.at("fc1.input")));
    EXPECT_EQ(counts_of(run.row(Observed::activations, "fc2.input").before), counts_of(seen.at("fc2.input")));
    EXPECT_TRUE(run.watcher.rows.contains({Observed::activations, "loss.prediction"}));
  }
}

TEST(ObservedTensors, OutputsAreCountedBeforeTheyAreRounded) {
  OpenRun low(o1, sgd);
  low.trainer->train_step();
  const HistogramRow& row = low.row(Observed::activations, "fc1.output");
  EXPECT_NE(row.before, row.after) << "accumulators of FP32 have other extremes than what FP16 keeps of them";
  const float exact = float_from_bits(row.before.greatest), kept = float_from_bits(row.after.greatest);
  EXPECT_EQ(kept, in_f16({exact}).front());
}

TEST(ObservedTensors, WeightsAreThoseOfTheForwardPassAndTheirCopies) {
  for (const AmpOptions& amp : {AmpOptions{}, o1, masters, no_masters}) {
    OpenRun run(amp, sgd);
    for (int step = 0; step < 3; ++step) {
      const auto before = run.weights();
      run.trainer->train_step();
      run.trainer->evaluate();  // casts the weights of the next step, unseen
      for (const auto& [name, values] : before) {
        const HistogramRow& row = run.row(Observed::weights, name);
        EXPECT_EQ(row.dtype, amp.level == Level::O0 ? DType::f32 : DType::f16) << name;
        EXPECT_EQ(counts_of(row.before), counts_of(values)) << name;
        EXPECT_EQ(counts_of(row.after), counts_of(row.dtype == DType::f16 ? in_f16(values) : values)) << name;
      }
    }
  }
}

TEST(ObservedTensors, UpdatesAreWhatTheStoredWeightsMade) {
  std::uint64_t unmoved_without_masters = 0;
  for (const AmpOptions& amp : {AmpOptions{}, masters, no_masters})
    for (const OptimizerOptions& optimizer : {sgd, adam}) {
      OpenRun run(amp, optimizer);
      for (int step = 0; step < 3; ++step) {
        const auto before = run.weights();
        run.trainer->train_step();
        const auto after = run.weights();
        for (const Parameter* parameter : run.trainer->parameters()) {
          const std::string& name = parameter->name;
          const std::vector<float> gradient = values_of(*run.backend, parameter->gradient);
          std::vector<float> relative;
          std::uint64_t unmoved = 0;
          for (std::size_t i = 0; i < gradient.size(); ++i) {
            const float w = before.at(name)[i], change = after.at(name)[i] - w;
            relative.push_back(change == 0 ? 0 : change / w);
            unmoved += change == 0 && gradient[i] != 0 ? 1 : 0;
          }
          const HistogramRow& row = run.row(Observed::updates, name);
          EXPECT_EQ(row.unmoved, unmoved) << name;
          EXPECT_EQ(counts_of(row.before), counts_of(relative)) << name;
          EXPECT_EQ(row.after, row.before);
          EXPECT_EQ(row.dtype, parameter->value.dtype());
          if (row.dtype == DType::f16) unmoved_without_masters += unmoved;
        }
      }
    }
  EXPECT_GT(unmoved_without_masters, 0u) << "a rate of 1e-3 is below half an ulp of some FP16 weights";
}

TEST(ObservedTensors, ASkippedStepHasNoUpdates) {
  OpenRun run(o1, adam, {.policy = "dynamic", .initial_scale = 0x1p40, .growth_interval = 100});
  run.trainer->train_step();
  ASSERT_TRUE(run.watcher.steps.front().skipped);
  EXPECT_FALSE(run.watcher.rows.contains({Observed::updates, "fc1.weight"}));
  EXPECT_TRUE(run.watcher.rows.contains({Observed::weights, "fc1.weight"}));
  EXPECT_EQ(run.row(Observed::optimizer_state, "fc1.weight.first_moment").before.zero, 30u);
  while (run.watcher.steps.back().skipped) run.trainer->train_step();
  EXPECT_TRUE(run.watcher.rows.contains({Observed::updates, "fc1.weight"}));
}

TEST(ObservedTensors, OptimizerStateIsWhatTheStepLeaves) {
  for (const OptimizerOptions& optimizer : {sgd, adam}) {
    OpenRun run(o1, optimizer);
    run.trainer->train_step();
    run.trainer->train_step();
    ASSERT_FALSE(run.trainer->optimizer().state().empty());
    for (const auto& [name, tensor] : run.trainer->optimizer().state())
      EXPECT_EQ(counts_of(run.row(Observed::optimizer_state, name).after),
                counts_of(values_of(*run.backend, tensor)))
          << name;
  }
}

TEST(ObservedTensors, OnlyWhatIsAskedForIsShown) {
  for (const Observed one : every<Observed>) {
    OpenRun run(o1, adam);
    run.watcher.wanted = {one};
    run.trainer->train_step();
    EXPECT_FALSE(run.watcher.rows.empty());
    for (const auto& [key, row] : run.watcher.rows) EXPECT_EQ(key.first, one) << key.second;
    EXPECT_EQ(run.watcher.steps.front().underflow_rate.has_value(), one == Observed::gradients);
  }
  OpenRun run(o1, adam);
  run.watcher.named = [](std::string_view name) { return name.starts_with("fc2."); };
  run.trainer->train_step();
  EXPECT_EQ(run.watcher.rows.size(), 3u + 2 + 2 + 2 + 4)
      << "gradients also of fc2.input, activations in and out";
  for (const auto& [key, row] : run.watcher.rows) EXPECT_TRUE(key.second.starts_with("fc2.")) << key.second;
  EXPECT_TRUE(run.watcher.steps.front().underflow_rate.has_value()) << "of all gradients, shown or not";
}

TEST(ObservedTensors, LookingChangesNoBit) {
  for (const AmpOptions& amp : {AmpOptions{}, o1, masters, no_masters}) {
    OpenRun blind(amp, adam), watched(amp, adam), at_times(amp, adam);
    blind.watcher.wanted = {};
    at_times.watcher.every = 3;
    for (int step = 0; step < 10; ++step) {
      for (OpenRun* run : {&blind, &watched, &at_times}) {
        run->trainer->train_step();
        run->trainer->evaluate();
      }
      ASSERT_EQ(watched.watcher.steps.back().state_hash, blind.watcher.steps.back().state_hash);
      ASSERT_EQ(at_times.watcher.steps.back().state_hash, blind.watcher.steps.back().state_hash);
    }
  }
}

}  // namespace
}  // namespace fp16lab::engine::test
