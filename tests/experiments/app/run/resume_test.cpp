// fp16lab train --resume through the real binary: the same bits after kills at random moments, and clear
// refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <set>
#include <thread>

#include "tests/experiments/app/run/resume_runs.hpp"
#include "tests/support/older_manifest.hpp"

namespace fp16lab::experiments {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(Resume, TwentyKillsAtRandomMomentsChangeNoBit) {
  constexpr int rounds = 20;
  ASSERT_EQ(begin("whole").exit_code, 0);
  const auto expected = column("whole/steps.csv", "state_hash");
  ASSERT_EQ(expected.size(), 40u);
  const auto skipped = column("whole/steps.csv", "skipped");
  const auto scales = column("whole/steps.csv", "loss_scale");
  ASSERT_GE(std::count(skipped.begin(), skipped.end(), "1"), 3) << "overflows were provoked";
  ASSERT_GE((std::set<std::string>(scales.begin(), scales.end()).size()), 5u) << "the scale moved";

  // Start or resume, SIGKILL after a random delay, until there were 20 kills of a living process: where the
  // run was faster, it counts for nothing but must have ended well, the next run begins, and delays get
  // shorter.
  std::mt19937_64 random(20260731);
  const std::vector<std::string> command = [] {
    std::vector<std::string> all = settings();
    all.emplace_back("--resume");
    return all;
  }();
  int kills = 0, finished = 0, in_the_middle = 0, steps_lost = 0, behind_a_checkpoint = 0, half_written = 0;
  double longest = 0.3;  // seconds
  std::string run = "run0";
  const auto expect_whole = [&](const testing_support::Finished& result) {
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(column(run + "/steps.csv", "state_hash"), expected);
    expect_same_files("whole", run);
    run = "run" + std::to_string(++finished);
  };
  for (int attempt = 0; kills < rounds && attempt < 10 * rounds; ++attempt) {
    testing_support::Spawned child(fp16lab_binary, arguments(run, command), folder_);
    const auto start = std::chrono::steady_clock::now();
    const std::chrono::duration<double> delay(longest * std::uniform_real_distribution<double>(0, 1)(random));
    while (std::chrono::steady_clock::now() - start < delay && child.running())
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    child.signal(SIGKILL);
    const auto result = child.wait();
    if (result.exit_code != 128 + SIGKILL) {
      longest *= 0.7;
      expect_whole(result);
      continue;
    }
    ++kills;
    longest *= 1.1;
    if (!std::filesystem::exists(folder_ / run / "steps.csv")) continue;
    // Every row that was ever written is one of the whole run's.
    const auto hashes = column(run + "/steps.csv", "state_hash");
    ASSERT_LE(hashes.size(), expected.size());
    for (std::size_t i = 0; i < hashes.size(); ++i) ASSERT_EQ(hashes[i], expected[i]) << "kill " << kills;
    if (!hashes.empty() && hashes.size() < expected.size()) ++in_the_middle;
    std::uint64_t saved = 0;
    for (const std::string& name : checkpoints(run)) {
      if (name.ends_with(".safetensors"))
        saved = std::stoull(name.substr(5));
      else
        ++half_written;
    }
    if (saved > 0) ++behind_a_checkpoint;
    if (hashes.size() > saved) ++steps_lost;
  }
  EXPECT_EQ(kills, rounds);
  expect_whole(fp16lab(arguments(run, command)));
  std::printf(
      "%d kills in %d runs: %d between the first step and the last, %d behind a checkpoint, %d with steps "
      "after it, %d with a half-written checkpoint\n",
      kills, finished, in_the_middle, behind_a_checkpoint, steps_lost, half_written);
  EXPECT_GE(in_the_middle, rounds / 4);
  EXPECT_GE(behind_a_checkpoint, rounds / 4);
}

TEST_F(Resume, AnInterruptedRunEndsAsTheWholeOneWould) {
  begin_and_interrupt("run");
  const std::uint64_t step = newest_step("run");
  EXPECT_EQ(column("run/steps.csv", "step").back(), std::to_string(step)) << "saved at the end of the step";
  EXPECT_EQ(manifest("run").at("state"), "stopped");
  EXPECT_THAT(manifest("run").at("message").get<std::string>(), HasSubstr("interrupted with state saved"));

  const std::string last = std::to_string(step + 9);
  ASSERT_EQ(begin("whole", {"train.steps=" + last}).exit_code, 0);
  const auto result = resume("run", {"--set", "train.steps=" + last});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("resuming after step " + std::to_string(step)));
  EXPECT_EQ(json::parse(result.out).at("state"), "finished");
  EXPECT_EQ(manifest("run").at("state"), "finished");
  EXPECT_EQ(manifest("run").at("resumptions").at(0).at("step"), step);
  EXPECT_EQ(manifest("run").at("resumptions").size(), 1u);
  EXPECT_EQ(manifest("run").at("config"), read("run/config.toml"));
  expect_same_files("whole", "run");

