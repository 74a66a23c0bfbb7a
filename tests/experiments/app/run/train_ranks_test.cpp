// fp16lab train under mpirun: the same run folder on any number of ranks and either MPI, resumed on another
// number, and one line where a rank cannot begin.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "numerics/files/run/run_folder.hpp"
#include "tests/support/launched_ranks.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::experiments {
namespace {

using ::testing::HasSubstr;
using testing_support::Finished;
using testing_support::Mpi;

class TrainRanks : public testing::TestWithParam<Mpi> {
 protected:
  void SetUp() override { FP16LAB_NEEDS_RANKS(GetParam()); }

  /// Twelve steps of a small classifier in four shards.
  Finished train(int ranks, const std::string& folder, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments{"train",      "-c",
                                       "classifier", "--quiet",
                                       "-o",         (temporary_.path() / folder).string(),
                                       "--set",      "data.name=random-images",
                                       "--set",      "data.batches=4",
                                       "--set",      "train.batch_size=16",
                                       "--set",      "amp.level=O1",
                                       "--set",      "checkpoint.every=4",
                                       "--set",      "observe.histograms_every=4"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    if (more.empty() || more.back().find("train.steps") == std::string::npos)
      arguments.insert(arguments.end(), {"--set", "train.steps=12"});
    arguments.insert(arguments.end(), {"--set", "parallel.shards=4"});
    return testing_support::run_ranks(GetParam(), ranks, FP16LAB_BIN_DIR "/fp16lab", arguments,
                                      temporary_.path());
  }
  RunFolder run(const std::string& folder) { return read_run_folder(temporary_.path() / folder); }

  void expect_same(const std::string& folder, const RunFolder& expected) {
    const RunFolder found = run(folder);
    EXPECT_TRUE(found.damage.empty());
    ASSERT_EQ(found.steps.size(), expected.steps.size()) << folder;
    for (std::size_t i = 0; i < found.steps.size(); ++i) {
      EXPECT_EQ(found.steps[i].state_hash, expected.steps[i].state_hash) << folder << ", step " << i + 1;
      EXPECT_EQ(found.steps[i].loss, expected.steps[i].loss) << folder << ", step " << i + 1;
    }
    const auto counts = [](const RunFolder& of) {
      return testing_support::slurp(of.path / run_file::histograms);
    };
    EXPECT_TRUE(counts(found) == counts(expected)) << folder << ": other histograms";
    ASSERT_EQ(found.evaluations.size(), expected.evaluations.size());
    EXPECT_EQ(found.evaluations.back().loss, expected.evaluations.back().loss) << folder;
  }
  int most_ranks() const { return GetParam() == Mpi::open_mpi ? 4 : 2; }

  testing_support::TemporaryFolder temporary_;
};
INSTANTIATE_TEST_SUITE_P(Of, TrainRanks, testing::Values(Mpi::open_mpi, Mpi::mpich), [](const auto& test) {
  return std::string(test.param == Mpi::open_mpi ? "openmpi" : "mpich");
});

TEST_P(TrainRanks, AnyNumberWritesTheFolderOfOne) {
  ASSERT_EQ(train(1, "one").exit_code, 0);
  const RunFolder one = run("one");
  EXPECT_FALSE(one.manifest.ranks.has_value());
  for (int ranks = 2; ranks <= most_ranks(); ++ranks) {
    const std::string folder = std::to_string(ranks);
    const Finished finished = train(ranks, folder);
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
    expect_same(folder, one);
    ASSERT_TRUE(run(folder).manifest.ranks.has_value());
    EXPECT_EQ(run(folder).manifest.ranks->hosts.size(), static_cast<std::size_t>(ranks));
    EXPECT_THAT(run(folder).manifest.ranks->library,
                HasSubstr(GetParam() == Mpi::open_mpi ? "Open MPI" : "MPICH"));
  }
}

TEST_P(TrainRanks, AnotherNumberResumesARun) {
  ASSERT_EQ(train(2, "whole").exit_code, 0);
  ASSERT_EQ(train(most_ranks(), "parts", {"--set", "train.steps=4"}).exit_code, 0);
  ASSERT_EQ(train(1, "parts", {"--resume", "--set", "train.steps=8"}).exit_code, 0);
  const Finished last = train(2, "parts", {"--resume"});
  ASSERT_EQ(last.exit_code, 0) << last.err;
  const RunFolder whole = run("whole"), parts = run("parts");
  ASSERT_EQ(parts.steps.size(), whole.steps.size());
  for (std::size_t i = 0; i < parts.steps.size(); ++i)
    EXPECT_EQ(parts.steps[i].state_hash, whole.steps[i].state_hash) << "step " << i + 1;
}

TEST_P(TrainRanks, WhatARankLacksIsOneLine) {
  const Finished many = train(2, "many", {"--set", "parallel.shards=1", "--set", "train.steps=1"});
  EXPECT_EQ(many.exit_code, 0) << many.err;  // the later setting counts
  const Finished again = train(2, "many");
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.err, HasSubstr("fp16lab: error: --out: "));
  EXPECT_THAT(again.err, HasSubstr("holds a finished run"));
  EXPECT_EQ(again.err.find("fp16lab: error:"), again.err.rfind("fp16lab: error:"));
}

TEST_P(TrainRanks, MoreRanksThanShardsAreRefused) {
  if (GetParam() == Mpi::mpich) return;  // wants a core for each rank
  const Finished finished = train(5, "five");
  EXPECT_EQ(finished.exit_code, 2);
  EXPECT_THAT(finished.err,
              HasSubstr("fp16lab: error: parallel.shards = 4 on 5 ranks: a rank needs a shard; expected "
                        "parallel.shards = 8 or more, or fewer ranks\n"));
}

}  // namespace
}  // namespace fp16lab::experiments
