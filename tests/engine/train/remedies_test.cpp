// For every diagnosis, a run that earns it, and the same run with the change that the diagnosis suggests: it
// must not end so again.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/train/diagnosis.hpp"
#include "tests/engine/train/culprit_net.hpp"
#include "tests/engine/train/mlp_run.hpp"

namespace fp16lab::engine::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct Ended {
  std::string code = "none";
  std::string text = {};
};

template <class Run>
Ended ended(Run& run) {
  const RunResult result = run.trainer.run();
  if (!result.diagnosis) return {};
  return {std::string(result.diagnosis->code), result.diagnosis->text};
}

Ended of_net(const std::vector<HostBatch>& batches, const CulpritNetOptions& net, const RunSetup& setup) {
  const auto run = culprit_run(batches, net, setup);
  run->recorder.explain = false;
  return ended(*run);
}

Ended of_mlp(const MlpRunSetup& setup) {
  MlpRun run(setup);
  return ended(run);
}

/// Few steps at O1 with plain SGD that moves little.
RunSetup quiet_setup(const ScalerOptions& scaler, std::uint64_t skip_limit, std::uint64_t steps = 30) {
  RunSetup setup;
  setup.train = {.steps = steps, .seed = 3, .skip_limit = skip_limit};
  setup.scaler = scaler;
  setup.optimizer = {.learning_rate = 0x1p-20};
  return setup;
}

MlpRunSetup mlp_at_o1(const ScalerOptions& scaler, std::uint64_t skip_limit) {
  MlpRunSetup setup;
  setup.amp.level = Level::O1;
  setup.scaler = scaler;
  setup.train = {.steps = 80, .skip_limit = skip_limit};
  return setup;
}

TEST(Remedies, ALearningRateThatDivergesInFp32IsLowered) {
  for (const Level level : {Level::O0, Level::O1}) {
    MlpRunSetup setup;
    setup.targets = data::Targets::inputs;
    setup.amp.level = level;
    setup.train.steps = 120;
    setup.optimizer = {.learning_rate = 1000};
    const Ended bad = of_mlp(setup);
    EXPECT_EQ(bad.code, "learning_rate_too_high");
    EXPECT_THAT(bad.text, AllOf(HasSubstr("Lower optimizer.lr (it is 1000)"), Not(HasSubstr("amp.")),
                                Not(HasSubstr("scaler."))));
    EXPECT_THAT(bad.text, HasSubstr(level == Level::O0 ? "this is FP32" : "as they would be in FP32"));
    setup.optimizer.learning_rate = 0.1;
    EXPECT_EQ(of_mlp(setup).code, "none");
  }
}

/// Logits beyond 65504.
CulpritNetOptions tall_output() {
  CulpritNetOptions net;
  for (std::size_t i = 0; i < 5; ++i) net.second[5 + i] = 30000.0f;
  return net;
}

TEST(Remedies, ALossThatIsNotFinite) {
  const auto batches = equal_rows(4, 1.0f);
  RunSetup setup = quiet_setup({.policy = "fixed", .initial_scale = 1}, 5);
  const Ended bad = of_net(batches, tall_output(), setup);
  EXPECT_EQ(bad.code, "loss_not_finite");
  EXPECT_THAT(bad.text, AllOf(HasSubstr("amp.excluded"), HasSubstr("amp.level = \"O0\""),
                              HasSubstr("--explain-overflow")));
  setup.amp.excluded = {"fc2"};
  EXPECT_EQ(of_net(batches, tall_output(), setup).code, "none");
  setup.amp = {.level = Level::O0};
  EXPECT_EQ(of_net(batches, tall_output(), setup).code, "none");

  // In FP32 there is no FP16 to leave: the batch, or the model.
  const auto exponential = [](float first) {
    CulpritNetOptions net{.first = first};
    net.between = [](Tape&, const Variable& h) { return ops::exp(h); };
    return net;
  };
  const Ended model = of_net(batches, exponential(100), setup);
  EXPECT_EQ(model.code, "loss_not_finite");
  EXPECT_THAT(model.text, AllOf(HasSubstr("this is FP32"), Not(HasSubstr("amp."))));
  EXPECT_EQ(of_net(batches, exponential(1), setup).code, "none");
  auto spoilt = batches;
  spoilt[0].inputs[3] = std::nanf("");
  EXPECT_EQ(of_net(spoilt, {}, setup).code, "loss_not_finite");
  EXPECT_EQ(of_net(batches, {}, setup).code, "none");

  const auto explained = culprit_run(batches, exponential(100), setup);
  EXPECT_THAT(ended(*explained).text, AllOf(Not(HasSubstr("--explain-overflow")),
                                            HasSubstr("culprits.jsonl has the first operation")));
}

