// fp16lab sensitivity through the binary: a run that needs no FP32, and one in which every claim is tried by
// trainings.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/experiments/app/small_runs.hpp"

namespace fp16lab::experiments {
namespace {

using ::testing::HasSubstr;

class Sensitivity : public SmallRuns {
 protected:
  /// Did the first step of a training with these layers in FP32 overflow?
  bool overflows(const std::string& name, const std::vector<std::string>& settings,
                 const std::string& layers) {
    std::vector<std::string> arguments = settings;
    if (!layers.empty()) arguments.insert(arguments.end(), {"--set", "amp.excluded=" + layers});
    train(name, arguments);
    return column(name + "/steps.csv", "found_inf")[0] == "1";
  }
};

TEST_F(Sensitivity, ATameRunNeedsNone) {
  ASSERT_EQ(train("tame", {"--set", "checkpoint.every=20"}).exit_code, 0);
  const std::string before = read("tame/manifest.json");
  const auto told = fp16lab({"sensitivity", path("tame")});
  EXPECT_EQ(told.exit_code, 0) << told.err;
  EXPECT_THAT(
      told.out,
      HasSubstr("tame: step 41, O1, loss scale 2^0, against all layers in FP32; margin 0.05\nas it is"));
  EXPECT_THAT(told.out, HasSubstr("No layer needs FP32.\n"));
  EXPECT_EQ(read("tame/manifest.json"), before);
  // A margin that FP16's own rounding exceeds: both products are needed then.
  const nlohmann::json json =
      nlohmann::json::parse(fp16lab({"sensitivity", path("tame"), "--margin", "1e-9", "--json"}).out);
  EXPECT_EQ(json["layers"], (std::vector<std::string>{"fc1", "fc2"})) << json;
  EXPECT_EQ(json["restored"], true);
  EXPECT_LT(json["within"]["gradients"], 1e-9);
  EXPECT_GT(json["without"]["gradients"], 1e-5);
}

TEST_F(Sensitivity, TheListClearsTheStepAndEachLayerIsNeeded) {
  const std::vector<std::string> settings{
      "--set", "scaler.policy=fixed", "--set", "scaler.initial_scale=2^40", "--set", "train.steps=2"};
  ASSERT_TRUE(overflows("high", settings, ""));
  const nlohmann::json json = nlohmann::json::parse(fp16lab({"sensitivity", path("high"), "--json"}).out);
  const std::vector<std::string> layers = json["layers"];
  ASSERT_FALSE(layers.empty());
  EXPECT_EQ(json["step"], 1);
  EXPECT_EQ(json["without"]["gradients"], "Infinity");
  std::string all;
  for (const std::string& layer : layers) all += (all.empty() ? "" : ",") + layer;
  EXPECT_FALSE(overflows("cleared", settings, all));
  for (const std::string& left_out : layers) {
    std::string rest;
    for (const std::string& layer : layers)
      if (layer != left_out) rest += (rest.empty() ? "" : ",") + layer;
    EXPECT_TRUE(overflows("without_" + left_out, settings, rest)) << left_out;
  }
  const auto told = fp16lab({"sensitivity", path("high")});
  EXPECT_THAT(told.out, HasSubstr("--set amp.excluded=" + all + "\n"));
  EXPECT_THAT(told.out, HasSubstr("each of them is needed ("));
}

TEST_F(Sensitivity, BadInputIsNamed) {
  expect_one_line_error(fp16lab({"sensitivity", path("nowhere")}), 2, "nowhere: no such run folder");
  ASSERT_EQ(train("wide", {"--set", "amp.level=O0", "--set", "train.steps=1"}).exit_code, 0);
  expect_one_line_error(fp16lab({"sensitivity", path("wide")}), 2, "amp.level is O0, which computes in FP32");
}

}  // namespace
}  // namespace fp16lab::experiments
