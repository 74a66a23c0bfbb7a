// A net whose gradients vanish by a known factor a layer: every global scale loses some or overflows, scales
// of layers lose none. And what observers learn of such scales.
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "engine/nn/models/mlp.hpp"
#include "engine/train/tensor_log.hpp"
#include "numerics/formats/bits.hpp"
#include "tests/engine/train/recipe_support.hpp"

namespace fp16lab::engine::test {
namespace {

constexpr int depth = 8, width = 4, step_down = 6;

/// y = W x + 1 eight times over with W = 2^-6 I: activations stay near 1, and every layer takes 2^-6 of the
/// gradient.
std::unique_ptr<nn::Module> vanishing(Backend& backend) {
  auto net =
      std::make_unique<nn::Mlp>(backend, nn::MlpOptions{.widths = std::vector<std::int64_t>(depth + 1, width),
                                                        .activation = nn::Activation::none});
  for (Parameter* parameter : net->parameters()) {
    const auto count = static_cast<std::size_t>(parameter->value.element_count());
    std::vector<float> values(count, 1.0f);
    if (count > width)
      for (std::size_t i = 0; i < count; ++i) values[i] = i % (width + 1) == 0 ? 0x1p-6f : 0.0f;
    parameter->value = tensor_of(backend, parameter->value.shape(), values);
    ++parameter->version;
  }
  return net;
}

/// What FP16 made of every gradient tensor of the first step.
struct LossTap final : Tap {
  struct Row {
    std::uint64_t lost = 0, kept = 0, infinite = 0;
    double loss_scale = 0;
  };
  std::map<std::string, Row> rows;
  std::vector<StepRow> steps;
  bool wants(const Site& site) override { return site.what == What::gradients && site.step == 1; }
  void see(const Event& event) override {
    if (const auto* row = event.as<HistogramRow>())
      rows[row->tensor] = {.lost = row->after.zero - row->before.zero,
                           .kept = row->after.finite_nonzero(),
                           .infinite = row->after.infinite,
                           .loss_scale = row->loss_scale};
    if (const auto* row = event.as<StepRow>()) steps.push_back(*row);
  }
  std::uint64_t lost() const {
    std::uint64_t total = 0;
    for (const auto& [name, row] : rows) total += row.lost;
    return total;
  }
  const Row& weight(int layer) const { return rows.at("fc" + std::to_string(layer) + ".weight"); }
  /// Layers that still learn something.
  int learning() const {
    int count = 0;
    for (int layer = 1; layer <= depth; ++layer) count += weight(layer).kept > 0 ? 1 : 0;
    return count;
  }
};

LossTap first_step(const amp::ScalerOptions& scaler, std::vector<std::vector<float>>* gradients = nullptr) {
  const auto backend = hopper_backend();
  HostBatch batch{.shape = {2, width}, .inputs = std::vector<float>(2 * width, 1.0f)};
  batch.values = {{2, width}, std::vector<float>(2 * width, 0.0f)};
  FixedBatches batches({batch});
  Workload workload;
  workload.model = vanishing(*backend);
  workload.training = &batches;
  workload.loss = LossKind::mse;
  LossTap observer;
  Trainer trainer(*backend, workload, {.steps = 1}, {.level = Level::O1}, scaler, {.learning_rate = 0},
                  observer);
  trainer.run();
  if (gradients != nullptr)
    for (const Parameter* parameter : trainer.parameters())
      gradients->push_back(values_of(*backend, parameter->gradient));
  return observer;
}

TEST(VanishingGradients, EveryGlobalScaleLosesOrOverflows) {
  // dL/dy = 2 y / 8 with y = 1 + 2^-6 + ...: S / 4 at the top, in two rows, so that the bias's S / 2
  // overflows from S = 2^17 on. Nothing is left of the first layer's 2^-44 S up to S = 2^19; it is lost on
  // the way.
  for (int power = 0; power <= 30; ++power) {
    const LossTap seen = first_step({.policy = "fixed", .initial_scale = std::ldexp(1.0, power)});
    EXPECT_EQ(seen.steps[0].skipped, power >= 17) << "S = 2^" << power;
    if (power >= 17) continue;
    EXPECT_GT(seen.lost(), 0u) << "S = 2^" << power;
    EXPECT_EQ(seen.weight(1).kept, 0u) << "S = 2^" << power;
  }
}

/// fc8 = 1, fc7 = 2^6, ... fc1 = 2^42.
std::vector<std::string> climbing() {
  std::vector<std::string> groups;
  for (int layer = 1; layer <= depth; ++layer)
    groups.push_back("fc" + std::to_string(layer) + "=2^" + std::to_string(step_down * (depth - layer)));
  return groups;
}

TEST(VanishingGradients, ScalesOfLayersLoseNothing) {
  for (const char* const policy : {"layerwise", "groups", "ada-loss"}) {
    SCOPED_TRACE(policy);
    amp::ScalerOptions scaler{.policy = policy, .initial_scale = 1024};
    if (scaler.policy == "ada-loss")
      scaler.parameters = {{"accum_upper_bound", 0x1p60}, {"u_min", 1e-3}, {"scale_upper_bound", 65504.0}};
    else
      scaler.groups = climbing();
    std::vector<std::vector<float>> gradients;
    const LossTap seen = first_step(scaler, &gradients);
    EXPECT_FALSE(seen.steps[0].found_inf);
    EXPECT_EQ(seen.steps[0].loss_scale, 1024);
    for (const auto& [name, row] : seen.rows) {
      EXPECT_EQ(row.lost, 0u) << name;
      EXPECT_EQ(row.infinite, 0u) << name;
    }
    // dL/dW of the first layer: 2^-42 times 2 rows of y / 4 each, in FP32 after unscaling.
    const double y = [] {
      double value = 1;
      for (int layer = 0; layer < depth; ++layer) value = 1 + value * 0x1p-6;
      return value;
    }();
    EXPECT_NEAR(static_cast<double>(gradients[0][0]), 2 * 0x1p-42 * y / 4, 0x1p-43 * 0x1p-9)
        << "within a few roundings to FP16 (y, dL/dy, the sum of two rows) of relative size 2^-11";
    if (scaler.policy != "ada-loss") {
      for (int layer = 1; layer <= depth; ++layer)
        EXPECT_EQ(seen.weight(layer).loss_scale, std::ldexp(1024.0, step_down * (depth - layer)));
    }
  }
}

TEST(VanishingGradients, AdaLossWithTheReleasedBoundsLosesLess) {
  // At S = 1 the gradients of layers 8, 7, ... are 2^-2, 2^-8, 2^-14, 2^-20, and gone. The released u_min
  // asks for 4.8e-5: factors 16, 16 and 4 from layer 5 on bring two more layers above 2^-25 before 1024 is
  // used up.
  const LossTap plain = first_step({.policy = "none"}), adaptive = first_step({.policy = "ada-loss"});
  EXPECT_EQ(plain.learning(), 4);
  EXPECT_EQ(adaptive.learning(), 6);
  const double scales[] = {1, 1, 1, 16, 256, 1024};
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(adaptive.weight(depth - i).loss_scale, scales[i]) << "layer " << depth - i;
}

// ---- what observers learn of a tensor whose uses carried several scales

TEST(TensorLog, BringsUsesToTheLargestScale) {
  struct Kept final : Tap {
    std::vector<std::pair<std::string, double>> told;
    std::vector<HistogramRow> rows;
    bool wants(const Site& site) override { return site.what == What::gradients; }
    void see(const Event& event) override {
      rows.push_back(*event.as<HistogramRow>());
      told.emplace_back(rows.back().tensor, rows.back().loss_scale);
    }
  } kept;
  const auto backend = hopper_backend();
  TensorLog log;
  const auto use = [&](const char* name, float value, int exponent) {
    // Counted before and after its rounding to FP16.
    CastProbe probe;
    const Tensor wide = tensor_of(*backend, {1}, {value});
    Tensor low = backend->empty({1}, DType::f16);
    backend->cast(wide, low, &probe);
    log.see(
        Event(CountedTensor{Observed::gradients, name, GradientKind::weight, DType::f16, probe, exponent}));
  };
  log.begin(1, {Observed::gradients}, kept);
  use("a", 0x1.8p-3f, 0);
  use("b", 1, 0);
  use("a", 0x1.8p-3f, 5);
  use("a", 0x1.8p-30f, -2);
  use("a", 0x1.8p-4f, 0);
  log.settle(*backend);
  log.report(8.0);
  EXPECT_THAT(kept.told, testing::ElementsAre(std::pair("a", 256.0), std::pair("b", 8.0)));
  const HistogramRow& a = kept.rows[0];
  ExponentHistogram before, after;
  for (const float value : {0x1.8p2f, 0x1.8p-3f, 0x1.8p-23f, 0x1.8p1f}) before.count(bits_of(value));
  for (const float value : {0x1.8p2f, 0x1.8p-3f, 0.0f, 0x1.8p1f}) after.count(bits_of(value));
  EXPECT_EQ(a.before, before);
  EXPECT_EQ(a.after, after) << "the third was lost at its own scale, whatever the common one";
  EXPECT_EQ(log.cast_counts(), (CastCounts{.values = 5, .underflow = 1, .overflow = 0}));
}

}  // namespace
}  // namespace fp16lab::engine::test
