// Real ranks: the same bits for any number of them and either MPI, and one line that names what failed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/support/launched_ranks.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::engine::parallel {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using testing_support::Finished;
using testing_support::Mpi;

class RankProgram : public ::testing::Test {
 protected:
  /// One process without a launcher.
  Finished alone(const std::map<std::string, std::string>& environment = {}) {
    return testing_support::run_program(FP16LAB_RANK_PROGRAM, {"sums", "8", "30", "1000"}, folder_.path(),
                                        environment);
  }
  testing_support::TemporaryFolder folder_;
};

class MpiRanks : public RankProgram, public ::testing::WithParamInterface<Mpi> {
 protected:
  void SetUp() override { FP16LAB_NEEDS_RANKS(GetParam()); }
  bool open_mpi() const { return GetParam() == Mpi::open_mpi; }

  Finished ranks(int count, const std::string& scenario, double time_limit = 30,
                 const std::map<std::string, std::string>& environment = {},
                 const std::string& piece_bytes = "1073741824") {
    return testing_support::run_ranks(GetParam(), count, FP16LAB_RANK_PROGRAM,
                                      {scenario, "8", std::to_string(time_limit), piece_bytes},
                                      folder_.path(), environment);
  }
  std::map<std::string, std::string> shim(const std::string& does) const {
    return testing_support::misbehaving(GetParam(), does);
  }
  /// The digest that rank 0 of a good run printed.
  static std::string digest(const Finished& finished) {
    EXPECT_EQ(finished.exit_code, 0) << finished.out << finished.err;
    const std::size_t colon = finished.out.find("ranks: ");
    if (colon == std::string::npos) return "no digest in: " + finished.out;
    return finished.out.substr(colon + 7, 16);
  }
};
INSTANTIATE_TEST_SUITE_P(Of, MpiRanks, ::testing::Values(Mpi::open_mpi, Mpi::mpich), [](const auto& test) {
  return std::string(test.param == Mpi::open_mpi ? "openmpi" : "mpich");
});

TEST_F(RankProgram, AloneNeedsNoLauncherAndNoPlugin) {
  const Finished finished = alone({{"FP16LAB_MPI_PLUGIN", "/nowhere"}});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.out, HasSubstr("over one process\n1 ranks: "));
}

TEST_P(MpiRanks, AnyNumberHasTheBitsOfOneProcess) {
  const std::string expected = digest(alone());
  // Debian's MPICH starts and ends slowly with more ranks than cores.
  for (const int count : open_mpi() ? std::vector{1, 2, 3, 4, 5, 8} : std::vector{1, 2})
    EXPECT_EQ(digest(ranks(count, "sums")), expected) << count << " ranks";
  EXPECT_THAT(ranks(2, "sums").out,
              ContainsRegex(open_mpi() ? "over Open MPI v[0-9.]+\n" : "over MPICH [0-9.]+\n"));
}

TEST_P(MpiRanks, MessagesInManyPiecesAndLateOnesChangeNoBit) {
  const std::string expected = digest(alone());
  const int count = open_mpi() ? 3 : 2;
  EXPECT_EQ(digest(ranks(count, "sums", 30, {}, "999")), expected);
  EXPECT_EQ(digest(ranks(count, "sums", 30, shim("late"), "50000")), expected);
}

TEST_P(MpiRanks, TruncatedMessageIsAnErrorThatNamesItsSender) {
  const Finished finished = ranks(2, "sums", 30, shim("truncate 1 3"));
  EXPECT_NE(finished.exit_code, 0);
  EXPECT_THAT(finished.err,
              ContainsRegex("rank_program: error: rank 0 of 2 \\([^)]*\\), at step 0, gradients: "
                            "rank 1 \\([^)]*\\) sent [0-9]+ bytes where [0-9]+ were expected\n"));
  EXPECT_THAT(finished.out, Not(HasSubstr("ranks: ")));
}

TEST_P(MpiRanks, LostMessageIsNamedAtTheTimeLimit) {
  const Finished finished = ranks(2, "sums", 1, shim("drop 1 3"));
  EXPECT_NE(finished.exit_code, 0);
  EXPECT_THAT(finished.err, ContainsRegex("rank 0 of 2 \\([^)]*\\), at step 0, gradients: "
                                          "no message from rank 1 \\([^)]*\\) within 1 s\n"));
}

