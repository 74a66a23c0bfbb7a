// What the tests of reports/ share: a small set of synthetic runs in a folder of their own.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
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

}  // namespace fp16lab::reports
