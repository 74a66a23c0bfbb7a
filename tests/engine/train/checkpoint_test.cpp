// Checkpoints: a resumed run has the bits of the uninterrupted one, and whatever does not fit is one clear
// error.
#include "engine/train/checkpoint.hpp"

#include <gmock/gmock.h>

#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "engine/amp/policies/counters.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "tests/engine/train/training_run.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::engine::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing_support::message_of;

class Checkpoint : public ::testing::Test {
 protected:
  std::filesystem::path at(std::uint64_t step) const { return folder / std::to_string(step); }

  /// A copy of a checkpoint with something changed.
  struct Edit {
    std::map<std::string, SafetensorsSource> tensors;
    SafetensorsMetadata metadata;
  };
  std::filesystem::path edited(std::uint64_t step, const std::function<void(Edit&)>& change) const {
    const SafetensorsReader reader(at(step));
    Edit edit;
    edit.metadata = reader.metadata();
    for (const SafetensorsEntry& entry : reader.entries())
      edit.tensors[entry.name] = safetensors_source(entry.name, *entry.type, entry.shape, reader.read(entry));
    change(edit);
    std::vector<SafetensorsSource> sources;
    for (const auto& [name, source] : edit.tensors) sources.push_back(source);
    write_safetensors(folder / "edited", sources, edit.metadata);
    return folder / "edited";
  }

  testing_support::TemporaryFolder temporary;
  const std::filesystem::path& folder = temporary.path();
};

template <class T>
T value_in(const SafetensorsReader& reader, std::string_view name) {
  T value{};
  reader.read(*reader.find(name), std::as_writable_bytes(std::span(&value, 1)));
  return value;
}
std::vector<RunSetup> setups() {
  RunSetup adam;
  RunSetup sgd;
  sgd.optimizer = {.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 1e-3};
  sgd.optimizer.schedule = {.name = optim::Schedule::cosine, .warmup_steps = 3, .total_steps = 12};
  sgd.train.clip_norm = 0.5;
  RunSetup plain;
  plain.amp.level = Level::O0;
  plain.scaler = {};
  plain.train.accumulate = 1;
  plain.optimizer = {.name = optim::Algorithm::adamw, .learning_rate = 0.01, .weight_decay = 0.1};
  RunSetup rmsprop;
  rmsprop.optimizer = {
      .name = optim::Algorithm::rmsprop, .learning_rate = 0.002, .momentum = 0.5, .centered = true};
  rmsprop.optimizer.schedule = {
      .name = optim::Schedule::polynomial, .warmup_steps = 2, .total_steps = 12, .power = 1.5};
  RunSetup lamb;
  lamb.optimizer = {.name = optim::Algorithm::lamb, .learning_rate = 0.01, .weight_decay = 0.01};
  RunSetup uncorrected;
  uncorrected.optimizer = {
      .name = optim::Algorithm::adam_weight_decay, .learning_rate = 0.002, .weight_decay = 0.01};
  uncorrected.optimizer.schedule = {.name = optim::Schedule::exponential, .gamma = 0.9};
  // Weights of 16 bits with no master copy.
  RunSetup kahan;
  kahan.amp = {.level = Level::O2, .dialect = amp::Dialect::paddle, .master_weights = false};
  RunSetup stochastic = kahan;
  kahan.optimizer.kahan = true;
  stochastic.amp.rounding = amp::LowRounding::stochastic;
  RunSetup gradients;  // the same streams after a kill
  gradients.amp = {.level = Level::O1, .rounding = amp::LowRounding::stochastic_gradients};
  RunSetup tf32;
  tf32.amp = {.level = Level::O1, .dtype = DType::tf32};
  tf32.scaler = {};
  return {adam, sgd, plain, rmsprop, lamb, uncorrected, kahan, stochastic, gradients, tf32};
}