TEST(Remedies, WeightsThatAreNotFinite) {
  // Adam without an epsilon divides 0 by 0 where a gradient is 0: only the first input is not.
  RunSetup setup = quiet_setup({.policy = "torch"}, 5);
  setup.optimizer = {.name = optim::Algorithm::adam, .learning_rate = 0.01, .epsilon = 0};
  const auto batches = equal_rows(4, 1.0f);
  const Ended bad = of_net(batches, {}, setup);
  EXPECT_EQ(bad.code, "weights_not_finite");
  EXPECT_THAT(bad.text, HasSubstr("optimizer.epsilon"));
  setup.optimizer.epsilon = 1e-8;
  EXPECT_EQ(of_net(batches, {}, setup).code, "none");

  // Weights that were so from the beginning.
  setup.optimizer = {.learning_rate = 0.01};
  const Ended begun = of_net(batches, {.first = std::nanf("")}, setup);
  EXPECT_EQ(begun.code, "weights_not_finite");
  EXPECT_THAT(begun.text, AllOf(HasSubstr("Begin with other weights"), Not(HasSubstr("optimizer."))));
  EXPECT_EQ(of_net(batches, {}, setup).code, "none");
}

/// Calm batches, then wild ones: their input is 2^12 times as large, and the weight that meets it 2^-12.
std::vector<HostBatch> calm_then_wild(std::size_t calm, std::size_t wild) {
  std::vector<HostBatch> batches = equal_rows(4, 1.0f, 1, calm);
  for (const HostBatch& batch : equal_rows(4, 0x1p12f, 1, wild)) batches.push_back(batch);
  return batches;
}
CulpritNetOptions small_first_layer() {
  CulpritNetOptions net{.first = 0x1p-12f};
  net.between = [](Tape&, const Variable& h) { return h; };  // a ReLU would hide a weight of -infinity
  net.second = std::vector<float>(15, 0.5f);
  for (std::size_t i = 0; i < 5; ++i) net.second[5 + i] = -0.5f;
  return net;
}

TEST(Remedies, AnOverflowThatNothingLookedFor) {
  RunSetup setup =
      quiet_setup({.policy = "fixed", .initial_scale = 0x1p12, .drop_overflow_update = false}, 0, 60);
  setup.optimizer.loss_scale = 0x1p12;
  const auto batches = calm_then_wild(3, 1);
  const Ended bad = of_net(batches, small_first_layer(), setup);
  EXPECT_EQ(bad.code, "unchecked_overflow");
  EXPECT_THAT(bad.text, AllOf(HasSubstr("scaler.drop_overflow_update = true"),
                              HasSubstr("optimizer.loss_scale = 1"), Not(HasSubstr("scaler.enabled"))));
  setup.scaler.drop_overflow_update = true;
  setup.optimizer.loss_scale = 1;
  EXPECT_EQ(of_net(batches, small_first_layer(), setup).code, "none");

  // A scaler that is off: gradients of FP16 overflow at S = 1 too.
  RunSetup off = quiet_setup({.enabled = false}, 0, 60);
  const auto wild = equal_rows(4, 0x1p12f, 1);
  CulpritNetOptions steep = small_first_layer();
  for (float& weight : steep.second) weight *= 0x1p6f;
  const Ended unguarded = of_net(wild, steep, off);
  EXPECT_EQ(unguarded.code, "unchecked_overflow");
  EXPECT_THAT(unguarded.text,
              AllOf(HasSubstr("scaler.enabled = true"), Not(HasSubstr("drop_overflow_update"))));
  off.scaler.enabled = true;  // now no step is taken, and S = 1 cannot fall
  EXPECT_EQ(of_net(wild, steep, off).code, "overflow_without_scaling");
}

/// logits (a, -a, 0) for the label 1: the gradient of the hidden units is S 2a.
CulpritNetOptions opposed(float a) {
  CulpritNetOptions net{.first = 16.0f};
  net.second[0] = a;
  net.second[5] = -a;
  return net;
}

