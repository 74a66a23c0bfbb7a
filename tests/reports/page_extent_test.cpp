// reports/: how much of very many runs a page shows, and its note on the rest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "numerics/files/disk/read_file.hpp"
#include "reports/page/page_extent.hpp"
#include "reports/page/report.hpp"
#include "tests/reports/report_fixture.hpp"

namespace fp16lab::reports {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class PageExtents : public Reports {
 protected:
  void write(const std::string& model, const std::string& policy, double scale, double loss,
             std::uint64_t seed = 1) {
    folders.push_back(write_synthetic_run(folder / "runs", {.model = model,
                                                            .seed = seed,
                                                            .level = policy == "fp32" ? "O0" : "O1",
                                                            .policy = policy == "fp32" ? "none" : policy,
                                                            .initial_scale = scale,
                                                            .final_loss = loss,
                                                            .steps = 1,
                                                            .histograms_every = 0}));
  }
  /// A run that is planned and not there: a configuration alone.
  void plan(const std::string& model, const std::string& name, const std::string& more) {
    std::filesystem::create_directories(folder / "runs" / "plan");
    missing.push_back(folder / "runs" / "plan" / (model + "-" + name + ".toml"));
    std::ofstream(missing.back()) << "[model]\nname = \"" << model << "\"\n[data]\nname = \"fashion-mnist\"\n"
                                  << more;
  }
  std::vector<std::filesystem::path> folders, missing;
};

TEST_F(PageExtents, ShowsAllOfAFewAndSaysWhatItAggregates) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    write("a", "fp32", 1, 0.5, seed);
    if (seed < 3) write("a", "none", 1, 0.5, seed);
  }
  const RunSet set = load_runs(folders);
  const PageExtent extent = extent_of(set, summarise(set));
  ASSERT_EQ(extent.workloads.size(), 1u);
  EXPECT_EQ(extent.workloads.front().configurations.size(), 2u);
  const std::string words = extent_words(set, extent);
  EXPECT_THAT(words, AllOf(HasSubstr("5 runs as 2 configurations of 1 workload. A row of a table combines "
                                     "all seeds of a configuration (2 to 3 runs), a curve is their mean; "),
                           Not(HasSubstr("Left out"))));
  EXPECT_THAT(read_file(write_report(folders, folder / "out", {.drawing = {.node = "no-such-node"}})),
              HasSubstr(words));
  EXPECT_EQ(extent_words(RunSet{}, {}), "");
}

TEST_F(PageExtents, OfManyConfigurationsTheReferenceAndTheBestAreShown) {
  for (int scale = 1; scale < 208; ++scale)
    plan("a", std::to_string(scale),
         "[train]\nsteps = 1\n"
         "[amp]\nlevel = \"O1\"\n[scaler]\npolicy = \"fixed\"\ninitial_scale = " +
             std::to_string(scale) + "\n");
  for (const int scale : {208, 209, 210}) write("a", "fixed", scale, 0.6 - 0.001 * scale);
  write("a", "fp32", 1, 0.5);
  const RunSet set = load_runs(folders, missing);
  const PageExtent extent = extent_of(set, summarise(set));
  const Workload& workload = extent.workloads.front();
  const WorkloadSummary& summary = extent.summaries.front();
  ASSERT_EQ(workload.configurations.size(), most_configurations);
  ASSERT_EQ(summary.rows.size(), most_configurations);
  for (std::size_t i = 0; i < summary.rows.size(); ++i)
    EXPECT_EQ(summary.rows[i].label, workload.configurations[i].label);
  EXPECT_TRUE(summary.rows.front().is_reference);
  EXPECT_EQ(summary.rows[147].label, "FP16 S=147");
  EXPECT_EQ(summary.rows[summary.ranking->order[0]].label, "FP16 S=210");
  EXPECT_EQ(summary.rows[summary.ranking->order[1]].label, "FP16 S=209");
  EXPECT_THAT(extent_words(set, extent),
              HasSubstr("Left out: 61 of 211 configurations of a on fashion-mnist (FP32, "));
}

TEST_F(PageExtents, OfManyWorkloadsTheFirstAreShown) {
  write("w100", "fp32", 1, 0.5);
  for (int w = 101; w < 165; ++w) plan("w" + std::to_string(w), "fp32", "");
  const RunSet set = load_runs(folders, missing);
  const PageExtent extent = extent_of(set, summarise(set));
  ASSERT_EQ(extent.workloads.size(), most_workloads);
  EXPECT_EQ(extent.workloads.back().name, "w159 on fashion-mnist");
  EXPECT_THAT(extent_words(set, extent),
              AllOf(HasSubstr("65 runs (64 of them missing) as 65 configurations of 65 workloads."),
                    HasSubstr("Left out: 5 of 65 workloads (the first by name are here).")));
}

TEST_F(PageExtents, NotesOfOneKindAreCounted) {
  write("a", "fp32", 1, 0.5);
  for (int seed = 10; seed < 35; ++seed)
    plan("a", "seed" + std::to_string(seed), "[train]\nseed = " + std::to_string(seed) + "\n");
  const RunSet set = load_runs(folders, missing);
  EXPECT_THAT(set.notes, ::testing::SizeIs(21));
  EXPECT_THAT(set.notes, ::testing::Contains(HasSubstr("a-seed29 is missing")));
  EXPECT_THAT(set.notes, Not(::testing::Contains(HasSubstr("a-seed30"))));
  EXPECT_EQ(set.notes.back(), "5 more notes of this kind: missing");
}

}  // namespace
}  // namespace fp16lab::reports
