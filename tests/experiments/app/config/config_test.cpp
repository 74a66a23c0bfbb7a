// The configuration: defaults, round trip, and every way to write it wrong.
#include "engine/amp/policy.hpp"
#include "experiments/app/config/run_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "experiments/app/config/framework_names.hpp"
#include "experiments/app/config/learning_task.hpp"
#include "experiments/app/config/shipped_configs.hpp"
#include "experiments/app/run/prepared_run.hpp"
#include "experiments/app/sweep/sweep.hpp"
#include "tests/experiments/app/config/make_read.hpp"
#include "tests/experiments/app/usage_error.hpp"

namespace fp16lab::experiments {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::StartsWith;

std::string toml_error(const std::string& text) {
  return usage_error_of([&] { parse_config(text, "x.toml"); });
}

std::string set_error(const std::string& setting) {
  RunConfig config;
  return usage_error_of([&] { apply_setting(config, setting, "--set"); });
}

RunConfig with(const std::string& setting) {
  RunConfig config;
  apply_setting(config, setting, "--set");
  return config;
}

TEST(Config, DefaultsSurviveTheRoundTrip) {
  const RunConfig defaults;
  EXPECT_EQ(parse_config(to_toml(defaults), "resolved"), defaults);
  EXPECT_EQ(parse_config("", "empty"), defaults);
}

// One key, whose default follows the update rule; also of a model's own rule.
TEST(Config, EpsilonFollowsTheUpdateRule) {
  const auto epsilon_in = [](const RunConfig& config, std::string_view model = {}) {
    const engine::TrainingPlan plan = resolve_run(config);
    return engine::optim::epsilon_of(model.empty() ? plan.optimizer : plan.optimizer_of(model));
  };
  EXPECT_EQ(epsilon_in(with("optimizer.name=adam")), 1e-8);
  EXPECT_EQ(epsilon_in(with("optimizer.name=adam_weight_decay")), 1e-6);
  RunConfig config = with("optimizer.name=adam_weight_decay");
  EXPECT_THAT(to_toml(config), HasSubstr("epsilon = 1e-06\n"));
  EXPECT_EQ(parse_config(to_toml(config), "resolved"), config);
  apply_setting(config, "optimizer.epsilon=1e-8", "--set");
  EXPECT_EQ(epsilon_in(config), 1e-8);

  config = with("train.method=gan");
  apply_setting(config, "optimizer.generator.name=adam_weight_decay", "--set");
  for (const RunConfig& same : {config, parse_config(to_toml(config), "resolved")}) {
    EXPECT_EQ(same, config);
    EXPECT_EQ(epsilon_in(same, "generator"), 1e-6);
    EXPECT_EQ(epsilon_in(same, "discriminator"), 1e-8);
  }
  apply_setting(config, "optimizer.epsilon=1e-4", "--set");
  EXPECT_EQ(epsilon_in(config, "generator"), 1e-4) << "[optimizer] speaks for both";
}

/// A value of the parameter that is not its default, under a policy that has it.
void set_another_value(RunConfig& config, const ConfigKey& key) {
  const engine::amp::PolicyParameter* parameter = nullptr;
  for (const engine::amp::PolicyDescription& policy : engine::amp::scale_policies()) {
    parameter = policy.find(key.parameter->name);
    config.scaler.policy = policy.name;
    if (parameter != nullptr) break;
  }
  using Kind = engine::amp::PolicyParameter::Kind;
  const double now = parameter->fallback;
  for (const double other : {1 - now, now + 1, 0.75 * now, 0.5, 3.0}) {
    if (other == now || (parameter->kind == Kind::boolean && other != 1 - now)) continue;
    try {
      engine::amp::check_value(*parameter, other);
      key.write(config, other);
      return;
    } catch (const std::invalid_argument&) {
    }
  }
  FAIL() << "no other value of " << key.name;
}

ConfigValue another_value(const ConfigKey& key) {
  switch (key.type) {
    case ConfigType::text:
      return key.choices.empty() ? std::string("a \"quoted\" \\ path, `with` $more") : key.choices.back();
    case ConfigType::integer:
      return static_cast<std::int64_t>(std::min(12345.0, key.range.maximum));
    case ConfigType::real:
      return key.range.maximum > 1 && key.range.minimum >= 1 ? 1.0 / 3 + 1 : 1.0 / 3;
    case ConfigType::boolean:
      return true;
    case ConfigType::integers:
      return std::vector<std::int64_t>{3, 1, 2};
    case ConfigType::texts:
      if (!key.choices.empty()) return std::vector<std::string>{key.choices.back(), key.choices.front()};
      return std::vector<std::string>{"add", "a \"quoted\", text", "*.weight=f32"};
    case ConfigType::parameter:
      break;
  }
  return {};
}

TEST(Config, EveryKeySurvivesTheRoundTripWithAnotherValue) {
  std::set<std::string> names;
  for (const ConfigKey& key : config_keys()) {
    EXPECT_TRUE(names.insert(key.name).second) << key.name << " is there twice";
    RunConfig config;
    make_read::make_read(config, key);
    if (key.type == ConfigType::parameter)
      set_another_value(config, key);
    else
      key.write(config, another_value(key));
    EXPECT_TRUE(is_read(config, key)) << key.name << why_unread(config, key);
    EXPECT_EQ(key.read(config), key.read(parse_config(to_toml(config), "resolved"))) << key.name;
    EXPECT_EQ(parse_config(to_toml(config), "resolved"), config) << key.name << "\n" << to_toml(config);
    EXPECT_FALSE(key.doc.empty()) << key.name;
    for (const std::string& choice : key.choices) {
      const ConfigValue value =
          key.type == ConfigType::texts ? ConfigValue(std::vector{choice}) : ConfigValue(choice);
      key.write(config, value);
      EXPECT_EQ(key.read(config), value) << key.name;
    }
  }
}

TEST(Config, DefaultsSatisfyTheirOwnTable) {
  const RunConfig defaults;
  for (const ConfigKey& key : config_keys()) {
    RunConfig config;
    if (key.parameter != nullptr && value_text(defaults, key).empty()) continue;  // not of policy none
    EXPECT_NO_THROW(apply_setting(config, key.name + " = " + value_text(defaults, key), "--set")) << key.name;
    EXPECT_EQ(config.data.test_subset_is_set, key.name == "data.test_subset") << key.name;
    config.data.test_subset_is_set = false;
    EXPECT_EQ(config, defaults);
  }
  EXPECT_NO_THROW(resolve_run(defaults, "defaults"));
}

TEST(Config, ListsOfChoicesTakeNothingElse) {
  constexpr const char* expected =
      "expected a list, each one of gradients, activations, weights, updates, optimizer_state; did you mean "
      "'weights'?";
  EXPECT_EQ(toml_error("[observe]\ntensors = [\"gradients\", \"weight\"]\n"),
            std::string("x.toml:2: observe.tensors = \"weight\": ") + expected);
  EXPECT_EQ(set_error("observe.tensors=gradients,weight"),
            std::string("--set: observe.tensors = \"weight\": ") + expected);
  EXPECT_EQ(with("observe.tensors=weights,updates").observe.tensors,
            (std::vector<std::string>{"weights", "updates"}));
}

TEST(Config, ReadsWhatAUserWrites) {
  const RunConfig config = parse_config(
      "scaler.policy = \"fixed\"\n[model]\ncontext = 7\n[optimizer]\nlr = 1\nnesterov = true\n", "x.toml");
  RunConfig expected;  // what is not named keeps its default
  expected.scaler.policy = "fixed";
  expected.model.context = 7;
  expected.optimizer.learning_rate = 1.0;  // an integer serves as a number
  expected.optimizer.nesterov = true;
  EXPECT_EQ(config, expected) << to_toml(config);
}

TEST(Config, UnknownKeysGetTheirLineAndASuggestion) {
  EXPECT_EQ(toml_error("[train]\nseed = 1\n\n[scaler]\npolcy = \"none\"\n"),
            "x.toml:5: unknown key 'scaler.polcy'; did you mean 'scaler.policy'?");
  EXPECT_EQ(toml_error("[trian]\nseed = 1\n"), "x.toml:1: unknown section 'trian'; did you mean 'train'?");
  EXPECT_EQ(set_error("train.sede=3"), "--set: unknown key 'train.sede'; did you mean 'train.seed'?");
  // A key by its own name, in another section; unless one in this section is nearly it.
  EXPECT_EQ(set_error("train.lr=3"), "--set: unknown key 'train.lr'; did you mean 'optimizer.lr'?");
  EXPECT_EQ(set_error("amp.policy=torch"), "--set: unknown key 'amp.policy'; did you mean 'scaler.policy'?");
  EXPECT_EQ(set_error("model.seed=3"), "--set: unknown key 'model.seed'; did you mean 'train.seed'?");
  EXPECT_EQ(set_error("steps=3"), "--set: unknown key 'steps'; did you mean 'train.steps'?");
  EXPECT_EQ(set_error("zzzzzzzzzzzzzz=3"), "--set: unknown key 'zzzzzzzzzzzzzz'");
  // A framework's own word, wherever it is put.
  EXPECT_EQ(set_error("scaler.init_loss_scaling=1024"),
            "--set: unknown key 'scaler.init_loss_scaling'; init_loss_scaling of paddle is "
            "scaler.initial_scale here");
  EXPECT_EQ(set_error("use_pure_fp16=true"),
            "--set: unknown key 'use_pure_fp16'; use_pure_fp16 of paddle is amp.level here (true there is "
            "amp.level = \"O2\")");
  EXPECT_THAT(set_error("train=3"), HasSubstr("'train' is a section, not a key"));
}

TEST(Config, WrongTypesSayWhatIsRight) {
  EXPECT_EQ(toml_error("[train]\nbatch_size = \"big\"\n"),
            "x.toml:2: train.batch_size = 'big': expected an integer, from 1 to 2147483647");
  EXPECT_THAT(toml_error("[train]\nbatch_size = 1.5\n"),
              AllOf(StartsWith("x.toml:2:"), HasSubstr("1.5"), HasSubstr("an integer")));
  EXPECT_THAT(toml_error("[optimizer]\nlr = \"fast\"\n"), HasSubstr("optimizer.lr"));
  EXPECT_THAT(toml_error("[optimizer]\nlr = true\n"), HasSubstr("expected a number"));
  EXPECT_THAT(toml_error("[optimizer]\nnesterov = 1\n"), HasSubstr("true or false"));
  EXPECT_THAT(toml_error("[model]\nname = 3\n"), HasSubstr("expected text"));
  EXPECT_THAT(toml_error("[model]\nloss = \"msee\"\n"), HasSubstr("did you mean 'mse'?"));
  EXPECT_THAT(toml_error("[[train]]\nseed = 1\n"), StartsWith("x.toml:1:"));
  EXPECT_THAT(set_error("train.seed=abc"), HasSubstr("train.seed = abc: expected an integer"));
  EXPECT_THAT(set_error("train.seed="), HasSubstr("expected an integer"));
  EXPECT_THAT(set_error("train.seed=1\ntrain.x=2"), HasSubstr("expected an integer"));
  EXPECT_THAT(set_error("train.seed"), HasSubstr("expected key=value"));
  EXPECT_THAT(set_error("=3"), HasSubstr("expected key=value"));
}

TEST(Config, ImpossibleValuesAreRefused) {
  for (const char* setting :
       {"train.batch_size=0",         "train.batch_size=-1",       "optimizer.lr=-0.1",
        "optimizer.lr=inf",           "optimizer.lr=nan",          "optimizer.momentum=1",
        "optimizer.beta1=1.0",        "optimizer.epsilon=0",       "optimizer.alpha=1",
        "optimizer.dampening=-0.5",   "optimizer.kahan=1",         "schedule.power=0",
        "schedule.gamma=0",           "schedule.gamma=1.5",        "amp.rounding=up",
        "scaler.initial_scale=0",     "scaler.initial_scale=-8",   "scaler.initial_scale=2^200",
        "scaler.initial_scale=2^x",   "scaler.growth_factor=1",    "scaler.backoff_factor=1",
        "scaler.backoff_factor=0",    "scaler.growth_interval=0",  "train.seed=-1",
        "train.accumulate=0",         "model.context=0",           "model.layout=hwcn",
        "model.label_smoothing=1",    "model.huber_delta=0",       "data.padding=-1",
        "train.penalty=-1",           "train.method=unsupervised", "checkpoint.every=-1",
        "checkpoint.keep=-1",         "train.clip_value=-1",       "train.clip_norm=-1",
        "observe.histograms_every=-1"})
    EXPECT_THAT(set_error(setting), HasSubstr("expected")) << setting;
  EXPECT_EQ(set_error("amp.level=O7"),
            "--set: amp.level = \"O7\": expected one of O0, OD, O1, O2, O3, auto, auto-r1.7");
  EXPECT_THAT(set_error("backend.tensor_core=hoper"), HasSubstr("did you mean 'hopper'?"));
  EXPECT_THAT(toml_error("[optimizer]\nlr = nan\n"), HasSubstr("expected a number, 0 or more"));
}

// Names enter tables, figures, pages and scripts.
TEST(Config, TextsWithoutControlCharactersAreExpectedUnderEveryKey) {
  std::size_t keys = 0;
  for (const ConfigKey& key : config_keys()) {
    if (key.type != ConfigType::text && key.type != ConfigType::texts) continue;
    ++keys;
    const auto refused = HasSubstr("expected text without control characters");
    for (const std::string bad : {"a\nsystem(1)\n#", "a\x1b(B", "a\u202eb", "\xc2\x9b"}) {
      EXPECT_THAT(set_error(key.name + "=" + bad), refused) << key.name;
      EXPECT_EQ(set_error(key.name + "=" + bad).find_first_of("\n\x1b"), std::string::npos);
    }
    const std::size_t dot = key.name.rfind('.');
    const std::string value = key.type == ConfigType::text ? R"("a\nb")" : R"(["a\nb"])";
    EXPECT_THAT(toml_error("[" + key.name.substr(0, dot) + "]\n" + key.name.substr(dot + 1) + " = " + value),
                refused)
        << key.name;
  }
  EXPECT_GT(keys, 20u);
  for (const std::string row : {R"(type = "a\nb")", R"(type = "relu"
name = "a\nb")",
                                R"(type = "relu"
input = ["a\nb"])",
                                R"(type = "conv2d"
out_channels = 3
kernel_size = 3
padding = "a\u001bb")"})
    EXPECT_THAT(toml_error("[[model.layer]]\n" + row), HasSubstr("expected text without control characters"))
        << row;
  EXPECT_THAT(toml_error("[[model.block]]\nname = \"a\\u009bb\"\n[[model.block.layer]]\ntype = \"relu\""),
              HasSubstr("expected text without control characters"));
}

