// exp_rounding_edges as a user runs it: every claim holds, and its table says what the screen says.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "tests/support/spawn.hpp"

namespace fp16lab::experiments {
namespace {

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(RoundingEdges, EveryClaimHoldsAndTheTableAgrees) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "rounding_edges";
  std::filesystem::remove_all(folder);
  const testing_support::Finished result = testing_support::run_program(
      std::string(FP16LAB_BIN_DIR) + "/exp_rounding_edges", {"-o", folder.string()}, testing::TempDir());
  EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_EQ(result.err, "exp_rounding_edges: writes into " + folder.string() + "\n");
  const std::size_t claims = count(result.out, "\n  HOLDS  ");
  EXPECT_NE(result.out.find("\n" + std::to_string(claims) + " claims: " + std::to_string(claims) + " hold\n"),
            std::string::npos);
  EXPECT_EQ(count(testing_support::slurp(folder / "claims.json"), "\"verdict\": \"HOLDS\""), claims);

  std::ifstream file(folder / "exp_rounding_edges.csv");
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  EXPECT_EQ(line, "topic,claim,expected,computed,verdict");
  std::set<std::string> topics;
  std::size_t rows = 0;
  while (std::getline(file, line)) {
    ++rows;
    const std::size_t topic_end = line.find("\",\"");
    const std::size_t claim_end = line.find("\",", topic_end + 3);
    ASSERT_NE(claim_end, std::string::npos) << line;
    topics.insert(line.substr(1, topic_end - 1));
    const std::string rest = line.substr(claim_end + 2);
    const std::size_t comma = rest.find(',');
    const std::string expected = rest.substr(0, comma);
    EXPECT_EQ(rest.substr(comma + 1), expected + ",HOLDS") << "the verdict must follow from the two columns";
  }
  EXPECT_EQ(rows, claims);
  EXPECT_GE(topics.size(), 15u);
}

}  // namespace
}  // namespace fp16lab::experiments
