// A plan's runs under the plan's own names, from synthetic run folders.
#include "experiments/study/judged_sweep.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <stdexcept>

#include "experiments/app/sweep/summary_output.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "tests/reports/synthetic_runs.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::experiments {
namespace {

using ::testing::HasSubstr;

class JudgedSweepTest : public testing::Test {
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

  testing_support::TemporaryFolder temporary_;
  const std::filesystem::path& folder_ = temporary_.path();
  SweepPlan plan_{.folder = folder_, .runs = {}};
};

TEST_F(JudgedSweepTest, FindsRowsByThePlansNamesWhateverTheirConfigurationsAreCalled) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    const double luck = 1 + 0.001 * static_cast<double>(seed);
    reports::SyntheticRun run{
        .seed = seed, .level = "O0", .final_loss = 0.25 * luck, .steps = 20, .skips = {}};
    plan_run("deep", "fp32", run);
    run.extra_config = "\n[train.extra]\nlayers = 3\n";  // another workload, were it not for the plan
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

/// Rows of a CSV whose cells hold no commas; by the names of its columns.
std::vector<std::map<std::string, std::string>> rows_of(const std::string& csv) {
  const auto cells_of = [](const std::string& line) {
    std::vector<std::string> cells(1);
    for (const char c : line) {
      if (c == ',')
        cells.emplace_back();
      else
        cells.back() += c;
    }
    return cells;
  };
  std::istringstream lines(csv);
  std::string line;
  std::getline(lines, line);
  const std::vector<std::string> names = cells_of(line);
  std::vector<std::map<std::string, std::string>> rows;
  while (std::getline(lines, line)) {
    const std::vector<std::string> cells = cells_of(line);
    EXPECT_EQ(cells.size(), names.size()) << line;
    for (std::size_t i = 0; i < names.size(); ++i)
      (i == 0 ? rows.emplace_back() : rows.back())[names[i]] = cells.at(i);
  }
  return rows;
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
  const auto rows = rows_of(summary_csv(sweep.workloads()));
  ASSERT_EQ(rows.size(), 8u);
  for (std::size_t w = 0; w < 2; ++w) {
    const auto &reference = rows[4 * w], &twin = rows[4 * w + 1], &bad = rows[4 * w + 2],
               &good = rows[4 * w + 3];
    EXPECT_EQ(bad.at("unit"), w == 0 ? "%" : "points");
    EXPECT_EQ(bad.at("margin"), w == 0 ? "1" : "0.5");
    EXPECT_EQ(bad.at("word"), "worse");
    EXPECT_EQ(bad.at("twin_word"), "worse");
    EXPECT_EQ(bad.at("worse_than_noise"), "true");
    EXPECT_NEAR(std::stod(bad.at("difference")), w == 0 ? 100 : -25, 0.05);
    EXPECT_LT(std::stod(bad.at("adjusted_lower")), std::stod(bad.at("difference")));
    EXPECT_EQ(std::stod(bad.at("lower")) > 0, w == 0);
    EXPECT_EQ(std::stod(bad.at("upper")) < 0, w == 1);
    EXPECT_EQ(bad.at("pairs"), "4");
    EXPECT_EQ(good.at("word"), "better");
    EXPECT_EQ(std::stod(good.at("difference")) < 0, w == 0);
    EXPECT_EQ(good.at("worse_than_noise"), "false");
    EXPECT_EQ(twin.at("word"), "equal");
    EXPECT_EQ(twin.at("twin_word"), "");
    EXPECT_EQ(reference.at("word"), "");
    EXPECT_EQ(reference.at("difference"), "");
  }
}

TEST_F(JudgedSweepTest, OfNoRunAtAllSaysSo) {
  plan_run("deep", "fp32", {.level = "O0", .steps = 20}, false);
  EXPECT_THAT(testing_support::message_of([&] { JudgedSweep{plan_}; }),
              HasSubstr("none of its 1 runs is there"));
}

}  // namespace
}  // namespace fp16lab::experiments
