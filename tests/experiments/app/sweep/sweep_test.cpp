// fp16lab sweep through the real binary: plans, resuming, kills.
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "tests/experiments/app/sweep/sweep_runs.hpp"
#include "tests/support/older_manifest.hpp"

namespace fp16lab::experiments {
namespace {

using nlohmann::json;

using Sweep = SweepRuns;

TEST_F(Sweep, RunsTheGridOnceAndSumsItUp) {
  const auto first = sweep();
  ASSERT_EQ(first.exit_code, 0) << first.err;
  for (const std::string& run : all_runs) {
    EXPECT_EQ(rows(run), 41u) << run;
    EXPECT_NE(written(run).find("finished"), std::string::npos);
  }
  EXPECT_NE(first.out.find("FP32"), std::string::npos) << first.out;
  EXPECT_NE(first.out.find("2^3"), std::string::npos) << first.out;
  EXPECT_EQ(first.out.find("error"), std::string::npos);
  EXPECT_EQ(json::parse(written(all_runs[2])).at("name"), "fixed-2p3");
  EXPECT_EQ(column("out/summary.csv", "configuration"),
            (std::vector<std::string>{"\"FP32\"", "\"fixed-2p3: FP16 S=2^3\""}));
  EXPECT_EQ(column("out/summary.csv", "runs"), (std::vector<std::string>{"2", "2"}));
  const json summary = json::parse(read("out/summary.json"));
  ASSERT_EQ(summary.size(), 1u);
  EXPECT_EQ(summary.at(0).at("configurations").size(), 2u);

  // A second sweep finds everything done and says the same.
  std::vector<std::string> before;
  before.reserve(all_runs.size());
  for (const std::string& run : all_runs) before.push_back(written(run));
  const auto second = sweep();
  EXPECT_EQ(second.exit_code, 0);
  EXPECT_EQ(second.out, first.out);
  EXPECT_NE(second.err.find("4 of 4 runs are already complete"), std::string::npos) << second.err;
  for (std::size_t i = 0; i < all_runs.size(); ++i) EXPECT_EQ(written(all_runs[i]), before[i]);

  // Another configuration is another run, which takes the place of a finished one only if it is told to.
  const std::vector<std::string> other{"--set", "train.steps=20", "--seed", "2", "--quiet"};
  const auto dry = sweep({"--set", "train.steps=20", "--seed", "2", "--quiet", "--dry-run"});
  EXPECT_EQ(dry.exit_code, 2);
  EXPECT_NE(dry.out.find("small-fp32-seed2,small,fp32,2,another configuration"), std::string::npos)
      << dry.out;
  expect_one_line_error(
      sweep(other), 2,
      "holds 2 other runs that this sweep would replace (small-fp32-seed2: train.steps is 40 there "
      "and 20 here); choose another folder with --out, or replace them with --force");
  EXPECT_EQ(written("small-fp32-seed2"), before[1]);
  const auto forced = sweep({"--set", "train.steps=20", "--seed", "2", "--quiet", "--force"});
  EXPECT_EQ(forced.exit_code, 0) << forced.err;
  EXPECT_EQ(forced.err, "");
  EXPECT_EQ(rows("small-fp32-seed1"), 41u);
  EXPECT_EQ(rows("small-fp32-seed2"), 21u);
}

TEST_F(Sweep, ARunWhoseManifestCannotBeReadIsNotReplacedEither) {
  ASSERT_EQ(sweep({"--seed", "1"}).exit_code, 0);
  testing_support::write_bytes(path("out/small-fp32-seed1/manifest.json"), "{");
  expect_one_line_error(
      sweep({"--seed", "1", "--quiet"}), 2,
      "1 other run that this sweep would replace (small-fp32-seed1: its manifest cannot be read)");
  EXPECT_EQ(sweep({"--seed", "1", "--quiet", "--force"}).exit_code, 0);
  EXPECT_EQ(rows("small-fp32-seed1"), 41u);
}

TEST_F(Sweep, RunsOfAnotherBuildAreNamedAndNotMixedUnasked) {
  ASSERT_EQ(sweep().exit_code, 0);
  const auto rebuild = [&](const std::string& run) {
    std::string manifest = testing_support::without_digests(written(run));
    const std::string key = "\"git_hash\": \"";
    const std::size_t begin = manifest.find(key) + key.size();
    manifest.replace(begin, manifest.find('"', begin) - begin, "0123456789ab-dirty-deadbeef");
    testing_support::write_bytes(path("out/" + run + "/manifest.json"), manifest);
  };
  rebuild(all_runs[0]);
  const std::string other = written(all_runs[0]);
  const auto dry = sweep({"--dry-run"});
  EXPECT_EQ(dry.exit_code, 2);
  EXPECT_NE(dry.out.find("small-fp32-seed1,small,fp32,1,complete by another build\n"), std::string::npos)
      << dry.out;
  expect_one_line_error(sweep({"--quiet"}), 2,
                        "1 of 4 runs were finished by another build (0123456789ab-dirty-deadbeef (");
  expect_one_line_error(fp16lab({"report", path("out")}), 2, "these runs were made by 2 builds");
  const auto compared = fp16lab({"compare", path("out/" + all_runs[0]), path("out/" + all_runs[1])});
  EXPECT_EQ(compared.exit_code, 0) << "to compare builds is what it may be for";
  EXPECT_NE(compared.out.find("the runs were made by different builds: A by 0123456789ab-dirty-deadbeef"),
            std::string::npos)
      << compared.out;
  const auto mixed = sweep({"--mix-builds"});
  EXPECT_EQ(mixed.exit_code, 0) << mixed.err;
  EXPECT_NE(mixed.err.find("first small-fp32-seed1"), std::string::npos) << mixed.err;
  EXPECT_NE(mixed.out.find("note: these runs were made by 2 builds"), std::string::npos) << mixed.out;
  EXPECT_EQ(written(all_runs[0]), other);
  // All runs are of one other build: nothing is mixed, but it is reported.
  for (const std::string& run : all_runs)
    if (run != all_runs[0]) rebuild(run);
  const auto all_other = sweep();
  EXPECT_EQ(all_other.exit_code, 0) << all_other.err;
  EXPECT_NE(all_other.err.find("4 of 4 runs were finished by another build"), std::string::npos)
      << all_other.err;
  EXPECT_EQ(sweep({"--force", "--quiet"}).exit_code, 0);
  for (const std::string& run : all_runs)
    EXPECT_EQ(written(run).find("deadbeef"), std::string::npos) << run << " was not made again";
}

TEST_F(Sweep, EveryRunIsCheckedBeforeTheFirstStarts) {
  write_config();
  const std::string workload = "[[workload]]\nname = \"small\"\nconfig = \"small.toml\"\nseeds = [1, 2]\n";
  const auto expect_error = [&](const std::string& setting, const std::string& part) {
    testing_support::write_bytes(
        folder_ / "bad.toml",
        workload + "[[variant]]\nname = \"good\"\n[[variant]]\nname = \"bad\"\nset = [" + setting + "]\n");
    for (const char* const last : {"--dry-run", "--quiet"}) {
      expect_one_line_error(fp16lab({"sweep", "-c", path("bad.toml"), "-o", path("out"), last}), 2, part);
      EXPECT_FALSE(std::filesystem::exists(path("out/small-good-seed1")));
    }
  };
  expect_error("\"model.layer.mlp1.widths=[11]\"", "small-bad-seed1: the network ends with (N, 11)");
  expect_error("\"train.batch_size=401\"", "small-bad-seed1: ");
  expect_error("\"amp.level=O1\", \"amp.excluded=FC1\"", "small-bad-seed1: amp.excluded = \"FC1\"");
  expect_error("\"amp.level=O7\"", "bad.toml:7: amp.level");
  expect_error("\"schedule.name=cosine\", \"schedule.warmup_steps=50\"",
               "small-bad-seed1: train.steps = 40: schedule.name = \"cosine\" needs more steps than "
               "schedule.warmup_steps = 50");
  expect_error("\"schedule.name=step\"", "small-bad-seed1: schedule.step_interval = 0: must be >= 1");
}

TEST_F(Sweep, MissingRunsAreListed) {
  write_sweep();
  std::filesystem::create_directories(path("out"));
  testing_support::write_bytes(path("out/small-fp32-seed2"), "in the way");
  const auto result = sweep();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.out.find("note: small-fp32-seed2 is missing"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("1 of 2"), std::string::npos) << result.out;
  EXPECT_EQ(column("out/summary.csv", "missing"), (std::vector<std::string>{"1", "0"}));
  EXPECT_EQ(column("out/summary.csv", "runs"), (std::vector<std::string>{"2", "2"}));
  const json rows_of = json::parse(read("out/summary.json")).at(0).at("configurations");
  EXPECT_EQ(rows_of.at(0).at("missing"), json::array({"small-fp32-seed2"}));
  EXPECT_EQ(rows_of.at(1).at("missing"), json::array());
  // The page finds the plan beside the runs.
  ASSERT_EQ(fp16lab({"report", path("out")}).exit_code, 0);
  EXPECT_NE(read("out/report.html").find("small-fp32-seed2 is missing"), std::string::npos);
  // A later sweep of other runs does not forget it; --force does.
  for (const char* const other : {"1", "3"}) {
    ASSERT_EQ(sweep({"--seed", other, "--quiet"}).exit_code, 0);
    ASSERT_EQ(fp16lab({"report", path("out")}).exit_code, 0);
    EXPECT_NE(read("out/report.html").find("small-fp32-seed2 is missing"), std::string::npos) << other;
  }
  ASSERT_EQ(sweep({"--seed", "1", "--quiet", "--force"}).exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(path("out/plan/small-fp32-seed2.toml")));
  EXPECT_TRUE(std::filesystem::exists(path("out/plan/small-fixed-2p3-seed2.toml"))) << "this run is there";
}

TEST_F(Sweep, DamagedRunsAreNotComplete) {
  const std::vector<std::string> seed{"--seed", "1", "--quiet"};
  ASSERT_EQ(sweep(seed).exit_code, 0);
  const std::string whole = read("out/small-fp32-seed1/steps.csv");
  const std::string other = written("small-fixed-2p3-seed1");
  const auto refuse = [&](const std::string& part) {
    expect_one_line_error(sweep(seed), 2, part);
    const auto dry = sweep({"--seed", "1", "--quiet", "--dry-run"});
    EXPECT_EQ(dry.exit_code, 2);
    EXPECT_NE(dry.out.find("small-fp32-seed1,small,fp32,1,damaged\n"), std::string::npos) << dry.out;
  };
  const std::string cut = whole.substr(0, whole.rfind("\n3") + 1);
  testing_support::write_bytes(path("out/small-fp32-seed1/steps.csv"), cut);
  refuse("1 of 2 runs were finished, but their records are damaged, first small-fp32-seed1: steps.csv has ");
  EXPECT_EQ(read("out/small-fp32-seed1/steps.csv"), cut);
  std::string digit = whole;  // of a loss
  const std::size_t point = digit.find("0.", digit.find("\n40,"));
  digit[point + 3] = digit[point + 3] == '1' ? '2' : '1';
  testing_support::write_bytes(path("out/small-fp32-seed1/steps.csv"), digit);
  refuse("small-fp32-seed1: steps.csv is not what the run wrote");
  const auto collected = sweep({"--seed", "1", "--collect"});
  EXPECT_EQ(collected.exit_code, 0);
  EXPECT_NE(collected.err.find("1 of 2 runs are complete; incomplete: small-fp32-seed1 (damaged)"),
            std::string::npos)
      << collected.err;
  EXPECT_NE(collected.out.find("small-fp32-seed1 is damaged: steps.csv is not what the run wrote (it has "
                               "another SHA-256); it is left out of the verdicts"),
            std::string::npos)
      << collected.out;
  testing_support::write_bytes(path("out/small-fp32-seed1/steps.csv"), whole);
  EXPECT_EQ(sweep(seed).exit_code, 0);
  std::filesystem::remove(path("out/small-fp32-seed1/histograms.jsonl"));
  refuse("small-fp32-seed1: histograms.jsonl is missing, with ");
  EXPECT_NE(
      fp16lab({"report", path("out")}).err.find("small-fp32-seed1 is damaged: histograms.jsonl is missing"),
      std::string::npos);
  EXPECT_EQ(fp16lab({"report", path("out"), "--quiet"}).err, "");
  // Only what is damaged is made again.
  EXPECT_EQ(sweep({"--seed", "1", "--quiet", "--force"}).exit_code, 0);
  EXPECT_EQ(column("out/small-fp32-seed1/steps.csv", "state_hash").size(), 40u);
  EXPECT_TRUE(std::filesystem::exists(path("out/small-fp32-seed1/histograms.jsonl")));
  EXPECT_EQ(written("small-fixed-2p3-seed1"), other);
}

TEST_F(Sweep, ParametersThatNoRunHasAreRefused) {
  const auto refused = [&](std::vector<std::string> more, const std::string& part) {
    more.insert(more.begin(), {"sweep", "-c", write_sweep().string(), "-o", path("out"), "--dry-run"});
    expect_one_line_error(fp16lab(more), 2, part);
  };
  refused({"--set", "scaler.hysteresis=2"},
          "--set: scaler.hysteresis=2: policy fixed has no parameter 'hysteresis'");
  // A setting for the whole sweep goes to the runs that have it.
  const auto taken = sweep({"--dry-run", "--policies", "megatron", "--set", "scaler.hysteresis=2"});
  EXPECT_EQ(taken.exit_code, 0) << taken.err;
  write_config();
  testing_support::write_bytes(folder_ / "bad.toml",
                               "[[workload]]\nname = \"small\"\nconfig = \"small.toml\"\n[[variant]]\nname = "
                               "\"a\"\nset = [\"scaler.policy=torch\", \"scaler.hysteresis=2\"]\n");
  expect_one_line_error(fp16lab({"sweep", "-c", path("bad.toml"), "--dry-run"}), 2,
                        "bad.toml:4: scaler.hysteresis=2: policy torch has no parameter 'hysteresis'");
  // --set may put another policy in the place of the variant's.
  EXPECT_EQ(sweep({"--dry-run", "--set", "scaler.policy=none"}).exit_code, 0);
}

TEST_F(Sweep, CarriesOnAfterARunAndAfterItselfWereKilled) {
  const std::filesystem::path config = write_sweep("400");
  const std::vector<std::string> arguments{"sweep",     "-c",      config.string(), "-o",
                                           path("out"), "--quiet", "--threads",     "1"};
  {
    testing_support::Spawned child(fp16lab_binary, arguments, folder_);
    ASSERT_TRUE(wait_for([&] { return rows("small-fp32-seed2") > 5; }));
    child.signal(SIGKILL);
    EXPECT_EQ(child.wait().exit_code, 128 + SIGKILL);
  }
  // The run it had begun is told to stop, and does; it is never taken for finished.
  ASSERT_TRUE(wait_for([&] {
    return written("small-fp32-seed2").find("\"stopped\"") != std::string::npos ||
           rows("small-fp32-seed2") == 401;
  }));
  const std::string first = written("small-fp32-seed1");
  EXPECT_NE(first.find("finished"), std::string::npos);
  const auto resumed = testing_support::run_program(fp16lab_binary, arguments, folder_);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(written("small-fp32-seed1"), first) << "a finished run is not repeated";
  for (const std::string& run : all_runs) EXPECT_EQ(rows(run), 401u) << run;
}

TEST_F(Sweep, ARunThatFailsTakesNoOtherWithIt) {
  write_sweep();
  // A file where a run's folder should be: this run cannot begin.
  std::filesystem::create_directories(path("out"));
  testing_support::write_bytes(path("out/small-fp32-seed2"), "in the way");
  const auto result = sweep();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("small-fp32-seed2 failed"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("1 of 4 runs failed"), std::string::npos) << result.err;
  EXPECT_EQ(rows("small-fixed-2p3-seed2"), 41u);
  std::filesystem::remove(path("out/small-fp32-seed2"));
  EXPECT_EQ(sweep().exit_code, 0);
}

TEST_F(Sweep, ARunThatBreaksMeanwhileTakesNoOtherWithIt) {
  // Two at a time: a long one, a short one, and after it one to be continued, whose manifest breaks
  // meanwhile.
  write_config("20");
  testing_support::write_bytes(folder_ / "sweep.toml",
                               "[[workload]]\nname = \"small\"\nconfig = \"small.toml\"\nseeds = [1]\n"
                               "[[variant]]\nname = \"long\"\nset = [\"train.steps=4000\"]\n"
                               "[[variant]]\nname = \"short\"\nset = [\"train.steps=2000\"]\n"
                               "[[variant]]\nname = \"broken\"\nset = [\"train.steps=21\"]\n");
  ASSERT_EQ(train("out/small-broken-seed1", {"--set", "train.steps=21"}).exit_code, 0);
  const std::string manifest = path("out/small-broken-seed1/manifest.json");
  std::string unfinished = testing_support::without_digests(testing_support::slurp(manifest));
  unfinished.replace(unfinished.find("\"finished\""), 10, "\"failed\"");
  testing_support::write_bytes(manifest, unfinished);
  testing_support::Spawned child(
      fp16lab_binary, {"sweep", "-c", path("sweep.toml"), "-o", path("out"), "--jobs", "2", "--threads", "2"},
      folder_);
  ASSERT_TRUE(wait_for([&] { return rows("small-long-seed1") > 5; }));
  testing_support::write_bytes(manifest, "{");
  const auto result = child.wait();
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_NE(result.err.find("small-broken-seed1: its manifest cannot be read"), std::string::npos)
      << result.err;
  EXPECT_NE(result.err.find("small-broken-seed1 failed (exit code 2); the other runs continue"),
            std::string::npos)
      << result.err;
  EXPECT_EQ(testing_support::slurp(manifest), "{");
  EXPECT_EQ(rows("small-long-seed1"), 4001u);
}

TEST_F(Sweep, CtrlCStopsTheRunAndTheSweep) {
  const std::filesystem::path config = write_sweep("1000000");
  testing_support::Spawned child(fp16lab_binary,
                                 {"sweep", "-c", config.string(), "-o", path("out"), "--quiet"}, folder_);
  ASSERT_TRUE(wait_for([&] { return rows("small-fp32-seed1") > 5; }));
  child.signal(SIGINT);
  EXPECT_EQ(child.wait().exit_code, 130);
  EXPECT_NE(written("small-fp32-seed1").find("stopped"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path("out/small-fp32-seed2")));
}

TEST_F(Sweep, BadSweepFilesAreUsageErrors) {
  write_config();
  const auto error_with = [&](const std::string& text, const std::string& part) {
    testing_support::write_bytes(folder_ / "bad.toml", text);
    expect_one_line_error(fp16lab({"sweep", "-c", path("bad.toml"), "-o", path("out")}), 2, part);
    EXPECT_FALSE(std::filesystem::exists(path("out")));
  };
  const std::string workload = "[[workload]]\nname = \"small\"\nconfig = \"small.toml\"\n";
  const std::string variant = "[[variant]]\nname = \"a\"\n";
  error_with(variant, "no [[workload]]");
  error_with(workload, "no [[variant]]");
  error_with(workload + "sede = [1]\n" + variant, "bad.toml:4: unknown key 'sede'");
  error_with(workload + "seeds = [-1]\n" + variant, "bad.toml:4: seeds");
  error_with(workload + variant + "set = [\"scaler.polcy=none\"]\n",
             "bad.toml:4: unknown key 'scaler.polcy'; did you mean 'scaler.policy'?");
  error_with(workload + variant + variant, "appears twice");
  error_with(workload + "[[variant]]\nname = \"../up\"\n", "letters, digits");
  error_with("[[workload]]\nname = \"x\"\nconfig = \"absent.toml\"\n" + variant, "absent.toml");
  error_with("[model]\nname = \"classifier\"\n",
             "this is the configuration of one run in FP32 (amp.level = \"O0\")");
  expect_one_line_error(fp16lab({"sweep"}), 2, "sweep needs a sweep file");
}

TEST_F(Sweep, DryRunOnlyPrintsThePlan) {
  const auto result = sweep({"--dry-run"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(
      result.out,
      "run,workload,variant,seed,state\nsmall-fp32-seed1,small,fp32,1,planned\nsmall-fp32-seed2,small,fp32,2,"
      "planned\n"
      "small-fixed-2p3-seed1,small,fixed-2p3,1,planned\nsmall-fixed-2p3-seed2,small,fixed-2p3,2,planned\n");
  EXPECT_FALSE(std::filesystem::exists(path("out")));
}

TEST_F(Sweep, AWorkloadMayTakePartInSomeVariantsOnly) {
  write_config();
  const auto plan_of = [&](const std::string& some) {
    testing_support::write_bytes(folder_ / "some.toml",
                                 "[[workload]]\nname = \"all\"\nconfig = \"small.toml\"\n"
                                 "[[workload]]\nname = \"some\"\nconfig = \"small.toml\"\n" +
                                     some +
                                     "[[variant]]\nname = \"first\"\n[[variant]]\nname = \"second\"\n"
                                     "[[variant]]\nname = \"third\"\n");
    return fp16lab({"sweep", "-c", path("some.toml"), "-o", path("out"), "--dry-run"});
  };
  // In the order of the [[variant]] tables, whatever the order of the names.
  const auto plan = plan_of("variants = [\"third\", \"first\"]\n");
  EXPECT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_EQ(plan.out,
            "run,workload,variant,seed,state\nall-first-seed1,all,first,1,planned\n"
            "all-second-seed1,all,second,1,planned\nall-third-seed1,all,third,1,planned\n"
            "some-first-seed1,some,first,1,planned\nsome-third-seed1,some,third,1,planned\n");
  expect_one_line_error(
      plan_of("variants = [\"first\", \"secnd\"]\n"), 2,
      "some.toml:4: variants: there is no [[variant]] with the name 'secnd'; did you mean 'second'?");
  expect_one_line_error(plan_of("variants = []\n"), 2, "some.toml:7: variants: expected at least one name");
  expect_one_line_error(plan_of("variants = \"first\"\n"), 2,
                        "some.toml:7: variants: expected a list of names");
  expect_one_line_error(plan_of("variants = [1]\n"), 2, "some.toml:7: variants: expected a list of names");
}

TEST_F(Sweep, RunsAtATimeShareTheThreadsAndChangeNoBit) {
  ASSERT_EQ(sweep().exit_code, 0);
  const auto two = fp16lab({"sweep", "-c", path("sweep.toml"), "-o", path("two"), "--jobs", "2"});
  ASSERT_EQ(two.exit_code, 0) << two.err;
  for (const std::string& run : all_runs)
    EXPECT_EQ(column("two/" + run + "/steps.csv", "state_hash"),
              column("out/" + run + "/steps.csv", "state_hash"))
        << run;
}

TEST_F(Sweep, CtrlCStopsEveryRunOfTheMoment) {
  const std::filesystem::path config = write_sweep("100000");
  testing_support::Spawned child(
      fp16lab_binary, {"sweep", "-c", config.string(), "-o", path("out"), "--jobs", "2", "--quiet"}, folder_);
  ASSERT_TRUE(wait_for([&] { return rows("small-fp32-seed1") > 5 && rows("small-fp32-seed2") > 5; }));
  child.signal(SIGINT);
  EXPECT_EQ(child.wait().exit_code, 130);
  for (const char* const run : {"small-fp32-seed1", "small-fp32-seed2"})
    EXPECT_NE(written(run).find("\"stopped\""), std::string::npos) << run;
}

TEST_F(Sweep, PoliciesAreAnAxisOfTheirOwn) {
  write_config("12");
  testing_support::write_bytes(folder_ / "axis.toml",
                               "[[workload]]\nname = \"small\"\nconfig = \"small.toml\"\nseeds = [1, 2]\n");
  const std::vector<std::string> base{"sweep", "-c", path("axis.toml"), "-o", path("out")};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return fp16lab(more);
  };
  const auto all = with({"--policies", "all", "--dry-run"});
  ASSERT_EQ(all.exit_code, 0) << all.err;
  const auto lines = std::count(all.out.begin(), all.out.end(), '\n');
  EXPECT_GE(lines, 1 + 2 * 4) << "a header, FP32 and every policy, two seeds each";
  EXPECT_NE(all.out.find("small-policy-torch-seed2,small,policy-torch,2,planned"), std::string::npos)
      << all.out;

  const auto ran = with({"--policies", "torch,none"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const json summary = json::parse(read("out/summary.json"));
  const json& rows_of = summary.at(0).at("configurations");
  ASSERT_EQ(rows_of.size(), 3u);
  for (const json& row : rows_of) {
    // Two seeds: the mean difference is that of the two pairs, in the accuracy's own sign, and no verdict.
    if (!row.contains("against_fp32")) continue;
    const json& judged = row.at("against_fp32");
    EXPECT_EQ(judged.at("pairs"), 2);
    EXPECT_EQ(judged.at("word"), "cannot tell");
    EXPECT_TRUE(judged.at("unadjusted_95_percent").is_null());
    const double reference = rows_of.at(0).at("mean"), mean = row.at("mean");
    // Sums of two doubles in another order: a few ulps of 100.
    EXPECT_NEAR(judged.at("difference").get<double>(), 100 * (mean - reference), 1e-12);
  }
  EXPECT_EQ(summary.at(0).at("difference_unit"), "points");
  EXPECT_TRUE(rows_of.at(1).contains("against_fp32"));
  EXPECT_FALSE(rows_of.at(0).contains("against_fp32")) << "the reference has no partner but itself";

  const auto unknown = with({"--policies", "tourch"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_NE(unknown.err.find("--policies: no policy 'tourch'; did you mean 'torch'?"), std::string::npos)
      << unknown.err;
}

TEST_F(Sweep, OfOneRunIsThatAgainstFp32WithThreeSeeds) {
  write_config("12");
  const auto planned = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"sweep", "-c", path("small.toml"), "-o", path("out"), "--dry-run"});
    const auto result = fp16lab(more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result;
  };
  const auto given = planned({});
  EXPECT_EQ(std::count(given.out.begin(), given.out.end(), '\n'), 1 + 2 * 3);
  EXPECT_NE(given.out.find("small-as-given-seed3,small,as-given,3,planned"), std::string::npos) << given.out;

  const auto policies = planned({"--policies", "torch,megatron", "--twin", "--set",
                                 "scaler.initial_scale=2^10", "--seed", "7", "--seeds", "2"});
  EXPECT_EQ(std::count(policies.out.begin(), policies.out.end(), '\n'), 1 + 4 * 2);
  for (const char* const run :
       {"small-fp32-seed7,", "small-fp32-twin-seed8,", "small-policy-megatron-seed8,"})
    EXPECT_NE(policies.out.find(run), std::string::npos) << run << policies.out;
  for (const char* const said : {"warning: small-policy-torch: torch first raises the loss scale after 2000 "
                                 "clean steps: in 12 steps it can only lower it",
                                 "all policies start at the given scaler.initial_scale, not at their own"})
    EXPECT_NE(policies.err.find(said), std::string::npos) << policies.err;
}

TEST_F(Sweep, ShippedSweepsAreValid) {
  const auto count = [&](const std::string& name) {
    const auto result =
        fp16lab({"sweep", "-c", FP16LAB_SOURCE_DIR "/experiments/configs/" + name + ".toml", "--dry-run"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return std::count(result.out.begin(), result.out.end(), '\n') - 1;
  };
  EXPECT_EQ(count("demo"), 4 * (6 + 3));
  EXPECT_EQ(count("full"), 7 * (6 + 3));
  EXPECT_EQ(count("tutorials"), 11 + 6 + 3 + 6 + 2 + 9 + 5 * 2);
}

}  // namespace
}  // namespace fp16lab::experiments
