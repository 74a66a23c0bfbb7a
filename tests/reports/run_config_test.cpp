// What of a configuration tells the runs of one workload apart: who divides by the loss scale, and layers made low by hand.
#include "reports/run_config.hpp"

#include <gtest/gtest.h>

namespace fp16lab::reports {
namespace {

FlatConfig config_of(std::string_view toml) { return flatten_toml(toml, "test"); }

TEST(RunConfig, WhoDividesByTheScaleBelongsToTheConfigurationNotToTheWorkload) {
  const FlatConfig scaler =
      config_of("amp.level = \"O2\"\nscaler.policy = \"fixed\"\noptimizer.name = \"sgd\"");
  const FlatConfig optimizer = config_of(
      "amp.level = \"O2\"\nscaler.policy = \"fixed\"\noptimizer.name = \"sgd\"\n"
      "scaler.drop_overflow_update = false\noptimizer.loss_scale = 1024.0");
  EXPECT_EQ(workload_settings(scaler), workload_settings(optimizer));
  EXPECT_NE(configuration_settings(scaler), configuration_settings(optimizer));
  EXPECT_EQ(configuration_settings(optimizer).at("optimizer.loss_scale"), "1024.0");
  EXPECT_EQ(configuration_settings(optimizer).at("scaler.drop_overflow_update"), "false");
}

TEST(RunConfig, DefaultsOfTheDivisionAreAsIfTheyWereNotThere) {
  // Runs of earlier versions do not have these keys.
  const FlatConfig before = config_of("amp.level = \"O1\"\nscaler.policy = \"fixed\"");
  const FlatConfig now = config_of(
      "amp.level = \"O1\"\nscaler.policy = \"fixed\"\nscaler.drop_overflow_update = "
      "true\noptimizer.loss_scale = 1.0");
  EXPECT_EQ(configuration_settings(before), configuration_settings(now));
  EXPECT_EQ(workload_settings(before), workload_settings(now));
}

TEST(RunConfig, APolicyHasOneNameAndEveryOtherOneIsAdaptive) {
  const FlatConfig old_name =
      config_of("amp.level = \"O1\"\nscaler.policy = \"dynamic\"\nscaler.initial_scale = 8.0");
  const FlatConfig new_name =
      config_of("amp.level = \"O1\"\nscaler.policy = \"torch\"\nscaler.initial_scale = 8.0");
  EXPECT_EQ(configuration_of(old_name).label, "FP16 torch");
  EXPECT_EQ(configuration_of(new_name).label, "FP16 torch");
  EXPECT_EQ(configuration_settings(old_name), configuration_settings(new_name));
  const ConfigurationId flax = configuration_of(config_of("amp.level = \"O2\"\nscaler.policy = \"flax\""));
  EXPECT_EQ(flax.label, "FP16 O2 flax");
  EXPECT_EQ(flax.scaling, Scaling::adaptive);
  const ConfigurationId off =
      configuration_of(config_of("amp.level = \"O1\"\nscaler.policy = \"flax\"\nscaler.enabled = false"));
  EXPECT_EQ(off.label, "FP16 no scaling");
  EXPECT_EQ(off.scaling, Scaling::none);
}

TEST(ConfigurationOf, SumsInFp16BelongToIt) {
  const std::string f32 = "amp.level = \"O1\"\nbackend.tensor_core = \"volta\"\n";
  const FlatConfig f16 = config_of(f32 + "backend.accumulator = \"f16\"");
  EXPECT_EQ(configuration_of(f16).label, "FP16 no scaling, FP16 acc");
  EXPECT_NE(configuration_settings(f16), configuration_settings(config_of(f32)));
  // Folders from before there was the key are FP32 sums.
  EXPECT_EQ(configuration_settings(config_of(f32 + "backend.accumulator = \"f32\"")),
            configuration_settings(config_of(f32)));
  EXPECT_EQ(configuration_of(config_of("amp.level = \"O0\"\nbackend.accumulator = \"f16\"")).label, "FP32");
}

TEST(RunConfig, ALayerMadeLowByHandIsNotFp32) {
  EXPECT_EQ(configuration_of(config_of("amp.level = \"O0\"\namp.to_float = []")).label, "FP32");
  const ConfigurationId id = configuration_of(config_of("amp.level = \"O0\"\namp.to_float = [\"fc1=f16\"]"));
  EXPECT_EQ(id.precision, Precision::low);
  EXPECT_EQ(id.label, "FP16 O0 no scaling");
}

}  // namespace
}  // namespace fp16lab::reports
