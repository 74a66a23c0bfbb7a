// Twins and margins through the real binaries: sweep --twin, which runs a sweep knows again, and --jobs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/experiments/app/small_runs.hpp"

namespace fp16lab::experiments {
namespace {

using ::testing::HasSubstr;

class Twin : public SmallRuns {
 protected:
  /// A sweep of one workload, whose seeds are 1 and 2.
  void write_sweep(const std::string& variants, const std::string& workload = "") {
    write_config("12");
    testing_support::write_bytes(
        folder_ / "sweep.toml",
        "[[workload]]\nname = \"small\"\nconfig = \"small.toml\"\nseeds = [1, 2]\n" + workload + variants);
  }
  static std::string variant(const std::string& name, const std::string& settings) {
    return "[[variant]]\nname = \"" + name + "\"\nset = [" + settings + "]\n";
  }
  testing_support::Finished sweep(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"sweep", "-c", path("sweep.toml"), "-o", path("out")});
    return fp16lab(more);
  }
  /// The names of the planned runs with their states.
  std::string plan(std::vector<std::string> more = {}) const {
    more.emplace_back("--dry-run");
    const auto result = sweep(more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  }
  std::string hash(const std::string& run) const {
    return column("out/" + run + "/steps.csv", "state_hash").back();
  }
};

const std::string fp32 = "\"amp.level=O0\"", fp16 = "\"amp.level=O1\"";
const std::string header = "run,workload,variant,seed,state\n";

TEST_F(Twin, AccompaniesEveryFP32RunAndNoOther) {
  write_sweep(variant("half", fp16) + variant("full", fp32) +
              variant("scaled", fp32 + ", \"scaler.policy=fixed\"") +
              variant("dense", fp32 + ", \"amp.to_float=[\\\"fc1=f16\\\"]\"") +
              variant("slow", fp32 + ", \"optimizer.lr=0.001\""));
  EXPECT_EQ(plan({"--twin", "--seed", "2"}),
            header +
                "small-half-seed2,small,half,2,planned\nsmall-full-seed2,small,full,2,planned\n"
                "small-full-twin-seed2,small,full-twin,2,planned\n"
                "small-scaled-seed2,small,scaled,2,planned\nsmall-dense-seed2,small,dense,2,planned\n"
                "small-slow-seed2,small,slow,2,planned\nsmall-slow-twin-seed2,small,slow-twin,2,planned\n");
  EXPECT_THAT(plan(), ::testing::Not(HasSubstr("twin"))) << "not requested";
  EXPECT_THAT(plan({"--twin", "--policies", "torch"}),
              HasSubstr("\nsmall-fp32-twin-seed1,small,fp32-twin,1,planned\n"))
      << "the reference that --policies adds has one, too";
}

TEST_F(Twin, OfASweepIsTheRunOfItsConfigurationOneUlpOff) {
  write_sweep(variant("fp32", fp32 + ", \"train.evaluate_every=6\""));
  const auto ran = sweep({"--twin", "--threads", "1"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  for (const char* seed : {"1", "2"}) {
    const std::string run = std::string("small-fp32-seed") + seed,
                      twin = std::string("small-fp32-twin-seed") + seed;
    EXPECT_NE(hash(run), hash(twin));
    EXPECT_EQ(column("out/" + twin + "/evaluations.csv", "step"),
              column("out/" + run + "/evaluations.csv", "step"));
    EXPECT_EQ(read("out/" + twin + "/histograms.jsonl"), "") << "twins have no observer";
    EXPECT_NE(read("out/" + run + "/histograms.jsonl"), "");
    const auto alone = train("alone", {"--seed", seed, "--set", "amp.level=O0", "--set",
                                       "train.perturb_ulps=1", "--set", "train.steps=12", "--force"});
    ASSERT_EQ(alone.exit_code, 0) << alone.err;
    EXPECT_EQ(column("alone/steps.csv", "state_hash").back(), hash(twin));
  }
  EXPECT_THAT(read("out/plan/small-fp32-twin-seed1.toml"), HasSubstr("\nperturb_ulps = 1\n"));
  EXPECT_THAT(read("out/plan/small-fp32-seed1.toml"), HasSubstr("\nperturb_ulps = 0\n"));
  write_config("12");
  // The same command finds all of it, and without --twin half.
  EXPECT_THAT(sweep({"--twin"}).err, HasSubstr("4 of 4 runs are already complete"));
  EXPECT_THAT(sweep().err, HasSubstr("2 of 2 runs are already complete"));
}

TEST_F(Twin, ThatTheFileHasAlreadyIsNotMadeTwice) {
  const std::string one_ulp = ", \"train.perturb_ulps=1\"";
  write_sweep(variant("fp32", fp32) + variant("fp32-twin", fp32 + one_ulp));
  EXPECT_EQ(plan({"--twin", "--seed", "1"}), header +
                                                 "small-fp32-seed1,small,fp32,1,planned\n"
                                                 "small-fp32-twin-seed1,small,fp32-twin,1,planned\n");
  // A run that is perturbed already is a twin; there must be one that is not.
  write_sweep(variant("moved", fp32 + one_ulp));
  expect_one_line_error(sweep({"--twin", "--dry-run"}), 2,
                        "train.perturb_ulps moves the weights of every FP32 run");
  write_sweep(variant("fp32", fp32));
  expect_one_line_error(sweep({"--twin", "--dry-run", "--set", "train.perturb_ulps=1"}), 2, "leave it at 0");
  // Something else under the twin's name would silently take its place.
  write_sweep(variant("fp32", fp32) + variant("fp32-twin", fp16));
  expect_one_line_error(sweep({"--twin", "--dry-run"}), 2,
                        "the run small-fp32-twin-seed1 of this sweep has the name of a twin but is not one");
}

TEST_F(Twin, NeedsARunInFP32) {
  write_sweep(variant("half", fp16) + variant("scaled", fp32 + ", \"scaler.policy=fixed\""));
  expect_one_line_error(sweep({"--twin", "--quiet"}), 2, "--twin: no run of this sweep is in FP32");
  EXPECT_FALSE(std::filesystem::exists(path("out")));
}

/// A sweep that was carried out finds its own runs, whatever the file and --set say and in whatever way.
TEST_F(Twin, ASweepThatNamesATestSubsetRecognisesItsOwnRuns) {
  write_sweep(variant("fp32", fp32), "set = [\"data.test_subset=50\", \"train.evaluate_every=6\"]\n");
  ASSERT_EQ(sweep({"--seed", "1"}).exit_code, 0);
  EXPECT_THAT(plan({"--seed", "1"}), HasSubstr(",1,complete\n"));
  EXPECT_THAT(plan({"--seed", "1", "--set", "data.test_subset=50"}), HasSubstr(",1,complete\n"));
  expect_one_line_error(sweep({"--seed", "1", "--quiet", "--set", "data.test_subset=60"}), 2,
                        "data.test_subset is 50 there and 60 here");
}

/// Margins are fixed before a run and kept with it: to move one afterwards is to say something else.
TEST_F(Twin, RunsOfAnotherMarginAreAnotherConfiguration) {
  write_sweep(variant("fp32", fp32), "set = [\"report.margin.loss=2\"]\n");
  ASSERT_EQ(sweep({"--seed", "1"}).exit_code, 0);
  EXPECT_THAT(read("out/small-fp32-seed1/config.toml"),
              HasSubstr("[report.margin]\nloss = 2.0\naccuracy = 0.5\n"));
  EXPECT_THAT(plan({"--seed", "1"}), HasSubstr(",1,complete\n"));
  expect_one_line_error(sweep({"--seed", "1", "--quiet", "--set", "report.margin.loss=4"}), 2,
                        "report.margin.loss is 2.0 there and 4.0 here");
  const auto dry = sweep({"--seed", "1", "--dry-run", "--set", "report.margin.accuracy=4"});
  EXPECT_EQ(dry.exit_code, 2);
  EXPECT_THAT(dry.out, HasSubstr(",1,another configuration\n"));
}

TEST_F(Twin, EveryExperimentThatSweepsTakesJobs) {
  for (const char* name : {"exp_underflow", "exp_paper_miniature", "exp_policy_league"}) {
    EXPECT_THAT(run_inside(name, {"--help"}).out, HasSubstr("--jobs N")) << name;
    const auto refused = run_inside(name, {"--jobs", "0"});
    EXPECT_EQ(refused.exit_code, 2) << name;
    EXPECT_THAT(refused.err, HasSubstr("--jobs")) << name;
  }
  EXPECT_EQ(run_inside("exp_rounding_edges", {"--jobs", "2"}).exit_code, 2) << "it trains nothing";
  // Two at a time do not change what is found.
  write_config();
  testing_support::write_bytes(folder_ / "regression.toml",
                               "[model]\nname = \"autoencoder\"\nloss = \"mse\"\nlayer = [{ type = "
                               "\"flatten\" }, { type = \"mlp\", widths = [8, 784] }]\n[data]\npath = \"" +
                                   path("data") + "\"\n[train]\nbatch_size = 20\nsteps = 4\n");
  const auto run = [&](const std::string& out, const std::string& jobs) {
    return run_inside("exp_underflow",
                      {"-c", "regression.toml", "-o", out, "--quiet", "--threads", "1", "--jobs", jobs});
  };
  const auto one = run("one", "1"), two = run("two", "2");
  EXPECT_EQ(two.exit_code, one.exit_code) << two.err;
  // The table above the rates has the seconds of a step.
  const auto found = [](const std::string& out) {
    return out.substr(std::min(out.size(), out.find("\nof the ")));
  };
  EXPECT_THAT(one.out, HasSubstr("claim 2: "));
  EXPECT_EQ(found(two.out), found(one.out));
  EXPECT_THAT(found(one.out), HasSubstr("claim 1: "));
}

}  // namespace
}  // namespace fp16lab::experiments