TEST_F(Checkpoint, ResumingAfterAnyStepGivesTheBitsOfTheUninterruptedRun) {
  for (const RunSetup& setup : setups()) {
    SCOPED_TRACE(name_of(setup.optimizer.name));
    TrainingRun whole(setup, folder);
    const RunResult expected = whole.trainer.run();
    int inside_a_window = 0;
    for (std::uint64_t step = 1; step <= setup.train.steps; ++step) {
      TrainingRun resumed(setup);
      resumed.resume(at(step));
      EXPECT_EQ(resumed.trainer.iteration(), step);
      const StepState state = resumed.trainer.step_state();
      amp::TorchScaling::State policy;
      std::memcpy(&policy, state.policy.data(), sizeof(policy));
      if (setup.scaler.policy == "dynamic" && policy.growth_tracker > 0) ++inside_a_window;
      const RunResult result = resumed.trainer.run();
      expect_same_tail(whole.recorder.steps, resumed.recorder.steps, step);
      EXPECT_EQ(result.state_hash, expected.state_hash);
      EXPECT_EQ(result.final_train_loss, expected.final_train_loss);
      EXPECT_EQ(result.final_loss_scale, expected.final_loss_scale);
      EXPECT_EQ(result.skipped_steps, expected.skipped_steps);
      EXPECT_TRUE(result.evaluation == expected.evaluation);

      // The checkpoint of step k comes before the evaluation of step k.
      std::size_t first = 0;
      while (whole.recorder.evaluations[first].step < step) ++first;
      ASSERT_EQ(resumed.recorder.evaluations.size() + first, whole.recorder.evaluations.size());
      for (std::size_t i = 0; i < resumed.recorder.evaluations.size(); ++i) {
        EXPECT_EQ(resumed.recorder.evaluations[i].step, whole.recorder.evaluations[first + i].step);
        EXPECT_EQ(resumed.recorder.evaluations[i].loss, whole.recorder.evaluations[first + i].loss);
        EXPECT_EQ(resumed.recorder.evaluations[i].accuracy, whole.recorder.evaluations[first + i].accuracy);
      }
    }
    if (setup.scaler.policy == "dynamic") {
      // The setup does what it is for.
      EXPECT_GE(inside_a_window, 4);
      EXPECT_GE(expected.skipped_steps, 2u);
      EXPECT_LT(expected.skipped_steps, 8u);
    }
  }
}

TEST_F(Checkpoint, CheckpointsOfAResumedRunAreTheSameFiles) {
  TrainingRun whole(RunSetup{}, folder);
  whole.trainer.run();
  const testing_support::TemporaryFolder other;
  TrainingRun resumed(RunSetup{}, other.path());
  resumed.resume(at(5));
  resumed.trainer.run();
  for (std::uint64_t step = 6; step <= 12; ++step)
    EXPECT_EQ(read_file(at(step)), read_file(other.path() / std::to_string(step))) << step;
}

TEST_F(Checkpoint, EvaluationsChangeNoBit) {
  RunSetup often, never;
  often.train.evaluate_every = 1;
  never.train.evaluate_every = 0;
  TrainingRun first(often), second(never);
  first.trainer.run();
  second.trainer.run();
  EXPECT_EQ(first.recorder.evaluations.size(), 12u);
  EXPECT_EQ(second.recorder.evaluations.size(), 1u);
  expect_same_tail(first.recorder.steps, second.recorder.steps, 0);
}

TEST_F(Checkpoint, RunsOfSkipsAndBadLossesAreCountedAcrossAResumption) {
  RunSetup setup;
  setup.scaler = {
      .policy = "dynamic", .initial_scale = 0x1p120, .backoff_factor = 0.9};  // every step overflows
  setup.train.skip_limit = 7;
  TrainingRun whole(setup, folder);
  const RunResult expected = whole.trainer.run();
  EXPECT_EQ(expected.end, RunResult::End::diverged);
  EXPECT_EQ(expected.steps, 7u);
  EXPECT_FALSE(std::filesystem::exists(at(7))) << "a diverged state is not saved";
  TrainingRun resumed(setup);
  resumed.resume(at(4));
  const RunResult result = resumed.trainer.run();
  EXPECT_EQ(result.end, RunResult::End::diverged);
  EXPECT_EQ(result.steps, 7u);
  EXPECT_EQ(result.skipped_steps, 7u);
}

TEST_F(Checkpoint, TheObserverLearnsTheStepOfTheRun) {
  TrainingRun finished(RunSetup{});
  finished.trainer.run();
  std::vector<RunMoment> expected(12, RunMoment::going_on);
  expected.back() = RunMoment::finished;
  EXPECT_EQ(finished.recorder.moments, expected);

  TrainingRun stopped(RunSetup{});
  stopped.recorder.stop_after = 4;
  EXPECT_EQ(stopped.trainer.run().end, RunResult::End::stopped);
  EXPECT_EQ(stopped.recorder.moments.size(), 4u);
  EXPECT_EQ(stopped.recorder.moments.back(), RunMoment::stopped);
  EXPECT_EQ(stopped.recorder.evaluations.size(), 1u) << "the evaluation of step 4 is left to the resumed run";
}

