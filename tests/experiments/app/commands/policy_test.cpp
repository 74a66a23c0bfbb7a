// fp16lab policy through the real binary: every option, every mistake in one line.
#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/experiments/app/small_runs.hpp"

namespace fp16lab::experiments {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::Finished;

class Policy : public SmallRuns {
 protected:
  Finished policy(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "policy");
    return fp16lab(arguments);
  }
  Finished with_input(const std::string& input, const std::string& arguments) const {
    testing_support::write_bytes(path("input"), input);
    return testing_support::run_program(
        "/bin/sh", {"-c", "'" + fp16lab_binary + "' policy " + arguments + " < '" + path("input") + "'"},
        folder_);
  }
};

/// One column of a CSV text.
std::vector<std::string> column_of(const std::string& csv, const std::string& name) {
  std::istringstream lines(csv);
  std::string line;
  std::getline(lines, line);
  std::vector<std::string> values;
  std::size_t wanted = 0;
  std::istringstream header(line);
  for (std::string field; std::getline(header, field, ',') && field != name;) ++wanted;
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
    std::string field;
    for (std::size_t i = 0; i <= wanted; ++i) std::getline(fields, field, ',');
    values.push_back(field);
  }
  return values;
}

TEST_F(Policy, WritesALineForEachStep) {
  const Finished result = policy({"--policy", "torch", "--set", "growth_interval=2", "--set",
                                  "scaler.initial_scale=2^4", "--trace", "FFOF"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.out,
            "step,found_inf,scale,log2_scale,skipped\n"
            "1,0,16,4,0\n"
            "2,0,32,5,0\n"
            "3,1,16,4,1\n"
            "4,0,16,4,0\n");
  EXPECT_EQ(policy({"--policy", "dynamic", "--trace", "FO"}).out,
            policy({"--policy", "torch", "--trace", "FO"}).out);
}

TEST_F(Policy, ReadsATraceFromTheStandardInput) {
  const Finished direct = policy({"--policy", "keras2", "--set", "growth_interval=3", "--trace", "FFFOFFFF"});
  EXPECT_EQ(with_input("FFF O\r\nFF\n\tFF\n", "--policy keras2 --set growth_interval=3 --trace -").out,
            direct.out);
  EXPECT_EQ(with_input("", "--policy keras2 --trace -").out, "step,found_inf,scale,log2_scale,skipped\n");
  expect_one_line_error(with_input("FFF\nFOX\n", "--policy keras2 --trace -"), 2,
                        "--trace: 'X' at line 2, position 3: expected F (finite) or O (overflow)");
  // A long one, in one piece.
  const Finished longest = with_input(std::string(100000, 'F'), "--policy torch --trace -");
  EXPECT_THAT(longest.out, testing::EndsWith("\n100000,0,7.378697629483821e+19,66,0\n"));
}

TEST_F(Policy, MagnitudesDecideAboutOverflow) {
  // 65520 is the first magnitude that rounds to infinity; 65519.99 is finite in FP32 before it is rounded to
  // FP16, but 65519.999 is 65520 there already.
  const Finished result = policy({"--policy", "fixed", "--set", "initial_scale=1", "--amax",
                                  "65519.99, 65519.999 65520,0,inf,nan,2^-30"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(column_of(result.out, "found_inf"), ElementsAre("0", "1", "1", "0", "1", "1", "0"));
  // At the scale of each step: 1 * 2^16 overflows, so it falls until 1 * 2^15 fits.
  const Finished torch = policy({"--policy", "torch", "--amax", "1,1,1.9999,1"});
  EXPECT_THAT(column_of(torch.out, "found_inf"), ElementsAre("1", "0", "1", "0"));
  EXPECT_THAT(column_of(torch.out, "log2_scale"), ElementsAre("15", "15", "14", "14"));
  // A policy that never needs an overflow: a single gradient in the upper bin halves the scale.
  const Finished popart =
      policy({"--policy", "popart", "--set", "initial_scale=1", "--amax", "9000,9000,1,1"});
  EXPECT_THAT(column_of(popart.out, "found_inf"), ElementsAre("0", "0", "0", "0"));
  EXPECT_EQ(column_of(popart.out, "log2_scale").front(), "-1");
  EXPECT_EQ(with_input("1 1\n1.9999,1\n", "--policy torch --amax -").out, torch.out);
}

TEST_F(Policy, EveryPolicyTakesMagnitudes) {
  const json all = json::parse(policy({"--list", "--json"}).out);
  for (const json& row : all.at("policies")) {
    const Finished result =
        policy({"--quiet", "--policy", row.at("name"), "--amax", "2^-4,2^-3,0.5,7,1e6,0,2^-20,2^-4"});
    EXPECT_EQ(result.exit_code, 0) << row.at("name") << result.err;
    EXPECT_EQ(result.err, "") << row.at("name");
    EXPECT_EQ(column_of(result.out, "step").size(), 8u) << row.at("name");
  }
}

TEST_F(Policy, SaysWhereTheRuleEndsTheRun) {
  const Finished result = policy(
      {"--policy", "deepspeed", "--set", "initial_scale=2", "--set", "hysteresis=1", "--trace", "FOOFF"});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_EQ(column_of(result.out, "scale"), (std::vector<std::string>{"2", "1", "1"}));
  EXPECT_EQ(result.err,
            "fp16lab: policy deepspeed ends the run at step 3: an overflow at scaler.min_scale, with "
            "scaler.raise_error_at_min_scale = true\n");
}

TEST_F(Policy, SaysWhereUnscalingRounds) {
  const std::vector<std::string> legacy = {
      "--policy", "paddle-static-legacy", "--set", "initial_scale=1024", "--trace", "OO"};
  EXPECT_THAT(policy(legacy).err,
              AllOf(HasSubstr("warning: "), HasSubstr("backoff_factor = 0.8 is no power of two")));
  const auto with = [&](const std::string& option) {
    std::vector<std::string> arguments = legacy;
    arguments.insert(arguments.end(), {"--set", option});
    return policy(arguments);
  };
  EXPECT_EQ(with("power_of_two=any").err, "");
  EXPECT_EQ(column_of(with("power_of_two=any").out, "scale").back(), "819.2000122070312");
  EXPECT_EQ(with("power_of_two=round_down").err, "");
  EXPECT_EQ(column_of(with("power_of_two=round_down").out, "scale").back(), "512");
  EXPECT_EQ(policy({"--quiet", "--policy", "chainer", "--trace", "O"}).err, "");
}

TEST_F(Policy, TakesTheScalerOfAConfiguration) {
  testing_support::write_bytes(path("c.toml"),
                               "[scaler]\npolicy = \"megatron\"\ninitial_scale = 1024\nhysteresis = 1\n");
  EXPECT_THAT(column_of(policy({"-c", path("c.toml"), "--trace", "O"}).out, "scale"), ElementsAre("512"));
  EXPECT_THAT(column_of(policy({"-c", path("c.toml"), "--set", "hysteresis=2", "--trace", "O"}).out, "scale"),
              ElementsAre("1024"));
  const auto torch = policy({"-c", path("c.toml"), "--policy", "torch", "--trace", "O"});
  EXPECT_THAT(column_of(torch.out, "scale"), ElementsAre("32768")) << "half of torch's own 2^16";
  EXPECT_THAT(
      torch.err,
      HasSubstr("scaler.initial_scale = 1024.0 was meant for the policy megatron; torch takes its own"));
}

TEST_F(Policy, MistakesAreOneLine) {
  const auto expect = [this](const std::vector<std::string>& arguments, const std::string& part) {
    expect_one_line_error(policy(arguments), 2, part);
  };
  expect({}, "expected --policy NAME");
  expect({"--policy", "torch"}, "expected either --trace FFOFF... or --amax LIST");
  expect({"--policy", "torch", "--trace", "F", "--amax", "1"}, "expected either --trace");
  expect({"--policy", "megatorn", "--trace", "F"}, "did you mean 'megatron'?");
  expect({"--policy", "torch", "--trace", "FFxO"}, "'x' at position 3: expected F (finite) or O (overflow)");
  expect({"--policy", "torch", "--trace", "F F"}, "byte 0x20 at position 2");
  expect({"--policy", "torch", "--trace", "ffo"}, "'f' at position 1");
  expect({"--policy", "torch", "--set", "hysteresis=2", "--trace", "F"},
         "policy torch has no parameter 'hysteresis'");
  expect({"--policy", "torch", "--set", "growth_intervall=2", "--trace", "F"},
         "did you mean 'growth_interval'?");
  expect({"--policy", "mindspore", "--set", "backoff_factor=0.5", "--trace", "F"},
         "policy mindspore has no parameter 'backoff_factor'");
  expect({"--policy", "torch", "--set", "growth_interval", "--trace", "F"}, "expected NAME=VALUE");
  expect({"--policy", "torch", "--set", "growth_interval=2.5", "--trace", "F"},
         "growth_interval = 2.5: must be an integer");
  expect({"--policy", "torch", "--set", "growth_interval=true", "--trace", "F"},
         "--set growth_interval=true");
  expect({"--policy", "torch", "--set", "backoff_factor=nan", "--trace", "F"}, "backoff_factor = nan");
  expect({"--policy", "torch", "--set", "initial_scale=0.1", "--trace", "F"}, "must be an FP32 number");
  expect({"--policy", "keras2", "--set", "initial_scale=0.5", "--trace", "F"}, "min_scale = 1");
  expect({"--policy", "torch", "--set", "finite_guard=maybe", "--trace", "F"}, "finite_guard=maybe");
  expect({"--policy", "torch", "--set", "power_of_two=up", "--trace", "F"}, "round_down");
  expect({"--policy", "lost-mass", "--trace", "F"}, "give --amax LIST instead of --trace");
  expect({"--policy", "torch", "--amax", "1,-2"}, "--amax: number 2: '-2': expected a magnitude");
  expect({"--policy", "torch", "--amax", "1,two"}, "--amax: number 2");
  expect({"--policy", "torch", "--trace", "F", "--json"}, "--json goes with --list");
  expect({"--list", "--trace", "F"}, "--list takes no --trace");
  expect({"--list", "--policy", "megatorn"}, "did you mean 'megatron'?");
  expect({"--policy", "torch", "--tracer", "F"}, "did you mean '--trace'?");
  expect({"--policy", "torch", "--trace", "F", "O"}, "unexpected argument 'O'");
}

TEST_F(Policy, ListsEveryPolicyWithItsParametersAndSource) {
  const json listed = json::parse(policy({"--list", "--json"}).out).at("policies");
  EXPECT_EQ(json::parse(fp16lab({"list", "--json"}).out).at("policies"), listed);
  std::set<std::string> names;
  for (const json& row : listed) {
    names.insert(row.at("name"));
    EXPECT_NE(row.at("rule"), "");
    EXPECT_NE(row.at("source"), "");
    std::set<std::string> parameters;
    for (const json& parameter : row.at("parameters")) {
      parameters.insert(parameter.at("name"));
      EXPECT_NE(parameter.at("help"), "");
      EXPECT_NE(parameter.at("expected"), "");
      EXPECT_FALSE(parameter.at("default").is_null());
    }
    for (const char* guard : {"min_scale", "max_scale", "finite_guard"})
      EXPECT_TRUE(parameters.contains(guard));
  }
  std::istringstream known(
      "none fixed mindspore-fixed torch paddle paddle-2.2 paddle-amp-scaler paddle-static "
      "paddle-static-legacy mindspore mindspore-cell mindspore-amp apex apex-fp16-utils apex-hysteresis "
      "deepspeed deepspeed-fused deepspeed-unfused megatron colossalai fastllm fairseq fairseq-train "
      "metaseq openseq2seq-backoff openseq2seq-logmax tf1-exponential keras2 keras3 jmp flax chainer "
      "mxnet popart lost-mass ada-loss layerwise groups");
  for (std::string name; known >> name;) EXPECT_TRUE(names.contains(name)) << name;

  const json torch = json::parse(policy({"--list", "--json", "--policy", "dynamic"}).out).at("policies");
  ASSERT_EQ(torch.size(), 1u);
  EXPECT_EQ(torch[0].at("name"), "torch");
  EXPECT_EQ(torch[0].at("aliases"), json({"dynamic"}));
  const json& interval = torch[0].at("parameters").at(3);
  EXPECT_EQ(interval.at("name"), "growth_interval");
  EXPECT_EQ(interval.at("kind"), "integer");
  EXPECT_EQ(interval.at("default"), 2000);
  EXPECT_EQ(interval.at("minimum"), 1);
  EXPECT_EQ(interval.at("maximum"), 2147483647);

  const std::string text = policy({"--list", "--policy", "metaseq"}).out;
  EXPECT_THAT(text, AllOf(HasSubstr("metaseq\n"), HasSubstr("source: facebookresearch/metaseq"),
                          HasSubstr("growth_interval"), HasSubstr("2^-5")));
  EXPECT_THAT(fp16lab({"list", "policies"}).out, HasSubstr("metaseq"));
}

/// What a peer's user gets without saying anything, from the peers' sources.
TEST_F(Policy, DefaultsAreThePeers) {
  const json listed = json::parse(policy({"--list", "--json"}).out).at("policies");
  const auto defaults = [&](const std::string& name) {
    std::map<std::string, double> values;
    for (const json& row : listed)
      if (row.at("name") == name)
        for (const json& parameter : row.at("parameters")) {
          const json& value = parameter.at("default");
          values.emplace(parameter.at("name"),
                         value.is_boolean() ? (value.get<bool>() ? 1 : 0) : value.get<double>());
        }
    return values;
  };
  struct Row {
    const char* name;
    double initial, growth, backoff, interval, floor, ceiling, guard;  // backoff 0: the growth factor divides
  };
  const double kilo = 1024, mega = kilo * kilo, giga = mega * kilo;
  for (const Row& row : {Row{"torch", 64 * kilo, 2, 0.5, 2000, 0, 0, 1},
                         Row{"paddle", 64 * kilo, 2, 0.5, 2000, 0, 0, 0},
                         Row{"paddle-2.2", 32 * kilo, 2, 0.5, 1000, 0, 0, 0},
                         Row{"paddle-amp-scaler", 32 * kilo, 2, 0.5, 1000, 0, 0, 0},
                         Row{"paddle-static", 64 * kilo, 2, 0.5, 2000, 1, 0, 1},
                         Row{"paddle-static-legacy", 32 * kilo, 2, 0.8, 1000, 1, 0, 1},
                         Row{"mindspore", 16 * mega, 2, 0, 2000, 1, 0, 0},
                         Row{"apex", 64 * kilo, 2, 0.5, 2000, 0, 16 * mega, 1},
                         Row{"apex-fp16-utils", 4 * giga, 2, 0, 1000, 1, 0, 0},
                         Row{"deepspeed", 64 * kilo, 2, 0, 1000, 1, 0, 0},
                         Row{"deepspeed-fused", 4 * giga, 2, 0, 1000, 1, 0, 0},
                         Row{"deepspeed-unfused", 64 * kilo, 2, 0, 1000, 0.25, 0, 0},
                         Row{"megatron", 4 * giga, 2, 0.5, 1000, 1, 0, 0},
                         Row{"colossalai", 64 * kilo, 2, 0.5, 1000, 0, 0, 0},
                         Row{"fastllm", 64 * kilo, 2, 0.5, 1000, 1, 0, 0},
                         Row{"fairseq", 32 * kilo, 2, 0, 2000, 0, 0, 0},
                         Row{"fairseq-train", 128, 2, 0, 16 * kilo, 0, 0, 0},
                         Row{"metaseq", 4, 2, 0, 256, 0, 0, 0},
                         Row{"openseq2seq-backoff", 16 * kilo, 2, 0, 2000, 1, 16 * kilo, 1},
                         Row{"tf1-exponential", 32 * kilo, 2, 0.8, 1000, 1, 0, 1},
                         Row{"keras2", 32 * kilo, 2, 0, 2000, 1, 0, 1},
                         Row{"keras3", 32 * kilo, 2, 0, 2000, 0, 0, 0},
                         Row{"jmp", 32 * kilo, 2, 0, 2000, 1, 0, 1},
                         Row{"flax", 64 * kilo, 2, 0.5, 2000, 0x1p-126, 0, 1},
                         Row{"mxnet", 64 * kilo, 2, 0.5, 2000, 0, 16 * mega, 1}}) {
    const std::map<std::string, double> values = defaults(row.name);
    EXPECT_EQ(values.at("initial_scale"), row.initial) << row.name;
    EXPECT_EQ(values.at("growth_factor"), row.growth) << row.name;
    EXPECT_EQ(values.contains("backoff_factor") ? values.at("backoff_factor") : 0, row.backoff) << row.name;
    EXPECT_EQ(values.at("growth_interval"), row.interval) << row.name;
    EXPECT_EQ(values.at("min_scale"), row.floor) << row.name;
    EXPECT_EQ(values.at("max_scale"), row.ceiling) << row.name;
    EXPECT_EQ(values.at("finite_guard"), row.guard) << row.name;
  }
  for (const auto& [name, bad_steps] : {std::pair{"paddle", 1},
                                        {"paddle-2.2", 2},
                                        {"paddle-amp-scaler", 1},
                                        {"paddle-static", 1},
                                        {"paddle-static-legacy", 2},
                                        {"tf1-exponential", 2}})
    EXPECT_EQ(defaults(name).at("bad_steps"), bad_steps) << name;
  EXPECT_EQ(defaults("mindspore-fixed").at("initial_scale"), 128);
  for (const auto& [name, hysteresis] : {std::pair{"deepspeed", 2},
                                         {"megatron", 2},
                                         {"colossalai", 2},
                                         {"fastllm", 2},
                                         {"deepspeed-fused", 1},
                                         {"deepspeed-unfused", 1}})
    EXPECT_EQ(defaults(name).at("hysteresis"), hysteresis) << name;
}

}  // namespace
}  // namespace fp16lab::experiments