  // Nothing is left to do, and it says so again and again.
  const std::string before = read("run/manifest.json");
  const auto again = resume("run");
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("this run has finished after " + last + " steps"));
  EXPECT_EQ(json::parse(again.out).at("state_hash"), column("whole/steps.csv", "state_hash").back());
  EXPECT_EQ(read("run/manifest.json"), before);
}

TEST_F(Resume, AKilledRunWithoutACheckpointBeginsAgain) {
  testing_support::Spawned child(
      fp16lab_binary, arguments("run", settings({"checkpoint.every=0", "train.steps=100000"})), folder_);
  while (rows("run") < 4 && child.running()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  child.signal(SIGKILL);
  ASSERT_EQ(child.wait().exit_code, 128 + SIGKILL);
  EXPECT_TRUE(checkpoints("run").empty());
  const auto result = resume("run", {"--set", "train.steps=12"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("no checkpoint yet, from the beginning"));
  ASSERT_EQ(begin("whole", {"checkpoint.every=0", "train.steps=12"}).exit_code, 0);
  EXPECT_EQ(steps("run"), steps("whole"));
  EXPECT_EQ(read("run/evaluations.csv"), read("whole/evaluations.csv"));
}

TEST_F(Resume, AFinishedRunCanBeMadeLonger) {
  ASSERT_EQ(begin("run", {"train.steps=11"}).exit_code, 0);
  ASSERT_EQ(begin("whole", {"train.steps=23"}).exit_code, 0);
  const auto result = resume("run", {"--set", "train.steps=23"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(column("run/steps.csv", "state_hash"), column("whole/steps.csv", "state_hash"));
  EXPECT_EQ(read("run/evaluations.csv"), read("whole/evaluations.csv"));
}

TEST_F(Resume, CheckpointsAreKeptAsAsked) {
  ASSERT_EQ(begin("two", {"train.steps=9", "checkpoint.keep=2"}).exit_code, 0);
  EXPECT_THAT(checkpoints("two"), ElementsAre("step-000008.safetensors", "step-000009.safetensors"));
  ASSERT_EQ(begin("all", {"train.steps=5", "checkpoint.keep=0"}).exit_code, 0);
  EXPECT_THAT(checkpoints("all"),
              ElementsAre("step-000002.safetensors", "step-000004.safetensors", "step-000005.safetensors"));
  ASSERT_EQ(begin("none", {"train.steps=5", "checkpoint.every=0"}).exit_code, 0);
  EXPECT_TRUE(checkpoints("none").empty());
}

TEST_F(Resume, SettingsThatCannotChangeBitsMayChange) {
  begin_and_interrupt("run");
  const std::string last = std::to_string(newest_step("run") + 5);
  std::filesystem::rename(folder_ / "data", folder_ / "moved");
  const auto result = resume(
      "run", {"--set", "train.steps=" + last, "--set", "data.path=" + path("moved"), "--set",
              "checkpoint.every=0", "--set", "observe.histograms_every=0", "--set", "train.evaluate_every=0",
              "--set", "report.margin.loss=3", "--set", "report.margin.accuracy=2"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(read("run/config.toml"), HasSubstr("[report.margin]\nloss = 3.0\naccuracy = 2.0\n"));
  std::filesystem::rename(folder_ / "moved", folder_ / "data");
  ASSERT_EQ(begin("whole", {"train.steps=" + last}).exit_code, 0);
  EXPECT_EQ(column("run/steps.csv", "state_hash"), column("whole/steps.csv", "state_hash"));
}

TEST_F(Resume, SettingsThatWouldChangeBitsAreRefusedByName) {
  begin_and_interrupt("run");
  const std::string before = read("run/manifest.json") + read("run/steps.csv") + read("run/config.toml");
  for (const char* setting :
       {"train.batch_size=10", "train.accumulate=2", "train.clip_norm=1", "train.clip_value=1",
        "train.seed=9", "train.perturb_ulps=1", "optimizer.lr=0.002", "optimizer.name=sgd", "amp.level=O0",
        "scaler.policy=fixed", "scaler.growth_interval=8", "model.layer.mlp1.widths=[8,10]",
        "data.subset=100", "backend.tensor_core=volta", "schedule.name=step"}) {
    const std::string key = std::string(setting).substr(0, std::string(setting).find('='));
    std::vector<std::string> more{"--set", setting, "--quiet"};
    if (std::string_view(setting) == "schedule.name=step")
      more.insert(more.end(), {"--set", "schedule.step_interval=5"});
    const auto result = resume("run", more);
    expect_one_line_error(result, 2, key + " = ");
    EXPECT_THAT(result.err, AllOf(HasSubstr("--resume"), HasSubstr(path("run")))) << setting;
  }
  expect_one_line_error(resume("run", {"--seed", "9", "--quiet"}), 2, "train.seed = 9, but the run");
  expect_one_line_error(resume("run", {"--set", "train.steps=1", "--quiet"}), 2,
                        "steps already, more than the 1");
  EXPECT_EQ(read("run/manifest.json") + read("run/steps.csv") + read("run/config.toml"), before);
  // Other data behind the same path.
  testing_support::write_small_fashion(folder_ / "data", 399, 100);
  expect_one_line_error(resume("run", {"--quiet"}), 2, "the data have changed");
}

// Version 1 of the state_hash had powers of beta1 and beta2 for sgd too, which reads neither.
TEST_F(Resume, ARunOfTheFirstStateHashGoesOnWithTheSecond) {
  std::filesystem::copy(FP16LAB_SOURCE_DIR "/tests/golden/run_folders/state_hash_1", folder_ / "old",
                        std::filesystem::copy_options::recursive);
  const auto four_steps = [&](const std::vector<std::string>& from, const std::string& folder) {
    std::vector<std::string> arguments{"train", "--quiet", "--set", "train.steps=4", "-o", path(folder)};
    arguments.insert(arguments.end(), from.begin(), from.end());
    const auto result = fp16lab(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
  };
  const auto before = column("old/steps.csv", "state_hash");
  four_steps({"-c", path("old/config.toml")}, "fresh");
  four_steps({"--resume"}, "old");
  const auto fresh = column("fresh/steps.csv", "state_hash"), resumed = column("old/steps.csv", "state_hash");
  ASSERT_EQ(resumed.size(), 4U);
  ASSERT_EQ(before.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(resumed[i], before[i]);
    EXPECT_NE(resumed[i], fresh[i]) << "0.9^t";
    EXPECT_EQ(resumed[i + 2], fresh[i + 2]);
  }
  EXPECT_EQ(column("old/steps.csv", "loss"), column("fresh/steps.csv", "loss"));
  EXPECT_THAT(read("old/manifest.json"),
              AllOf(HasSubstr("\"state_hash_version\": 2"), HasSubstr("\"first_state_hash_until\": 2")));

  const auto compared = fp16lab({"compare", path("old"), path("fresh")});
  EXPECT_EQ(compared.exit_code, 0) << compared.out;
  EXPECT_THAT(compared.out,
              AllOf(HasSubstr("The state_hash of 2 steps is of version 1 in one run and 2 in the other"),
                    Not(HasSubstr("The runs differ"))));
  const auto report = fp16lab({"report", path("old"), path("fresh"), "-o", path("page"), "--mix-builds"});
  EXPECT_EQ(report.exit_code, 0) << report.err;
  EXPECT_THAT(report.out, Not(HasSubstr("tiny on uniform (")))
      << "one workload: keys that nothing reads stood in the older configuration";
}

TEST_F(Resume, ATwinIsContinuedFromItsCheckpointNotPerturbedAgain) {
  begin_and_interrupt("run", {"train.perturb_ulps=1"});
  const std::string last = std::to_string(newest_step("run") + 5);
  for (const char* ulps : {"0", "2"})
    expect_one_line_error(resume("run", {"--set", std::string("train.perturb_ulps=") + ulps, "--quiet"}), 2,
                          std::string("train.perturb_ulps = ") + ulps + ", but the run in ");
  ASSERT_EQ(resume("run", {"--set", "train.steps=" + last}).exit_code, 0);
  ASSERT_EQ(begin("whole", {"train.perturb_ulps=1", "train.steps=" + last}).exit_code, 0);
  expect_same_files("whole", "run");
  ASSERT_EQ(begin("other", {"train.steps=1"}).exit_code, 0);
  EXPECT_NE(column("other/steps.csv", "state_hash").front(), column("whole/steps.csv", "state_hash").front());
}

TEST_F(Resume, ACosineThatEndsWithTheRunFixesItsLength) {
  ASSERT_EQ(begin("run", {"train.steps=6", "schedule.name=cosine"}).exit_code, 0);
  expect_one_line_error(resume("run", {"--set", "train.steps=8", "--quiet"}), 2,
                        "cosine schedule ends with the run");
  ASSERT_EQ(begin("fixed", {"train.steps=6", "schedule.name=cosine", "schedule.total_steps=20"}).exit_code,
            0);
  EXPECT_EQ(resume("fixed", {"--set", "train.steps=8"}).exit_code, 0);
}

TEST_F(Resume, DamagedCheckpointsAreOneLineAndAWayOut) {
  begin_and_interrupt("run", {"checkpoint.keep=0"});
  const std::string file = newest("run");
  const std::string good = read(file);
  const std::string before = read("run/manifest.json") + read("run/steps.csv");
  const auto expect_refused = [&](const std::string& content, const std::string& part) {
    testing_support::write_bytes(folder_ / file, content);
    const auto result = resume("run", {"--quiet"});
    expect_one_line_error(result, 1, part);
    EXPECT_THAT(result.err,
                AllOf(HasSubstr(path(file)), HasSubstr("delete this file to continue from step-")));
  };
  expect_refused("", "0 bytes");
  expect_refused(good.substr(0, good.size() / 2), "cut off");
  std::string flipped = good;
  flipped[flipped.size() - 100] ^= 1;
  expect_refused(flipped, "is damaged");
  expect_refused(std::string("\x02\0\0\0\0\0\0\0{}", 10), "no checkpoint");
  EXPECT_EQ(read("run/manifest.json") + read("run/steps.csv"), before);

  // The way out that the message names.
  std::filesystem::remove(folder_ / file);
  const std::string last = std::to_string(newest_step("run") + 6);
  ASSERT_EQ(resume("run", {"--set", "train.steps=" + last}).exit_code, 0);
  ASSERT_EQ(begin("whole", {"train.steps=" + last}).exit_code, 0);
  EXPECT_EQ(steps("run"), steps("whole"));
}

TEST_F(Resume, LineFilesThatDoNotBelongToTheCheckpointAreRefused) {
  begin_and_interrupt("run");
  const std::string good = read("run/steps.csv");
  const std::string first_rows = good.substr(0, good.find('\n', good.find("\n2,") + 1) + 1);
  testing_support::write_bytes(folder_ / "run/steps.csv", first_rows);
  expect_one_line_error(resume("run", {"--quiet"}), 1, "ends at step 2, before its checkpoint");
  std::string other = good;
  testing_support::write_bytes(folder_ / "run/steps.csv", good);
  const std::size_t at = good.rfind(column("run/steps.csv", "state_hash").back());
  other[at] = other[at] == '0' ? '1' : '0';
  testing_support::write_bytes(folder_ / "run/steps.csv", other);
  expect_one_line_error(resume("run", {"--quiet"}), 1, "state_hash");
  EXPECT_EQ(manifest("run").at("state"), "stopped") << "a refused resumption changes nothing";
}

/// Everything that was written before the checkpoint has to be there: a continued run would hide the hole for
/// good.
TEST_F(Resume, DamageBeforeTheCheckpointIsRefusedWithFileAndLine) {
  begin_and_interrupt("run", {"observe.explain_overflow=true"});
  const std::string manifest_before = read("run/manifest.json");
  const std::uint64_t step = newest_step("run");
  for (const std::string name :
       {"histograms.jsonl", "overflows.jsonl", "culprits.jsonl", "evaluations.csv"}) {
    const std::string file = "run/" + name, good = read(file);
    const std::size_t first_end = good.find('\n') + 1;
    if (good.size() == first_end && name == "evaluations.csv") continue;  // none before the interruption
    const std::size_t header = name == "evaluations.csv" ? first_end : 0;
    const std::size_t second = good.find('\n', header) + 1;
    const auto expect_refused = [&](const std::string& content, const std::string& part) {
      testing_support::write_bytes(folder_ / file, content);
      const auto result = resume("run", {"--quiet"});
      expect_one_line_error(result, 1, part);
      EXPECT_THAT(result.err, HasSubstr("begin again with --force"));
      EXPECT_EQ(read(file), content) << "a refused resumption changes nothing";
    };
    expect_refused(good.substr(0, good.rfind('\n', good.size() - 2) + 1), path(file) + ":");  // the last row
    expect_refused(good.substr(0, good.size() - 5), path(file) + ":");                        // half of it
    expect_refused(good.substr(0, header) + good.substr(second), path(file) + ":");           // the first row
    const std::string line = header == 0 ? ":1: " : ":2: ";
    expect_refused(good.substr(0, second - 4) + good.substr(second - 1),
                   path(file) + line);  // some of its bytes
    std::filesystem::remove(folder_ / file);
    expect_one_line_error(resume("run", {"--quiet"}), 1, path(file) + ": No such file");
    testing_support::write_bytes(folder_ / file, good);
  }
  EXPECT_EQ(read("run/manifest.json"), manifest_before);

  // What came behind the checkpoint may be lost: the run repeats it.
  for (const char* name : {"run/histograms.jsonl", "run/overflows.jsonl"})
    testing_support::write_bytes(folder_ / name, read(name) + "{\"step\":" + std::to_string(step + 1));
  const std::string last = std::to_string(step + 4);
  ASSERT_EQ(resume("run", {"--set", "train.steps=" + last}).exit_code, 0);
  ASSERT_EQ(begin("whole", {"train.steps=" + last, "observe.explain_overflow=true"}).exit_code, 0);
  expect_same_files("whole", "run");
  EXPECT_EQ(read("run/culprits.jsonl"), read("whole/culprits.jsonl"));

  // Damage of a run that has ended is no "nothing is left to do" either.
  const std::string histograms = read("run/histograms.jsonl");
  testing_support::write_bytes(folder_ / "run/histograms.jsonl", histograms.substr(0, histograms.size() / 2));
  expect_one_line_error(resume("run", {"--quiet"}), 1, "histograms.jsonl has ");
}

TEST_F(Resume, ARowThatIsJsonButContradictsItselfIsRefused) {
  begin_and_interrupt("run");
  std::string rows = read("run/histograms.jsonl");
  const std::size_t second = rows.find('\n') + 1;
  rows.insert(rows.find("\"counts\":[", second) + 10, "7,");
  testing_support::write_bytes(folder_ / "run/histograms.jsonl", rows);
  expect_one_line_error(resume("run", {"--quiet"}), 1, path("run/histograms.jsonl") + ":2: ");
  EXPECT_EQ(read("run/histograms.jsonl"), rows) << "a refused resumption changes nothing";
}

TEST_F(Resume, EvaluationsThatWereNotYetWrittenMayBeMissing) {
  begin_and_interrupt("run", {"train.evaluate_every=0"});
  const std::string last = std::to_string(newest_step("run") + 4);
  ASSERT_EQ(begin("whole", {"train.evaluate_every=0", "train.steps=" + last}).exit_code, 0);
  std::filesystem::copy(folder_ / "run", folder_ / "empty", std::filesystem::copy_options::recursive);
  std::filesystem::remove(folder_ / "run/evaluations.csv");
  testing_support::write_bytes(folder_ / "empty/evaluations.csv", "");
  for (const char* run : {"run", "empty"}) {
    const auto result = resume(run, {"--set", "train.steps=" + last});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    expect_same_files("whole", run);
  }
  for (const char* run : {"run", "empty"}) {
    const auto compared = fp16lab({"compare", path("whole"), path(run)});
    EXPECT_EQ(compared.exit_code, 0) << compared.err;
  }
}

TEST_F(Resume, WhatCannotBeResumedSaysWhatCan) {
  expect_one_line_error(resume("nothing", {"--quiet"}), 2, "holds no run; begin one with --config");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "nothing"));
  expect_one_line_error(resume("nothing", {"--force"}), 2, "expected one of them");

  // With a configuration it begins, so that one command line serves for the first start and all others.
  auto first = settings({"train.steps=4"});
  first.emplace_back("--resume");
  ASSERT_EQ(fp16lab(arguments("run", first)).exit_code, 0);
  ASSERT_EQ(fp16lab(arguments("run", first)).exit_code, 0) << "and is done";
  EXPECT_EQ(column("run/steps.csv", "step").size(), 4u);

  ASSERT_EQ(begin("bare", {"train.steps=4", "checkpoint.every=0"}).exit_code, 0);
  expect_one_line_error(resume("bare", {"--set", "train.steps=5", "--quiet"}), 2, "without a checkpoint");

  // An unfinished run is not thrown away by a forgotten --resume.
  begin_and_interrupt("stopped");
  auto again = settings();
  again.emplace_back("--quiet");
  expect_one_line_error(fp16lab(arguments("stopped", again)), 2, "continue it with --resume");

  const auto diverging = begin("diverged", {"train.skip_limit=2", "scaler.initial_scale=2^100"});
  ASSERT_EQ(diverging.exit_code, 4) << diverging.err;
  EXPECT_EQ(resume("diverged").exit_code, 4);
}

// Its last loss is not finite, and yet it may be made longer, as a finished one.
TEST_F(Resume, ARunThatDivergedInItsLastStepGoesOn) {
  const std::vector<std::string> lost{"optimizer.name=sgd", "optimizer.lr=1e30", "scaler.initial_scale=1"};
  const auto with_steps = [&](const std::string& steps) {
    std::vector<std::string> all = lost;
    all.push_back("train.steps=" + steps);
    return all;
  };
  const auto cut = begin("cut", with_steps("6"));
  ASSERT_EQ(cut.exit_code, 4) << cut.err;
  EXPECT_EQ(manifest("cut")["state"], "diverged");
  EXPECT_EQ(resume("cut").exit_code, 4);
  EXPECT_EQ(rows("cut"), 7u) << "nothing is left to do";
  EXPECT_EQ(resume("cut", {"--set", "train.steps=8"}).exit_code, 4);
  ASSERT_EQ(begin("whole", with_steps("8")).exit_code, 4);
  EXPECT_EQ(column("cut/steps.csv", "state_hash"), column("whole/steps.csv", "state_hash"));
}

TEST_F(Resume, WhatAKilledWriterLeftBehindIsCleanedUp) {
  begin_and_interrupt("run");
  for (const char* name : {"run/manifest.json.tmp-1", "run/config.toml.tmp-22",
                           "run/checkpoints/step-000004.safetensors.tmp-333"})
    testing_support::write_bytes(folder_ / name, "half");
  testing_support::write_bytes(folder_ / "run/mine.tmp-1", "the user's");
  const std::string last = std::to_string(newest_step("run") + 1);
  ASSERT_EQ(resume("run", {"--set", "train.steps=" + last}).exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/manifest.json.tmp-1"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/config.toml.tmp-22"));
  EXPECT_THAT(checkpoints("run"), Each(::testing::EndsWith(".safetensors")));
  EXPECT_EQ(read("run/mine.tmp-1"), "the user's");
  // Killed while its very first file was written: the folder is not somebody else's.
  std::filesystem::create_directories(folder_ / "early");
  testing_support::write_bytes(folder_ / "early/manifest.json.tmp-1", "half");
  EXPECT_EQ(begin("early", {"train.steps=1"}).exit_code, 0);
}

/// A kill between the last checkpoint and the removal of older ones leaves one too many.
TEST_F(Resume, OlderCheckpointsGoThoughNoneIsWrittenAnyMore) {
  ASSERT_EQ(begin("run", {"train.steps=9", "checkpoint.keep=2"}).exit_code, 0);
  ASSERT_EQ(begin("all", {"train.steps=9", "checkpoint.keep=0"}).exit_code, 0);
  const std::vector<std::string> kept = checkpoints("run"), all = checkpoints("all");
  ASSERT_GT(all.size(), kept.size());
  const std::string older = all[all.size() - 3];
  std::filesystem::copy_file(folder_ / "all" / "checkpoints" / older,
                             folder_ / "run" / "checkpoints" / older);
  json manifest = this->manifest("run");
  manifest["state"] = "running";
  manifest["end"] = nullptr;
  testing_support::write_bytes(path("run/manifest.json"), manifest.dump());
  expect_one_line_error(resume("run", {"--quiet"}), 1,
                        path("run/manifest.json") + " is not what the run wrote");
  testing_support::write_bytes(path("run/manifest.json"), testing_support::without_digests(manifest.dump()));
  const auto resumed = resume("run");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(checkpoints("run"), kept);
}

TEST_F(Resume, DumpsFitTheSteps) {
  begin_and_interrupt("run");
  const std::string step = std::to_string(newest_step("run"));
  expect_one_line_error(resume("run", {"--dump-initial", path("i"), "--quiet"}), 2,
                        "continues after step " + step);
  expect_one_line_error(resume("run", {"--dump-gradients", step, path("g"), "--quiet"}), 2,
                        "--dump-gradients: dump_gradients: step " + step);
  expect_one_line_error(fp16lab(arguments("new", {"--dump-gradients", "0", path("g"), "--quiet"})), 2, "'0'");
  expect_one_line_error(fp16lab(arguments("new", {"--dump-gradients", "1", path("no/g"), "--quiet"})), 2,
                        "is not a folder");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "new"));
  ASSERT_EQ(begin("whole", {"train.steps=3"}).exit_code, 0);
  auto dumping = settings({"train.steps=3"});
  dumping.insert(dumping.end(), {"--dump-initial", path("i"), "--dump-gradients", "2", path("g")});
  ASSERT_EQ(fp16lab(arguments("new", dumping)).exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "i"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "g"));
  EXPECT_EQ(steps("new"), steps("whole")) << "dumping changes no bit";
}

}  // namespace
}  // namespace fp16lab::experiments