TEST_F(Checkpoint, HoldsNamedTensorsAndScalars) {
  TrainingRun run(RunSetup{}, folder);
  run.trainer.run();
  const SafetensorsReader reader(at(12));
  const StepState state = run.trainer.step_state();
  EXPECT_EQ(value_in<double>(reader, "step.scale"), state.scale);
  EXPECT_EQ(value_in<PerOptimizer<double>>(reader, "step.beta2_power"), state.beta2_power);
  EXPECT_EQ(value_in<std::uint64_t>(reader, "step.iteration"), 12u);
  EXPECT_EQ(value_in<PerOptimizer<std::uint64_t>>(reader, "step.skipped_steps"), state.skipped_steps);
  EXPECT_EQ(value_in<PerOptimizer<std::uint64_t>>(reader, "step.taken_steps")[0] + state.skipped_steps[0],
            12u);
  EXPECT_EQ(value_in<PerOptimizer<float>>(reader, "step.learning_rate")[0], 0.01f);
  EXPECT_EQ(value_in<double>(reader, "run.last_loss"), run.recorder.steps.back().loss);
  EXPECT_EQ(reader.find("step.policy")->describe(), "U8 (64)");
  EXPECT_EQ(reader.find("step.found_inf")->describe(), "F32 (8)");
  std::size_t state_bytes = 0;
  for (const SafetensorsEntry& entry : reader.entries())
    if (entry.name.starts_with("step.")) state_bytes += entry.byte_count();
  EXPECT_EQ(state_bytes, sizeof(StepState)) << "no field is forgotten";

  EXPECT_EQ(reader.find("fc1.weight")->describe(), "F32 (5, 6)");
  EXPECT_EQ(reader.find("bn1.running_var")->describe(), "F32 (5)");
  EXPECT_EQ(reader.find("optimizer.fc2.bias.second_moment")->describe(), "F32 (3)");
  for (const Parameter* parameter : run.trainer.parameters())
    EXPECT_EQ(reader.read(*reader.find(parameter->name)), bytes_of(*run.backend, parameter->value));
  EXPECT_EQ(reader.metadata().at("format"), "fp16lab-checkpoint");
  EXPECT_EQ(reader.metadata().at("policy"), "torch") << "the name, not its alias";
  EXPECT_EQ(reader.metadata().at("iteration"), "12");
  EXPECT_EQ(reader.metadata().at("config"), "[train]\nsteps = 12\n");
}

TEST_F(Checkpoint, WhatDoesNotFitIsAnErrorNamingTensorAndReason) {
  TrainingRun(RunSetup{}, folder).trainer.run();
  const auto error_of = [&](const std::function<void(Edit&)>& change, const RunSetup& setup = {}) {
    const std::filesystem::path file = edited(5, change);
    TrainingRun run(setup);
    std::string message = message_of([&] { run.resume(file); });
    EXPECT_THAT(message, StartsWith(file.string() + ": "));
    return message;
  };
  EXPECT_NO_THROW(TrainingRun(RunSetup{}).resume(edited(5, [](Edit&) {}))) << "the copy alone is fine";

  EXPECT_THAT(error_of([](Edit& e) { e.tensors.erase("fc2.weight"); }),
              HasSubstr("tensor 'fc2.weight' is missing, expected F32 (3, 5)"));
  EXPECT_THAT(error_of([](Edit& e) { e.tensors.erase("optimizer.bn1.bias.first_moment"); }),
              HasSubstr("tensor 'optimizer.bn1.bias.first_moment' is missing"));
  EXPECT_THAT(error_of([](Edit& e) { e.tensors.erase("step.scale"); }),
              HasSubstr("tensor 'step.scale' is missing, expected F64 ()"));
  EXPECT_THAT(error_of([](Edit& e) {
                e.tensors["fc3.weight"] = e.tensors["fc2.weight"];
                e.tensors["fc3.weight"].name = "fc3.weight";
              }),
              HasSubstr("tensor 'fc3.weight' (F32 (3, 5)) belongs to nothing in this run"));
  EXPECT_THAT(error_of([](Edit& e) {
                e.tensors["fc2.weight"].shape = {5, 3};
              }),
              HasSubstr("tensor 'fc2.weight' is F32 (5, 3), expected F32 (3, 5)"));
  EXPECT_THAT(error_of([](Edit& e) { e.tensors["fc2.weight"].type = DType::i32; }),
              HasSubstr("tensor 'fc2.weight' is I32 (3, 5), expected F32 (3, 5)"));
  EXPECT_THAT(error_of([](Edit& e) { e.metadata.clear(); }),
              AllOf(HasSubstr("no checkpoint"), HasSubstr("fp16lab-checkpoint")));
  EXPECT_THAT(error_of([](Edit& e) { e.metadata["format"] = "pt"; }), HasSubstr("format = 'pt'"));
  EXPECT_THAT(
      error_of([](Edit& e) { e.metadata["version"] = "3"; }),
      HasSubstr("checkpoint version 3, but this build reads version 2; it was written by a newer one"));
  EXPECT_THAT(error_of([](Edit& e) { e.metadata["version"] = "one"; }), HasSubstr("version = 'one'"));
  EXPECT_THAT(error_of([](Edit& e) { e.metadata.erase("state_hash"); }), HasSubstr("no state_hash"));
  EXPECT_THAT(error_of([](Edit& e) { e.metadata["iteration"] = "6"; }),
              HasSubstr("tensor 'step.iteration' is 5, but the metadata has iteration = 6"));
  EXPECT_THAT(error_of([](Edit& e) { e.metadata["state_hash"] = "0123456789abcdef"; }),
              AllOf(HasSubstr("state_hash"), HasSubstr("expected 0123456789abcdef")));
  EXPECT_THAT(error_of([](Edit& e) { e.metadata.erase("digest.fc1.bias"); }),
              HasSubstr("no digest.fc1.bias"));

  RunSetup fixed;
  fixed.scaler.policy = "fixed";
  EXPECT_THAT(error_of([](Edit&) {}, fixed),
              HasSubstr("written with scaler.policy = \"torch\", but this run has \"fixed\""));
  RunSetup sgd;
  sgd.optimizer.name = optim::Algorithm::sgd;
  EXPECT_THAT(error_of([](Edit&) {}, sgd), HasSubstr("optimizer.name = \"adam\""));
}

