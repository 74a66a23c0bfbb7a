// A plan's runs under the plan's own names, from synthetic run folders.
#include "experiments/judged_sweep.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "numerics/files/atomic_file.hpp"
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
    reports::SyntheticRun run{.seed = seed, .level = "O0", .final_loss = 0.25 * luck, .steps = 20, .skips = {}};
    plan_run("deep", "fp32", run);
    run.extra_config = "\n[train.extra]\nlayers = 3\n";  // another workload, were it not for the plan
    run.final_loss = 0.26 * luck * luck;
    run.level = "O1";
    run.skips = {3};
    plan_run("deep", "odd", run);
    plan_run("deep", "same", {.seed = seed, .level = "O1", .final_loss = 0.25 * luck, .steps = 20}, seed != 3);
  }
  const JudgedSweep sweep(plan_);
  ASSERT_EQ(sweep.workloads().size(), 1u);
  EXPECT_EQ(sweep.workload("deep").metric.name, "test loss");
  EXPECT_TRUE(sweep.row("deep", "fp32").is_reference);
  const reports::SummaryRow& odd = sweep.row("deep", "odd");
  ASSERT_TRUE(odd.against_reference.has_value());
  EXPECT_EQ(odd.against_reference->word, analysis::Word::worse);
  EXPECT_EQ(odd.skipped, 3u);
  EXPECT_TRUE(sweep.is_complete("deep", "odd"));
  EXPECT_FALSE(sweep.is_complete("deep", "same")) << "seed 3 is missing";
  EXPECT_EQ(sweep.row("deep", "same").against_reference->pairs, 2);
  ASSERT_EQ(sweep.runs_of("deep", "same").size(), 3u);
  EXPECT_TRUE(sweep.runs_of("deep", "same")[2]->missing);
  EXPECT_THAT(sweep.table(), HasSubstr("deep-same-seed3 is missing"));
  EXPECT_THAT(testing_support::message_of([&] { sweep.row("deep", "off"); }), HasSubstr("no variant 'off'"));
  EXPECT_THAT(testing_support::message_of([&] { sweep.workload("flat"); }), HasSubstr("no workload 'flat'"));
}

TEST_F(JudgedSweepTest, OfNoRunAtAllSaysSo) {
  plan_run("deep", "fp32", {.level = "O0", .steps = 20}, false);
  EXPECT_THAT(testing_support::message_of([&] { JudgedSweep{plan_}; }), HasSubstr("none of its 1 runs is there"));
}

}  // namespace
}  // namespace fp16lab::experiments
