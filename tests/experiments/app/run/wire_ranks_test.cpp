// fp16lab train under mpirun, what travels: how much, in MPI's own order, and what is printed about it.
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

class WireRanks : public testing::TestWithParam<Mpi> {
 protected:
  void SetUp() override { FP16LAB_NEEDS_RANKS(GetParam()); }

  /// A small classifier in four shards.
  Finished train(int ranks, const std::string& folder, const std::vector<std::string>& settings,
                 bool resume = false) {
    std::vector<std::string> arguments{"train", "-c", "classifier", "-o",
                                       (temporary_.path() / folder).string()};
    for (const char* const setting : {"data.name=random-images", "train.batch_size=16", "amp.level=O1",
                                      "checkpoint.every=2", "parallel.shards=4"})
      arguments.insert(arguments.end(), {"--set", setting});
    for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    if (resume) arguments.emplace_back("--resume");
    return testing_support::run_ranks(GetParam(), ranks, FP16LAB_BIN_DIR "/fp16lab", arguments,
                                      temporary_.path());
  }
  RunFolder run(const std::string& folder) { return read_run_folder(temporary_.path() / folder); }
  int most_ranks() const { return GetParam() == Mpi::open_mpi ? 4 : 2; }

  /// The sum of what the ranks have sent, as the summary says.
  static double sent_bytes(const Finished& finished, int ranks) {
    const std::string name = "\"sent_bytes\":[";
    std::size_t at = finished.out.find(name);
    EXPECT_NE(at, std::string::npos) << finished.out;
    double sum = 0;
    at += name.size();
    for (int rank = 0; rank < ranks; ++rank) {
      std::size_t digits = 0;
      sum += std::stod(finished.out.substr(at), &digits);
      at += digits;
      EXPECT_EQ(finished.out.at(at++), rank + 1 < ranks ? ',' : ']');
    }
    return sum;
  }

  testing_support::TemporaryFolder temporary_;
};
INSTANTIATE_TEST_SUITE_P(Of, WireRanks, testing::Values(Mpi::open_mpi, Mpi::mpich), [](const auto& test) {
  return std::string(test.param == Mpi::open_mpi ? "openmpi" : "mpich");
});

/// Four shards send 2 (R - 1) n elements, and little beside gradients.
TEST_P(WireRanks, SummarySaysWhatTravels) {
  const double pair = sent_bytes(train(2, "two", {"train.steps=4"}), 2);
  const double halves = sent_bytes(train(2, "f16", {"train.steps=4", "parallel.wire=f16"}), 2);
  EXPECT_NEAR(halves / pair, 0.5, 0.01);
  if (GetParam() == Mpi::mpich) return;  // needs a core for each rank
  EXPECT_NEAR(sent_bytes(train(3, "three", {"train.steps=4"}), 3) / pair, 2, 0.02);
  EXPECT_NEAR(sent_bytes(train(4, "four", {"train.steps=4"}), 4) / pair, 3, 0.03);
}

/// Two terms have one sum in every order, so that on two ranks, each of which adds its two shards by the
/// tree, MPI has the tree's bits, on a 16-bit wire if its operation rounds every addition as the tree does.
TEST_P(WireRanks, LibrarysOrderOfTwoTermsIsTheTrees) {
  for (const std::string wire : {"f32", "f16", "bf16"}) {
    const auto in_order = [&](const std::string& order) {
      const Finished finished =
          train(2, wire + order, {"train.steps=6", "parallel.wire=" + wire, "parallel.order=" + order});
      EXPECT_EQ(finished.exit_code, 0) << finished.err;
      return run(wire + order);
    };
    const RunFolder tree = in_order("tree"), mpi = in_order("mpi");
    ASSERT_EQ(tree.steps.size(), 6u);
    ASSERT_EQ(mpi.steps.size(), 6u);
    for (std::size_t i = 0; i < 6; ++i)
      EXPECT_EQ(mpi.steps[i].state_hash, tree.steps[i].state_hash) << wire << ", step " << i + 1;
  }
}

TEST_P(WireRanks, LibrarysOrderIsSaidAndNotResumedOnOtherRanks) {
  const Finished first = train(most_ranks() - 1, "mpi", {"parallel.order=mpi", "train.steps=2"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const std::string note = "note: parallel.order = mpi: MPI adds gradients in its own order";
  EXPECT_THAT(first.err, HasSubstr(note));
  EXPECT_EQ(first.err.find(note), first.err.rfind(note)) << "the first rank says it";
  EXPECT_THAT(run("mpi").manifest.config, HasSubstr("order = \"mpi\""));
  const auto resumed = [&](int ranks) {
    return train(ranks, "mpi", {"parallel.order=mpi", "train.steps=4"}, true);
  };
  const Finished other = resumed(most_ranks());
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err,
              HasSubstr("fp16lab: error: --resume: with parallel.order = mpi bits are those of the ranks "
                        "and their library: the run in "));
  EXPECT_THAT(other.err, HasSubstr(GetParam() == Mpi::mpich ? "has one process, and this is 2 ranks of MPICH"
                                                            : "has 3 ranks of Open MPI"));
  EXPECT_EQ(resumed(most_ranks() - 1).exit_code, 0);
  EXPECT_EQ(run("mpi").steps.size(), 4u);
}

TEST_P(WireRanks, WhatIsWrongWithTheCommandLineIsOneLine) {
  const Finished finished = testing_support::run_ranks(GetParam(), 2, FP16LAB_BIN_DIR "/fp16lab",
                                                       {"train", "--nonsense"}, temporary_.path());
  EXPECT_EQ(finished.exit_code, 2);
  EXPECT_THAT(finished.err, HasSubstr("fp16lab: error: train: unknown option '--nonsense'\n"));
  EXPECT_EQ(finished.err.find("fp16lab: error:"), finished.err.rfind("fp16lab: error:")) << finished.err;
}

}  // namespace
}  // namespace fp16lab::experiments
