// The recipes of clipping and accumulation (PyTorch's AMP examples) against loops written by hand: forward
// passes with explicit casts, everything after the backward pass in host arithmetic.
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/nn/models/mlp.hpp"
#include "tests/engine/train/recipe_support.hpp"

namespace fp16lab::engine::test {
namespace {

constexpr float learning_rate = 0.25f, momentum = 0.5f;

std::unique_ptr<nn::Module> make_mlp(Backend& backend) {
  return std::make_unique<nn::Mlp>(backend, nn::MlpOptions{.widths = {6, 5, 3}, .seed = 3});
}

RunSetup recipe(Level level) {
  RunSetup setup;
  setup.train = {.steps = 9};
  setup.amp = {.level = level};
  setup.optimizer = {.learning_rate = learning_rate, .momentum = momentum};
  // Overflows at first: a gradient of the logits is up to S / 4, so 2^19 is above 65504 = 2^16 - 32.
  setup.scaler = {
      .policy = "dynamic", .initial_scale = level == Level::O1 ? 0x1p19 : 8.0, .growth_interval = 3};
  return setup;
}

MethodRun run_of(const RunSetup& setup, std::vector<HostBatch> batches) {
  return MethodRun(std::move(batches), make_mlp, {}, setup);
}

enum class Order { unscale_then_clip, clip_then_unscale };

struct HandResult {
  HandModel model;
  std::vector<double> scales;  ///< used in each step
  std::vector<bool> skipped;
  double last_norm = 0;  ///< norm of the gradients that the last step used
};

/// Micro-batches, unscale, clip, step, update.
HandResult hand_loop(const RunSetup& setup, const std::vector<HostBatch>& batches,
                     Order order = Order::unscale_then_clip) {
  const auto backend = hopper_backend();
  const bool o1 = setup.amp.level == Level::O1;
  const auto accumulate = static_cast<std::uint64_t>(setup.train.accumulate);
  HandResult result{.model = hand_model(*backend, *make_mlp(*backend)), .scales = {}, .skipped = {}};
  HandScale scale{.scale = setup.scaler.initial_scale.value_or(65536),
                  .interval = static_cast<std::int64_t>(setup.scaler.growth_interval.value_or(2000))};
  for (std::uint64_t step = 0; step < setup.train.steps; ++step) {
    HostValues gradients;
    for (std::uint64_t i = 0; i < accumulate; ++i) {
      const HostBatch& batch = batches[(step * accumulate + i) % batches.size()];
      Tape tape(*backend);
      const std::vector<Variable> leaves = result.model.leaves(tape);
      const Variable x = low_if(o1, tape.constant(tensor_of(*backend, batch.shape, batch.inputs)));
      const Variable logits = ops::cast(perceptron(low_if(o1, leaves), x), DType::f32);
      Variable loss = ops::softmax_cross_entropy(logits, index_of(*backend, batch.labels));
      if (accumulate > 1 && setup.train.accumulate_mode == AccumulateMode::mean)
        loss = ops::divide_constant(loss, static_cast<float>(accumulate));
      add_to(gradients, scaled_gradients(tape, loss, static_cast<float>(scale.scale), leaves));
    }
    if (order == Order::clip_then_unscale) clip_by_hand(gradients, setup.train.clip_norm);
    const bool found_inf = unscale_by_hand(gradients, scale.scale);
    if (order == Order::unscale_then_clip && setup.train.clip_norm > 0)
      clip_by_hand(gradients, setup.train.clip_norm);
    result.last_norm = norm_by_hand(gradients);
    result.model.step(gradients, found_inf, learning_rate, momentum);
    result.scales.push_back(scale.scale);
    result.skipped.push_back(found_inf);
    scale.update(found_inf);
  }
  return result;
}

void expect_same(MethodRun& run, const HandResult& hand) {
  run.trainer.run();
  EXPECT_EQ(run.weights(), hand.model.weights);
  std::vector<double> scales;
  std::vector<bool> skipped;
  for (const StepRow& record : run.recorder.steps) {
    scales.push_back(record.loss_scale);
    skipped.push_back(record.skipped);
  }
  EXPECT_EQ(scales, hand.scales);
  EXPECT_EQ(skipped, hand.skipped);
}

TEST(Recipes, ClippingIsUnscaleThenClipThenStepBitForBit) {
  const auto batches = class_batches(5);
  for (const Level level : {Level::O0, Level::O1}) {
    SCOPED_TRACE(name_of(level));
    RunSetup setup = recipe(level);
    setup.train.clip_norm = 0.0625;
    const HandResult hand = hand_loop(setup, batches);
    EXPECT_EQ(hand.model.skipped > 0, level == Level::O1);
    EXPECT_GT(hand.model.taken, 3u);
    MethodRun run = run_of(setup, batches);
    expect_same(run, hand);

    RunSetup unclipped = setup;
    unclipped.train.clip_norm = 0;
    EXPECT_NE(hand_loop(unclipped, batches).model.weights, hand.model.weights) << "the threshold acts";
  }
}

TEST(Recipes, ClippingBeforeUnscalingComparesTheThresholdWithScaledGradients) {
  // With clip_norm above every true norm the recipe clips nothing, and the wrong order clips every step, to
  // clip_norm / S after unscaling.
  const auto batches = class_batches(5);
  RunSetup setup = recipe(Level::O0);
  setup.scaler = {.policy = "fixed", .initial_scale = 1024};
  setup.train.clip_norm = 4.0;
  const HandResult right = hand_loop(setup, batches);
  const HandResult wrong = hand_loop(setup, batches, Order::clip_then_unscale);
  EXPECT_LT(right.last_norm, 4.0);
  EXPECT_NE(right.model.weights, wrong.model.weights);
  // The clipped norm is the threshold but for 1e-6 and the roundings of the factor and of the products: 2 u
  // each.
  EXPECT_NEAR(wrong.last_norm, 4.0 / 1024, 4.0 / 1024 * (4 * 0x1p-24 + 1e-6));
  MethodRun run = run_of(setup, batches);
  run.trainer.run();
  EXPECT_EQ(run.weights(), right.model.weights);

  RunSetup off = setup;
  off.train.clip_norm = 0;
  EXPECT_EQ(hand_loop(off, batches).model.weights, right.model.weights) << "a threshold that nothing reaches";
}

TEST(Recipes, AccumulationIsOneUnscaleStepAndUpdateForAllMicroBatchesBitForBit) {
  const auto batches = class_batches(5);
  for (const Level level : {Level::O0, Level::O1}) {
    for (const AccumulateMode mode : {AccumulateMode::mean, AccumulateMode::sum}) {
      SCOPED_TRACE(std::string(name_of(level)) + (mode == AccumulateMode::sum ? " sum" : " mean"));
      RunSetup setup = recipe(level);
      setup.train.accumulate = 3;
      setup.train.accumulate_mode = mode;
      const HandResult hand = hand_loop(setup, batches);
      EXPECT_EQ(hand.model.skipped > 0, level == Level::O1);
      EXPECT_GT(hand.model.taken, 3u);
      MethodRun run = run_of(setup, batches);
      expect_same(run, hand);
    }
  }
}

TEST(Recipes, SumIsNotMean) {
  // Three times the gradient: 3 is no power of two, so not even the bits of a smaller learning rate would
  // agree.
  const auto batches = class_batches(3);
  RunSetup setup = recipe(Level::O0);
  setup.train = {.steps = 1, .accumulate = 3};
  MethodRun mean = run_of(setup, batches);
  setup.train.accumulate_mode = AccumulateMode::sum;
  MethodRun sum = run_of(setup, batches);
  mean.trainer.run();
  sum.trainer.run();
  EXPECT_EQ(mean.recorder.steps[0].loss, sum.recorder.steps[0].loss) << "the record is a mean in both";
  // Each of the three gradients, and its sum, is off by at most a few u of the terms; loss / 3 rounds once
  // more.
  EXPECT_NEAR(sum.recorder.steps[0].grad_norm, 3 * mean.recorder.steps[0].grad_norm,
              3 * mean.recorder.steps[0].grad_norm * 64 * 0x1p-24);
}

TEST(Recipes, OneOverflowingMicroBatchDropsTheWholeWindow) {
  // The second of three micro-batches has four equal rows, inputs 8192 times as large, and the labels 0, 1,
  // 2, 0. The gradient of its logits summed over the rows is S/12 (4 p - (2, 1, 1)), somewhere at least 2/3
  // S/12 in magnitude whatever p is, and meets activations of some thousands: beyond 65504 at S = 2^10. The
  // others stay below S/12 * 8.
  auto batches = class_batches(3);
  for (std::size_t i = 0; i < batches[1].inputs.size(); ++i)
    batches[1].inputs[i] = i < 6 ? batches[1].inputs[i] * 8192.0f : batches[1].inputs[i % 6];
  batches[1].labels = {0, 1, 2, 0};
  RunSetup setup = recipe(Level::O1);
  setup.train = {.steps = 1, .accumulate = 3};
  setup.scaler = {.policy = "dynamic", .initial_scale = 1024};
  MethodRun run = run_of(setup, batches);
  const auto before = run.weights();
  run.trainer.run();
  EXPECT_TRUE(run.recorder.steps[0].skipped);
  EXPECT_EQ(run.weights(), before);
  EXPECT_EQ(run.trainer.step_state().scale, 512.0) << "one back-off for the window";
  EXPECT_EQ(run.trainer.step_state().skipped_steps[0], 1u);
  const HandResult hand = hand_loop(setup, batches);
  EXPECT_EQ(hand.skipped, std::vector<bool>{true});

  const auto calm = class_batches(3);
  MethodRun without = run_of(setup, calm);
  without.trainer.run();
  EXPECT_FALSE(without.recorder.steps[0].skipped) << "it was that micro-batch";
}

}  // namespace
}  // namespace fp16lab::engine::test
