// exp_rounding_edges as a user runs it: every claim holds, and its table says what the screen says.
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "tests/experiments/app/small_runs.hpp"

namespace fp16lab::experiments {
namespace {

class RoundingEdges : public SmallRuns {};

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST_F(RoundingEdges, EveryClaimHoldsAndTheTableAgrees) {
  const testing_support::Finished result = run_inside("exp_rounding_edges", {"-o", "out"});
  EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_EQ(result.err, "exp_rounding_edges: writes into out\n");
  const std::size_t claims = count(result.out, "\n  HOLDS  ");
  EXPECT_NE(result.out.find("\n" + std::to_string(claims) + " claims: " + std::to_string(claims) + " hold\n"),
            std::string::npos);
  EXPECT_EQ(count(read("out/claims.json"), "\"verdict\": \"HOLDS\""), claims);

  std::istringstream lines(read("out/exp_rounding_edges.csv"));
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(line, "topic,claim,expected,computed,verdict");
  const std::regex row("\"([^\"]*)\",\"[^\"]*\",([^,]*),([^,]*),HOLDS");
  std::set<std::string> topics;
  std::size_t rows = 0;
  for (std::smatch cells; std::getline(lines, line); ++rows) {
    ASSERT_TRUE(std::regex_match(line, cells, row)) << line;
    topics.insert(cells[1]);
    EXPECT_EQ(cells[2], cells[3]) << "the verdict must follow from the two columns";
  }
  EXPECT_EQ(rows, claims);
  EXPECT_GE(topics.size(), 15u);
}

}  // namespace
}  // namespace fp16lab::experiments