TEST(Config, BadSyntaxNamesItsLine) {
  EXPECT_THAT(toml_error("[train]\nseed = \n"), StartsWith("x.toml:2:"));
}

TEST(Config, SettingsNeedNoQuotesAndKnowPowersOfTwo) {
  EXPECT_EQ(with("amp.level=O1").amp.level, engine::Level::O1);
  EXPECT_EQ(with("amp.level=\"O1\"").amp.level, engine::Level::O1);
  EXPECT_EQ(with("data.path=/some/where=here").data.path, "/some/where=here");
  EXPECT_EQ(with("data.path=123").data.path, "123");
  EXPECT_EQ(with("scaler.initial_scale=2^15").scaler.parameters.at("initial_scale"), 32768.0);
  EXPECT_EQ(with("scaler.initial_scale=8").scaler.parameters.at("initial_scale"), 8.0);
  EXPECT_EQ(with("scaler.initial_scale=2^-3").scaler.parameters.at("initial_scale"), 0.125);
  EXPECT_EQ(with("optimizer.nesterov = true").optimizer.nesterov, true);
}

/// [report.margin] is a section inside a section.
TEST(Config, MarginsAreReadFromEverywhereAndWrittenAsATable) {
  const RunConfig defaults;
  EXPECT_EQ(defaults.report.margin_loss, 1.0);
  EXPECT_EQ(defaults.report.margin_accuracy, 0.5);
  ReportConfig expected{.margin_loss = 2.5, .margin_accuracy = 1};
  for (const char* text :
       {"[report.margin]\nloss = 2.5\naccuracy = 1\n", "[report]\nmargin.loss = 2.5\nmargin.accuracy = 1\n",
        "[report]\nmargin = { loss = 2.5, accuracy = 1.0 }\n",
        "report.margin.loss = 2.5\nreport.margin.accuracy = 1\n[train]\nseed = 1\n"}) {
    const RunConfig config = parse_config(text, "x.toml");
    EXPECT_EQ(config.report, expected) << text;
    EXPECT_THAT(to_toml(config), HasSubstr("\n[report.margin]\nloss = 2.5\naccuracy = 1")) << text;
    EXPECT_EQ(parse_config(to_toml(config), "resolved"), config);
  }
  RunConfig config = with("report.margin.loss=2.5");
  apply_setting(config, "report.margin.accuracy = 1", "--set");
  EXPECT_EQ(config.report, expected);
}

