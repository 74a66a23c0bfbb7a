// A plan's runs under the plan's own names, from synthetic run folders.
#include "experiments/study/judged_sweep.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "experiments/app/sweep/summary_output.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "tests/experiments/app/small_runs.hpp"
#include "tests/reports/synthetic_runs.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::experiments {
namespace {

using ::testing::HasSubstr;

class JudgedSweepTest : public SmallRuns {
 protected:
  void plan_run(const std::string& workload, const std::string& variant, const reports::SyntheticRun& run,
                bool made = true) {
    PlannedRun planned{.name = workload + "-" + variant + "-seed" + std::to_string(run.seed),
                       .workload = workload,
                       .variant = variant,
                       .config = {},
                       .folder = {}};
    planned.folder = folder_ / planned.name;
    const std::filesystem::path written = reports::write_synthetic_run(folder_ / "written", run);
    std::filesystem::create_directories(folder_ / sweep_plan);
    write_file_atomically(folder_ / sweep_plan / (planned.name + ".toml"), read_manifest(written).config);
    if (made) std::filesystem::rename(written, planned.folder);
    plan_.runs.push_back(planned);
  }

  SweepPlan plan_{.folder = folder_, .runs = {}};
};

TEST_F(JudgedSweepTest, FindsRowsByThePlansNamesWhateverTheirConfigurationsAreCalled) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const double luck = 1 + 0.001 * static_cast<double>(seed);
    reports::SyntheticRun run{
        .seed = seed, .level = "O0", .final_loss = 0.25 * luck, .steps = 20, .skips = {}};
    plan_run("deep", "fp32", run);
    run.extra_config = "\n[train.extra]\nlayers = 3\n";  // another workload, but for the plan
    run.final_loss = 0.26 * luck * luck;
    run.level = "O1";
    run.skips = {3};
    plan_run("deep", "odd", run);
    plan_run("deep", "same", {.seed = seed, .level = "O1", .final_loss = 0.25 * luck, .steps = 20},
             seed != 3);
  }
  const JudgedSweep sweep(plan_);
  ASSERT_EQ(sweep.workloads().size(), 1u);
  EXPECT_EQ(sweep.row("deep", "fp32").metric.name, "test loss");
  EXPECT_TRUE(sweep.row("deep", "fp32").row.is_reference);
  const reports::SummaryRow odd = sweep.row("deep", "odd").row;
  ASSERT_TRUE(odd.against_reference.has_value());
  EXPECT_EQ(odd.against_reference->word, analysis::Word::worse);
  EXPECT_EQ(odd.skipped, 3u);
  EXPECT_EQ(sweep.row("deep", "same").row.against_reference->pairs, 2);
  ASSERT_EQ(sweep.runs_of("deep", "same").size(), 3u);
  EXPECT_TRUE(sweep.runs_of("deep", "same")[2]->missing);
  EXPECT_THAT(sweep.table(), HasSubstr("deep-same-seed3 is missing"));
  EXPECT_THAT(testing_support::message_of([&] { sweep.row("deep", "off"); }), HasSubstr("no variant 'off'"));
  EXPECT_THAT(testing_support::message_of([&] { sweep.row("flat", "fp32"); }),
              HasSubstr("no workload 'flat'"));
}

TEST_F(JudgedSweepTest, SummariesSayTheUnitOfTheirDifferencesAndKeepTheMetricsSign) {
  for (const std::uint64_t seed : {1, 2, 3, 4}) {
    const auto add = [&](const std::string& variant, reports::SyntheticRun run, double loss,
                         double accuracy) {
      run.seed = seed;
      run.steps = 20;
      run.final_loss = loss * (1 + 0.001 * static_cast<double>(seed));
      plan_run("of-loss", variant, run);
      run.model = "classifier";
      run.final_accuracy = accuracy + 0.002 * static_cast<double>(seed);
      plan_run("of-accuracy", variant, run);
    };
    const double jitter = 1e-4 * static_cast<double>(seed % 2);
    add("fp32", {.level = "O0"}, 0.25, 0.75);
    add("fp32-twin", {.level = "O0", .perturb_ulps = 1}, 0.25 + jitter, 0.75 + jitter);
    add("bad", {.policy = "none"}, 0.5 + jitter, 0.5 + 2 * jitter);
    add("good", {.policy = "dynamic"}, 0.2 + jitter, 0.8 + jitter);
  }
  const JudgedSweep sweep(plan_);
  testing_support::write_bytes(folder_ / "summary.csv", summary_csv(sweep.workloads()));
  ASSERT_EQ(column("summary.csv", "word").size(), 8u);
  const auto at = [&](std::size_t row, const std::string& name) {
    return column("summary.csv", name).at(row);
  };
  for (std::size_t w = 0; w < 2; ++w) {
    const std::size_t reference = 4 * w, twin = reference + 1, bad = reference + 2, good = reference + 3;
    EXPECT_EQ(at(bad, "unit"), w == 0 ? "%" : "points");
    EXPECT_EQ(at(bad, "margin"), w == 0 ? "1" : "0.5");
    EXPECT_EQ(at(bad, "word"), "worse");
    EXPECT_EQ(at(bad, "twin_word"), "worse");
    EXPECT_EQ(at(bad, "worse_than_noise"), "true");
    EXPECT_NEAR(std::stod(at(bad, "difference")), w == 0 ? 100 : -25, 0.05);
    EXPECT_LT(std::stod(at(bad, "adjusted_lower")), std::stod(at(bad, "difference")));
    EXPECT_EQ(std::stod(at(bad, "lower")) > 0, w == 0);
    EXPECT_EQ(std::stod(at(bad, "upper")) < 0, w == 1);
    EXPECT_EQ(at(bad, "pairs"), "4");
    EXPECT_EQ(at(good, "word"), "better");
    EXPECT_EQ(std::stod(at(good, "difference")) < 0, w == 0);
    EXPECT_EQ(at(good, "worse_than_noise"), "false");
    EXPECT_EQ(at(twin, "word"), "equal");
    EXPECT_EQ(at(twin, "twin_word"), "");
    EXPECT_EQ(at(reference, "word"), "");
    EXPECT_EQ(at(reference, "difference"), "");
  }
}

TEST_F(JudgedSweepTest, OfNoRunAtAllSaysSo) {
  plan_run("deep", "fp32", {.level = "O0", .steps = 20}, false);
  EXPECT_THAT(testing_support::message_of([&] { JudgedSweep{plan_}; }),
              HasSubstr("none of its 1 runs is there"));
}

}  // namespace
}  // namespace fp16lab::experiments
