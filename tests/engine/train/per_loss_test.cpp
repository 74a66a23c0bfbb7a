// A scale for each loss in training (scaler.per_loss): TwoModels against a loop written by hand, GANs,
// checkpoints, and what is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/nn/models/mlp.hpp"
#include "engine/train/methods/gan.hpp"
#include "engine/train/methods/two_models.hpp"
#include "tests/engine/autograd/twin.hpp"
#include "tests/engine/train/recipe_support.hpp"
#include "tests/support/gan.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::engine::test::per_loss_test {
namespace {

constexpr float learning_rate = 0x1p-10f, momentum = 0.5f;
constexpr std::size_t model_count = 2, loss_count = 2, parameters_each = 4;

/// What is added to the last bias of each model: their outputs a and b. Which of 2a + 3b and 3a - 5b is
/// large?
struct Outputs {
  float a = 0, b = 0;
};

std::unique_ptr<nn::Mlp> make_mlp(Backend& backend, const std::string& path, float output) {
  auto mlp = std::make_unique<nn::Mlp>(backend, nn::MlpOptions{.widths = {6, 5, 3}, .path = path, .seed = 3});
  Parameter& bias = *mlp->parameters().back();
  std::vector<float> values = values_of(backend, bias.value);
  for (float& value : values) value += output;
  backend.upload(std::as_bytes(std::span(values)), bias.value);
  return mlp;
}

/// Regression of three values below 1, on the inputs of the classes.
std::vector<HostBatch> value_batches(std::size_t count) {
  std::vector<HostBatch> batches = class_batches(count);
  for (std::size_t b = 0; b < count; ++b) {
    batches[b].labels.clear();
    batches[b].values = {{4, 3}, shuffled(12, 0.0f, 0x1p-6f, b)};
  }
  return batches;
}

std::unique_ptr<MethodRun> two_models(const RunSetup& setup, Outputs outputs, int threads = 1) {
  return std::make_unique<MethodRun>(
      value_batches(5),
      [outputs](Backend& backend) {
        return std::make_unique<nn::ModelPair>(make_mlp(backend, "model0", outputs.a),
                                               make_mlp(backend, "model1", outputs.b));
      },
      [] { return std::make_unique<TwoModels>(); }, setup, LossKind::mse, threads);
}

std::unique_ptr<MethodRun> gan(const RunSetup& setup, const std::vector<HostBatch>& batches,
                               int threads = 1) {
  return std::make_unique<MethodRun>(
      batches,
      [](Backend& backend) {
        return gan_of(backend, {4, 8, 6}, {6, 5, 1});
      },
      [] { return std::make_unique<AdversarialTraining>(); }, setup, LossKind::cross_entropy, threads);
}

RunSetup setup_of(Level level, double scale) {
  RunSetup setup;
  setup.train = {.steps = 12, .clip_norm = 0.25, .seed = 3};
  setup.amp = {.level = level};
  setup.scaler = {.policy = "dynamic", .initial_scale = scale, .growth_interval = 4, .per_loss = true};
  setup.optimizer = {.learning_rate = learning_rate, .momentum = momentum};
  return setup;
}

struct Step {
  double scales[loss_count];  ///< used in it
  double loss;
  bool found_inf[model_count];
  bool operator==(const Step&) const = default;
};

void PrintTo(const Step& step, std::ostream* out) {
  *out << "scales " << step.scales[0] << " " << step.scales[1] << ", loss " << step.loss << ", found_inf "
       << step.found_inf[0] << step.found_inf[1];
}

struct HandResult {
  HandModel models[model_count];
  std::vector<Step> steps;
  bool overflowed[loss_count] = {};  ///< in the first step
};

/// Every loss's gradients are divided by its own S before they are added, in FP32.
HandResult hand_loop(const RunSetup& setup, Outputs outputs) {
  const auto backend = hopper_backend();
  const bool o1 = setup.amp.level == Level::O1;
  const auto batches = value_batches(5);
  HandResult result{.models = {hand_model(*backend, *make_mlp(*backend, "model0", outputs.a)),
                               hand_model(*backend, *make_mlp(*backend, "model1", outputs.b))},
                    .steps = {}};
  const HandScale fresh{.scale = setup.scaler.initial_scale.value(),
                        .interval = static_cast<std::int64_t>(setup.scaler.growth_interval.value())};
  HandScale scales[loss_count] = {fresh, fresh};
  for (std::uint64_t number = 0; number < setup.train.steps; ++number) {
    const HostBatch& batch = batches[number % batches.size()];
    Tape tape(*backend);
    std::vector<Variable> all;
    Variable y[model_count];
    const Variable x = low_if(o1, tape.constant(tensor_of(*backend, batch.shape, batch.inputs)));
    const Variable t = tape.constant(tensor_of(*backend, batch.values.shape, batch.values.values));
    for (std::size_t m = 0; m < model_count; ++m) {
      const std::vector<Variable> leaves = result.models[m].leaves(tape);
      all.insert(all.end(), leaves.begin(), leaves.end());
      y[m] = perceptron(low_if(o1, leaves), x);
    }
    const auto loss_of = [&](float of_a, float of_b) {
      const Variable mixed = ops::add(ops::scale(y[0], of_a), ops::scale(y[1], of_b));
      return ops::mse_loss(ops::cast(mixed, DType::f32), t);
    };
    const Variable losses[loss_count] = {loss_of(2, 3), loss_of(3, -5)};

    Step step{.scales = {scales[0].scale, scales[1].scale}, .loss = 0, .found_inf = {}};
    const float total =
        values_of(*backend, losses[0].tensor())[0] + values_of(*backend, losses[1].tensor())[0];
    step.loss = static_cast<double>(total);
    HostValues gradients[model_count];
    for (std::size_t i = 0; i < loss_count; ++i) {
      const HostValues scaled =
          scaled_gradients(tape, losses[i], static_cast<float>(scales[i].scale), all, i == 0);
      bool overflow = false;
      for (std::size_t m = 0; m < model_count; ++m) {
        const auto begin = scaled.begin() + static_cast<std::ptrdiff_t>(m * parameters_each);
        HostValues part(begin, begin + parameters_each);
        const bool found_inf = unscale_by_hand(part, scales[i].scale);
        add_to(gradients[m], part);
        step.found_inf[m] = step.found_inf[m] || found_inf;
        overflow = overflow || found_inf;
      }
      if (number == 0) result.overflowed[i] = overflow;
      scales[i].update(overflow);
    }
    clip_by_hand(gradients[0], setup.train.clip_norm);
    for (std::size_t m = 0; m < model_count; ++m)
      result.models[m].step(gradients[m], step.found_inf[m], learning_rate, momentum);
    result.steps.push_back(step);
  }
  return result;
}

struct Case {
  std::string name;
  Level level = Level::O1;
  double scale = 64;
  Outputs outputs = {};
  bool overflows[loss_count] = {};  ///< in the first step
};

void PrintTo(const Case& test_case, std::ostream* out) { *out << test_case.name; }

/// What the next step will do.
double scale_of(MethodRun& run, std::size_t loss) {
  const std::string name = "scaler.loss" + std::to_string(loss);
  for (const optim::NamedTensor& tensor : run.trainer.training_state().tensors)
    if (tensor.name == name) return run.backend->read_step_state(tensor.tensor).scale;
  ADD_FAILURE() << "no " << name;
  return 0;
}

class WhichLossOverflows : public testing::TestWithParam<Case> {};

TEST_P(WhichLossOverflows, LowersItsOwnScaleBitForBit) {
  const Case& test_case = GetParam();
  const RunSetup setup = setup_of(test_case.level, test_case.scale);
  const HandResult hand = hand_loop(setup, test_case.outputs);
  for (std::size_t i = 0; i < loss_count; ++i) {
    EXPECT_EQ(hand.overflowed[i], test_case.overflows[i]) << "the case is what its name says";
    EXPECT_EQ(hand.steps[1].scales[i], test_case.overflows[i] ? test_case.scale / 2 : test_case.scale);
  }
  EXPECT_GT(hand.models[0].taken, 2u) << "some steps are taken";

  const auto owned = two_models(setup, test_case.outputs);
  MethodRun& run = *owned;
  std::vector<Step> steps;
  for (std::uint64_t number = 0; number < setup.train.steps; ++number) {
    Step step{.scales = {scale_of(run, 0), scale_of(run, 1)}, .loss = 0, .found_inf = {}};
    const StepRow record = run.trainer.train_step();
    const StepState state = run.trainer.step_state();
    step.loss = record.loss;
    for (std::size_t m = 0; m < model_count; ++m) step.found_inf[m] = state.found_inf[m] != 0.0f;
    steps.push_back(step);
    EXPECT_EQ(record.loss_scale, step.scales[0]) << "records show that of loss 0";
    EXPECT_EQ(state.scale, scale_of(run, 0));
    EXPECT_EQ(record.skipped, step.found_inf[0] || step.found_inf[1]);
  }
  EXPECT_EQ(steps, hand.steps);
  HostValues expected = hand.models[0].weights;
  expected.insert(expected.end(), hand.models[1].weights.begin(), hand.models[1].weights.end());
  EXPECT_EQ(run.weights(), expected);
  const StepState state = run.trainer.step_state();
  for (std::size_t m = 0; m < model_count; ++m) {
    EXPECT_EQ(state.taken_steps[m], hand.models[m].taken);
    EXPECT_EQ(state.skipped_steps[m], hand.models[m].skipped);
  }
}

// The gradient of an output is S r / 6 times its factor, for a residual r. At a = 5 c, b = 3 c, loss 0 has r
// = 19 c and loss 1 what is left without c, below 10; at a = 3 c, b = -2 c they change places. With c = 32, S
// = 256: 3 or 5 times 256 * 608 / 6, beyond 65504, and at most 5 * 256 * 10 / 6 * (4 rows) = 8534 for the
// other loss.
INSTANTIATE_TEST_SUITE_P(
    Cases, WhichLossOverflows,
    testing::Values(
        Case{.name = "fp32", .level = Level::O0, .scale = 1}, Case{.name = "neither"},
        Case{.name = "only_loss_0", .scale = 256, .outputs = {.a = 160, .b = 96}, .overflows = {true, false}},
        Case{.name = "only_loss_1", .scale = 256, .outputs = {.a = 96, .b = -64}, .overflows = {false, true}},
        Case{.name = "both", .scale = 0x1p20, .overflows = {true, true}}),
    [](const auto& named) { return named.param.name; });

/// Without overflows and with powers of two, dividing before or after the sum gives the same bits.
void expect_the_bits_of_one_scaler(const std::function<std::unique_ptr<MethodRun>(const RunSetup&)>& make) {
  RunSetup setup = setup_of(Level::O1, 64);
  setup.train.accumulate = 2;
  const auto each = make(setup);
  setup.scaler.per_loss = false;
  const auto one = make(setup);
  EXPECT_EQ(each->trainer.run().skipped_steps, 0u);
  EXPECT_EQ(one->trainer.run().skipped_steps, 0u);
  EXPECT_EQ(each->weights(), one->weights());
  EXPECT_EQ(each->recorder.evaluations.back().loss, one->recorder.evaluations.back().loss);
  for (std::size_t step = 0; step < one->recorder.steps.size(); ++step) {
    EXPECT_EQ(each->recorder.steps[step].loss_scale, one->recorder.steps[step].loss_scale);
    EXPECT_EQ(each->recorder.steps[step].grad_norm, one->recorder.steps[step].grad_norm);
  }
  EXPECT_NE(hashes_of(*each), hashes_of(*one)) << "the states of the losses are part of the hash";
}

TEST(TrainPerLoss, EqualPowersOfTwoGiveTheBitsOfOneScaler) {
  expect_the_bits_of_one_scaler([](const RunSetup& setup) { return two_models(setup, {}); });
  expect_the_bits_of_one_scaler([](const RunSetup& setup) { return gan(setup, class_batches(5)); });
}

TEST(TrainPerLoss, AnOverflowOfTheDiscriminatorsLossLeavesTheGeneratorsScale) {
  // Real inputs of about 2^14: the discriminator's first weights get S / 8 w 2^14, the generator never sees
  // them. They overflow unless every hidden unit of the discriminator is off for them, or its logits say
  // "real" for sure; the first is excluded by positive inputs and several units, the second by the sign of
  // the last weights.
  auto batches = class_batches(1);
  for (float& x : batches[0].inputs) x *= 0x1p14f;
  RunSetup setup = setup_of(Level::O1, 2048);
  setup.train.clip_norm = 0;
  const auto owned = gan(setup, batches);
  MethodRun& run = *owned;
  Parameter& last = *run.trainer.parameters()[6];
  ASSERT_EQ(last.name.substr(last.name.size() - 10), "fc2.weight");
  std::vector<float> values = values_of(*run.backend, last.value);
  for (float& value : values) value = -std::fabs(value);
  run.backend->upload(std::as_bytes(std::span(values)), last.value);

  const StepRow record = run.trainer.train_step();
  const StepState state = run.trainer.step_state();
  EXPECT_TRUE(record.skipped);
  EXPECT_EQ(state.skipped_steps[0], 0u) << "the generator";
  EXPECT_EQ(state.skipped_steps[1], 1u) << "the discriminator";
  EXPECT_EQ(scale_of(run, 0), 1024.0);
  EXPECT_EQ(scale_of(run, 1), 2048.0);
}

TEST(TrainPerLoss, TheSameBitsWithTwoThreadsAndAfterResuming) {
  RunSetup setup = setup_of(Level::O1, 256);
  setup.train = {.steps = 9, .accumulate = 2, .clip_norm = 0.25, .seed = 3, .evaluate_every = 3};
  setup.optimizer = {.name = optim::Algorithm::adam, .learning_rate = 0.01};
  const auto pair = [&](int threads) { return two_models(setup, {.a = 160, .b = 96}, threads); };
  const testing_support::TemporaryFolder of_pair, of_gan;
  expect_the_same_with_two_threads(pair);
  expect_the_same_after_resuming([&] { return pair(1); }, of_pair.path());

  setup.scaler.initial_scale = 0x1p20;
  const auto both = [&](int threads) { return gan(setup, class_batches(5), threads); };
  expect_the_same_with_two_threads(both);
  expect_the_same_after_resuming([&] { return both(1); }, of_gan.path());

  setup.scaler.per_loss = false;
  try {
    both(1)->trainer.resume(CheckpointFile(of_gan.path() / "3"));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("'scaler.loss0'"), std::string::npos) << error.what();
  }
}