TEST(Config, WrongMarginsSayWhatIsRight) {
  for (const char* key : {"report.margin.loss", "report.margin.accuracy"})
    for (const char* value : {"0", "-1", "nan", "inf", "often", ""})
      EXPECT_THAT(set_error(std::string(key) + "=" + value),
                  AllOf(HasSubstr(key), HasSubstr("expected a number")))
          << key << "=" << value;
  EXPECT_THAT(toml_error("[report.margin]\n\nloss = true\n"),
              AllOf(StartsWith("x.toml:3: report.margin.loss"), HasSubstr("expected a number")));
  EXPECT_EQ(toml_error("[report.margin]\nlos = 1\n"),
            "x.toml:2: unknown key 'report.margin.los'; did you mean 'report.margin.loss'?");
  EXPECT_EQ(toml_error("[report.margn]\nloss = 1\n"),
            "x.toml:1: unknown section 'report.margn'; did you mean 'report.margin'?");
  EXPECT_THAT(toml_error("[report]\nmargin = 1\n"), HasSubstr("'report.margin' is a section, not a key"));
  EXPECT_THAT(set_error("report.margin=1"), HasSubstr("'report.margin' is a section, not a key"));
  EXPECT_THAT(toml_error("report = 1\n"), HasSubstr("'report' is a section, not a key"));
}

