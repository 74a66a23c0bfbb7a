// Training has the bits that it had: tests/golden/state_hashes.tsv.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/experiments/app/small_runs.hpp"

namespace fp16lab::experiments {
namespace {

const std::filesystem::path source_folder = FP16LAB_SOURCE_DIR;

struct KnownRun {
  std::string name, config, hash;
  std::vector<std::string> settings;
};

std::vector<KnownRun> known_runs() {
  std::ifstream file(source_folder / "tests/golden/state_hashes.tsv");
  std::vector<KnownRun> runs;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream fields(line);
    KnownRun run;
    std::string arguments;
    std::getline(fields, run.name, '\t');
    std::getline(fields, arguments, '\t');
    std::getline(fields, run.hash);
    std::istringstream words(arguments);
    words >> run.config;
    for (std::string word; words >> word;) run.settings.push_back(word);
    runs.push_back(std::move(run));
  }
  return runs;
}

class StateHashes : public SmallRuns, public testing::WithParamInterface<KnownRun> {};

TEST_P(StateHashes, AreThoseOfTheList) {
  const KnownRun& run = GetParam();
  std::vector<std::string> arguments{
      "train",     "--quiet",
      "-c",        (source_folder / "experiments/configs" / (run.config + ".toml")).string(),
      "-o",        path("out"),
      "--set",     "train.steps=50",
      "--set",     "train.evaluate_every=0",
      "--set",     "observe.histograms_every=0",
      "--threads", "2"};
  for (const std::string& setting : run.settings) arguments.insert(arguments.end(), {"--set", setting});
  const auto result = fp16lab(arguments);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<std::string> hashes = column("out/steps.csv", "state_hash");
  ASSERT_EQ(hashes.size(), 50u);
  EXPECT_EQ(hashes.back(), run.hash);
}

INSTANTIATE_TEST_SUITE_P(Shipped, StateHashes, testing::ValuesIn(known_runs()), [](const auto& known) {
  std::string name = known.param.name;
  for (char& c : name)
    if (c == ' ' || c == '-') c = '_';
  return name;
});

TEST(StateHashList, HasEveryShippedConfigurationOfATraining) {
  std::set<std::string> listed, shipped;
  for (const KnownRun& run : known_runs()) listed.insert(run.config);
  for (const auto& entry : std::filesystem::directory_iterator(source_folder / "experiments/configs"))
    if (testing_support::slurp(entry.path()).find("[[workload]]") == std::string::npos)
      shipped.insert(entry.path().stem().string());
  EXPECT_EQ(listed, shipped);
}

}  // namespace
}  // namespace fp16lab::experiments
