// A key is accepted exactly when it is read: where its table says that nothing reads it, another value
// changes no bit of a training, and where something does, it changes one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "experiments/app/run/prepared_run.hpp"
#include "tests/experiments/app/config/every_layer.hpp"
#include "tests/experiments/app/config/make_read.hpp"
#include "tests/support/idx_files.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::experiments {
namespace {

using Settings = std::vector<std::string>;
using make_read::key_named;

/// A value other than the default, and what the run needs besides for it to matter.
struct OtherValue {
  std::string value;
  Settings besides{};
  std::string why_not{};  ///< why no training here shows that it is read; empty: one does
};

const std::map<std::string, OtherValue, std::less<>> other_values{
    {"model.label_smoothing", {"0.1"}},
    {"model.one_hot", {"true"}},
    {"model.huber_delta", {"0.01"}},
    {"model.noise", {"8", {}, "recipe_gan"}},
    {"model.layout", {"nhwc"}},
    {"model.context", {"4", {}, "the position embedding has that many rows"}},
    {"model.scale_down", {"2"}},
    {"data.train", {"x,y", {}, "arrays of the user's own"}},
    {"data.test", {"x,y", {}, "arrays of the user's own"}},
    {"data.test_size", {"2", {}, "arrays of the user's own"}},
    {"data.test_seed", {"2", {}, "arrays of the user's own"}},
    {"data.layout", {"nchw", {}, "arrays of the user's own"}},
    {"data.classes", {"4", {"model.loss=cross_entropy"}, "the loss changes with it"}},
    {"data.subset", {"100", {}, "data that are read"}},
    {"data.test_subset", {"100", {}, "data that are read"}},
    {"data.shuffle", {"false"}},
    {"data.tokens", {"bytes"}},
    {"data.normalise", {"standard"}},
    {"data.padding", {"1"}},
    {"data.flip", {"true"}},
    {"data.crop_padding", {"2"}},
    {"data.targets", {"labels", {}, "auto is labels for cross_entropy"}},
    {"data.batches", {"1"}},
    {"data.inputs", {"8"}},
    {"data.outputs", {"8", {}, "the network ends with four"}},
    {"train.epochs", {"2"}},
    {"train.accumulate_mode", {"sum"}},
    {"train.penalty", {"3"}},
    {"optimizer.momentum", {"0.5"}},
    {"optimizer.dampening", {"0.5", {"optimizer.momentum=0.9"}}},
    {"optimizer.nesterov", {"true"}},
    {"optimizer.beta1", {"0.5"}},
    {"optimizer.beta2", {"0.5"}},
    {"optimizer.alpha", {"0.5"}},
    {"optimizer.centered", {"true"}},
    {"optimizer.epsilon", {"0.01"}},
    {"schedule.total_steps", {"9"}},
    {"schedule.minimum_factor", {"0.5"}},
    {"schedule.step_interval", {"1", {"schedule.step_interval=2"}}},
    {"schedule.step_factor", {"0.5", {"schedule.step_interval=1"}}},
    {"schedule.power", {"3"}},
    {"schedule.gamma", {"0.5"}},
    {"amp.dtype", {"bf16"}},
    {"amp.white", {"softmax"}},
    {"amp.black", {"linear"}},
    {"amp.excluded", {"right"}},
    {"amp.use_guard", {"true"}},
    {"amp.guard", {"right"}},
    {"amp.keep_batchnorm_fp32", {"false", {"amp.dialect=apex", "amp.level=O2"}}},
    {"amp.master_weights", {"false", {"amp.dialect=paddle", "amp.level=O2"}}},
    {"amp.master_gradients", {"true", {"amp.dialect=paddle", "amp.level=O2", "train.accumulate=2"}}},
    {"amp.low_inputs", {"false", {}, "layers cast their inputs when they come"}},
    {"amp.low_loss", {"true", {"amp.dialect=paddle", "amp.level=O2"}}},
    {"amp.use_promote", {"false"}},
    {"amp.allow_banned", {"true", {}, "nothing here is banned"}},
    {"amp.fp8_operands", {"e4m3", {}, "with amp.fp8_gradients or not at all"}},
    {"amp.fp8_gradients", {"e5m2", {}, "with amp.fp8_operands or not at all"}},
    {"amp.recipe", {"mxfp4"}},
    {"amp.recipe_stochastic", {"false"}},
    {"amp.recipe_hadamard", {"false"}},
    {"amp.recipe_2d", {"false"}},
    {"amp.recipe_wide", {"right"}},
    {"amp.rounding", {"stochastic"}},
    {"backend.accumulator", {"f16"}},
    {"backend.library",
     {"onednn",
      {"amp.dtype=bf16", "backend.tensor_core=avx512_bf16"},
      "BF16 hides the order of so few products; backend_test.cpp trains a larger network"}},
    {"backend.library_threads", {"2", {}, "only products over 2,048 elements and more tell"}},
    {"backend.overflow", {"saturate", {}, "a step with such a result is skipped either way"}},
    {"scaler.power_of_two", {"round_down", {"scaler.policy=fixed", "scaler.initial_scale=300"}}},
    {"scaler.groups", {"*=2^1", {"amp.level=O1", "scaler.groups=*=2^15"}}},
    {"parallel.sync_batch_norm", {"true"}},
    {"parallel.wire", {"f16"}},
    {"parallel.predivide", {"n", {}, "a power of two changes bits at the edges of FP16 alone"}},
    {"parallel.order", {"nccl-ring", {"parallel.shards=4"}}},
};

class KeyReaders : public testing::Test {
 protected:
  /// The state after three steps with these settings, whoever reads them. `with`: the key, another value or
  /// not.
  std::uint64_t trained(const Settings& settings, const std::string& with) {
    const bool images =
        says(settings, "data.name=fashion-mnist") || says(settings, "model.loss=cross_entropy");
    const bool words = says(settings, "data.name=bible-kjv");
    RunConfig config = parse_config(images  ? every_layer::images
                                    : words ? every_layer::words
                                            : every_layer::numbers,
                                    "readers");
    Settings all{"train.batch_size=8", "train.steps=3", "data.batches=3"};
    if (words) all.push_back("data.path=" + text_file());
    for (const std::string& setting : settings)
      if (!setting.starts_with("data.name=") && !setting.starts_with("model.loss=cross"))
        all.push_back(setting);
    if (!with.empty()) all.push_back(with);
    for (const std::string& setting : all) apply_setting(config, setting, "readers");
    config.data.batches = with.starts_with("data.batches") ? config.data.batches : 3;
    const auto run = prepare_run(resolve_run(config), 1);
    engine::Tap nobody;
    engine::Trainer trainer(*run->backend, run->workload, run->plan, nobody);
    trainer.run();
    return trainer.state_hash();
  }
  static bool says(const Settings& settings, std::string_view setting) {
    return std::ranges::find(settings, setting) != settings.end();
  }
  /// Keys whose value may change bits, and that not every run reads.
  static std::vector<const ConfigKey*> keys() {
    std::vector<const ConfigKey*> found;
    for (const ConfigKey& key : config_keys())
      if (!key.readers.empty() && key.parameter == nullptr && key.role != KeyRole::machine &&
          key.role != KeyRole::watching)
        found.push_back(&key);
    return found;
  }
  std::string text_file() {
    const std::filesystem::path file = temporary_.path() / "words.txt";
    testing_support::write_bytes(file, every_layer::text());
    return file.string();
  }
  testing_support::TemporaryFolder temporary_;
};

TEST_F(KeyReaders, EveryKeyIsAsked) {
  std::set<std::string> asked, known;
  for (const ConfigKey* key : keys()) known.insert(key->name);
  for (const auto& [name, value] : other_values) asked.insert(name);
  EXPECT_EQ(asked, known);
}

TEST_F(KeyReaders, AKeyThatIsReadChangesTheTraining) {
  for (const ConfigKey* key : keys()) {
    const OtherValue& other = other_values.find(key->name)->second;
    if (!other.why_not.empty()) continue;
    Settings settings = make_read::settings_for(*key);
    settings.insert(settings.end(), other.besides.begin(), other.besides.end());
    EXPECT_NE(trained(settings, ""), trained(settings, key->name + "=" + other.value)) << key->name;
  }
}

TEST_F(KeyReaders, AKeyThatNothingReadsChangesNothing) {
  std::size_t asked = 0;
  for (const ConfigKey* key : keys()) {
    const std::string setting = key->name + "=" + other_values.find(key->name)->second.value;
    for (const std::vector<ReadWith>& alternatives : key->readers) {
      const ConfigKey& chooser = key_named(alternatives.front().key);
      if (chooser.name == "data.name" || alternatives.size() > 1) continue;
      std::vector<std::string> values = chooser.choices;
      if (values.empty()) values = {"0", "1", "3"};
      for (const std::string& value : values) {
        if (chooser.name == "train.method" && value != "supervised") continue;  // two networks
        const Settings settings{chooser.name + "=" + value};
        RunConfig config;
        std::uint64_t plain = 0, with = 0;
        try {
          apply_setting(config, settings.front(), "readers");
          if (why_unread(config, setting).empty()) continue;
          plain = trained(settings, "");
          with = trained(settings, setting);
        } catch (const std::exception&) {
          continue;  // refused by the engine's own words
        }
        ++asked;
        EXPECT_EQ(plain, with) << settings.front() << ", " << setting;
      }
    }
  }
  EXPECT_GT(asked, 60U);
}

TEST_F(KeyReaders, TheRefusalNamesWhoReadsIt) {
  const auto refusal = [](const std::string& chosen, const std::string& setting) {
    RunConfig config;
    apply_setting(config, chosen, "x");
    apply_setting(config, setting, "x");
    return testing_support::message_of([&] { require_read({setting}, config, "--set"); });
  };
  EXPECT_EQ(refusal("optimizer.name=adam", "optimizer.nesterov=true"),
            "--set: optimizer.nesterov=true: optimizer.name = adam does not read it; sgd, muon do");
  EXPECT_EQ(refusal("train.steps=5", "train.epochs=2"),
            "--set: train.epochs=2: train.steps = 5 does not read it; train.steps = 0 does");
  EXPECT_EQ(refusal("amp.level=O0", "amp.white=add"),
            "--set: amp.white=add: amp.level = O0 does not read it; OD, O1, O2, O3, auto, auto-r1.7 do, and "
            "so does any amp.to_float");
}

TEST_F(KeyReaders, OneRefusalNamesAllKeysThatNothingReads) {
  const RunConfig config = parse_config("[optimizer]\nname = \"adam\"\n", "x");
  EXPECT_EQ(testing_support::message_of([&] {
              require_read(
                  {"optimizer.nesterov=true", "optimizer.lr=1", "schedule.gamma=0.5", "data.batches=3"},
                  config, "--set");
            }),
            "--set: optimizer.nesterov=true: optimizer.name = adam does not read it; sgd, muon do (nothing reads "
            "schedule.gamma=0.5, data.batches=3 either)");
}

TEST_F(KeyReaders, SectionsOfModelsAreReadByTheirOwnRule) {
  RunConfig config;
  for (const char* const setting : {"train.method=gan", "optimizer.name=adam", "optimizer.nesterov=true",
                                    "optimizer.discriminator.name=sgd"})
    apply_setting(config, setting, "x");
  EXPECT_TRUE(is_read(config, key_named("optimizer.nesterov"))) << "by the discriminator";
  EXPECT_TRUE(is_read(config, key_named("optimizer.discriminator.dampening")));
  EXPECT_FALSE(is_read(config, key_named("optimizer.generator.nesterov")));
  EXPECT_FALSE(is_read(config, key_named("optimizer.model0.lr")));
}

TEST_F(KeyReaders, WhatNothingReadsIsLeftOutAndSaid) {
  RunConfig config = parse_config("[optimizer]\nnesterov = true\n", "x.toml");
  apply_settings(config, {"optimizer.name=adam"}, "--set");
  EXPECT_EQ(leave_out_unread(config),
            Settings{"optimizer.nesterov = true is left out: optimizer.name = adam does not read it"});
  EXPECT_FALSE(config.optimizer.nesterov);
  EXPECT_EQ(to_toml(config).find("nesterov"), std::string::npos);
  EXPECT_TRUE(leave_out_unread(config).empty());
}

}  // namespace
}  // namespace fp16lab::experiments