TEST(Config, UlpsAreCounts) {
  EXPECT_EQ(RunConfig{}.train.perturb_ulps, 0);
  EXPECT_EQ(with("train.perturb_ulps=1").train.perturb_ulps, 1);
  EXPECT_EQ(with("train.perturb_ulps=4194304").train.perturb_ulps, 4194304);
  for (const char* setting :
       {"train.perturb_ulps=-1", "train.perturb_ulps=4194305", "train.perturb_ulps=0.5"})
    EXPECT_THAT(set_error(setting), HasSubstr("expected an integer, from 0 to 4194304")) << setting;
}

TEST(Config, KeysThatMustAgreeAreChecked) {
  const auto check = [](const std::string& setting) {
    const RunConfig config = with(setting);
    return usage_error_of([&] { resolve_run(config, "x.toml"); });
  };
  EXPECT_THAT(check("train.epochs=0"), HasSubstr("both 0"));
  RunConfig config = with("optimizer.nesterov=true");
  config.optimizer.momentum = 0;
  EXPECT_THAT(usage_error_of([&] { resolve_run(config, "x.toml"); }), HasSubstr("momentum"));
}

TEST(Config, AListOfOneMayBeWrittenAsItsElement) {
  for (const char* const text : {"[data]\ninputs = 784\n", "[data]\ninputs = [784]\n"})
    EXPECT_EQ(parse_config(text, "x.toml").data.inputs, std::vector<std::int64_t>{784});
  RunConfig config = with("data.inputs=[3, 32, 32]");
  config.data.name = "uniform";
  EXPECT_EQ(config.data.inputs, (std::vector<std::int64_t>{3, 32, 32}));
  EXPECT_THAT(to_toml(config), HasSubstr("\ninputs = [3, 32, 32]\n"));
  config.data.inputs = {784};
  EXPECT_THAT(to_toml(config), HasSubstr("\ninputs = 784\n")) << "as older builds read it";
  EXPECT_THAT(set_error("data.inputs=[3, 0]"),
              HasSubstr("an integer or a list of them, each from 1 to 2147483647"));
}

