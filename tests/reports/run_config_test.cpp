// What of a configuration tells the runs of one workload apart: who divides by the loss scale, and layers
// made low by hand.
#include "reports/data/run_config.hpp"

#include <string>
#include <tuple>

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

TEST(RunConfig, HowLowWeightsAreStoredBelongsToTheConfigurationNotToTheWorkload) {
  const std::string before = "amp.level = \"O2\"\noptimizer.name = \"adam\"\n";
  const FlatConfig plain = config_of(before + "amp.rounding = \"nearest\"\noptimizer.kahan = false");
  const FlatConfig kahan = config_of(before + "optimizer.kahan = true");
  const FlatConfig stochastic = config_of(before + "amp.rounding = \"stochastic\"");
  EXPECT_EQ(configuration_settings(config_of(before)), configuration_settings(plain)) << "older folders";
  for (const FlatConfig& other : {kahan, stochastic}) {
    EXPECT_EQ(workload_settings(other), workload_settings(plain));
    EXPECT_NE(configuration_settings(other), configuration_settings(plain));
  }
  EXPECT_NE(configuration_settings(kahan), configuration_settings(stochastic));
  EXPECT_EQ(configuration_of(kahan).label, "FP16 O2 no scaling, Kahan");
  EXPECT_EQ(configuration_of(stochastic).label, "FP16 O2 no scaling, stochastic");
  EXPECT_EQ(configuration_of(config_of(before + "amp.rounding = \"stochastic_gradients\"")).label,
            "FP16 O2 no scaling, stochastic gradients");
}

TEST(RunConfig, Tf32HasFp32sRangeSoNobodyMissesAScale) {
  EXPECT_EQ(configuration_of(config_of("amp.level = \"O1\"\namp.dtype = \"tf32\"")).label, "TF32");
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

TEST(RunConfig, ATwinIsAConfigurationOfTheSameWorkloadAndAMarginIsNeither) {
  const FlatConfig plain = config_of("amp.level = \"O0\"\nscaler.policy = \"none\"\ntrain.steps = 5");
  const FlatConfig twin = config_of(
      "amp.level = \"O0\"\nscaler.policy = \"none\"\ntrain.steps = 5\ntrain.perturb_ulps = "
      "1\nreport.margin.loss = 2.0");
  EXPECT_EQ(workload_settings(plain), workload_settings(twin));
  EXPECT_NE(configuration_settings(plain), configuration_settings(twin));
  EXPECT_EQ(configuration_settings(plain),
            configuration_settings(
                config_of("amp.level = \"O0\"\nscaler.policy = \"none\"\ntrain.perturb_ulps = 0")))
      << "runs of earlier versions do not have the key";
  EXPECT_FALSE(configuration_settings(twin).contains("report.margin.loss"));
  const auto label = [](const char* more) {
    return configuration_of(config_of(std::string("scaler.policy = \"none\"\n") + more)).label;
  };
  EXPECT_EQ(configuration_of(twin).label, "FP32 twin");
  EXPECT_TRUE(configuration_of(twin).is_twin());
  EXPECT_EQ(label("train.perturb_ulps = 4"), "FP32 +4 ulps");
  EXPECT_EQ(label("amp.level = \"O1\"\ntrain.perturb_ulps = 1"), "FP16 no scaling +1 ulp");
}

TEST(ConfigurationOf, WhatOverflowsGiveBelongsToIt) {
  const std::string plain = "amp.level = \"O1\"\nscaler.policy = \"fixed\"\nscaler.initial_scale = 2\n";
  for (const auto& [more, label, usual] :
       {std::tuple{"backend.overflow = \"saturate\"", "FP16 S=2^1, saturating",
                   "backend.overflow = \"infinity\""},
        {"scaler.on_overflow = \"zero\"", "FP16 S=2^1, zeros at overflow",
         "scaler.on_overflow = \"skip\""}}) {
    const FlatConfig other = config_of(plain + more);
    EXPECT_EQ(configuration_of(other).label, label);
    EXPECT_NE(configuration_settings(other), configuration_settings(config_of(plain)));
    // Folders from before there was the key.
    EXPECT_EQ(configuration_settings(config_of(plain + usual)), configuration_settings(config_of(plain)));
  }
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
