// fp16lab ask: the list of questions, their links, and that both names ask the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "tests/experiments/app/small_runs.hpp"

namespace fp16lab::experiments::ask_test {
namespace {

using testing::HasSubstr;

class Ask : public SmallRuns {};

TEST_F(Ask, ListsEveryQuestionAndEachHasALink) {
  std::set<std::string> listed, links;
  const std::string text = fp16lab({"ask"}).out;
  for (const nlohmann::json& one : nlohmann::json::parse(fp16lab({"ask", "--json"}).out)) {
    listed.insert("exp_" + one.at("name").get<std::string>());
    EXPECT_THAT(one.at("question").get<std::string>(), testing::EndsWith("?"));
    EXPECT_THAT("\n" + text, HasSubstr("\n" + one.at("name").get<std::string>() + " "));
    EXPECT_THAT(text, HasSubstr(" " + one.at("question").get<std::string>() + "\n"));
  }
  for (const auto& entry : std::filesystem::directory_iterator(FP16LAB_BIN_DIR))
    if (entry.is_symlink()) {
      EXPECT_EQ(std::filesystem::read_symlink(entry.path()), "fp16lab");
      links.insert(entry.path().filename().string());
    }
  EXPECT_EQ(listed, links);
  EXPECT_GE(listed.size(), 10U);
}

TEST_F(Ask, IsWhatTheLinkDoes) {
  const auto asked = run_inside("fp16lab", {"ask", "rounding_edges", "-o", "asked"}),
             called = run_inside("exp_rounding_edges", {"-o", "called"});
  EXPECT_EQ(asked.exit_code, 0);
  EXPECT_EQ(asked.out, called.out);
  EXPECT_EQ(asked.err, "fp16lab ask rounding_edges: writes into asked\n");
  for (const char* const file : {"claims.json", "exp_rounding_edges.csv"})
    EXPECT_EQ(read(std::string("asked/") + file), read(std::string("called/") + file)) << file;
  EXPECT_THAT(read("asked/claims.json"),
              HasSubstr("\"question\": \"what happens at every edge of FP16 rounding?\""));
}

TEST_F(Ask, HelpAndErrorsSayHowItWasCalled) {
  for (const std::string name : {"exp_underflow", "fp16lab ask underflow"}) {
    SCOPED_TRACE(name);
    std::vector<std::string> words;
    if (name.starts_with("fp16lab")) words = {"ask", "underflow"};
    const auto with = [&](const std::string& word) {
      std::vector<std::string> all = words;
      all.push_back(word);
      return run_inside(words.empty() ? name : "fp16lab", all);
    };
    EXPECT_THAT(with("--help").out, HasSubstr("Usage: " + name + " [OPTIONS]"));
    EXPECT_THAT(with("--help").out, HasSubstr("\n  " + name + " -o results/exp_underflow\n"));
    EXPECT_THAT(with("--help").out, HasSubstr("results/exp_underflow)\n"));
    EXPECT_THAT(with("--version").out, testing::StartsWith(name + " "));
    expect_one_line_error(with("--job"), 2, name + ": unknown option '--job'; did you mean '--jobs'?");
  }
  expect_one_line_error(fp16lab({"ask", "undrflow"}), 2,
                        "unknown question 'undrflow'; did you mean 'underflow'?");
  expect_one_line_error(fp16lab({"ask", "--quiet", "underflow"}), 2,
                        "expected the question before options: fp16lab ask underflow");
}

TEST_F(Ask, CompletionKnowsNamesAndTheirOptions) {
  const auto answer = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"completion", "--answer"});
    return fp16lab(words).out;
  };
  EXPECT_THAT(answer({"as"}), testing::StartsWith("ask\t"));
  EXPECT_EQ(answer({"ask", "p"}), "paper_miniature\npolicy_league\n");
  EXPECT_THAT(answer({"ask", "policy_league", "--j"}), testing::StartsWith("--jobs\t"));
  EXPECT_THAT(answer({"ask", "policy_league", "-c", "policy_l"}), HasSubstr("policy_league\n"));
  EXPECT_EQ(answer({"ask", "rounding_edges", "--j"}), "");
}

}  // namespace
}  // namespace fp16lab::experiments::ask_test