TEST(Config, LossAndDataMustFit) {
  const auto check = [](const std::vector<std::string>& settings) {
    RunConfig config;
    for (const std::string& setting : settings) apply_setting(config, setting, "--set");
    return usage_error_of([&] { resolve_run(config, "x.toml"); });
  };
  EXPECT_EQ(check({"data.name=bible-kjv", "model.loss=mse"}),
            "x.toml: model.loss = \"mse\" on bible-kjv: text has symbols; expected cross_entropy");
  EXPECT_THAT(check({"data.name=uniform"}),
              HasSubstr("its targets are numbers; expected data.classes, or another loss"));
  EXPECT_EQ(check({"data.name=uniform", "data.classes=10", "data.inputs=[3, 8, 8]"}), "no error");
  EXPECT_THAT(check({"data.name=uniform", "data.classes=10", "model.loss=mse"}),
              HasSubstr("its targets are classes; expected cross_entropy, or data.classes = 0"));
  EXPECT_THAT(check({"data.name=uniform", "data.classes=10", "data.inputs=[8, 8]", "model.scale_down=2"}),
              HasSubstr("model.scale_down = 2 with data.inputs of 2 axes: expected one"));
  EXPECT_THAT(check({"data.name=uniform", "data.classes=10", "data.inputs=[]"}),
              HasSubstr("data.inputs = []: expected one number or more"));
  EXPECT_THAT(check({"data.name=bible-kjv", "data.flip=true"}),
              HasSubstr("data.flip = true: data.name = bible-kjv does not read it; fashion-mnist, mnist"));
  EXPECT_THAT(check({"data.test_size=0.1"}),
              HasSubstr("data.test_size = 0.1: data.name = fashion-mnist does not read it; arrays does"));
  for (const char* const loss : {"cross_entropy", "mse", "bce_with_logits"})
    EXPECT_EQ(check({"data.name=arrays", std::string("model.loss=") + loss}), "no error")
        << "its own targets";
  EXPECT_THAT(check({"data.name=arrays", "data.targets=inputs"}), HasSubstr("pixels are no classes"));
  EXPECT_THAT(check({"data.targets=inputs"}),
              HasSubstr("expected data.targets = \"labels\", or another loss"));
  EXPECT_THAT(check({"model.loss=l1", "data.targets=labels"}), HasSubstr("data.targets = \"inputs\""));
  EXPECT_THAT(check({"data.name=uniform", "model.loss=mse", "data.padding=1"}),
              HasSubstr("data.padding = 1: data.name = uniform does not read it"));
  EXPECT_THAT(check({"data.name=uniform", "model.loss=mse", "train.method=gan"}),
              HasSubstr("a data.name of images"));
  for (const char* const loss : {"mse", "l1", "huber", "bce_with_logits"})
    EXPECT_EQ(check({std::string("model.loss=") + loss}), "no error") << "an autoencoder";
}