TEST(TrainPerLoss, EveryLevelOfEveryDialectTrains) {
  for (const amp::Dialect dialect : every<amp::Dialect>) {
    for (const Level level : amp::levels_of(dialect)) {
      SCOPED_TRACE(std::string(name_of(dialect)) + " " + std::string(name_of(level)));
      RunSetup setup = setup_of(level, 16);
      setup.amp.dialect = dialect;
      setup.train.steps = 2;
      const auto run = two_models(setup, {});
      const HostValues before = run->weights();
      EXPECT_EQ(run->trainer.run().skipped_steps, 0u);
      EXPECT_NE(run->weights(), before);
    }
  }
}

TEST(TrainPerLoss, NeedsSeveralLossesAndAScalerThatDivides) {
  RunSetup setup = setup_of(Level::O1, 64);
  expect_rejected([&] { TrainingRun run(setup); }, {"scaler.per_loss = true", "one loss", "two_models"});
  setup.train.clip_norm = 0;
  setup.scaler.policy = "fixed";
  setup.scaler.drop_overflow_update = false;
  expect_rejected([&] { two_models(setup, {}); },
                  {"scaler.per_loss = true", "scaler.drop_overflow_update = false", "one scale"});
}

/// Two losses; the test asks for one scale.
class AsksForOneScale final : public TrainingMethod {
 public:
  int losses() const override { return 2; }
  void run(Iteration& iteration) override { iteration.scaler(); }
  Evaluation evaluate(Iteration&, const data::Batch&) override { return {}; }
};

TEST(TrainPerLoss, AMethodThatAsksForTheOneScaleIsRefused) {
  MethodRun run(
      value_batches(1), [](Backend& backend) { return make_mlp(backend, "", 0); },
      [] { return std::make_unique<AsksForOneScale>(); }, setup_of(Level::O1, 64), LossKind::mse);
  EXPECT_THROW(run.trainer.train_step(), std::logic_error);
}

}  // namespace
}  // namespace fp16lab::engine::test::per_loss_test
