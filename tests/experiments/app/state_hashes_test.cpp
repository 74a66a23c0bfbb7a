// Training has the bits that it had: tests/golden/state_hashes.tsv.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tests/experiments/app/known_runs.hpp"
#include "tests/experiments/app/small_runs.hpp"

namespace fp16lab::experiments {
namespace {

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
