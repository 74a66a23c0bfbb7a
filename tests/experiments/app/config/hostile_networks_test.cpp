// Networks with impossible numbers: each is refused in one line, in the same words by what `model` and what
// `train` ask, before the back end allocates anything; or it trains. 60 of them in every run, and all of them
// by `cmake --build build --target hostile_networks`, best with sanitizers (preset asan).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "engine/nn/network/layer_types.hpp"
#include "experiments/app/config/network_rows.hpp"
#include "experiments/app/exit_code.hpp"
#include "experiments/app/run/network_table.hpp"
#include "experiments/app/run/prepared_run.hpp"
#include "tests/experiments/app/config/every_layer.hpp"
#include "tests/support/idx_files.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::experiments {
namespace {

using engine::nn::ArgumentKind;
using testing::HasSubstr;

/// A network that trains, and what makes it hostile.
struct Hostile {
  std::string toml;
  std::vector<std::string> settings;
};

const std::array<std::string, 8> hostile_numbers{
    "-1", "0", "1", "2147483647", "2147483648", "4294967296", "4611686018427387904", "9223372036854775807"};
/// Allowed one by one; too much together.
const std::array<std::string, 3> large{"2147483647", "65536", "46341"};

std::vector<std::string> values_of(ArgumentKind kind, const std::string& number) {
  switch (kind) {
    case ArgumentKind::count:
    case ArgumentKind::axis:
      return {number};
    case ArgumentKind::counts:
    case ArgumentKind::sizes:
      return {number, "[1, " + number + "]"};
    case ArgumentKind::list:
      return {"[" + number + "]", "[" + number + ", 4]", "[" + number + ", " + number + "]"};
    default:
      return {};
  }
}

/// Every integer argument of every row of `toml`, alone and in pairs.
void add_arguments(std::vector<Hostile>& all, const std::string& toml) {
  const engine::nn::NetworkRows rows = parse_config(toml, "hostile").model.rows;
  const std::vector<std::string> names = names_of_rows(rows);
  std::size_t next = 0;
  for (const engine::nn::LayerBlock& block : rows) {
    const std::string prefix = "model.layer." + (block.name.empty() ? "" : block.name + ".");
    if (!block.name.empty())
      for (const std::string& number : hostile_numbers)
        all.push_back({toml, {"model.block." + block.name + ".repeat=" + number}});
    for (const engine::nn::LayerRow& row : block.rows) {
      const std::string name = prefix + names[next++] + ".";
      std::vector<const engine::nn::LayerArgument*> integers;
      for (const engine::nn::LayerArgument& argument : engine::nn::layer_type(row.type).arguments)
        if (!values_of(argument.kind, "1").empty()) integers.push_back(&argument);
      for (const engine::nn::LayerArgument* const argument : integers)
        for (const std::string& number : hostile_numbers)
          for (const std::string& value : values_of(argument->kind, number))
            all.push_back({toml, {name + argument->name + "=" + value}});
      for (std::size_t i = 0; i < integers.size(); ++i)
        for (std::size_t j = 0; j < i; ++j)
          for (const std::string& number : large) {
            const auto set = [&](const engine::nn::LayerArgument* argument) {
              return name + argument->name + "=" + values_of(argument->kind, number).back();
            };
            all.push_back({toml, {set(integers[i]), set(integers[j])}});
          }
    }
  }
}

/// Every key that is an integer, or a list of them.
void add_keys(std::vector<Hostile>& all, const std::string& toml) {
  for (const ConfigKey& key : config_keys()) {
    if (key.name.starts_with("backend.")) continue;
    for (const std::string& number : hostile_numbers) {
      if (key.type == ConfigType::integer) all.push_back({toml, {key.name + "=" + number}});
      if (key.type == ConfigType::integers)
        for (const std::string& value : {number, "[2, " + number + ", " + number + "]"})
          all.push_back({toml, {key.name + "=" + value}});
    }
  }
}

/// What a step would multiply is too much only as a product or a sum, in several rows.
void add_products(std::vector<Hostile>& all) {
  const std::string most = "2147483647";
  all.push_back({every_layer::numbers, {"data.inputs=[" + most + ", " + most + ", " + most + "]"}});
  all.push_back({every_layer::numbers, {"data.inputs=[1, 1, 1, 1, 1, 1, 6]"}});
  all.push_back({every_layer::numbers, {"train.batch_size=" + most, "data.inputs=" + most}});
  all.push_back({every_layer::numbers, {"train.batch_size=" + most, "data.batches=4294967295"}});
  all.push_back(
      {every_layer::numbers, {"train.epochs=9007199254740991", "data.batches=4294967295", "train.steps=0"}});
  all.push_back({every_layer::numbers, {"train.steps=9007199254740991", "train.accumulate=" + most}});
  all.push_back({every_layer::numbers, {"model.layer.left.out_features=" + most, "data.inputs=" + most}});
  all.push_back({every_layer::numbers, {"model.layer.out.widths=[" + most + ", " + most + ", 4]"}});
  all.push_back({every_layer::numbers, {"model.layer.out.widths=[65536, 4294967296, 4]"}});
  all.push_back({every_layer::images, {"model.layer.unflatten1.unflattened_size=[2, 2, 2, 2, 1, 1, 1]"}});
  all.push_back({every_layer::images, {"model.layer.unflatten1.unflattened_size=[-2, -8]"}});
  all.push_back({every_layer::images, {"data.padding=16384", "train.batch_size=1024"}});
  all.push_back({every_layer::images, {"data.crop_padding=16384"}});
  for (const std::string& stride : {most, std::string("65536")})
    all.push_back({every_layer::images,
                   {"model.layer.up.kernel_size=1", "model.layer.up.stride=" + stride,
                    "model.layer.up.output_padding=" + std::to_string(std::stoll(stride) - 1)}});
  for (const std::string& extent : {most, std::string("1048576"), std::string("65536")}) {
    const std::string input = "data.inputs=[" + extent + ", 4]";
    for (const std::string& row : std::vector<std::string>{
             "type = \"lstm\", hidden_size = 2", "type = \"lstm\", hidden_size = " + most,
             "type = \"lstm\", hidden_size = 2, num_layers = 1024",
             "type = \"multihead_attention\", num_heads = 2, causal = true",
             "type = \"multihead_attention\", num_heads = 3"})
      all.push_back(
          {"[model]\nloss = \"mse\"\nlayer = [\n { " + row +
               " },\n { type = \"flatten\" },\n { type = \"linear\" },\n]\n[data]\nname = \"uniform\"\n",
           {input}});
    all.push_back(
        {"[model]\nloss = \"mse\"\nlayer = [\n { type = \"position_embedding\", embedding_dim = 4, name = "
         "\"p\" },\n { name = \"s\", type = \"add\", input = [\"input\", \"p\"] },\n { type = \"flatten\" "
         "},\n { type = \"linear\" },\n]\n[data]\nname = \"uniform\"\n",
         {input}});
  }
  // Sums: 60 linear layers of 2^46 weights each; and their number.
  for (const std::string repeat : {"60", "20000", "100000"})
    all.push_back(
        {"[model]\nloss = \"mse\"\nlayer = [\n { name = \"b{}\", repeat = " + repeat +
             ", layer = [ { name = \"l\", type = \"linear\", out_features = 8388608 } ] },\n { type = "
             "\"linear\" },\n]\n[data]\nname = \"uniform\"\ninputs = 8388608\n",
         {}});
  all.push_back(
      {"[model]\nloss = \"mse\"\nlayer = [\n { name = \"b{}\", repeat = 100000, layer = [ { type = "
       "\"relu\" }, { type = \"relu\" }, { type = \"relu\" } ] },\n { type = \"linear\" "
       "},\n]\n[data]\nname = \"uniform\"\n",
       {}});
}

std::vector<Hostile> hostile_networks() {
  std::vector<Hostile> all;
  add_products(all);
  for (const std::string& toml : {every_layer::images, every_layer::words, every_layer::numbers}) {
    add_arguments(all, toml);
    add_keys(all, toml);
  }
  return all;
}

class HostileNetworks : public testing::Test {
 protected:
  void SetUp() override {
    testing_support::write_bytes(temporary_.path() / "words.txt", every_layer::text());
  }

