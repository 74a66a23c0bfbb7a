// The tutorials' systems: what the issue expects of them, at a sixteenth of their widths and batches, and the
// yardsticks that say so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <thread>

#include "engine/train/trainer.hpp"
#include "experiments/app/exit_code.hpp"
#include "experiments/app/run/prepared_run.hpp"
#include "experiments/app/sweep/sweep.hpp"
#include "experiments/questions/step_tap.hpp"
#include "experiments/questions/tutorials/mindspore_draws.hpp"
#include "experiments/questions/tutorials/tutorials.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/files/disk/sha256.hpp"
#include "tests/experiments/app/small_runs.hpp"
#include "tests/experiments/study/judged_row.hpp"

namespace fp16lab::experiments {
namespace {

using testing::HasSubstr;

/// The run of the shipped sweep, at its small size.
RunConfig shipped(const std::string& system, const std::string& variant) {
  CommonOptions common;
  common.config = FP16LAB_SOURCE_DIR "/experiments/configs/tutorials.toml";
  for (const PlannedRun& run : load_sweep(common).runs)
    if (run.workload == system && run.variant == variant) return run.config;
  throw std::logic_error("no run " + system + " " + variant);
}
TutorialRun run_shipped(const std::string& system, const std::string& variant) {
  return run_tutorial(system, variant, shipped(system, variant), 1, draws_of(system));
}
TutorialRun linear9(const std::string& variant) { return run_shipped("paddle_linear9", variant); }
TutorialRun custom(const std::string& variant) { return run_shipped("mindspore_custom_step", variant); }

TEST(Tutorials, LinearNineMovesInFp16OnlyWithMasterWeights) {
  const TutorialRun fp32 = linear9("fp32");
  const TutorialRun o1 = linear9("o1");
  const TutorialRun masters = linear9("o2-masters");
  const TutorialRun no_masters = linear9("o2-no-masters");
  ASSERT_EQ(fp32.steps, 20u);
  ASSERT_EQ(fp32.weights.elements, 9u * 512 * 512);
  for (const TutorialRun* run : {&fp32, &o1, &masters, &no_masters}) {
    ASSERT_TRUE(run->loss.has_value());
    EXPECT_EQ(run->skipped, 0u);
  }
  EXPECT_LT(*fp32.loss, 0.96 * fp32.loss_before) << "there is something to lose";
  // The bounds.
  EXPECT_LT(std::abs(*o1.loss - *fp32.loss), 1e-3 * *fp32.loss);
  EXPECT_LT(std::abs(*masters.loss - *fp32.loss), 1e-3 * *fp32.loss);
  EXPECT_GT(no_masters.weights.still(), 0.95);
  // And what follows from them: FP32 moves (nearly) every weight, so does every master copy; without one the
  // loss stays.
  EXPECT_LT(fp32.weights.still(), 0.05);
  EXPECT_LT(masters.weights.still(), 0.05);
  EXPECT_LT(no_masters.loss_before - *no_masters.loss, 0.1 * (fp32.loss_before - *fp32.loss));
}

TEST(Tutorials, AGuardOnEightLayersLeavesTheFirstInFp32) {
  const TutorialRun guarded = linear9("o2-guard-8-of-9");
  const TutorialRun unguarded = linear9("o2-no-masters");
  EXPECT_NE(guarded.weights_digest, unguarded.weights_digest);
  // The first layer is FP32 and moves whole: still is at most 8/9 of what it is without the guard, give or
  // take nothing.
  EXPECT_LT(guarded.weights.still(), 8.0 / 9.0);
  EXPECT_GT(guarded.weights.still(), 0.95 * 8.0 / 9.0);
}

TEST(Tutorials, OnRandomLabelsNothingIsLearntAndTheFixedScaleChangesNoBit) {
  const RunConfig config = shipped("mindspore_random_images", "as-written");
  EXPECT_EQ(config.amp.level, engine::Level::O0);
  EXPECT_EQ(config.scaler.parameter("initial_scale"), 1024);
  EXPECT_FALSE(config.scaler.drop_overflow_update);
  TutorialTable table;
  table.add(
      run_tutorial("mindspore_random_images", "as-written", config, 1, draws_of("mindspore_random_images")));
  const TutorialRun& run = *table.find("mindspore_random_images", "as-written");
  EXPECT_EQ(run.steps, 320u);
  ASSERT_EQ(run.epoch_losses.size(), 10u);
  EXPECT_EQ(run.epoch_losses.back(), run.last_batch_loss);
  EXPECT_EQ(run_shipped("mindspore_random_images", "fp32").weights_digest, run.weights_digest);
  // The two expectations, by their own words.
  std::size_t count = 0;
  for (const Claim& claim : judged(tutorial_questions(), table)) {
    if (claim.verdict == Verdict::not_run) continue;
    ++count;
    EXPECT_EQ(claim.verdict, Verdict::holds) << claim.claim << ": " << claim.measured;
  }
  EXPECT_EQ(count, 2u);
}

TEST(Expectations, OfRandomLabelsFailWhereSomethingIsLearnt) {
  const auto verdicts = [](double loss, std::vector<double> epochs) {
    TutorialRun run{.system = "mindspore_random_images", .variant = "as-written", .loss = loss};
    run.label_entropy = 2.298;
    run.epoch_losses = std::move(epochs);
    TutorialTable table;
    table.add(std::move(run));
    std::vector<Verdict> all = verdicts_of(tutorial_questions(), table);
    std::erase(all, Verdict::not_run);
    return all;
  };
  using enum Verdict;
  const std::vector<double> theirs(std::begin(mindspore_losses), std::end(mindspore_losses));
  EXPECT_EQ(verdicts(2.3, theirs), (std::vector{holds, holds}));
  EXPECT_EQ(verdicts(2.297, theirs), (std::vector{holds, fails})) << "below the entropy";
  std::vector<double> others = theirs;
  others[4] += 2e-5;
  EXPECT_EQ(verdicts(2.3, others), (std::vector{fails, holds})) << "one of the ten is another number";
  others = theirs;
  others.pop_back();
  EXPECT_EQ(verdicts(2.3, others), (std::vector{fails, holds})) << "nine epochs";
}

// Labels and images: numpy.random.seed(0) of NumPy 1.26, then the tutorial's get_data. Order: what MindSpore
// 2.10 gave to ten epochs of the tutorial's data set after mindspore.set_seed(0). Weights have no other
// source than r1.7's text; that they are its weights is what the ten losses show.
TEST(MindSporeDraws, AreNumpysAndMindSporesOwn) {
  const engine::data::Dataset data = mindspore_images();
  ASSERT_EQ(data.count(), 1024);
  std::vector<float> pixels;
  data.inputs.visit({}, [&](std::span<const std::byte> bytes) {
    const std::size_t old = pixels.size();
    pixels.resize(old + bytes.size() / sizeof(float));
    std::memcpy(&pixels[old], bytes.data(), bytes.size());
  });
  std::string labels;
  data.targets.visit({}, [&](std::span<const std::byte> bytes) {
    labels.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  EXPECT_EQ(sha256_of(labels), "36835070358d46f157e477deb059d9a3c3db76f1bed8aaed25c8d3a1029169a0");
  ASSERT_EQ(pixels.size(), 1024u * 1024);
  EXPECT_FLOAT_EQ(pixels[0], 1.7640524f);
  EXPECT_FLOAT_EQ(pixels[1], 0.4001572f);
  EXPECT_FLOAT_EQ(pixels[1024], 1.3921112f);
  EXPECT_FLOAT_EQ(pixels.back(), -0.6106675f);
  const std::vector<std::uint32_t> order = mindspore_order(1024, 10);
  ASSERT_EQ(order.size(), 10240u);
  EXPECT_EQ(sha256_of({reinterpret_cast<const char*>(order.data()), order.size() * sizeof(order[0])}),
            "a37cad520702f5c3ee81f3378a176658b74c2761fc55d3d1564908de75f94c0c");
}

TEST(Tutorials, WhereANetworkThatNeverMovesStays) {
  RunConfig config = shipped("paddle_linear9", "fp32");
  config.model.scale_down = 256;
  config.optimizer.learning_rate = 0;
  const TutorialRun still = run_tutorial("x", "still", config, 1);
  EXPECT_EQ(still.last_batch_unmoved, still.last_batch_loss);
  config.optimizer.learning_rate = 0.02;
  const TutorialRun moved = run_tutorial("x", "moved", config, 1);
  EXPECT_EQ(moved.last_batch_unmoved, still.last_batch_loss);
  EXPECT_LT(moved.last_batch_loss, moved.last_batch_unmoved);
}

TEST(Tutorials, SummedAccumulationIsMeanAccumulationWithThatManyTimesTheLearningRate) {
  // Eight micro-batches: dividing by 8 and multiplying the learning rate by 8 are exact, so the bits are
  // equal.
  RunConfig config = shipped("paddle_linear9", "fp32-accumulate10");
  config.model.scale_down = 256;
  config.train.accumulate = 8;
  config.optimizer.learning_rate = 1.0 / 1024;
  const TutorialRun sum = run_tutorial("x", "sum", config, 1);
  config.train.accumulate_mode = engine::AccumulateMode::mean;
  const TutorialRun mean = run_tutorial("x", "mean", config, 1);
  config.optimizer.learning_rate = 8.0 / 1024;
  const TutorialRun scaled = run_tutorial("x", "scaled", config, 1);
  EXPECT_NE(mean.weights_digest, sum.weights_digest);
  EXPECT_EQ(scaled.weights_digest, sum.weights_digest);
  EXPECT_EQ(scaled.loss, sum.loss);
}

TEST(Tutorials, ItDoesNotMatterWhoDividesByTheScaleButItMustBeDividedOnce) {
  TutorialTable table;
  for (const char* variant : {"as-written", "scaler-divides", "division-forgotten", "division-doubled",
                              "sgd-optimizer-divides", "sgd-division-forgotten", "sgd-division-doubled"})
    table.add(custom(variant));
  add_special_runs(table, 1, [](const std::string&) {});
  const auto digest = [&](const char* variant) {
    return table.find("mindspore_custom_step", variant)->weights_digest;
  };
  EXPECT_EQ(digest("scaler-divides"), digest("as-written"));
  EXPECT_EQ(digest(divides_in_the_step), digest("as-written"));
  EXPECT_NE(digest("division-forgotten"), digest("as-written"));
  EXPECT_NE(digest("division-doubled"), digest("as-written"));
  // Adam's step does not depend on the size of the gradients but by epsilon: both mistakes stay within a
  // percent.
  const double right = *table.find("mindspore_custom_step", "as-written")->loss;
  for (const char* variant : {"division-forgotten", "division-doubled"})
    EXPECT_NEAR(*table.find("mindspore_custom_step", variant)->loss, right, 0.01 * right) << variant;
  // SGD: a learning rate of 10 diverges, one of 1e-5 does nothing.
  EXPECT_FALSE(table.find("mindspore_custom_step", "sgd-division-forgotten")->loss.has_value());
  EXPECT_LT(*table.find("mindspore_custom_step", "sgd-optimizer-divides")->loss,
            0.6 * *table.find("mindspore_custom_step", "sgd-division-doubled")->loss);
}

TEST(Tutorials, OneOverflowingMicroBatchDropsItsWindow) {
  TutorialTable table;
  table.add(linear9("o1-accumulate10"));
  add_special_runs(table, 1, [](const std::string&) {});
  const TutorialRun* const run = table.find("paddle_linear9", overflow_in_window);
  ASSERT_NE(run, nullptr);
  EXPECT_EQ(run->steps, 2u);
  EXPECT_EQ(run->skipped, 1u);
  EXPECT_EQ(run->digest_after_first_step, run->digest_before) << "no weight moved";
  EXPECT_EQ(run->final_scale, 512.0) << "the scale backs off once, not once a micro-batch";
  EXPECT_EQ(run->weights_digest, table.find("paddle_linear9", after_dropped_window)->weights_digest)
      << "the second window is what the first would have been at half the scale";
  EXPECT_NE(run->weights_digest, run->digest_before);
}

TEST(Tutorials, TheLossThatTheTutorialsPrintIsThatOfTheLastBatchBeforeItsStep) {
  RunConfig config = shipped("paddle_linear9", "o1");
  config.model.scale_down = 256;
  config.optimizer.learning_rate = 0.02;  // every step shows
  const auto last_loss = [&](std::uint64_t steps) {
    config.train.steps = steps;
    return run_tutorial("x", "x", config, 1).last_batch_loss;
  };
  // The trainer's own record of the same step.
  for (const std::uint64_t steps : {1u, 2u, 13u}) {
    config.train.steps = steps;
    const auto prepared = prepare_run(resolve_run(config), 1);
    double loss = 0;
    StepTap tap;
    tap.after = [&](const StepRow& row) { loss = row.loss; };
    engine::Trainer(*prepared->backend, prepared->workload, prepared->plan, tap).run();
    ASSERT_TRUE(std::isfinite(loss));
    EXPECT_EQ(last_loss(steps), loss) << steps;
  }
  // With accumulation it is that of one micro-batch, the tenth of the epoch, and not the mean of ten.
  config.optimizer.learning_rate = 0;
  const double tenth = last_loss(10);
  config.train.accumulate = 10;
  config.train.accumulate_mode = engine::AccumulateMode::sum;
  EXPECT_EQ(last_loss(2), tenth);
}

TEST(Tutorials, ManualDenseRoundsAndStaysClose) {
  const TutorialRun fp32 = run_shipped("mindspore_manual_dense", "no-to-float");
  const TutorialRun manual = run_shipped("mindspore_manual_dense", "as-written");
  EXPECT_NE(manual.loss_before, fp32.loss_before) << "the layer computes in FP16";
  EXPECT_EQ(manual.digest_before, fp32.digest_before) << "on FP32 parameters";
  EXPECT_NEAR(*manual.loss, *fp32.loss, 1e-3 * *fp32.loss);
}

TEST(Motion, CountsEveryElementThatEverHadOtherBits) {
  RunConfig config = shipped("paddle_linear9", "fp32");
  config.model.scale_down = 256;
  config.optimizer.learning_rate = 0;
  const TutorialRun at_rest = run_tutorial("x", "at rest", config, 1);
  EXPECT_EQ(at_rest.weights.elements, 9u * 32 * 32);
  EXPECT_EQ(at_rest.biases.elements, 9u * 32);
  EXPECT_EQ(at_rest.weights.moved, 0u);
  EXPECT_EQ(at_rest.weights.still(), 1.0);
  EXPECT_EQ(at_rest.weights_digest, at_rest.digest_before);
  EXPECT_EQ(*at_rest.loss, at_rest.loss_before);
  config.optimizer.learning_rate = 1;
  const TutorialRun moved = run_tutorial("x", "moved", config, 1);
  EXPECT_EQ(moved.weights.moved, moved.weights.elements);
  EXPECT_EQ(moved.biases.moved, moved.biases.elements);
  EXPECT_NE(moved.weights_digest, moved.digest_before);
  EXPECT_EQ(Motion{}.still(), 0.0) << "nothing is no evidence";
}

TEST(Tutorials, ResultsDoNotDependOnThreads) {
  RunConfig config = shipped("paddle_linear9", "o2-no-masters");
  config.model.scale_down = 128;
  const TutorialRun one = run_tutorial("x", "1", config, 1);
  const TutorialRun two = run_tutorial("x", "2", config, 2);
  EXPECT_EQ(one.weights_digest, two.weights_digest);
  EXPECT_EQ(one.loss, two.loss);
}

// The table and the judgement, on made-up runs.

TutorialRun made_up(const std::string& variant, double loss, const std::vector<std::string>& settings) {
  TutorialRun run{
      .system = "paddle_linear9", .variant = variant, .loss_before = 2.0, .loss = loss, .steps = 20};
  for (const std::string& setting : settings) apply_setting(run.config, setting, "test");
  run.weights = {.elements = 1000, .moved = 1000};
  return run;
}

TutorialTable table_of(double o1, double masters, std::uint64_t moved) {
  TutorialTable table;
  table.add(made_up("fp32", 1.0, {"amp.level=O0"}));
  table.add(made_up("o1", o1, {"amp.level=O1"}));
  table.add(made_up("o2-masters", masters, {"amp.level=O2"}));
  TutorialRun frozen = made_up("o2-no-masters", 1.9, {"amp.level=O2"});
  frozen.weights.moved = moved;
  table.add(frozen);
  return table;
}

TEST(TutorialTable, ComparesWithTheFp32RunOfTheSameKindAndSaysNoMoreThanItMeasured) {
  TutorialTable table = table_of(1.0005, 1.0, 30);
  const auto run = [&](const char* variant) -> const TutorialRun& {
    return *table.find("paddle_linear9", variant);
  };
  EXPECT_EQ(table.ratio_of(run("o1")), 1.0005);
  EXPECT_EQ(table.progress_of(run("o2-no-masters")), (2.0 - 1.9) / (2.0 - 1.0));
  EXPECT_THAT(table.text(), HasSubstr(" 1.90000   10.0%"));
  EXPECT_EQ(table.find("paddle_linear9", "o3"), nullptr);

  // Other accumulation or another optimizer: another reference.
  table.add(made_up("o1-accumulate10", 1.5, {"amp.level=O1", "train.accumulate=10"}));
  EXPECT_EQ(table.ratio_of(run("o1-accumulate10")), std::nullopt);
  table.add(made_up("fp32-accumulate10", 1.25, {"amp.level=O0", "train.accumulate=10"}));
  EXPECT_EQ(table.ratio_of(run("o1-accumulate10")), 1.2);
  EXPECT_EQ(table.span_of(run("o1-accumulate10")), std::nullopt);
  table.add_repetition(made_up("fp32-accumulate10", 1.6, {"amp.level=O0", "train.accumulate=10"}));
  EXPECT_DOUBLE_EQ(*table.span_of(run("o1-accumulate10")), 0.35 / 1.25);
  EXPECT_THAT(table.text(), HasSubstr(" 1.20000   66.7%   28.0%"));
  EXPECT_EQ(table.span_of(run("o1")), std::nullopt);

  TutorialRun diverged = made_up("sgd", 0, {});
  diverged.loss.reset();
  table.add(diverged);
  EXPECT_THAT(table.text(), HasSubstr("  diverged "));

  // One run a variant is no evidence of quality: no such word is in the table.
  for (const char* const word : {"as FP32", "within", "ends higher", "ends lower", "verdict"}) {
    EXPECT_EQ(table.text().find(word), std::string::npos) << word;
    EXPECT_EQ(table.csv().find(word), std::string::npos) << word;
  }
}

TEST(TutorialTable, TheirNumbersAreNextToOurs) {
  ASSERT_NE(their_result("paddle_linear9", "o2-no-masters"), nullptr);
  EXPECT_EQ(their_result("paddle_linear9", "o2-no-masters")->loss, 0.6743);
  EXPECT_EQ(their_result("paddle_linear9", "o2-masters"), nullptr);
  const TutorialTable table = table_of(1.0, 1.0, 0);
  EXPECT_THAT(table.text(), HasSubstr("0.674300"));
  EXPECT_THAT(table.csv(), HasSubstr("0.6743,0.102\n"));
}

TEST(Expectations, FailWhereTheNumbersSayOtherwise) {
  const auto verdicts = [](const TutorialTable& table) {
    std::vector<Verdict> all = verdicts_of(tutorial_questions(), table);
    all.resize(3);
    return all;
  };
  using enum Verdict;
  EXPECT_EQ(verdicts(table_of(1.0, 1.0, 49)), (std::vector{holds, holds, holds}));
  EXPECT_EQ(verdicts(table_of(1.0011, 0.9989, 51)), (std::vector{fails, fails, fails}));
  EXPECT_EQ(verdicts(table_of(0.9991, 1.0009, 50)), (std::vector{holds, holds, fails}))
      << "more than 95 %, not as much";
  EXPECT_THAT(verdicts_of(tutorial_questions(), TutorialTable{}), testing::Each(not_run));
}

class ExpTutorials : public SmallRuns {
 protected:
  testing_support::Finished run(const std::string& lr) {
    testing_support::write_bytes(
        folder_ / "tiny.toml",
        "[model]\nname = \"regression\"\nloss = \"mse\"\nlayer = [{ type = \"mlp\", widths = [256] "
        "}]\n[data]\nname = \"uniform\"\ninputs = 256\noutputs = 256\n"
        "[train]\nbatch_size = 64\n[optimizer]\nmomentum = 0.0\nlr = " +
            lr + "\n[amp]\ndialect = \"paddle\"\n");
    testing_support::write_bytes(
        folder_ / "grid.toml",
        "[[workload]]\nname = \"paddle_linear9\"\nconfig = \"tiny.toml\"\nset = [\"model.scale_down=4\"]\n"
        "[[variant]]\nname = \"fp32\"\n"
        "[[variant]]\nname = \"o2-no-masters\"\nset = [\"amp.level=O2\", \"amp.master_weights=false\"]\n");
    return run_inside("exp_tutorials", {"-c", "grid.toml", "-o", "out", "--quiet"});
  }
};

TEST_F(ExpTutorials, JudgesWhatItRanAndSaysWhatItDidNot) {
  const auto result = run("1e-6");
  EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, HasSubstr("verdict: HOLDS"));
  EXPECT_THAT(result.out, HasSubstr("verdict: NOT RUN"));
  EXPECT_EQ(column("out/exp_tutorials.csv", "variant"), (std::vector<std::string>{"fp32", "o2-no-masters"}));
  EXPECT_EQ(column("out/exp_tutorials.csv", "weights"), (std::vector<std::string>{"4096", "4096"}))
      << "64 x 64: small";
}

TEST_F(ExpTutorials, AnExpectationThatDoesNotHoldIsExitCodeFive) {
  const auto result = run("10.0");
  EXPECT_EQ(result.exit_code, 5) << result.err;
  EXPECT_THAT(result.out, HasSubstr("verdict: FAILS"));
}

TEST_F(ExpTutorials, FullLeavesOutWhatMakesTheRunsSmall) {
  run("1e-6");
  const auto result = run_inside(
      "exp_tutorials", {"-c", "grid.toml", "-o", "out", "--quiet", "--full", "--set", "train.steps=1"});
  EXPECT_THAT(result.exit_code, testing::AnyOf(0, 5)) << result.err;
  EXPECT_EQ(column("out/exp_tutorials.csv", "weights"), (std::vector<std::string>{"65536", "65536"}));
}

/// scripts/tutorials_full.sh, at small sizes.
class TutorialsAtFullSize : public SmallRuns {
 protected:
  const std::vector<std::string> small_{
      "--threads",       "1",     "--set",         "model.scale_down=128", "--set",
      "data.batches=20", "--set", "train.epochs=1"};

  testing_support::Finished script(const std::string& out) const {
    std::vector<std::string> arguments{FP16LAB_SOURCE_DIR "/scripts/tutorials_full.sh", FP16LAB_BIN_DIR,
                                       path(out)};
    arguments.insert(arguments.end(), small_.begin(), small_.end());
    return testing_support::run_program("/bin/bash", arguments, folder_);
  }
  std::vector<std::string> task(int number, const std::string& out) const {
    std::vector<std::string> arguments{"sweep",
                                       "-c",
                                       FP16LAB_SOURCE_DIR "/experiments/configs/tutorials_full.toml",
                                       "-o",
                                       path(out),
                                       "--quiet",
                                       "--task",
                                       std::to_string(number)};
    arguments.insert(arguments.end(), small_.begin(), small_.end());
    return arguments;
  }
};

TEST_F(TutorialsAtFullSize, StoppedAndStartedAgainEndsWithTheSameBits) {
  const auto whole = script("whole");
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_EQ(whole.out, read("whole/tables.md"));
  // The script was at its sixth run, which is killed between two checkpoints.
  ASSERT_EQ(fp16lab(task(1, "killed")).exit_code, 0);
  {
    testing_support::Spawned child(fp16lab_binary, task(6, "killed"), folder_);
    const std::filesystem::path third =
        folder_ / "killed/paddle_linear9-o1-add-seed1/checkpoints/step-000003.safetensors";
    for (int i = 0; i < 60000 && !std::filesystem::exists(third) && child.running(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    child.signal(SIGKILL);
    ASSERT_EQ(child.wait().exit_code, 128 + SIGKILL) << "it was killed in the middle";
  }
  const auto again = script("killed");
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, testing::AllOf(HasSubstr("paddle_mlp3-fp32-seed1: complete"),
                                        HasSubstr("paddle_linear9-o1-add-seed1: unfinished")))
      << "what was done is kept";
  std::size_t runs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "whole")) {
    if (!std::filesystem::exists(entry.path() / "steps.csv")) continue;
    const std::string name = entry.path().filename().string();
    ++runs;
    EXPECT_EQ(column("killed/" + name + "/steps.csv", "state_hash"),
              column("whole/" + name + "/steps.csv", "state_hash"))
        << name;
    EXPECT_FALSE(std::filesystem::exists(entry.path() / "checkpoints")) << name;
  }
  EXPECT_EQ(runs, 10u);
  // A row for each column of both tutorials, with their figures as they printed them; so has the finding.
  const std::string finding =
      read_file(FP16LAB_SOURCE_DIR "/reports/findings/tutorials_at_full_size/README.md", longest::document);
  for (const char* const row :
       {"| FP32 | 1.24519622 |  | ", "| O1 | 1.24815702 | +0.238 % | ",
        "| O2, no master weights | 1.25423336 | ", "| O1, ten batches accumulated | 1.25602019 | ",
        "| FP32 | 0.6486028 |  | ", "| O1 | 0.6486219 | +0.003 % | ",
        "| O1, static graph (scale from 128) | 0.6486222 | ",
        "| O2, no master weights | 0.6743 | +3.962 % | ",
        "| O2, guard on eight of nine layers | 0.6691731 | ", "| O1, ten batches accumulated | 0.6602017 | "})
    for (const std::string& text : {whole.out, finding}) EXPECT_THAT(text, HasSubstr(row));
  const auto losses = column("whole/paddle_linear9-fp32-seed1/steps.csv", "loss");
  ASSERT_EQ(losses.size(), 20u);
  EXPECT_THAT(whole.out, HasSubstr(fmt::format("| FP32 | 0.6486028 |  | {:.7f} |  | 0 of 20 | ",
                                               std::stod(losses.back()))));
  // Ten batches are compared with FP32's last ten.
  double ten = 0;
  for (std::size_t i = 10; i < 20; ++i) ten += std::stod(losses[i]) / 10;
  const double accumulated =
      std::stod(column("whole/paddle_linear9-o1-accumulate10-seed1/steps.csv", "loss").back());
  EXPECT_THAT(whole.out, HasSubstr(fmt::format("{:.7f} | {:+.3f} % | 0 of 2 | ", accumulated,
                                               100 * (accumulated / ten - 1))));
}

TEST_F(TutorialsAtFullSize, ARunThatWasNotMadeHasNoFigure) {
  const auto table = [&](const std::string& runs) { return run_inside("exp_tutorials", {"--runs", runs}); };
  std::filesystem::create_directories(folder_ / "none");
  const auto nothing = table("none");
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("no run of tutorials_full.toml is there"));
  ASSERT_EQ(fp16lab(task(1, "some")).exit_code, 0);
  const auto one = table("some");
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_THAT(one.out, HasSubstr("| O1 | 1.24815702 | +0.238 % | not run | | | 1.294 | |\n"));
  EXPECT_THAT(one.out, HasSubstr("| FP32 | 0.6486028 |  | not run | | | 0.529 | |\n"));
}

}  // namespace
}  // namespace fp16lab::experiments
