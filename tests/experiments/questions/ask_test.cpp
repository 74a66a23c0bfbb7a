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
    EXPECT_NE(one.at("time"), "");
    EXPECT_THAT(text, HasSubstr(" " + one.at("time").get<std::string>() + " "));
    EXPECT_THAT(text, HasSubstr(" " + one.at("question").get<std::string>() + "\n"));
  }
  for (const auto& entry : std::filesystem::directory_iterator(FP16LAB_BIN_DIR))
    if (entry.is_symlink()) {
      EXPECT_EQ(std::filesystem::read_symlink(entry.path()), "fp16lab");
      links.insert(entry.path().filename().string());
    }
  EXPECT_THAT(fp16lab({"ask"}).err, HasSubstr("fp16lab ask NAME answers a question"));
  EXPECT_EQ(fp16lab({"ask", "--quiet"}).err, "");
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
    EXPECT_EQ(with("--job").err, name + ": error: unknown option '--job'; did you mean '--jobs'?\n");
  }
  expect_one_line_error(fp16lab({"ask", "undrflow"}), 2,
                        "unknown question 'undrflow'; did you mean 'underflow'?");
  expect_one_line_error(fp16lab({"help", "ask", "undrflow"}), 2, "did you mean 'underflow'?");
  expect_one_line_error(fp16lab({"ask", "--", "underflow"}), 2,
                        "expected the question before options: " + fp16lab_binary + " ask underflow");
  const std::string help = fp16lab({"ask", "underflow", "--help"}).out;
  EXPECT_EQ(fp16lab({"help", "ask", "underflow"}).out, help);
  EXPECT_EQ(fp16lab({"ask", "--threads", "2", "underflow", "--help"}).out, help);
  expect_one_line_error(fp16lab({"ask", "--json", "underflow"}), 2, "unknown option '--json'");
}

TEST_F(Ask, ADeviceThatIsMissingComesBeforeTheFolder) {
  const auto asked = run_inside("fp16lab", {"ask", "shapes", "-o", "asked"});
  if (asked.exit_code != 3) GTEST_SKIP() << "there is a GPU";
  EXPECT_THAT(asked.err, testing::Not(HasSubstr("writes into")));
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
  EXPECT_THAT(answer({"ask", "--threads", "2", "policy_league", "--j"}), testing::StartsWith("--jobs\t"));
}

}  // namespace
}  // namespace fp16lab::experiments::ask_test