/// A regression of widths 32-16-8 on batches of 24.
RunConfig regression() {
  RunConfig config;
  config.model.name = "regression";
  config.model.loss = engine::LossKind::mse;
  config.model.rows = {
      {.rows = {{.type = "mlp", .arguments = {{"widths", std::vector<std::int64_t>{16, 8}}}}}}};
  config.data.name = "uniform";
  config.data.inputs = {32};
  config.data.outputs = 8;
  config.train.batch_size = 24;
  return config;
}

TEST(Config, ScaleDownDividesWidthsAndBatchAndNothingElse) {
  RunConfig config = regression();
  EXPECT_EQ(synthetic_inputs(config), std::vector<std::int64_t>{32});
  EXPECT_EQ(batch_size_of(config), 24);
  const auto length = [&] { return RunChecker().check(config); };
  const RunLength full = length();
  EXPECT_EQ(full.steps, 10u) << "data.batches";
  // Forward and the weights' gradients of both layers, the input's gradient of the second.
  EXPECT_EQ(full.multiply_adds, 10 * 24 * (2 * 32 * 16 + 3 * 16 * 8));

  config.model.scale_down = 8;
  EXPECT_NO_THROW(resolve_run(config, "x.toml"));
  EXPECT_EQ(synthetic_inputs(config), std::vector<std::int64_t>{4});
  EXPECT_EQ(synthetic_outputs(config), 1);
  EXPECT_EQ(batch_size_of(config), 3);
  EXPECT_EQ(length().steps, full.steps);
  EXPECT_EQ(length().multiply_adds * 8 * 8 * 8, full.multiply_adds) << "two widths and the batch";
  EXPECT_EQ(parse_config(to_toml(config), "resolved"), config) << "widths stay as they were written";
}

