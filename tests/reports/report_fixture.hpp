// What the tests of reports/ share: a small set of synthetic runs in a folder of their own.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/reports/synthetic_runs.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::reports {

class Reports : public ::testing::Test {
 protected:
  /// FP32, no scaling and dynamic, two seeds each; losses exact in binary.
  std::vector<std::filesystem::path> small_set() const {
    std::vector<std::filesystem::path> runs;
    for (const std::uint64_t seed : {2, 1}) {  // not in order, on purpose
      const double shift = seed == 1 ? 0.0 : 1.0 / 1024;
      SyntheticRun run{.seed = seed, .steps = 100};
      run.policy = "dynamic";
      run.initial_scale = 4096;
      run.skips = {3, 50};
      run.final_loss = 0.25 + shift;
      runs.push_back(write_synthetic_run(folder, run));
      run.policy = "none";
      run.skips.clear();
      run.final_loss = 0.3125 + shift;
      runs.push_back(write_synthetic_run(folder, run));
      run.level = "O0";
      run.final_loss = 0.25 + shift;
      runs.push_back(write_synthetic_run(folder, run));
    }
    return runs;
  }

  testing_support::TemporaryFolder temporary;
  const std::filesystem::path& folder = temporary.path();
};

/// The numbers that a page carries for its charts.
inline nlohmann::json embedded_data(const std::string& html) {
  const std::string begin = "<script type=\"application/json\" id=\"data\">";
  const std::size_t from = html.find(begin) + begin.size();
  return nlohmann::json::parse(html.substr(from, html.find("</script>", from) - from));
}

/// A text with marks (reports/page/marked.hpp) as HTML would have it: strong, small, code and em, tips left out.
inline std::string tagged(std::string_view marked) {
  static const std::map<char, std::string> names{{'b', "strong"}, {'s', "small"}, {'o', "soft"},
                                                 {'c', "code"},   {'n', "em"},    {'t', "tip"}};
  std::string text;
  std::vector<std::string> open;
  for (std::size_t i = 0; i < marked.size(); ++i) {
    if (marked[i] == '\x02') {
      open.push_back(names.at(marked.at(++i)));
      text += "<" + open.back() + ">";
    } else if (marked[i] == '\x1d') {
      i = marked.find('\x03', i) - 1;
    } else if (marked[i] == '\x03') {
      text += "</" + open.back() + ">";
      open.pop_back();
    } else {
      text += marked[i];
    }
  }
  return text;
}

/// The texts of a table_json(), a row a line, cells between bars, with their tags.
inline std::string rows_of(const nlohmann::json& table) {
  std::string text;
  for (const nlohmann::json& row : table.at("rows")) {
    text += row.at("reference") ? "* " : "  ";
    for (const nlohmann::json& cell : row.at("cells"))
      text += tagged((cell.is_string() ? cell : cell.at("text")).get<std::string>()) + " | ";
    text += "\n";
  }
  return text;
}

}  // namespace fp16lab::reports
