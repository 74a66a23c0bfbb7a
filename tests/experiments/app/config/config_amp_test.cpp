// The keys of mixed precision: how lists may be written, what becomes of them, and what cannot go together.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "engine/amp/policy.hpp"
#include "experiments/app/common_options.hpp"
#include "experiments/app/config/run_plan.hpp"
#include "experiments/app/run/continuation.hpp"
#include "tests/experiments/app/config/make_read.hpp"
#include "tests/experiments/app/usage_error.hpp"

namespace fp16lab::experiments::config_amp_test {
namespace {

using engine::amp::AmpOptions;
using engine::amp::Dialect;
using engine::amp::Level;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

RunConfig with(const std::vector<std::string>& settings) {
  RunConfig config;
  for (const std::string& setting : settings) apply_setting(config, setting, "--set");
  return config;
}
std::string set_error(const std::string& setting) {
  return usage_error_of([&] { with({setting}); });
}
std::string check(const std::vector<std::string>& settings) {
  const RunConfig config = with(settings);
  return usage_error_of([&] { resolve_run(config, "x.toml"); });
}

TEST(ConfigAmp, ListsOfTextsAreTomlArraysOrShort) {
  const auto white = [](const std::string& value) { return with({"amp.white=" + value}).amp.white; };
  EXPECT_THAT(white("[\"add\", 'relu']"), ElementsAre("add", "relu"));
  EXPECT_THAT(white("add,relu"), ElementsAre("add", "relu"));
  EXPECT_THAT(white(" add , relu "), ElementsAre("add", "relu"));
  EXPECT_THAT(white("add"), ElementsAre("add"));
  EXPECT_THAT(white(""), IsEmpty());
  EXPECT_THAT(white("[]"), IsEmpty());
  EXPECT_THAT(with({"amp.to_float=fc3=f32,conv*=bf16"}).amp.to_float, ElementsAre("fc3=f32", "conv*=bf16"));
  EXPECT_THAT(parse_config("[amp]\nexcluded = [\"fc1\", \"block.?\"]\n", "x").amp.excluded,
              ElementsAre("fc1", "block.?"));
  EXPECT_THAT(with({"amp.white=add", "amp.white=relu"}).amp.white, ElementsAre("relu"))
      << "the last one counts";
}

TEST(ConfigAmp, WrongListsAreErrorsThatShowThem) {
  const std::string expected = "expected a list of texts, none of them empty";
  EXPECT_EQ(set_error("amp.white=add,,relu"), "--set: amp.white = add,,relu: " + expected);
  EXPECT_EQ(set_error("amp.white=add,"), "--set: amp.white = add,: " + expected);
  EXPECT_EQ(set_error("amp.white=\"add\""), "--set: amp.white = \"add\": " + expected);
  EXPECT_THAT(set_error("amp.white=[1, 2]"), HasSubstr(expected));
  EXPECT_THAT(set_error("amp.white=[\"\"]"), HasSubstr(expected));
  EXPECT_THAT(set_error("amp.white=[\"add\""), HasSubstr(expected));
  EXPECT_THAT(usage_error_of([] { parse_config("[amp]\nwhite = \"add\"\n", "x.toml"); }),
              AllOf(StartsWith("x.toml:2: amp.white"), HasSubstr(expected)));
}

TEST(ConfigAmp, ChoicesOfTrueAndFalseNeedNoQuotes) {
  EXPECT_EQ(RunConfig{}.amp.master_weights, std::nullopt);
  EXPECT_EQ(with({"amp.master_weights=false", "amp.master_weights=auto"}).amp.master_weights, std::nullopt);
  EXPECT_EQ(parse_config("[amp]\nmaster_weights = false\n", "x").amp.master_weights, false);
  EXPECT_EQ(parse_config("[amp]\nmaster_weights = \"true\"\n", "x").amp.master_weights, true);
  EXPECT_EQ(with({"amp.master_weights=true"}).amp.master_weights, true);
  EXPECT_THAT(set_error("amp.master_weights=yes"), HasSubstr("expected one of auto, true, false"));
  EXPECT_THAT(usage_error_of([] { parse_config("[amp]\nlevel = true\n", "x.toml"); }),
              HasSubstr("amp.level = true"));
  EXPECT_THAT(set_error("amp.save_dtype=f8"), HasSubstr("expected one of \"\", f32, f16, bf16, f64"));
}

TEST(ConfigAmp, EveryKeyReachesTheEngine) {
  const AmpOptions defaults = RunConfig{}.amp;
  EXPECT_EQ(defaults.level, Level::O0);
  EXPECT_EQ(defaults.dialect, Dialect::torch);
  EXPECT_EQ(defaults.dtype, DType::f16);
  for (const auto& choice : {defaults.keep_batchnorm_fp32, defaults.master_weights, defaults.master_gradients,
                             defaults.low_inputs, defaults.low_loss})
    EXPECT_EQ(choice, std::nullopt);

  const RunConfig config = with({"amp.level=O2",
                                 "amp.dtype=bf16",
                                 "amp.dialect=paddle",
                                 "amp.white=add",
                                 "amp.black=relu,tanh",
                                 "amp.excluded=fc1",
                                 "amp.use_guard=true",
                                 "amp.guard=fc2",
                                 "amp.to_float=fc3=f32,a=b=bf16",
                                 "amp.keep_batchnorm_fp32=true",
                                 "amp.master_weights=false",
                                 "amp.master_gradients=true",
                                 "amp.low_inputs=true",
                                 "amp.low_loss=false",
                                 "amp.use_promote=false",
                                 "amp.allow_banned=true",
                                 "amp.fp8_operands=e4m3",
                                 "amp.fp8_gradients=e5m2",
                                 "amp.save_dtype=f64",
                                 "scaler.enabled=false",
                                 "scaler.drop_overflow_update=false",
                                 "scaler.per_loss=true",
                                 "scaler.power_of_two=round_down",
                                 "train.accumulate_mode=sum",
                                 "optimizer.loss_scale=2^10"});
  const AmpOptions& options = config.amp;
  EXPECT_EQ(options.level, Level::O2);
  EXPECT_EQ(options.dtype, DType::bf16);
  EXPECT_EQ(options.dialect, Dialect::paddle);
  EXPECT_THAT(options.white, ElementsAre("add"));
  EXPECT_THAT(options.black, ElementsAre("relu", "tanh"));
  EXPECT_THAT(options.excluded, ElementsAre("fc1"));
  EXPECT_TRUE(options.use_guard);
  EXPECT_THAT(options.guard, ElementsAre("fc2"));
  EXPECT_THAT(options.to_float, ElementsAre("fc3=f32", "a=b=bf16"));
  EXPECT_EQ(options.keep_batchnorm_fp32, true);
  EXPECT_EQ(options.master_weights, false);
  EXPECT_EQ(options.master_gradients, true);
  EXPECT_EQ(options.low_inputs, true);
  EXPECT_EQ(options.low_loss, false);
  EXPECT_FALSE(options.use_promote);
  EXPECT_TRUE(options.allow_banned);
  EXPECT_EQ(options.fp8_operands, DType::e4m3);
  EXPECT_EQ(options.fp8_gradients, DType::e5m2);
  EXPECT_EQ(config.checkpoint.save_dtype, DType::f64);
  EXPECT_EQ(RunConfig{}.checkpoint.save_dtype, std::nullopt);
  EXPECT_FALSE(config.scaler.enabled);
  EXPECT_FALSE(config.scaler.drop_overflow_update);
  EXPECT_TRUE(config.scaler.per_loss);
  EXPECT_FALSE(RunConfig{}.scaler.per_loss);
  EXPECT_EQ(config.scaler.power_of_two, engine::amp::PowerOfTwo::round_down);
  EXPECT_EQ(config.train.accumulate_mode, engine::AccumulateMode::sum);
  EXPECT_EQ(config.optimizer.loss_scale, 1024.0);
}

TEST(ConfigAmp, WhatCannotGoTogetherIsSaidInTheEnginesWords) {
  EXPECT_EQ(check({"amp.level=O2", "amp.dialect=paddle", "amp.dtype=bf16"}), "no error");
  EXPECT_THAT(check({"amp.level=O2"}), AllOf(StartsWith("x.toml: amp.level = \"O2\""), HasSubstr("torch")));
  EXPECT_THAT(check({"amp.level=O3", "amp.dialect=paddle"}), AllOf(HasSubstr("O3"), HasSubstr("paddle")));
  EXPECT_THAT(check({"amp.level=O1", "amp.white=relu", "amp.black=relu"}), HasSubstr("relu"));
  EXPECT_THAT(check({"amp.level=O1", "amp.white=matmull"}),
              AllOf(HasSubstr("matmull"), HasSubstr("did you mean")));
  EXPECT_THAT(check({"amp.level=O1", "amp.master_weights=true"}), HasSubstr("amp.master_weights"));
  EXPECT_THAT(check({"amp.to_float=fc3"}), HasSubstr("amp.to_float = \"fc3\": expected PATTERN=DTYPE"));
  EXPECT_THAT(check({"amp.to_float=fc3=f64"}), HasSubstr("one of f32, f16, bf16"));
  EXPECT_THAT(check({"amp.to_float==f32"}), HasSubstr("expected PATTERN=DTYPE"));
}

TEST(ConfigAmp, ATensorCoreWithoutTheFormatIsNamedWithIt) {
  for (const char* row : {"volta", "turing"}) {
    const std::string core = std::string("backend.tensor_core=") + row;
    EXPECT_THAT(check({"amp.level=O1", "amp.dtype=bf16", core}),
                AllOf(StartsWith("x.toml: amp.dtype = \"bf16\" with backend.tensor_core = \"" +
                                 std::string(row) + "\""),
                      HasSubstr("expected one of ampere")));
    EXPECT_EQ(check({"amp.level=O0", core}), "no error") << "nothing is rounded at O0";
    EXPECT_EQ(check({"amp.level=O1", "amp.dtype=f16", core}), "no error");
  }
  EXPECT_THAT(check({"amp.level=O1", "amp.fp8_operands=e4m3", "amp.fp8_gradients=e5m2",
                     "backend.tensor_core=ampere"}),
              AllOf(HasSubstr("amp.fp8_operands"), HasSubstr("ampere")));
  EXPECT_EQ(check({"amp.level=O1", "amp.fp8_operands=e4m3", "amp.fp8_gradients=e5m2",
                   "backend.tensor_core=hopper"}),
            "no error");
}

TEST(ConfigAmp, AChipIsItsRowWhereThatIsOne) {
  const auto row = [](const std::vector<std::string>& settings) {
    RunConfig config = with(settings);
    resolve_names(config, "x.toml");
    EXPECT_EQ(resolve_run(config).config.backend.tensor_core, config.backend.tensor_core);
    return config.backend.tensor_core;
  };
  EXPECT_EQ(row({"backend.tensor_core=Ampere"}), "ampere");
  EXPECT_EQ(row({"backend.tensor_core=A100", "amp.level=O1", "amp.dtype=bf16"}), "ampere");
  EXPECT_EQ(row({"backend.tensor_core=H100", "amp.level=O1"}), "hopper");
  EXPECT_EQ(
      row({"backend.tensor_core=l40s", "amp.level=O1", "amp.fp8_operands=e4m3", "amp.fp8_gradients=e5m2"}),
      "ada");
  EXPECT_EQ(row({"backend.tensor_core=AUTO"}), "auto");
  EXPECT_THAT(
      check({"amp.level=O1", "amp.fp8_operands=e4m3", "amp.fp8_gradients=e5m2", "backend.tensor_core=h100"}),
      AllOf(StartsWith("x.toml: "), HasSubstr("different bits: hopper ("), HasSubstr(" and hopper-wgmma (")));
}

TEST(ConfigAmp, ALevelBringsItsScalerWhereTheFrameworksDoes) {
  struct Row {
    const char *dialect, *level, *policy;
  };
  // mindspore/train/amp.py, _config_level; apex/amp/frontend.py, O0 to O3. torch's and paddle's users make a
  // GradScaler.
  for (const Row& row :
       {Row{"torch", "O0", "none"}, Row{"torch", "O1", "none"}, Row{"paddle", "OD", "none"},
        Row{"paddle", "O1", "none"}, Row{"paddle", "O2", "none"}, Row{"mindspore", "O0", "none"},
        Row{"mindspore", "O1", "none"}, Row{"mindspore", "O2", "mindspore"}, Row{"mindspore", "O3", "none"},
        Row{"mindspore", "auto", "none"}, Row{"mindspore", "auto-r1.7", "mindspore"},
        Row{"apex", "O0", "none"}, Row{"apex", "O1", "apex"}, Row{"apex", "O2", "apex"},
        Row{"apex", "O3", "none"}}) {
    const std::vector<std::string> level{std::string("amp.dialect=") + row.dialect,
                                         std::string("amp.level=") + row.level};
    const std::string where = std::string(row.dialect) + " " + row.level;
    RunConfig config = with(level);
    EXPECT_EQ(config.scaler.policy, "auto");
    EXPECT_EQ(resolve_run(config).policy.name, row.policy) << where;
    resolve_names(config, "x.toml");
    EXPECT_EQ(config.scaler.policy, row.policy) << where;
    EXPECT_EQ(parse_config(to_toml(config), "resolved"), config) << where;
    // An explicit value is kept.
    CommonOptions common;
    common.set = level;
    for (const char* const policy : {"none", "fixed"}) {
      common.set.push_back(std::string("scaler.policy=") + policy);
      EXPECT_EQ(resolve_run(common).scaler.policy, policy) << where;
    }
    common.set = level;
    EXPECT_EQ(resolve_run(common).scaler.policy, row.policy) << where;
  }
  // With that framework's own start: DynamicLossScaleManager's 2^24, or what is set.
  EXPECT_EQ(resolve_run(with({"amp.dialect=mindspore", "amp.level=O2"})).policy.initial.scale, 0x1p24);
  EXPECT_EQ(
      resolve_run(with({"amp.dialect=apex", "amp.level=O1", "scaler.initial_scale=8"})).policy.initial.scale,
      8);
  RunConfig impossible = with({"amp.level=OD"});
  EXPECT_THAT(usage_error_of([&] { resolve_names(impossible, "x.toml"); }),
              AllOf(StartsWith("x.toml: amp.level = \"OD\""), HasSubstr("has O0, O1")));
}

// python/paddle/static/amp/decorator.py, apply_gradients: Adam and AdamW get found_inf.
TEST(ConfigAmp, ZerosInPlaceOfASkippedStepAreForRulesThatStepInPaddle) {
  const std::vector<std::string> zero{"amp.level=O1", "scaler.policy=paddle-static",
                                      "scaler.on_overflow=zero"};
  const auto and_also = [&](const std::string& setting) {
    std::vector<std::string> all = zero;
    all.push_back(setting);
    return check(all);
  };
  EXPECT_EQ(check(zero), "no error");
  EXPECT_EQ(and_also("optimizer.name=lamb"), "no error");
  for (const char* const rule : {"adam", "adamw"})
    EXPECT_THAT(and_also(fmt::format("optimizer.name={}", rule)),
                HasSubstr(fmt::format("scaler.on_overflow = \"zero\" with optimizer.name = \"{}\"", rule)));
}

// A file's parameters were meant for its own policy: another one starts with its own defaults.
TEST(ConfigAmp, AnotherPolicyTakesItsOwnDefaults) {
  const RunConfig file =
      parse_config("[scaler]\npolicy = \"fixed\"\ninitial_scale = 1024\n[amp]\nlevel = \"O1\"\n", "x.toml");
  struct Row {
    std::vector<std::string> settings;
    double initial_scale;
    std::size_t sentences;
  };
  for (const Row& row :
       {Row{{}, 1024, 0}, Row{{"scaler.policy=fixed"}, 1024, 0}, Row{{"scaler.policy=torch"}, 65536, 1},
        Row{{"scaler.policy=dynamic"}, 65536, 1},
        Row{{"scaler.policy=torch", "scaler.initial_scale=8"}, 8, 0},
        Row{{"scaler.initial_scale=8", "scaler.policy=torch"}, 8, 0},
        Row{{"amp.dialect=apex", "scaler.policy=auto"}, 65536, 1}, Row{{"scaler.policy=none"}, 1, 0}}) {
    RunConfig config = file;
    const std::vector<std::string> gone = apply_settings(config, row.settings, "--set");
    EXPECT_EQ(gone.size(), row.sentences) << fmt::format("{}", fmt::join(row.settings, " "));
    EXPECT_EQ(resolve_run(config).policy.initial.scale, row.initial_scale)
        << fmt::format("{}", fmt::join(row.settings, " "));
  }
  RunConfig config = file;
  EXPECT_THAT(
      apply_settings(config, {"scaler.policy=megatron"}, "--set"),
      testing::ElementsAre(
          "scaler.initial_scale = 1024.0 was meant for the policy fixed; megatron uses its own default"));
}

TEST(ConfigAmp, GradientsThatStayScaledAreNeitherWatchedNorClipped) {
  const std::vector<std::string> left{"scaler.drop_overflow_update=false", "scaler.policy=fixed"};
  const auto and_also = [&](const std::string& setting) {
    std::vector<std::string> all = left;
    all.push_back(setting);
    return check(all);
  };
  EXPECT_EQ(check(left), "no error");
  EXPECT_THAT(and_also("scaler.policy=dynamic"),
              AllOf(HasSubstr("scaler.drop_overflow_update"), HasSubstr("dynamic")));
  EXPECT_THAT(and_also("train.clip_norm=1"),
              AllOf(HasSubstr("train.clip_norm = 1"), HasSubstr("scaler.drop_overflow_update")));
  EXPECT_THAT(and_also("train.clip_value=2"),
              AllOf(HasSubstr("train.clip_value = 2"), HasSubstr("scaler.drop_overflow_update")));
  // A disabled scaler leaves nothing scaled.
  EXPECT_EQ(check({"scaler.drop_overflow_update=false", "scaler.enabled=false", "train.clip_norm=1"}),
            "no error");
}

TEST(ConfigAmp, AScaleForEachLossNeedsSeveralLossesAndAScalerThatDivides) {
  for (const char* model : {"two_models", "gan"})
    EXPECT_EQ(check({"train.method=" + std::string(model), "scaler.per_loss=true"}), "no error") << model;
  for (const char* model : {"supervised", "gradient_penalty"})
    EXPECT_THAT(check({"train.method=" + std::string(model), "scaler.per_loss=true"}),
                AllOf(StartsWith("x.toml: scaler.per_loss = true: this training method has one loss"),
                      HasSubstr("two_models")))
        << model;
  EXPECT_THAT(check({"train.method=two_models", "scaler.per_loss=true", "scaler.policy=fixed",
                     "scaler.drop_overflow_update=false"}),
              StartsWith("x.toml: scaler.per_loss = true with scaler.drop_overflow_update = false"));
}

TEST(ConfigAmp, TheScaleLeftToTheOptimizerIsTheFixedOne) {
  const auto left = [](const std::vector<std::string>& settings) {
    return scale_left_to_optimizer(resolve_run(with(settings)));
  };
  EXPECT_EQ(left({"scaler.policy=fixed", "scaler.initial_scale=1024"}), 1.0) << "the scaler divides";
  EXPECT_EQ(left({"scaler.policy=fixed", "scaler.initial_scale=1024", "scaler.drop_overflow_update=false"}),
            1024.0);
  EXPECT_EQ(left({"scaler.policy=none", "scaler.drop_overflow_update=false"}), 1.0);
  EXPECT_EQ(left({"scaler.policy=fixed", "scaler.drop_overflow_update=false", "scaler.enabled=false"}), 1.0);
}

TEST(ConfigAmp, OnlyWhatIsSavedMayChangeInAResumedRun) {
  const RunConfig begun;
  EXPECT_NO_THROW(require_resumable(begun, with({"amp.save_dtype=f16"}), "run"));
  for (const ConfigKey& key : config_keys()) {
    if (!key.name.starts_with("amp.") && !key.name.starts_with("scaler.")) continue;
    if (key.name == "amp.save_dtype") continue;
    RunConfig before, other;
    make_read::make_read(before, key);
    make_read::make_read(other, key);
    const ConfigValue now = key.read(before);
    switch (key.type) {
      case ConfigType::text:
        key.write(other, ConfigValue(key.choices.back()) == now ? key.choices.front() : key.choices.back());
        break;
      case ConfigType::texts:
        key.write(other, std::vector<std::string>{"other"});
        break;
      case ConfigType::boolean:
        key.write(other, !std::get<bool>(now));
        break;
      case ConfigType::integer:
        key.write(other, std::get<std::int64_t>(now) + 1);
        break;
      case ConfigType::parameter:
        key.write(other, key.parameter->kind == engine::amp::PolicyParameter::Kind::boolean
                             ? 1 - std::get<double>(now)
                             : std::get<double>(now) + 1);
        break;
      default:
        FAIL() << key.name << " has a type that no other of these keys has";
    }
    EXPECT_THAT(usage_error_of([&] { require_resumable(before, other, "run"); }), HasSubstr(key.name));
  }
}

}  // namespace
}  // namespace fp16lab::experiments::config_amp_test
