// What a run is: which keys make its workload and its configuration, what people call it, and what is told of
// folders that do not say it.
#include "experiments/app/config/run_identity.hpp"

#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "numerics/files/disk/read_file.hpp"
#include "numerics/files/run/run_folder.hpp"

namespace fp16lab::experiments {
namespace {

RunIdentity identity(const std::string& toml) { return identity_of(parse_config(toml, "test")); }
std::string label(const std::string& toml) { return identity(toml).label; }

/// One workload in two configurations.
void expect_apart(const std::string& a, const std::string& b) {
  EXPECT_EQ(identity(a).workload_keys, identity(b).workload_keys) << b;
  EXPECT_NE(identity(a).configuration_keys, identity(b).configuration_keys) << b;
}
void expect_equal(const std::string& a, const std::string& b) {
  EXPECT_EQ(identity(a).workload_keys, identity(b).workload_keys) << b;
  EXPECT_EQ(identity(a).configuration_keys, identity(b).configuration_keys) << b;
}

TEST(RunIdentity, TheKeysOfAConfigurationAreNotTheWorkloads) {
  const std::string plain =
      "amp.level = \"O2\"\namp.dialect = \"paddle\"\nscaler.policy = \"fixed\"\nscaler.initial_scale = 2.0\n";
  for (const char* const other :
       {"scaler.drop_overflow_update = false\noptimizer.loss_scale = 2.0", "optimizer.kahan = true",
        "amp.rounding = \"stochastic\"", "amp.dtype = \"bf16\"", "amp.excluded = [\"fc1*\"]",
        "backend.tensor_core = \"volta\"", "backend.device = \"auto\"", "backend.accumulator = \"f16\"",
        "backend.overflow = \"saturate\"", "scaler.on_overflow = \"zero\"", "scaler.rescue = 2",
        "backend.library = \"onednn\"", "train.perturb_ulps = 1"})
    expect_apart(plain, plain + other);
  for (const char* const other : {"train.steps = 7", "optimizer.lr = 0.5", "data.subset = 100",
                                  "model.label_smoothing = 0.1", "parallel.shards = 2"})
    EXPECT_NE(identity(plain).workload_keys, identity(plain + other).workload_keys) << other;
  EXPECT_NE(identity("[[model.layer]]\nname = \"fc\"\ntype = \"linear\"\nout_features = 4").workload_keys,
            identity("[[model.layer]]\nname = \"fc\"\ntype = \"linear\"\nout_features = 8").workload_keys);
}

TEST(RunIdentity, WhatChangesNoBitIsNoPartOfIt) {
  const std::string plain = "amp.level = \"O1\"\nscaler.policy = \"torch\"\n";
  for (const char* const other :
       {"train.seed = 7", "data.path = \"/elsewhere\"", "report.margin.loss = 2.0",
        "observe.histograms_every = 7", "checkpoint.every = 5", "train.evaluate_every = 3",
        "train.skip_limit = 9",
        // Values that are defaults, as they also read in a folder that was written before there was the key.
        "scaler.on_overflow = \"skip\"", "backend.overflow = \"infinity\"", "backend.accumulator = \"f32\"",
        "scaler.growth_interval = 2000", "optimizer.loss_scale = 1.0", "amp.rounding = \"nearest\""})
    expect_equal(plain, plain + other);
  EXPECT_EQ(identity(plain + "train.seed = 7").seed, 7u);
  // FP32 is the same in every dialect and on every tensor core.
  for (const char* const other :
       {"amp.dialect = \"paddle\"", "backend.tensor_core = \"volta\"", "scaler.policy = \"none\""})
    expect_equal("", other);
  // One name of two; and a scaler that is switched off is none.
  expect_equal(plain, "amp.level = \"O1\"\nscaler.policy = \"dynamic\"\n");
  expect_equal("amp.level = \"O1\"", "amp.level = \"O1\"\nscaler.policy = \"flax\"\nscaler.enabled = false");
}

TEST(RunIdentity, LabelsSayWhatIsNotUsual) {
  const std::string o1 = "amp.level = \"O1\"\n", o2 = "amp.level = \"O2\"\namp.dialect = \"paddle\"\n",
                    fixed = "scaler.policy = \"fixed\"\nscaler.initial_scale = 2\n";
  for (const auto& [toml, expected] : {
           std::tuple{std::string(), "FP32"},
           {"amp.to_float = []", "FP32"},
           {"amp.to_float = [\"fc1=f16\"]", "FP16 O0 no scaling"},
           {"train.perturb_ulps = 1", "FP32 twin"},
           {"train.perturb_ulps = 4", "FP32 +4 ulps"},
           {o1 + "train.perturb_ulps = 1", "FP16 no scaling +1 ulp"},
           {o1, "FP16 no scaling"},
           {o1 + "amp.dtype = \"tf32\"", "TF32"},  // it has FP32's range: it needs no scale
           {o1 + "scaler.policy = \"dynamic\"\nscaler.initial_scale = 8.0", "FP16 torch"},
           {o2 + "scaler.policy = \"flax\"", "FP16 paddle O2 flax"},
           {"amp.level = \"O2\"\namp.dialect = \"mindspore\"", "FP16 mindspore O2 mindspore"},
           {o1 + "scaler.policy = \"flax\"\nscaler.enabled = false", "FP16 no scaling"},
           {"amp.level = \"O2\"", "FP16 O2 no scaling"},  // which torch does not have, so that no run has it
           {o1 + fixed, "FP16 S=2^1"},
           {o1 + fixed + "backend.overflow = \"saturate\"", "FP16 S=2^1, saturating"},
           {o1 + fixed + "scaler.on_overflow = \"zero\"", "FP16 S=2^1, zeros at overflow"},
           {o1 + "backend.accumulator = \"f16\"", "FP16 no scaling, FP16 acc"},
           {o1 + "backend.library = \"onednn\"", "FP16 no scaling, onednn"},
           {"backend.accumulator = \"f16\"", "FP32"},
           {o2 + "optimizer.kahan = true", "FP16 paddle O2 no scaling, Kahan"},
           {o2 + "amp.rounding = \"stochastic_gradients\"",
            "FP16 paddle O2 no scaling, stochastic gradients"},
       })
    EXPECT_EQ(label(toml), expected) << toml;
  EXPECT_TRUE(identity("train.perturb_ulps = 1").is_twin());
  EXPECT_FALSE(identity("train.perturb_ulps = 4").is_twin());
  EXPECT_TRUE(identity("").is_reference());
  EXPECT_FALSE(identity(fixed).is_reference());
  EXPECT_TRUE(identity(fixed).fp32);
}

TEST(RunIdentity, AManifestSaysItAndAnOlderOneIsCompleted) {
  Manifest manifest;
  manifest.config =
      "[amp]\nlevel = \"O1\"\n[scaler]\npolicy = \"torch\"\n[optimizer]\nname = \"adam\"\nnesterov = true\n";
  const reports::ToldRun older = told(manifest);
  EXPECT_EQ(older.identity.label, "FP16 torch");
  EXPECT_EQ(older.config.find("nesterov"), std::string::npos) << "adam does not read it";
  manifest.identity = identity("train.perturb_ulps = 1");
  EXPECT_EQ(parse_manifest(to_json(manifest)).identity->label, "FP32 twin");
  EXPECT_EQ(told(parse_manifest(to_json(manifest))).identity.configuration_keys,
            identity("train.perturb_ulps = 1").configuration_keys);
  // Nothing is made up of what lab.watch wrote, though this build could read it; nor of what it cannot read.
  Manifest watched;
  watched.git_hash = "fp16lab 1, torch 2.12.0";
  watched.config =
      "[model]\nname = \"classifier\"\n[train]\nseed = 3\n[amp]\nlevel = \"O1\"\ndtype = \"bf16\"\n";
  ASSERT_TRUE(is_watched(watched));
  EXPECT_EQ(told(watched).config, watched.config);
  EXPECT_EQ(told(watched).identity.workload, "classifier");
  EXPECT_EQ(told(watched).identity.label, "BF16 no scaling");
  EXPECT_EQ(told(watched).identity.seed, 3u);
  manifest.identity.reset();
  manifest.config = "[model]\nname = \"net\"\n[amp]\nlevel = \"O9\"\n";
  EXPECT_EQ(told(manifest).identity.label, "FP16 O9 no scaling");
}

}  // namespace
}  // namespace fp16lab::experiments