TEST(Config, MistakesInRowsSayWhatIsRight) {
  const auto error = [](const std::string& layer, const std::string& more = "") {
    return usage_error_of(
        [&] { resolve_run(parse_config("[model]\nlayer = " + layer + "\n" + more, "x.toml"), "x.toml"); });
  };
  EXPECT_THAT(error("[{ name = \"a\", layer = [{ name = \"b\", layer = [{ type = \"relu\" }] }] }]"),
              HasSubstr("x.toml:2: a block in a block: blocks do not nest"));
  EXPECT_THAT(error("[{ name = \"a\", frozen = true, layer = [{ type = \"relu\" }] }]"),
              HasSubstr("'frozen' in a block: known are name, repeat, first, input, layer; to_float and "
                        "frozen are a row's"));
  EXPECT_THAT(error("[{ type = \"relu\",\n  name = \"a\" }]"), HasSubstr("a [[table]] has room for more"));
  EXPECT_EQ(
      error(
          "[{ type = \"flatten\" }, { type = \"relu\", input = \"c\" }, { type = \"mlp\", widths = [10] }]"),
      "x.toml:2: input 'c': expected \"input\", or the name of an earlier row or block");
  RunConfig huber = regression();
  huber.model.loss = engine::LossKind::huber;
  huber.model.label_smoothing = 0.1;
  EXPECT_THAT(usage_error_of([&] { resolve_run(huber, "x.toml"); }),
              HasSubstr("model.loss = huber does not read it; cross_entropy does"));
  RunConfig level = regression();
  level.amp.level = engine::Level::O2;
  EXPECT_THAT(usage_error_of([&] { resolve_run(level, "x.toml"); }),
              HasSubstr("has O0, O1; for O2 set amp.dialect to paddle, mindspore or apex"));
  const RunConfig branched = parse_config(
      "[model]\n[[model.block]]\nname = \"b\"\ninput = \"input\"\n[[model.block.layer]]\ntype = \"flatten\"\n"
      "[[model.layer]]\ntype = \"linear\"\nname = \"out\"\n",
      "x.toml");
  EXPECT_EQ(branched.model.rows.front().input, "input");
  EXPECT_EQ(parse_config(to_toml(branched), "resolved"), branched);
}

TEST(Config, RunsOfOneNetworkAndTwoMethodsAreCheckedEachByItsOwn) {
  const auto small = [](Method method) {
    RunConfig config = regression();
    config.train.method = method;
    return config;
  };
  RunChecker checker;  // a sweep's: it keeps what the next run shares
  const double supervised = checker.check(small(Method::supervised)).multiply_adds;
  const double penalty = checker.check(small(Method::gradient_penalty)).multiply_adds;
  EXPECT_GT(penalty, supervised) << "the gradient's gradient";
  EXPECT_EQ(penalty, RunChecker().check(small(Method::gradient_penalty)).multiply_adds);
  EXPECT_EQ(checker.check(small(Method::supervised)).multiply_adds, supervised);
}

