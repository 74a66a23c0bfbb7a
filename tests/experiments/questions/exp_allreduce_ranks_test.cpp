// exp_allreduce under mpirun: means on real ranks, beside the model's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/experiments/app/small_runs.hpp"
#include "tests/support/launched_ranks.hpp"

namespace fp16lab::experiments {
namespace {

using ::testing::HasSubstr;
using testing_support::Finished;
using testing_support::Mpi;

constexpr std::uint64_t elements = 784 * 16 + 16 + 16 * 10 + 10;

class ExpAllreduceRanks : public SmallRuns, public testing::WithParamInterface<Mpi> {
 protected:
  void SetUp() override { FP16LAB_NEEDS_RANKS(GetParam()); }

  std::vector<std::string> arguments(const std::string& out, const std::vector<std::string>& more) {
    std::vector<std::string> all{
        "-c", write_config().string(), "--steps", "2", "--scale", "65536", "-o", path(out), "--threads", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Finished on_ranks(int ranks, const std::string& out, const std::vector<std::string>& more) {
    return testing_support::run_ranks(GetParam(), ranks, program_, arguments(out, more), folder_);
  }

  /// Column `name` of the rows of a table on real ranks that have this order.
  std::vector<std::string> of_order(const std::string& out, const std::string& order,
                                    const std::string& name) {
    const std::vector<std::string> orders = column(out + "/real_ranks.csv", "order");
    const std::vector<std::string> all = column(out + "/real_ranks.csv", name);
    std::vector<std::string> values;
    for (std::size_t i = 0; i < orders.size(); ++i)
      if (orders[i] == order) values.push_back(all[i]);
    return values;
  }

  const std::string program_ = std::string(FP16LAB_BIN_DIR) + "/exp_allreduce";
};
INSTANTIATE_TEST_SUITE_P(Of, ExpAllreduceRanks, testing::Values(Mpi::open_mpi, Mpi::mpich),
                         [](const auto& test) {
                           return std::string(test.param == Mpi::open_mpi ? "openmpi" : "mpich");
                         });

TEST_P(ExpAllreduceRanks, HaveTheModelsBitsAndTheFormulasBytes) {
  const Finished result = on_ranks(2, "two", {"--ranks", "2,4"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  const nlohmann::json claims = nlohmann::json::parse(read("two/claims.json"))["claims"];
  ASSERT_EQ(claims.size(), 4u);
  for (const nlohmann::json& claim : claims) EXPECT_EQ(claim["verdict"], "HOLDS") << claim;
  EXPECT_EQ(result.out.find("question: "), result.out.rfind("question: ")) << "one rank speaks";
  EXPECT_EQ(column("two/real_ranks.csv", "ranks"), std::vector<std::string>(72, "2"))
      << "four orders, three wires and three divisions of two and of four shards";
  EXPECT_THAT(column("two/real_ranks.csv", "library").front(),
              HasSubstr(GetParam() == Mpi::open_mpi ? "Open MPI" : "MPICH"));

  // Two ranks halve the elements; of four shards each adds its two before it sends them, or does not.
  const std::vector<std::string> tree = of_order("two", "tree", "mean_bytes_per_rank");
  const std::vector<std::string> ring = of_order("two", "nccl-ring", "mean_bytes_per_rank");
  EXPECT_EQ(tree.at(0), std::to_string(4 * elements));  // f32, two shards
  EXPECT_EQ(tree.at(3), std::to_string(2 * elements));  // f16
  EXPECT_EQ(tree.at(9), std::to_string(4 * elements));  // f32, four shards
  EXPECT_EQ(ring.at(9), std::to_string(6 * elements));
  EXPECT_EQ(ring.at(15), std::to_string(3 * elements));  // bf16
  for (const std::string& bytes : of_order("two", "mpi", "mean_bytes_per_rank")) EXPECT_EQ(bytes, "");
  // Two terms have one sum in every order: MPI's operation rounds every addition of FP16 and BF16 as the
  // tree.
  EXPECT_EQ(of_order("two", "mpi", "unlike_tree"), std::vector<std::string>(18, "0"));

  // The errors of emulated ranks, which know nothing of MPI.
  const Finished emulated =
      testing_support::run_program(program_, arguments("emulated", {"--ranks", "2,4"}), folder_);
  ASSERT_EQ(emulated.exit_code, 0) << emulated.err;
  const auto emulated_error = [&](const std::string& ranks, const std::string& wire,
                                  const std::string& algorithm) {
    const auto all = [&](const char* name) { return column("emulated/exp_allreduce.csv", name); };
    for (std::size_t i = 0; i < all("ranks").size(); ++i)
      if (all("ranks")[i] == ranks && all("wire")[i] == wire && all("algorithm")[i] == algorithm &&
          all("unscale")[i] == "after" && all("division")[i] == "pre")
        return all("relative_l2_error")[i];
    return std::string("no such row");
  };
  const std::vector<std::string> errors = of_order("two", "nccl-ring", "relative_l2_error");
  EXPECT_EQ(errors.at(2), emulated_error("2", "f32", "ring"));
  EXPECT_EQ(errors.at(5), emulated_error("2", "f16", "ring"));
  EXPECT_EQ(errors.at(14), emulated_error("4", "f16", "ring"));
  EXPECT_EQ(of_order("two", "nccl-tree", "relative_l2_error").at(14), emulated_error("4", "f16", "tree"));
  EXPECT_EQ(of_order("two", "mpi", "relative_l2_error").at(5), errors.at(5));
  EXPECT_NE(errors.at(14), errors.at(5));
}

TEST_P(ExpAllreduceRanks, AnyNumberHasTheSameErrors) {
  if (GetParam() == Mpi::mpich) return;  // needs a core for each rank
  const Finished two = on_ranks(2, "two", {"--ranks", "4"}), three = on_ranks(3, "three", {});
  ASSERT_EQ(two.exit_code, 0) << two.err;
  ASSERT_EQ(three.exit_code, 0) << three.out << three.err;
  EXPECT_EQ(column("three/real_ranks.csv", "shards").front(), "4") << "the first power of two";
  for (const char* const order : {"tree", "nccl-ring", "nccl-tree"})
    EXPECT_EQ(of_order("three", order, "relative_l2_error"), of_order("two", order, "relative_l2_error"));
  EXPECT_EQ(of_order("three", "tree", "unlike_tree"), std::vector<std::string>(9, "0"));
  EXPECT_NE(of_order("three", "nccl-ring", "unlike_tree").at(3), "0");
}

TEST_P(ExpAllreduceRanks, ErrorsAreOneLineOfTheFirstRank) {
  const auto refused = [&](const std::vector<std::string>& more, const std::string& part) {
    const Finished result = on_ranks(2, "refused", more);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr("exp_allreduce: error: " + part));
    EXPECT_EQ(result.err.find("error: "), result.err.rfind("error: ")) << result.err;
  };
  refused({"--ranks", "3"}, "--ranks: '3': 3 gradients on 2 real ranks: expected powers of two\n");
  refused({"--ranks", "1"}, "--ranks: '1': expected an integer from 2 to 1024\n");
  refused({"--set", "data.name=nothing"}, "--set: data.name");
  refused({"--nonsense"}, "unknown option '--nonsense'");
}

/// What only one rank lacks, or gets wrong.
TEST_P(ExpAllreduceRanks, AnErrorOfOneRankEndsAllInOneLine) {
  const std::string second =
      R"(test "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 && set -- "$@" EXTRA; exec "$0" "$@")";
  const auto with_extra = [&](const std::string& extra) {
    std::vector<std::string> all = arguments("one", {"--ranks", "2"});
    std::string script = second;
    script.replace(script.find("EXTRA"), 5, extra);
    all.insert(all.begin(), {"-c", script, program_});
    return testing_support::run_ranks(GetParam(), 2, "/bin/sh", all, folder_);
  };
  const Finished no_data = with_extra("--set data.path=/nowhere");
  EXPECT_EQ(no_data.exit_code, 1) << no_data.err;
  EXPECT_THAT(no_data.err, testing::ContainsRegex("exp_allreduce: error: rank 1 on [^:]+: "));
  EXPECT_EQ(no_data.err.find("error: "), no_data.err.rfind("error: ")) << no_data.err;
  EXPECT_EQ(no_data.out, "");

  testing_support::write_bytes(folder_ / "file", "");
  const Finished no_folder = on_ranks(2, "file/under", {"--ranks", "2"});
  EXPECT_NE(no_folder.exit_code, 0);
  EXPECT_EQ(no_folder.err.find(" error: "), no_folder.err.rfind("exp_allreduce: error: ") + 14)
      << no_folder.err;

  const Finished typo = with_extra("--nonsense");
  EXPECT_EQ(typo.exit_code, 2) << typo.err;
  EXPECT_THAT(typo.err, testing::ContainsRegex("exp_allreduce: error: rank 1 on [^:]+: unknown option"));
}

}  // namespace
}  // namespace fp16lab::experiments
