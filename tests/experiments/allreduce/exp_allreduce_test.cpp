// exp_allreduce as a user runs it, on a small network.
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/experiments/app/small_runs.hpp"

namespace fp16lab::experiments {
namespace {

class ExpAllreduce : public SmallRuns {
 protected:
  testing_support::Finished run(const std::string& out, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{
        "-c", write_config().string(), "--ranks", "2,3", "--steps", "2", "--scale", "65536", "-o", path(out)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return testing_support::run_program(std::string(FP16LAB_BIN_DIR) + "/exp_allreduce", arguments, folder_);
  }
};

TEST_F(ExpAllreduce, ItsClaimsHoldAndItsTablesAreComplete) {
  const testing_support::Finished result = run("first", {"--threads", "1"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(result.out.find("verdict: FAILS"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("verdict: HOLDS"), std::string::npos) << result.out;
  const nlohmann::json claims = nlohmann::json::parse(read("first/claims.json"))["claims"];
  EXPECT_EQ(claims.size(), 6u);
  EXPECT_EQ(claims[0]["verdict"], "HOLDS");
  EXPECT_EQ(column("first/exp_allreduce.csv", "ranks").size(), 48u) << "24 variants for each number of ranks";
  EXPECT_EQ(column("first/found_inf.csv", "rank").size(), 15u) << "five checks on three ranks";
  const std::uint64_t elements = 784 * 16 + 16 + 16 * 10 + 10;
  EXPECT_EQ(column("first/exp_allreduce.csv", "mean_bytes_per_rank").front(), std::to_string(4 * elements));

  const testing_support::Finished again = run("second", {"--threads", "2"});
  EXPECT_EQ(again.out, result.out) << "no bit depends on the number of threads";
  EXPECT_EQ(read("second/exp_allreduce.csv"), read("first/exp_allreduce.csv"));
  EXPECT_EQ(read("second/found_inf.csv"), read("first/found_inf.csv"));
}

TEST_F(ExpAllreduce, BadOptionsAreUsageErrors) {
  const std::string config = write_config().string();
  const std::vector<std::vector<std::string>> bad{
      {"--ranks", "1"},  {"--ranks", "2,,3"}, {"--ranks", "two"},       {"--steps", "0"},
      {"--scale", "-1"}, {"--scale", "big"},  {"--set", "amp.level=O9"}};
  for (const std::vector<std::string>& option : bad) {
    const testing_support::Finished result =
        testing_support::run_program(std::string(FP16LAB_BIN_DIR) + "/exp_allreduce",
                                     {"-c", config, "-o", path("bad"), option[0], option[1]}, folder_);
    EXPECT_EQ(result.exit_code, 2) << option[0] << " " << option[1];
    EXPECT_NE(result.err.find(option[1].substr(0, option[1].find('='))), std::string::npos) << result.err;
  }
}

}  // namespace
}  // namespace fp16lab::experiments