TEST(Config, ScaleDownMustDivideExactlyAndNamesWhatItDoesNot) {
  const auto check = [](const RunConfig& config) {
    return usage_error_of([&] { resolve_run(config, "x.toml"); });
  };
  RunConfig config = regression();
  config.model.scale_down = 16;
  EXPECT_EQ(check(config),
            "x.toml: model.scale_down = 16 with 24 in train.batch_size: expected a divisor of it");
  config.train.batch_size = 32;
  EXPECT_EQ(check(config), "x.toml: model.scale_down = 16 with 8 in data.outputs: expected a divisor of it");
  config.data.outputs = 16;
  EXPECT_THAT(usage_error_of([&] { RunChecker().check(config); }),
              HasSubstr("width 8 with model.scale_down = 16"));
  RunConfig images;
  images.model.scale_down = 2;
  EXPECT_THAT(check(images), AllOf(HasSubstr("model.scale_down = 2"), HasSubstr("fashion-mnist")));
  EXPECT_THAT(set_error("model.scale_down=0"), HasSubstr("from 1 to 2147483647"));
}

TEST(Config, SyntheticDataIsNotRead) {
  const auto check = [](const RunConfig& config) {
    return usage_error_of([&] { resolve_run(config, "x.toml"); });
  };
  RunConfig config = regression();
  config.data.path = "somewhere";
  EXPECT_THAT(check(config), HasSubstr("data.path = \"somewhere\": data.name = uniform does not read it"));
  config = regression();
  config.data.subset = 5;
  EXPECT_THAT(check(config), HasSubstr("data.subset = 5: data.name = uniform does not read it"));
  config = regression();
  config.train.accumulate = 11;
  EXPECT_THAT(usage_error_of([&] { steps_of(config, *load_data(config)); }), HasSubstr("10 micro-batches"));
  config.train.epochs = 2;
  EXPECT_EQ(steps_of(config, *load_data(config)), 1u);
}

TEST(Config, ShippedConfigurationsAreValidAndSayWhatTheyAre) {
  std::set<std::string> trained, swept;
  for (const ShippedConfig& shipped : shipped_configs()) {
    const std::string name = shipped.path.stem().string();
    EXPECT_GT(shipped.description.size(), 20u) << name;
    EXPECT_EQ(shipped.description.back(), '.') << name << ": the first comment line is a sentence";
    if (shipped.is_sweep) {
      swept.insert(name);
      CommonOptions common;
      common.config = shipped.path;
      EXPECT_FALSE(load_sweep(common).runs.empty()) << name;
      continue;
    }
    trained.insert(name);
    const RunConfig config = load_config(shipped.path);
    EXPECT_NO_THROW(resolve_run(config, name));
  }
  EXPECT_THAT(trained,
              IsSupersetOf({"classifier", "autoencoder", "lenet5", "charlm_lstm", "charlm_transformer",
                            "paddle_linear9", "paddle_mlp3", "mindspore_lenet5", "mindspore_manual_dense",
                            "mindspore_custom_step", "recipe_clipping", "recipe_accumulation",
                            "recipe_gradient_penalty", "recipe_two_models", "recipe_gan", "resnet20",
                            "conv_autoencoder", "deep_narrow", "gpt_words"}));
  EXPECT_EQ(swept,
            (std::set<std::string>{"demo", "full", "generations", "networks", "nvfp4", "paper_miniature",
                                   "policy_league", "pure_16bit", "pure_bf16", "scaling_candidates",
                                   "scaling_matters", "tutorials", "tutorials_full", "underflow"}));
}

TEST(FrameworkNames, AreOfKeysThatThereAreAndNoKeysThemselves) {
  const auto keys = config_keys();
  for (const FrameworkName& row : framework_names()) {
    EXPECT_TRUE(std::ranges::any_of(keys, [&](const ConfigKey& key) { return key.name == row.key; }))
        << row.key;
    EXPECT_FALSE(std::ranges::any_of(
        keys, [&](const ConfigKey& key) { return key.name.ends_with("." + std::string(row.name)); }))
        << row.name << " is a key itself";
    EXPECT_EQ(framework_name("scaler." + std::string(row.name)), &row) << "named once";
  }
  EXPECT_EQ(framework_name("scaler.initial_scale"), nullptr);
}

}  // namespace
}  // namespace fp16lab::experiments
