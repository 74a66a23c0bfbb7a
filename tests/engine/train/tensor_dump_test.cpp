// Dumps of weights and gradients: they explain the update of their step bit for bit, and disturb nothing. And
// the bound that clip_value puts on an update.
#include "engine/train/tensor_dump.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/engine/train/training_run.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::engine::test {
namespace {

using ::testing::HasSubstr;
using testing_support::message_of;

class TensorDump : public ::testing::Test {
 protected:
  testing_support::TemporaryFolder temporary;
  const std::filesystem::path& folder = temporary.path();
};

RunSetup plain_sgd() {
  RunSetup setup;
  setup.amp.level = Level::O0;
  setup.scaler = {};
  setup.optimizer = {.learning_rate = 1.0};
  setup.train.steps = 4;
  setup.train.accumulate = 2;
  return setup;
}

std::vector<float> floats(const SafetensorsReader& reader, const std::string& name) {
  const SafetensorsEntry* entry = reader.find(name);
  std::vector<float> values(entry->byte_count() / sizeof(float));
  reader.read(*entry, std::as_writable_bytes(std::span(values)));
  return values;
}

TEST_F(TensorDump, GradientDumpExplainsTheUpdateOfItsStep) {
  // Plain SGD with lr 1 is w - g, one rounding: the dump must predict the next weights bit for bit.
  TrainingRun undisturbed(plain_sgd()), run(plain_sgd());
  undisturbed.trainer.run();
  run.trainer.dump_gradients(3, folder / "dump");
  run.trainer.train_step();
  run.trainer.train_step();
  EXPECT_FALSE(std::filesystem::exists(folder / "dump"));
  const StepRow record = run.trainer.train_step();
  const SafetensorsReader reader(folder / "dump");
  EXPECT_EQ(reader.metadata().at("step"), "3");
  EXPECT_EQ(std::stod(reader.metadata().at("loss")), record.loss);
  EXPECT_EQ(reader.metadata().at("loss_scale"), "1");
  EXPECT_EQ(reader.metadata().at("found_inf"), "0");
  EXPECT_EQ(reader.metadata().at("no_gradients"), "parameter.*,batch.*.inputs,batch.*.targets");
  EXPECT_EQ(GradientDump::no_gradients_of(reader.metadata()), GradientDump::no_gradients);
  EXPECT_EQ(GradientDump::carried_scale(reader.metadata()), 1);
  for (const Parameter* parameter : run.trainer.parameters()) {
    const std::vector<float> before = floats(reader, "parameter." + parameter->name),
                             gradient = floats(reader, parameter->name),
                             after = values_of(*run.backend, parameter->value);
    ASSERT_EQ(before.size(), after.size());
    for (std::size_t i = 0; i < after.size(); ++i)
      EXPECT_EQ(before[i] - gradient[i], after[i]) << parameter->name;
  }
  // Step 3 of 2 micro-batches each has the batches 4 and 5.
  for (std::uint64_t i = 0; i < 2; ++i) {
    const data::Batch batch = run.training.batch(*run.backend, 4 + i);
    const std::string name = "batch." + std::to_string(i);
    EXPECT_EQ(reader.read(*reader.find(name + ".inputs")), bytes_of(*run.backend, batch.inputs));
    EXPECT_EQ(reader.read(*reader.find(name + ".targets")), bytes_of(*run.backend, batch.targets));
    EXPECT_EQ(reader.find(name + ".targets")->type, DType::i32);
  }
  EXPECT_EQ(reader.find("batch.2.inputs"), nullptr);
  run.trainer.train_step();
  expect_same_tail(undisturbed.recorder.steps, run.recorder.steps, 0);
}

TEST_F(TensorDump, DumpedGradientsAreUnscaledAndUnclipped) {
  RunSetup setup = plain_sgd();
  setup.scaler = {.policy = "fixed", .initial_scale = 1024};
  setup.train.clip_norm = 1e-3;
  TrainingRun run(setup), plain(plain_sgd());
  run.trainer.dump_gradients(1, folder / "scaled");
  plain.trainer.dump_gradients(1, folder / "plain");
  run.trainer.train_step();
  plain.trainer.train_step();
  const SafetensorsReader scaled(folder / "scaled"), unscaled(folder / "plain");
  EXPECT_EQ(scaled.metadata().at("loss_scale"), "1024");
  // In FP32 a power-of-two scale changes no bit unless something underflows.
  EXPECT_EQ(floats(scaled, "fc2.weight"), floats(unscaled, "fc2.weight"));
}

TEST_F(TensorDump, WeightDumpIsAStateDict) {
  TrainingRun run(RunSetup{});
  dump_weights(folder / "weights", *run.backend, *run.workload.model);
  const SafetensorsReader reader(folder / "weights");
  std::vector<std::string> names;
  for (const SafetensorsEntry& entry : reader.entries()) names.push_back(entry.name);
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("fc1.weight", "fc1.bias", "bn1.weight", "bn1.bias",
                                                     "bn1.running_mean", "bn1.running_var", "fc2.weight",
                                                     "fc2.bias"));
  EXPECT_EQ(floats(reader, "bn1.running_var"), std::vector<float>(5, 1.0f));
}

TEST_F(TensorDump, DumpsOfStepsThatWillNotComeAreRefused) {
  TrainingRun run(plain_sgd());
  EXPECT_THAT(message_of([&] { run.trainer.dump_gradients(5, folder / "dump"); }),
              HasSubstr("step 5, but this run does steps 1 to 4"));
  run.trainer.train_step();
  EXPECT_THROW(run.trainer.dump_gradients(1, folder / "dump"), std::invalid_argument);
}

TEST(ClipValue, BoundsEveryUpdate) {
  // lr 1 and plain SGD: no weight moves further than clip_value, but for the rounding of w - g (|w| < 1).
  RunSetup setup = plain_sgd();
  setup.train.clip_value = 0x1p-10;
  TrainingRun run(setup);
  const auto weights = [&] { return values_of(*run.backend, run.trainer.parameters().front()->value); };
  const std::vector<float> before = weights();
  run.trainer.train_step();
  const std::vector<float> after = weights();
  float largest = 0;
  for (std::size_t i = 0; i < before.size(); ++i) largest = std::max(largest, std::abs(after[i] - before[i]));
  EXPECT_LE(largest, 0x1p-10f + 0x1p-24f);
  EXPECT_GE(largest, 0x1p-10f - 0x1p-24f) << "some gradient was above the bound";
  setup.train.clip_value = -1;
  EXPECT_THAT(message_of([&] { TrainingRun bad(setup); }), HasSubstr("train.clip_value"));
}

}  // namespace
}  // namespace fp16lab::engine::test