  /// The line of a usage error; empty where there was none.
  template <class Call>
  static std::string line_of(const Call& call) {
    try {
      call();
      return {};
    } catch (const CommandError& error) {
      const std::string line = error.what();
      EXPECT_EQ(error.code, ExitCode::usage) << line;
      EXPECT_EQ(line.find('\n'), std::string::npos) << line;
      EXPECT_LT(line.size(), 1000u) << line;
      EXPECT_FALSE(line.empty());
      return line;
    }
  }

  /// What became of it: "refused", "large" (more than is worth a test) or "trained".
  std::string meet(const Hostile& hostile) {
    RunConfig config = parse_config(hostile.toml, "hostile");
    RunPlan plan;
    const std::string unread = line_of([&] {
      for (const std::string setting : {"train.batch_size=8", "train.steps=1", "data.batches=2"})
        apply_setting(config, setting, "base");
      if (config.data.name == "text")
        apply_setting(config, "data.path=" + (temporary_.path() / "words.txt").string(), "base");
      for (const std::string& setting : hostile.settings) apply_setting(config, setting, "--set");
      plan = resolve_run(config, "hostile");
    });
    if (!unread.empty()) return "refused";
    StepCosts costs;
    const std::string of_model = line_of([&] {
      const std::unique_ptr<const RunData> data = load_data(config);
      costs = checked_costs(plan, *data);
      network_table(config, *data);
    });
    const bool huge =
        costs.memory.peak + costs.scratch > (std::size_t{256} << 20) || costs.multiply_adds > 2e9;
    if (of_model.empty() && huge) return "large";
    std::unique_ptr<PreparedRun> run;
    const std::string of_train = line_of([&] { run = prepare_run(plan, 1); });
    // How long a run is concerns `train` alone.
    const bool of_length = of_train.starts_with("train.") || of_train.starts_with("schedule.");
    if (!of_length) {
      EXPECT_EQ(of_train, of_model);
    }
    if (run == nullptr) return "refused";
    run->plan.train.steps = 1;
    run->workload.evaluation = nullptr;
    engine::Tap nobody;
    engine::Trainer(*run->backend, run->workload, run->plan, nobody).run();
    return "trained";
  }