TEST_P(MpiRanks, KilledRankEndsTheRunWithinSeconds) {
  const auto begin = std::chrono::steady_clock::now();
  const Finished finished = ranks(open_mpi() ? 4 : 2, "killed");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_NE(finished.exit_code, 0);
  EXPECT_THAT(finished.out, Not(HasSubstr("came to the end")));
  if (!open_mpi()) return;  // Hydra kills the others before they can see it
  EXPECT_THAT(finished.err, ContainsRegex("rank [012] of 4 \\([^)]*\\), at step 3, gradients: "
                                          "rank 3 \\([^)]*\\) has ended\n"));
}

TEST_P(MpiRanks, StoppedRankIsNamedAtTheTimeLimit) {
  const Finished finished = ranks(open_mpi() ? 3 : 2, "stopped", 1);
  EXPECT_NE(finished.exit_code, 0);
  EXPECT_THAT(finished.err, ContainsRegex("rank [01] of [23] \\([^)]*\\), at step 3, gradients: "
                                          "no message from rank [12] \\([^)]*\\) within 1 s\n"));
}

TEST_P(MpiRanks, RankThatDoesOtherThingsIsAnError) {
  const Finished finished = ranks(2, "diverges");
  EXPECT_NE(finished.exit_code, 0);
  EXPECT_THAT(finished.err,
              ContainsRegex("sent (8000 bytes where 10000 were expected|more than the 8000 bytes that were "
                            "expected)\n"));
}

TEST_P(MpiRanks, ExceptionOfOneRankEndsAll) {
  const Finished finished = ranks(2, "throws");
  EXPECT_NE(finished.exit_code, 0);
  EXPECT_THAT(finished.err, HasSubstr("rank_program: error: a rank without its data\n"));
}

TEST_P(MpiRanks, RankThatNeverJoinsIsNoHang) {
  const Finished finished = ranks(2, "absent", 1);
  EXPECT_NE(finished.exit_code, 0);
  EXPECT_THAT(finished.err, HasSubstr("rank 0 of 2: MPI_Init waited 1 s for the other ranks\n"));
}

/// What can be wrong with a plugin, without a launcher: it is loaded before MPI starts.
TEST_F(RankProgram, PluginsThatCannotBeUsedAreRefusedInOneLine) {
  const auto refused = [&](const std::map<std::string, std::string>& environment) {
    const Finished finished = alone(environment);
    EXPECT_EQ(finished.exit_code, 1);
    EXPECT_EQ(std::count(finished.err.begin(), finished.err.end(), '\n'), 1) << finished.err;
    return finished.err;
  };
  EXPECT_THAT(refused({{"OMPI_COMM_WORLD_SIZE", "2"}, {"FP16LAB_MPI_PLUGIN", "/nowhere.so"}}),
              HasSubstr("/nowhere.so cannot be loaded: "));
  EXPECT_THAT(refused({{"PMI_SIZE", "2"}, {"PMI_RANK", "0"}, {"FP16LAB_MPI_PLUGIN", "libz.so.1"}}),
              HasSubstr("libz.so.1 is no MPI plugin of fp16lab"));
  EXPECT_THAT(refused({{"OMPI_COMM_WORLD_SIZE", "2"}, {"FP16LAB_MPI_PLUGIN", FP16LAB_OTHER_MPI_PLUGIN}}),
              HasSubstr("is of another build than this program; build both again"));
  EXPECT_THAT(refused({{"OMPI_COMM_WORLD_SIZE", "two"}}),
              HasSubstr("the launcher's OMPI_COMM_WORLD_SIZE=two is no number of ranks"));
  // A copy of the program in a folder of its own has no plugin beside it.
  const std::filesystem::path lonely = folder_.path() / "lonely";
  std::filesystem::copy_file(FP16LAB_RANK_PROGRAM, lonely);
  const Finished finished = testing_support::run_program(
      lonely.string(), {"sums", "8", "30", "1000"}, folder_.path(), {{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}});
  EXPECT_THAT(finished.err,
              HasSubstr("MPICH started this program, but there is no libfp16lab_mpi_mpich.so next to it; "
                        "install libmpich-dev (Debian), configure with -DFP16LAB_MPI=ON and build again"));
}

}  // namespace
}  // namespace fp16lab::engine::parallel
