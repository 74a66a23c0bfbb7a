// Commands that tables and checklists show to users: do they exist, and do they parse?
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "experiments/app/common_options.hpp"
#include "experiments/app/config/run_plan.hpp"
#include "tests/support/spawn.hpp"

namespace fp16lab::experiments {

inline std::vector<std::string> words_of(const std::string& command) {
  std::istringstream stream(command);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

/// As if typed in the root of the sources. The program must exist and know every option; a configuration must
/// exist and accept every --set; `fp16lab inspect` and `list`, which take no time, are run.
inline void expect_parses(const std::string& command) {
  std::vector<std::string> words = words_of(command);
  ASSERT_FALSE(words.empty());
  const std::filesystem::path program = std::filesystem::path(FP16LAB_BIN_DIR) / words.front();
  ASSERT_TRUE(std::filesystem::exists(program)) << command << ": no such program";
  words.erase(words.begin());
  CommonOptions common;
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] == "-c" || words[i] == "--config")
      common.config = words[i + 1] = (std::filesystem::path(FP16LAB_SOURCE_DIR) / words[i + 1]).string();
    if (words[i] == "--set") common.set.push_back(words[i + 1]);
  }
  const bool quick = !words.empty() && (words.front() == "inspect" || words.front() == "list");
  if (!quick) {
    const bool own_settings = !words.empty() && (words.front() == "sweep" || words.front() == "policy" ||
                                                 words.front() == "replay");
    if (!own_settings && (!common.config.empty() || !common.set.empty())) {
      EXPECT_NO_THROW(resolve_run(common)) << command;
    }
    words.emplace_back("--help");
  }
  const testing_support::Finished result =
      testing_support::run_program(program.string(), words, testing::TempDir());
  EXPECT_EQ(result.exit_code, 0) << command << "\n" << result.err;
  if (quick) return;
  // --help answers before unknown options are refused, so options are looked up in it.
  for (const std::string& word : words) {
    if (!word.starts_with("--")) continue;
    EXPECT_NE(result.out.find(word.substr(0, word.find('='))), std::string::npos) << command << ": " << word;
  }
}

}  // namespace fp16lab::experiments
