// fp16lab train with scales of layers, through the real binary: what its rows say, kills in the middle, and
// what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/experiments/app/run/resume_runs.hpp"

namespace fp16lab::experiments {
namespace {

using ::testing::HasSubstr;

class LayerScales : public Resume {};

TEST_F(LayerScales, RowsSayWhatTheirTensorCarried) {
  const auto result =
      train("run", set({"scaler.policy=groups", "scaler.initial_scale=16", "scaler.groups=fc1=2^10,*=4",
                        "train.steps=3", "observe.histograms_every=1"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const std::string& scale : column("run/steps.csv", "loss_scale")) EXPECT_EQ(std::stod(scale), 16);
  std::set<std::string> tensors;
  for (const json& row : json_lines("run/histograms.jsonl")) {
    const std::string tensor = row.at("tensor");
    tensors.insert(tensor);
    const double scale = tensor.starts_with("fc1.") ? 16 * 1024 : tensor.starts_with("fc2.") ? 16 * 4 : 16;
    EXPECT_EQ(row.at("loss_scale"), scale) << row.at("step") << " " << tensor;
  }
  EXPECT_TRUE(tensors.contains("fc1.weight") && tensors.contains("fc2.input") &&
              tensors.contains("loss.prediction"));
  EXPECT_THAT(read("run/config.toml"), HasSubstr("groups = [\"fc1=2^10\", \"*=4\"]"));
}

TEST_F(LayerScales, InFp32TheyChangeNoNumber) {
  const std::vector<std::string> common = {"amp.level=O0", "scaler.initial_scale=2", "train.steps=12"};
  const auto trained = [&](const std::string& name, std::vector<std::string> settings) {
    settings.insert(settings.end(), common.begin(), common.end());
    const auto result = train(name, set(settings));
    ASSERT_EQ(result.exit_code, 0) << result.err;
  };
  trained("one", {"scaler.policy=fixed"});
  trained("ada", {"scaler.policy=ada-loss", "scaler.u_min=0.01"});
  trained("layers",
          {"scaler.policy=layerwise", "scaler.growth_interval=2", "scaler.groups=fc1=2^9,fc2=0.125"});
  for (const char* const name : {"ada", "layers"}) {
    const std::string file = std::string(name) + "/steps.csv";
    for (const char* const what : {"loss", "grad_norm", "loss_scale", "skipped"})
      EXPECT_EQ(column(file, what), column("one/steps.csv", what)) << name << ", " << what;
    std::set<double> scales;
    for (const json& row : json_lines(std::string(name) + "/histograms.jsonl"))
      scales.insert(row.at("loss_scale").get<double>());
    EXPECT_GT(scales.size(), 1u) << name << ": nothing was scaled";
  }
}

TEST_F(LayerScales, AKillUnderLayerwiseChangesNothing) {
  // growth_factor 16 every 7 good steps, from settings(): scales overflow again and again.
  expect_a_kill_to_change_nothing(
      {"scaler.policy=layerwise", "scaler.initial_scale=256", "scaler.groups=fc1=2^14,fc2=2^10"});
  const auto skipped = column("whole/steps.csv", "skipped");
  EXPECT_GT(std::count(skipped.begin(), skipped.end(), "1"), 0);
}

TEST_F(LayerScales, AKillUnderAdaLossChangesNothing) {
  expect_a_kill_to_change_nothing({"scaler.policy=ada-loss", "scaler.initial_scale=1",
                                   "scaler.update_per_n_iteration=5", "scaler.u_min=0.001"});
}

TEST_F(LayerScales, WhatCannotBeIsAUsageErrorBeforeAnythingIsWritten) {
  const auto refused = [&](const std::vector<std::string>& settings, const std::string& part) {
    expect_one_line_error(train("refused", set(settings)), 2, part);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "refused"));
  };
  refused({"scaler.policy=groups"}, "scaler.groups");
  refused({"scaler.policy=layerwise", "scaler.groups=fc1:8"}, "expected PATTERN=SCALE");
  refused({"scaler.policy=torch", "scaler.groups=fc1=8"}, "layerwise, groups do");
  refused({"scaler.policy=ada-loss", "backend.device=auto", "train.graph=true"}, "train.graph = true");
  refused({"scaler.policy=ada-loss", "amp.dialect=paddle", "amp.level=O2"}, "amp.master_gradients = true");
  refused({"scaler.policy=ada-loss", "scaler.drop_overflow_update=false"}, "drop_overflow_update");
}

TEST_F(LayerScales, APatternWithoutALayerNamesTheLayers) {
  const auto result = train("run", set({"scaler.policy=groups", "scaler.groups=fc9=8"}));
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("fc1.weight, fc2.weight"));
}

}  // namespace
}  // namespace fp16lab::experiments