TEST(Remedies, AnOverflowWithoutScaling) {
  const auto batches = equal_rows(1, 0x1p-4f, 1);
  const RunSetup setup = quiet_setup({.policy = "fixed", .initial_scale = 1}, 5);
  const Ended bad = of_net(batches, opposed(60000), setup);
  EXPECT_EQ(bad.code, "overflow_without_scaling");
  EXPECT_THAT(bad.text,
              AllOf(HasSubstr("amp.excluded"), HasSubstr("2^-8"), Not(HasSubstr("accumulate_mode"))));
  RunSetup wide = setup, lower = setup;
  wide.amp.excluded = {"fc1", "fc2"};
  EXPECT_EQ(of_net(batches, opposed(60000), wide).code, "none");
  lower.scaler.initial_scale = 0x1p-8;
  EXPECT_EQ(of_net(batches, opposed(60000), lower).code, "none");

  RunSetup sums = setup;
  sums.train.accumulate = 4;
  sums.train.accumulate_mode = AccumulateMode::sum;
  const Ended summed = of_net(batches, opposed(60000), sums);
  EXPECT_EQ(summed.code, "overflow_without_scaling");
  EXPECT_THAT(summed.text, HasSubstr("train.accumulate_mode = \"mean\""));
  sums.train.accumulate_mode = AccumulateMode::mean;
  EXPECT_EQ(of_net(batches, opposed(60000), sums).code, "none");
}

TEST(Remedies, NaNBeforeRounding) {
  // The derivative of a root at 0, times a gradient of 0.
  const auto root_of = [](float added) {
    CulpritNetOptions net{.first = 0.0f};
    net.between = [added](Tape& tape, const Variable& h) {
      Tensor shift = tape.backend().empty(Shape{}, h.dtype());
      tape.backend().fill(shift, static_cast<double>(added));
      return ops::square_root(ops::add(h, tape.constant(shift)));
    };
    return net;
  };
  const RunSetup setup = quiet_setup({.policy = "lost-mass", .initial_scale = 1024}, 5);
  const Ended bad = of_net(equal_rows(4, 1.0f), root_of(0), setup);
  EXPECT_EQ(bad.code, "nan_before_rounding");
  EXPECT_EQ(of_net(equal_rows(4, 1.0f), root_of(1), setup).code, "none");
}

/// A regression of `net` (outputs of zero, if nothing else is given) on the given values, a batch each.
Ended of_regression(const std::vector<float>& values, const RunSetup& setup,
                    const CulpritNetOptions& net = {}) {
  std::vector<HostBatch> batches = equal_rows(4, 1.0f, 0, values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    batches[i].labels.clear();
    batches[i].values = {.shape = {4, 3}, .values = std::vector<float>(12, values[i])};
  }
  MethodRun run(
      std::move(batches), [&net](Backend& backend) { return std::make_unique<CulpritNet>(backend, net); },
      MethodRun::MakeMethod{}, setup, LossKind::mse);
  return ended(run);
}

TEST(Remedies, GradientsThatAreZero) {
  // Nothing holds the scale back, and this policy lets it become infinite.
  const RunSetup setup = quiet_setup({.policy = "paddle", .growth_interval = 1}, 3, 160);
  EXPECT_EQ(of_regression({0.0f}, setup).code, "zero_gradients") << "there is nothing to learn";
  EXPECT_EQ(of_regression({1.0f}, setup).code, "none");
}

TEST(Remedies, AScaleBeyondUse) {
  RunSetup setup = quiet_setup({.policy = "torch", .growth_interval = 1}, 5, 60);
  // (Almost) nothing, so long that the scale grows and grows, then numbers of about 1.
  std::vector<float> values(60, 0x1p-40f);
  std::fill(values.begin() + 40, values.end(), 1.0f);
  const auto run = [&] { return of_regression(values, setup); };
  const Ended bad = run();
  EXPECT_EQ(bad.code, "scale_beyond_use");
  EXPECT_THAT(bad.text, HasSubstr("Set scaler.max_scale"));
  setup.scaler.parameters = {{"max_scale", 0x1p24}};
  setup.train.skip_limit = 12;
  EXPECT_EQ(run().code, "none");
}

TEST(Remedies, AScaleThatIsStuck) {
  const Ended bad = of_mlp(mlp_at_o1({.policy = "fixed", .initial_scale = 0x1p22}, 20));
  EXPECT_EQ(bad.code, "scale_stuck");
  EXPECT_THAT(bad.text, AllOf(HasSubstr("lower scaler.initial_scale"), HasSubstr("scaler.policy = \"torch\""),
                              Not(HasSubstr("min_scale"))));
  EXPECT_EQ(of_mlp(mlp_at_o1({.policy = "fixed", .initial_scale = 0x1p10}, 20)).code, "none");
  for (const std::string policy : {"torch", "lost-mass"})
    EXPECT_EQ(of_mlp(mlp_at_o1({.policy = policy, .initial_scale = 0x1p22}, 20)).code, "none") << policy;

  const ScalerOptions floor{
      .policy = "torch", .initial_scale = 0x1p22, .parameters = {{"min_scale", 0x1p22}}};
  const Ended floored = of_mlp(mlp_at_o1(floor, 20));
  EXPECT_EQ(floored.code, "scale_stuck");
  EXPECT_THAT(floored.text,
              AllOf(HasSubstr("lower scaler.min_scale (it is 2^22)"), Not(HasSubstr("scaler.policy"))));
  EXPECT_EQ(
      of_mlp(mlp_at_o1({.policy = "torch", .initial_scale = 0x1p22, .parameters = {{"min_scale", 1}}}, 20))
          .code,
      "none");
}

