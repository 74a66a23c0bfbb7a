// fp16lab replay through the real program, on runs that it really trained.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "numerics/files/run/replay_file.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/histogram/zones.hpp"
#include "tests/experiments/app/small_runs.hpp"

namespace fp16lab::experiments {
namespace {

using testing::HasSubstr;

class ReplayCommandLine : public SmallRuns {
 protected:
  void train_run(const std::string& out, std::vector<std::string> set, int exit_code = 0) {
    std::vector<std::string> more{"--quiet", "--threads", "1", "--set", "observe.histograms_every=1"};
    for (std::string& setting : set) {
      more.emplace_back("--set");
      more.push_back(std::move(setting));
    }
    const testing_support::Finished run = train(out, more);
    ASSERT_EQ(run.exit_code, exit_code) << run.err;
  }
  ReplayFile replayed(const std::string& run, std::vector<std::string> more) {
    std::vector<std::string> arguments{"replay", path(run), "--json", "--quiet"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const testing_support::Finished result = fp16lab(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return parse_replay(result.out);
  }
  static const ReplayedPolicy& row(const ReplayFile& replay, const std::string& name) {
    for (const ReplayedPolicy& policy : replay.policies)
      if (policy.name == name) return policy;
    throw std::runtime_error("no row " + name);
  }
};

// At the recorded scale the run's own found_inf answers, so a policy replayed on its own run meets the scales
// that it had, skips included: the whole trace, not only up to the first skip.
TEST_F(ReplayCommandLine, APolicyOnItsOwnRunDoesWhatItDid) {
  train_run("own", {"scaler.policy=torch", "scaler.initial_scale=2^24", "scaler.growth_interval=3"});
  const ReplayFile replay = replayed(
      "own", {"--policy", "torch", "--set", "torch.initial_scale=2^24", "--set", "torch.growth_interval=3"});
  const ReplayedPolicy& torch = row(replay, "torch");
  EXPECT_TRUE(torch.exact);
  const RunFolder run = read_run_folder(path("own"));
  std::vector<std::uint64_t> skipped;
  std::size_t entry = 0;
  for (const StepRow& step : run.steps) {
    while (entry + 1 < torch.steps.size() && torch.steps[entry + 1] <= step.step) ++entry;
    EXPECT_EQ(torch.log2_scale_lower[entry], std::log2(step.loss_scale)) << step.step;
    EXPECT_EQ(torch.log2_scale_upper[entry], std::log2(step.loss_scale)) << step.step;
    if (step.skipped) skipped.push_back(step.step);
  }
  EXPECT_EQ(torch.skipped_lower, skipped);
  EXPECT_EQ(torch.skipped_upper, skipped);
  EXPECT_GE(skipped.size(), 6u) << "2^24 is far too high for this network";
  EXPECT_GT(run.steps.back().loss_scale, 1.0);

  // So says the command itself, from the run's own configuration.
  const std::string good = read("own/steps.csv");
  const auto claim = [&] {
    const testing_support::Finished result =
        fp16lab({"replay", path("own"), "--policy", "fixed,none", "--quiet"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  EXPECT_THAT(claim(),
              HasSubstr("measured: policy torch: the scales and skips of all 40 steps\n  verdict: HOLDS\n"));
  const StepRow& taken = run.steps.back();
  ASSERT_FALSE(taken.skipped);
  const std::size_t last = good.rfind('\n', good.size() - 2) + 1;
  const std::string scale = fmt::format(",{},", taken.loss_scale);
  ASSERT_NE(good.find(scale, last), std::string::npos) << good.substr(last);
  std::string other = good;
  testing_support::write_bytes(path("own/steps.csv"),
                               other.replace(good.find(scale, last), scale.size(), ",3,"));
  EXPECT_THAT(claim(), HasSubstr("measured: policy torch: step 40 has the scale 2^1.58496, replayed 2^"));
  EXPECT_THAT(claim(), HasSubstr("verdict: FAILS\n"));
}

// Paddle's linear layer rounds the gradient of its product on the way to the layer's own gradients: a row of
// its own, which the policy did not count.
TEST_F(ReplayCommandLine, APolicyOfStatisticsGetsWhatItGotInTheRun) {
  // One row a batch: no sum is greater than the gradient that comes from the loss, which only that row
  // counts.
  train_run("own", {"train.batch_size=1", "amp.dialect=paddle", "scaler.policy=popart",
                    "scaler.initial_scale=16", "scaler.threshold_upper_count_proportion=0"});
  const ReplayFile replay = replayed("own", {"--policy", "popart", "--set", "popart.initial_scale=16",
                                             "--set", "popart.threshold_upper_count_proportion=0"});
  const ReplayedPolicy& popart = row(replay, "popart");
  const RunFolder run = read_run_folder(path("own"));
  std::size_t entry = 0, changes = 0;
  for (const StepRow& step : run.steps) {
    while (entry + 1 < popart.steps.size() && popart.steps[entry + 1] <= step.step) ++entry;
    EXPECT_EQ(popart.log2_scale_lower[entry], std::log2(step.loss_scale)) << step.step;
    EXPECT_EQ(popart.log2_scale_upper[entry], std::log2(step.loss_scale)) << step.step;
    changes += step.loss_scale != run.steps.front().loss_scale ? 1 : 0;
  }
  EXPECT_GT(changes, 0u);
}

// One linear layer, one step: nothing is rounded between the loss's gradient, which FP16 holds at all of
// these scales with all its bits, and the weights' gradient; and the forward pass does not know the scale. So
// a replay at S is what training at S really loses. Counted is what the run stored: zeros that were none
// before the cast.
TEST_F(ReplayCommandLine, ARunRecordedAtOneScaleTellsWhatItWouldLoseAtAnother) {
  struct Case {
    std::string scale;
    int seed;
  };
  std::vector<Case> cases{{"1", 1}, {"2^14", 1}, {"2^22", 1}};
  // At 2^-6 about one gradient in 100,000 is lost: several seeds, so that there are some.
  for (int seed = 1; seed <= 8; ++seed) cases.push_back({"2^-6", seed});
  const auto train_at = [&](const std::string& out, const std::string& scale, int seed) {
    train_run(out,
              {"model.layer.mlp1.widths=[10]", "train.steps=1", "train.evaluate_every=0",
               "scaler.policy=fixed", "scaler.initial_scale=" + scale, "train.seed=" + std::to_string(seed)},
              scale == "2^22" ? 4 : 0);  // there the one step is skipped
  };
  std::uint64_t all_lost = 0, skips = 0;
  for (const Case& test : cases) {
    SCOPED_TRACE(testing::Message() << test.scale << " seed " << test.seed);
    const std::string recorded = "recorded" + std::to_string(test.seed);
    if (!std::filesystem::exists(folder_ / recorded)) train_at(recorded, "2^6", test.seed);
    const std::string name = "real" + std::to_string(&test - cases.data());
    train_at(name, test.scale, test.seed);
    const bool skipped = read_run_folder(path(name)).steps.front().found_inf;
    const ReplayFile replay =
        replayed(recorded, {"--policy", "fixed", "--set", "fixed.initial_scale=" + test.scale});
    const ReplayedPolicy& fixed = row(replay, "fixed");
    EXPECT_EQ(fixed.skips, (ReplayInterval{skipped ? 1.0 : 0.0, skipped ? 1.0 : 0.0}));
    if (skipped) {
      ++skips;
      continue;
    }
    std::uint64_t lost = 0, values = 0;
    for_each_histogram(path(name), [&](const HistogramRow& seen) {
      lost += seen.after.zero - seen.before.zero;
      values += seen.before.finite_nonzero();
    });
    const double share = static_cast<double>(lost) / static_cast<double>(values);
    EXPECT_EQ(fixed.lost_count, (ReplayInterval{share, share}));
    all_lost += lost;
  }
  EXPECT_GE(all_lost, 1u);
  EXPECT_EQ(skips, 1u) << "2^22";
}

TEST_F(ReplayCommandLine, WritesTableFilesAndFigure) {
  train_run("fp32", {"amp.level=O0"});
  const testing_support::Finished result =
      fp16lab({"replay", path("fp32"), "--interval", "4", "-o", path("replay")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("policy"));
  EXPECT_THAT(result.out, HasSubstr("\ntorch "));
  EXPECT_THAT(result.out, HasSubstr("\noracle (fixed 2^"));
  EXPECT_THAT(result.out, HasSubstr("measured: the run rounded no gradient\n  verdict: NOT RUN\n"));
  EXPECT_THAT(read("replay/claims.json"), HasSubstr("NOT RUN"));
  EXPECT_THAT(result.err, HasSubstr("growth intervals above 4 are 4"));
  EXPECT_THAT(result.err, HasSubstr("the run rounded no gradient: each is judged as if FP16 held it"));
  const ReplayFile replay = read_replay(path("replay"));
  EXPECT_EQ(replay.total_steps, 40u);
  EXPECT_EQ(replay.observed_steps, 40u);
  EXPECT_EQ(replay.band.steps.size(), 40u);
  for (const char* const name : {"replay.csv", "replay_traces.csv", "replay.figure.json"})
    EXPECT_TRUE(std::filesystem::exists(folder_ / "replay" / name)) << name;
  EXPECT_GT(std::filesystem::file_size(folder_ / "replay" / "replay.png"), 20000u) << result.err;
  EXPECT_THAT(read("replay/replay.svg"), HasSubstr("<svg"));
}

}  // namespace
}  // namespace fp16lab::experiments
