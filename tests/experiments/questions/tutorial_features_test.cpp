// tests/tutorial_features.json maps what tutorials of other frameworks use to our configuration and to a
// command that shows it. The commands run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "experiments/app/config/shipped_configs.hpp"
#include "tests/experiments/app/shown_commands.hpp"
#include "tests/support/idx_files.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::experiments {
namespace {

using nlohmann::json;

const std::filesystem::path sources = FP16LAB_SOURCE_DIR;

const json& features() {
  static const json list = json::parse(testing_support::slurp(sources / "tests" / "tutorial_features.json"));
  return list;
}

TEST(TutorialFeatures, EveryConfigurationIsShipped) {
  std::set<std::filesystem::path> shipped;
  for (const ShippedConfig& config : shipped_configs())
    shipped.insert(std::filesystem::canonical(config.path));
  for (const json& feature : features())
    for (const std::string config : feature.at("configs")) {
      ASSERT_TRUE(std::filesystem::exists(sources / config)) << config;
      EXPECT_EQ(shipped.count(std::filesystem::canonical(sources / config)), 1u) << config;
    }
}

TEST(TutorialFeatures, EveryCommandParses) {
  std::set<std::string> commands;
  for (const json& feature : features()) commands.insert(feature.at("command").get<std::string>());
  for (const std::string& command : commands) expect_parses(command);
}

/// A command in a folder of its own, and what it printed.
struct Shown {
  std::filesystem::path folder;
  std::string output;
  int exit_code = 0;
  /// The text of the number, as `train` prints it.
  std::string evaluation_loss() const {
    const std::string key = "\"evaluation_loss\":";
    const std::size_t begin = output.find(key);
    if (begin == std::string::npos) return "none in " + output;
    return output.substr(begin + key.size(), output.find(',', begin) - begin - key.size());
  }
};

/// Runs each command once.
class Commands {
 public:
  explicit Commands(std::filesystem::path root) : root_(std::move(root)) {}

  const Shown& of(const std::string& command) {
    const auto [found, is_new] = shown_.try_emplace(command);
    Shown& shown = found->second;
    if (!is_new) return shown;
    shown.folder = root_ / std::to_string(shown_.size());
    std::filesystem::create_directories(shown.folder);
    std::vector<std::string> words = words_of(command);
    const std::string program = (std::filesystem::path(FP16LAB_BIN_DIR) / words.front()).string();
    words.erase(words.begin());
    for (std::size_t i = 0; i + 1 < words.size(); ++i)
      if (words[i] == "-c") words[i + 1] = (sources / words[i + 1]).string();
    for (std::string& word : words)
      if (word.ends_with(".safetensors")) word = (shown.folder / word).string();
    if (words.empty() || words.front() != "list")
      words.insert(words.end(), {"-o", (shown.folder / "run").string(), "--threads", "1"});
    const testing_support::Finished result = testing_support::run_program(program, words, shown.folder);
    shown.output = result.out + result.err;
    shown.exit_code = result.exit_code;
    return shown;
  }

 private:
  std::filesystem::path root_;
  std::map<std::string, Shown> shown_;
};

/// Every command as it is there, made small by the words of "small" and run with the folder "run", on
/// made-up images in the place of Fashion-MNIST. Each text of "shows" must be in the output, or in the file
/// that it is listed under (headers of safetensors files name dtypes). With the words of "unlike" after it
/// the command trains to another loss, with those of "like" to the same. "exit": its exit code, where that is not 0.
TEST(TutorialFeatures, EveryCommandShowsItsFeature) {
  const testing_support::TemporaryFolder temporary;
  testing_support::write_small_fashion(temporary.path() / "fashion-mnist", 640, 100);
  setenv("FP16LAB_DATA", temporary.path().c_str(), 1);  // NOLINT(concurrency-mt-unsafe): one thread
  Commands commands(temporary.path());
  for (const json& feature : features()) {
    const std::string name = feature.at("feature");
    const std::string small = feature.value("small", std::string());
    const std::string command = feature.at("command").get<std::string>() + (small.empty() ? "" : " " + small);
    SCOPED_TRACE(name + ": " + command);
    const Shown& shown = commands.of(command);
    EXPECT_EQ(shown.exit_code, feature.value("exit", 0)) << shown.output;
    ASSERT_TRUE(feature.contains("shows") && !feature.at("shows").empty());
    for (const auto& [where, texts] : feature.at("shows").items()) {
      ASSERT_TRUE(where == "output" || std::filesystem::exists(shown.folder / where)) << where;
      const std::string text =
          where == "output" ? shown.output : testing_support::slurp(shown.folder / where);
      ASSERT_FALSE(texts.empty());
      for (const std::string expected : texts)
        EXPECT_NE(text.find(expected), std::string::npos) << expected << " is not in " << where << "\n"
                                                          << (text.size() < 4000 ? text : shown.output);
    }
    const auto loss_with = [&](const char* words) {
      return commands.of(command + " " + feature.at(words).get<std::string>()).evaluation_loss();
    };
    if (feature.contains("like")) {
      EXPECT_EQ(loss_with("like"), shown.evaluation_loss());
    }
    if (feature.contains("unlike")) {
      EXPECT_NE(loss_with("unlike"), shown.evaluation_loss());
    }
  }
  unsetenv("FP16LAB_DATA");  // NOLINT(concurrency-mt-unsafe): one thread
}

/// Is there `TEST(Suite, Name)`, in one of its spellings, in the text of a file?
bool defines(const std::string& source, const std::string& test) {
  const std::size_t dot = test.find('.');
  const std::regex definition("(^|\n)(TYPED_)?TEST(_F|_P)?\\(\\s*" + test.substr(0, dot) + ",\\s*" +
                              test.substr(dot + 1) + "\\)");
  return std::regex_search(source, definition);
}

/// The table "Mixed-precision frameworks" of reports/where_we_differ.md: users follow the tests and commands
/// of its last column.
TEST(TutorialFeatures, WhatShowsWhereWeDifferIsThere) {
  std::vector<std::string> all_tests;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(sources / "tests"))
    if (entry.path().extension() == ".cpp") all_tests.push_back(testing_support::slurp(entry.path()));
  std::istringstream page(testing_support::slurp(sources / "reports" / "where_we_differ.md"));
  std::string line;
  while (std::getline(page, line) && line != "## Mixed-precision frameworks") {
  }
  std::size_t rows = 0;
  while (std::getline(page, line) && !line.starts_with("## ")) {
    if (!line.starts_with("| ") || line.starts_with("| framework ")) continue;
    ++rows;
    EXPECT_EQ(std::ranges::count(line, '|'), 5) << line;
    const std::string shown = line.substr(line.rfind('|', line.size() - 2));
    static const std::regex code("`([^`]+)`");
    std::size_t found = 0;
    for (std::sregex_iterator match(shown.begin(), shown.end(), code); match != std::sregex_iterator();
         ++match) {
      ++found;
      const std::string what = (*match)[1];
      if (what.find('.') == std::string::npos)
        expect_parses(what);
      else
        EXPECT_TRUE(std::ranges::any_of(all_tests, [&](const std::string& source) {
          return defines(source, what);
        })) << what;
    }
    EXPECT_GT(found, 0u) << line;
  }
  EXPECT_GE(rows, 20u);
}

}  // namespace
}  // namespace fp16lab::experiments