TEST_F(Checkpoint, AFlippedBitInAnyTensorIsFound) {
  TrainingRun(RunSetup{}, folder).trainer.run();
  const SafetensorsReader reader(at(5));
  for (const SafetensorsEntry& entry : reader.entries()) {
    const std::filesystem::path file = edited(5, [&](Edit& edit) {
      std::vector<std::byte> bytes = reader.read(entry);
      bytes[bytes.size() / 2] ^= std::byte{0x10};
      edit.tensors[entry.name] = safetensors_source(entry.name, *entry.type, entry.shape, bytes);
    });
    TrainingRun run(RunSetup{});
    EXPECT_THAT(message_of([&] { run.resume(file); }), HasSubstr("tensor '" + entry.name + "'"));
  }
}

TEST_F(Checkpoint, EveryMutationIsAnErrorOrTheSameState) {
  // One bit of every byte, and truncations: either an error, or a file that still gives the state bit for bit
  // (a changed comment in the metadata, say).
  TrainingRun saved(RunSetup{}, folder);
  saved.trainer.run();
  const std::uint64_t expected = saved.recorder.steps[4].state_hash;
  const std::string good = read_file(at(5));
  TrainingRun run(RunSetup{});
  TrainingState state = run.trainer.training_state();
  const std::filesystem::path file = folder / "mutated";
  int accepted = 0, refused = 0;
  const auto judge = [&](const std::string& bytes) {
    std::filesystem::remove(file);  // replacing a file's content may wait for the disk, a new file does not
    std::ofstream(file, std::ios::binary) << bytes;
    try {
      const CheckpointFile checkpoint(file);
      checkpoint.load(state);
      const bool same_hash = checkpoint.state_hash() == expected;
      EXPECT_TRUE(!same_hash || run.trainer.state_hash() == expected);
      ++accepted;
    } catch (const std::runtime_error& error) {
      EXPECT_THAT(error.what(), StartsWith(file.string() + ": "));
      ++refused;
    }
  };
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string mutated = good;
    mutated[i] = static_cast<char>(static_cast<unsigned char>(mutated[i]) ^ (1u << (i % 8)));
    judge(mutated);
    if (i % 16 == 0) judge(good.substr(0, i));
  }
  EXPECT_GT(refused, static_cast<int>(good.size() * 9 / 10));
  EXPECT_GT(accepted, 0) << "the configuration's text is the caller's to judge";
}

TEST_F(Checkpoint, ResumingIsForFreshTrainers) {
  TrainingRun(RunSetup{}, folder).trainer.run();
  TrainingRun run(RunSetup{});
  run.trainer.train_step();
  EXPECT_THROW(run.resume(at(5)), std::logic_error);
  EXPECT_THROW(save_checkpoint(at(99), run.trainer.training_state(), {{"policy", "mine"}}),
               std::invalid_argument);
}

}  // namespace
}  // namespace fp16lab::engine::test