  void meet_every(std::size_t step) {
    const std::vector<Hostile> all = hostile_networks();
    std::map<std::string, int> outcomes;
    for (std::size_t i = 0; i < all.size(); i += step) {
      SCOPED_TRACE(testing::PrintToString(i) + ": " + testing::PrintToString(all[i].settings));
      if (step == 1) std::fprintf(stderr, "%zu %s\n", i, testing::PrintToString(all[i].settings).c_str());
      try {
        ++outcomes[meet(all[i])];
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what() << "\n" << all[i].toml;
      }
    }
    std::string text;
    for (const auto& [outcome, count] : outcomes) text += outcome + " " + std::to_string(count) + ", ";
    std::printf("hostile networks: %sof %zu\n", text.c_str(), all.size());
    EXPECT_GE(all.size(), 300u);
    EXPECT_GT(outcomes["refused"], 0);
    EXPECT_GT(outcomes["trained"], 0);
  }

 private:
  testing_support::TemporaryFolder temporary_;
};

TEST_F(HostileNetworks, SixtyOfThem) {
  const std::size_t count = hostile_networks().size();
  meet_every(count / 60);
}

TEST_F(HostileNetworks, All) { meet_every(1); }

/// Each of these wrote past memory, read out of bounds, trained another network or never ended.
TEST_F(HostileNetworks, NameLayerArgumentValueAndRange) {
  const auto refusal = [&](const std::string& toml, const std::string& setting) {
    RunConfig config = parse_config(toml, "hostile");
    return line_of([&] { apply_setting(config, setting, "--set"); });
  };
  EXPECT_EQ(
      refusal(every_layer::numbers, "model.layer.out.widths=[4611686018427387904, 4]"),
      "--set: layer 'out' (mlp): widths = [4611686018427387904, 4]: expected a list of integers from 1 to "
      "2147483647");
  EXPECT_EQ(
      refusal(every_layer::images, "model.layer.stem.padding=9223372036854775807"),
      "--set: layer 'stem' (conv2d): padding = 9223372036854775807: expected an integer or a pair of them, "
      "from 0 to 2147483647");
  for (const std::string setting :
       {"stem.dilation=9223372036854775807", "stem.out_channels=4611686018427387904",
        "stem.stride=[1, 4611686018427387904]", "up.output_padding=-1", "max_pool2d1.kernel_size=4294967296",
        "unflatten1.unflattened_size=[-2, -8]", "flatten1.start_dim=9223372036854775807"})
    EXPECT_THAT(refusal(every_layer::images, "model.layer." + setting), HasSubstr("expected")) << setting;
  EXPECT_THAT(refusal(every_layer::words, "model.layer.tokens.embedding_dim=4611686018427387904"),
              HasSubstr("from 1 to 2147483647"));
  EXPECT_THAT(refusal(every_layer::words, "model.layer.lstm.num_layers=1025"), HasSubstr("from 1 to 1024"));
  EXPECT_THAT(refusal(every_layer::numbers, "train.batch_size=2147483648"),
              HasSubstr("from 1 to 2147483647"));
}

/// Numbers that are allowed one by one.
TEST_F(HostileNetworks, ProductsNameTheShape) {
  const auto refusal = [&](const std::string& toml, const std::vector<std::string>& settings) {
    RunConfig config = parse_config(toml, "hostile");
    for (const std::string& setting : settings) apply_setting(config, setting, "--set");
    return line_of([&] { prepare_run(resolve_run(config, "hostile"), 1); });
  };
  EXPECT_EQ(
      refusal(every_layer::numbers, {"model.layer.left.out_features=2147483647", "data.inputs=2147483647"}),
      "--set: layer 'left' (linear): shape (2147483647, 2147483647): expected at most 2^48 elements; the "
      "network's input gives (N, 2147483647)");
  EXPECT_EQ(refusal(every_layer::numbers, {"data.inputs=[2147483647, 2147483647]"}),
            "the network's input (N, 2147483647, 2147483647): shape (128, 2147483647, 2147483647): expected "
            "at most 2^48 elements");
  EXPECT_THAT(
      refusal(every_layer::images,
              {"model.layer.stem.kernel_size=2147483647", "model.layer.stem.padding=2147483647"}),
      HasSubstr("layer 'stem' (conv2d): shape (8, 1, 2147483647, 2147483647): expected at most 2^48"));
}

/// Names, parameters and casts are found without looking at all of them: eight times the layers take eight
/// times the time, not 64 times.
TEST_F(HostileNetworks, ManyLayersTakeTimeInProportion) {
  const auto seconds = [&](int layers) {
    const std::string toml =
        "[model]\nloss = \"mse\"\nlayer = [\n { name = \"b{}\", repeat = " + std::to_string(layers) +
        ", layer = [ { name = \"l\", type = \"linear\", out_features = 4 }, { type = "
        "\"relu\" } ] },\n { name = \"out\", type = \"linear\" },\n]\n[data]\nname = "
        "\"uniform\"\ninputs = 4\n[amp]\nlevel = \"O1\"\n";
    const RunConfig config = parse_config(toml, "hostile");
    const RunPlan plan = resolve_run(config, "hostile");
    const std::unique_ptr<const RunData> data = load_data(config);
    const std::clock_t begin = std::clock();  // of this process, whatever else the machine does
    checked_costs(plan, *data);
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  };
  seconds(100);
  const double few = seconds(1000), many = seconds(8000);
  EXPECT_LT(many, 24 * few) << few << " s and " << many << " s";
}

}  // namespace
}  // namespace fp16lab::experiments