TEST(Remedies, AScaleThatBeganTooHigh) {
  const Ended bad = of_mlp(mlp_at_o1({.policy = "torch", .initial_scale = 0x1p36}, 5));
  EXPECT_EQ(bad.code, "scale_began_too_high");
  EXPECT_THAT(bad.text, AllOf(HasSubstr("scaler.initial_scale"), HasSubstr("train.skip_limit")));
  EXPECT_EQ(of_mlp(mlp_at_o1({.policy = "torch", .initial_scale = 0x1p12}, 5)).code, "none");
  EXPECT_EQ(of_mlp(mlp_at_o1({.policy = "torch", .initial_scale = 0x1p36}, 40)).code, "none");
  // Where the policy's own rule ends the run, a limit of skips has no part in it.
  ScalerOptions fairseq{
      .policy = "fairseq", .initial_scale = 0x1p40, .parameters = {{"min_loss_scale", 0x1p38}}};
  EXPECT_THAT(of_mlp(mlp_at_o1(fairseq, 0)).text, Not(HasSubstr("train.skip_limit")));
}

TEST(Remedies, AScaleThatSinks) {
  // Every step that is taken overshoots by more than the one before, and gradients grow with the error.
  RunSetup setup = quiet_setup({.policy = "torch", .initial_scale = 0x1p16}, 4, 300);
  setup.optimizer.learning_rate = 0.125;
  const auto run = [&] {
    CulpritNetOptions net{.first = 4.0f};
    net.second = std::vector<float>(15, 0.0625f);
    net.between = [](Tape&, const Variable& h) { return h; };
    return of_regression({1.0f}, setup, net);
  };
  const Ended bad = run();
  EXPECT_EQ(bad.code, "scale_sinks");
  EXPECT_THAT(bad.text, AllOf(HasSubstr("lower optimizer.lr (it is 0.125)"), HasSubstr("train.clip_norm")));
  setup.train.clip_norm = 0.5;
  EXPECT_EQ(run().code, "none");
  setup.train.clip_norm = 1e9;  // is there, and clips nothing
  EXPECT_THAT(run().text, AllOf(HasSubstr("S sinks"), Not(HasSubstr("clip_norm"))));
  setup.train.clip_norm = 0;
  setup.optimizer.learning_rate = 0.01;
  EXPECT_EQ(run().code, "none");
}

TEST(Remedies, AScaleThatIsTooHigh) {
  const auto batches = calm_then_wild(10, 50);
  const auto setup_of = [](const ScalerOptions& scaler, std::uint64_t skip_limit) {
    RunSetup setup = quiet_setup(scaler, skip_limit, 60);
    setup.scaler.initial_scale = 0x1p12;
    return setup;
  };
  const Ended bad = of_net(batches, small_first_layer(), setup_of({.policy = "torch"}, 3));
  EXPECT_EQ(bad.code, "scale_too_high");
  EXPECT_THAT(bad.text, AllOf(HasSubstr("train.skip_limit"), HasSubstr("scaler.backoff_factor"),
                              HasSubstr("lost-mass"), HasSubstr("scaler.rescue")));
  EXPECT_EQ(of_net(batches, small_first_layer(), setup_of({.policy = "torch"}, 30)).code, "none");
  EXPECT_EQ(
      of_net(batches, small_first_layer(), setup_of({.policy = "torch", .backoff_factor = 0x1p-6}, 3)).code,
      "none");
  EXPECT_EQ(of_net(batches, small_first_layer(), setup_of({.policy = "lost-mass"}, 3)).code, "none");
  EXPECT_EQ(of_net(batches, small_first_layer(), setup_of({.policy = "torch", .rescue = 20}, 3)).code,
            "none");
  const Ended rescuing = of_net(batches, small_first_layer(), setup_of({.policy = "torch", .rescue = 1}, 3));
  if (rescuing.code == "scale_too_high") {
    EXPECT_THAT(rescuing.text, Not(HasSubstr("scaler.rescue")));
  }
}

}  // namespace
}  // namespace fp16lab::engine::test
