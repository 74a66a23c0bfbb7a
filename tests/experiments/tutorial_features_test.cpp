// tests/tutorial_features.json maps what tutorials of other frameworks use to our configuration and to the test that
// shows it. This keeps the list true: nothing on it may be missing.
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

#include "experiments/shipped_configs.hpp"
#include "tests/experiments/shown_commands.hpp"
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

TEST(TutorialFeatures, HasEveryFeatureOfTheTutorials) {
  std::set<std::string> seen;
  for (const json& feature : features()) {
    const std::string name = feature.at("feature");
    EXPECT_TRUE(seen.insert(name).second) << name << " is listed twice";
    EXPECT_FALSE(feature.at("ours").get<std::string>().empty()) << name;
    EXPECT_FALSE(feature.at("peers").empty()) << name;
    for (const json& peer : feature.at("peers")) {
      EXPECT_FALSE(peer.at("framework").get<std::string>().empty()) << name;
      EXPECT_FALSE(peer.at("name").get<std::string>().empty()) << name;
    }
  }
  for (const char* const needed : {"autocast region",
                                   "decorate: a 16-bit model",
                                   "gradient scaler",
                                   "minimize",
                                   "level O0",
                                   "level OD",
                                   "level O1",
                                   "level O2",
                                   "level O3",
                                   "level auto",
                                   "custom white and black lists",
                                   "fp16_guard",
                                   "to_float",
                                   "excluded layers",
                                   "keep_batchnorm_fp32",
                                   "master weights",
                                   "master gradients",
                                   "save_dtype",
                                   "op statistics",
                                   "fixed loss scale",
                                   "dynamic loss scale",
                                   "drop_overflow_update = False",
                                   "custom training step",
                                   "gradient clipping",
                                   "gradient accumulation",
                                   "gradient penalty",
                                   "several models and losses, one scaler",
                                   "several optimizers: skip each, back off together",
                                   "a scaler for each loss",
                                   "GAN",
                                   "FP16 loss, and its overflow",
                                   "BF16",
                                   "FP8 inputs of matrix products",
                                   "all-reduce of gradients and of found_inf"})
    EXPECT_EQ(seen.count(needed), 1u) << needed;
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

/// Is there `TEST(Suite, Name)`, in one of its spellings, in the text of a file?
bool defines(const std::string& source, const std::string& test) {
  const std::size_t dot = test.find('.');
  const std::regex definition("(^|\n)(TYPED_)?TEST(_F|_P)?\\(\\s*" + test.substr(0, dot) + ",\\s*" +
                              test.substr(dot + 1) + "\\)");
  return std::regex_search(source, definition);
}

TEST(TutorialFeatures, EveryTestIsThere) {
  for (const json& feature : features()) {
    const std::string name = feature.at("feature");
    EXPECT_FALSE(feature.at("tests").empty()) << name;
    for (const json& test : feature.at("tests")) {
      const std::string file = test.at("file"), full = test.at("name");
      ASSERT_NE(full.find('.'), std::string::npos) << full;
      ASSERT_TRUE(std::filesystem::exists(sources / file)) << name << ": " << file;
      EXPECT_TRUE(defines(testing_support::slurp(sources / file), full))
          << name << ": " << file << " has no test " << full;
    }
  }
}

TEST(TutorialFeatures, EveryCommandParses) {
  std::set<std::string> commands;
  for (const json& feature : features()) commands.insert(feature.at("command").get<std::string>());
  for (const std::string& command : commands) expect_parses(command);
}

/// Every command as it stands there, made small by the words of "small" and written to the folder "run", in an empty
/// folder with made-up images in the place of Fashion-MNIST; each text of "shows" must be in the output, or in the file
/// that it is listed under. Bytes of safetensors files count: their headers name dtypes.
TEST(TutorialFeatures, EveryCommandShowsItsFeature) {
  const testing_support::TemporaryFolder temporary;
  testing_support::write_small_fashion(temporary.path() / "fashion-mnist", 640, 100);
  setenv("FP16LAB_DATA", temporary.path().c_str(), 1);  // NOLINT(concurrency-mt-unsafe): one thread
  std::size_t number = 0;
  std::map<std::string, std::pair<std::filesystem::path, std::string>>
      done;  // command: where it ran, what it said
  for (const json& feature : features()) {
    const std::string name = feature.at("feature");
    const std::string command =
        feature.at("command").get<std::string>() + " " + feature.value("small", std::string());
    SCOPED_TRACE(name + ": " + command);
    ASSERT_TRUE(feature.contains("shows") && !feature.at("shows").empty());
    if (!done.contains(command)) {
      const std::filesystem::path folder = temporary.path() / std::to_string(number++);
      std::filesystem::create_directories(folder);
      std::vector<std::string> words = words_of(command);
      const std::string program = (std::filesystem::path(FP16LAB_BIN_DIR) / words.front()).string();
      words.erase(words.begin());
      for (std::size_t i = 0; i + 1 < words.size(); ++i)
        if (words[i] == "-c") words[i + 1] = (sources / words[i + 1]).string();
      for (const char* const word : {"-o", "run"})
        if (command.find(" list") == std::string::npos) words.emplace_back(word);
      const testing_support::Finished result = testing_support::run_program(program, words, folder);
      EXPECT_EQ(result.exit_code, feature.value("exit", 0)) << result.out << result.err;
      done[command] = {folder, result.out + result.err};
    }
    const auto& [folder, output] = done.at(command);
    for (const auto& [where, texts] : feature.at("shows").items()) {
      const std::string text = where == "output" ? output : testing_support::slurp(folder / where);
      for (const std::string expected : texts)
        EXPECT_NE(text.find(expected), std::string::npos)
            << "\"" << expected << "\" is not in " << where << "\n"
            << output;
    }
  }
  unsetenv("FP16LAB_DATA");  // NOLINT(concurrency-mt-unsafe): one thread
}

/// The table "Mixed-precision frameworks" of reports/where_we_differ.md: the last column holds tests and commands.
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
