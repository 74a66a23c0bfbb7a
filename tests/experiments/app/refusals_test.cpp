// What would be ignored in silence is refused: patterns without a match, parameters that a policy does not
// have, empty and impossible values. Exit 2, one line, nothing left behind.
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "tests/experiments/app/small_runs.hpp"

namespace fp16lab::experiments {
namespace {

class Refusals : public SmallRuns {
 protected:
  void expect_refused(const std::vector<std::string>& more, const std::string& part) {
    expect_one_line_error(train("run", more), 2, part);
    EXPECT_FALSE(std::filesystem::exists(path("run")));
  }
  void expect_taken(std::vector<std::string> more) {
    more.insert(more.end(), {"--set", "train.steps=1", "--force"});
    const auto result = train("run", more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
  }
};

TEST_F(Refusals, PatternsThatNameNothing) {
  expect_refused(
      {"--set", "amp.excluded=nosuch"},
      "amp.excluded = \"nosuch\": no layer or parameter of the network has such a name; layers: known are "
      "fc1, fc2, loss");
  expect_refused({"--set", "amp.excluded=FC2"}, "did you mean 'fc2'?");
  expect_refused({"--set", "amp.excluded=[\"fc1\", \"fc\"]"}, "amp.excluded = \"fc\"");
  expect_refused({"--set", "amp.to_float=nosuch=f32"}, "amp.to_float = \"nosuch\"");
  expect_refused({"--set", "amp.use_guard=true", "--set", "amp.guard=fc3*"}, "amp.guard = \"fc3*\"");
  expect_refused({"--set", "amp.white=FC"}, "amp.white = \"FC\": no op of this name");
  expect_refused({"--set", "amp.black=Softmax"}, "did you mean 'softmax'?");
  expect_refused({"--set", "scaler.policy=groups", "--set", "scaler.groups=FC1.weight=2^8"},
                 "did you mean 'fc1.weight'?");
  for (const char* const pattern : {"fc1", "fc*", "*2", "loss"})
    expect_taken({"--set", std::string("amp.excluded=") + pattern});
  expect_taken({"--set", "amp.to_float=fc2=f32"});
}

TEST_F(Refusals, PatternsOfParametersWhereNoParameterIsLow) {
  expect_refused(
      {"--set", "amp.excluded=fc1.weight"},
      "amp.excluded = \"fc1.weight\": it names parameters only (fc1.weight), which are FP32 at O1 anyway");
  expect_taken({"--set", "amp.excluded=*.bias", "--set", "amp.level=O2", "--set", "amp.dialect=paddle"});
  expect_taken({"--set", "amp.excluded=*.bias", "--set", "amp.level=O0", "--set", "amp.to_float=fc1=f16"});
}

/// `model` and `train` refuse what no network can be in the same line.
TEST_F(Refusals, NetworksOfImpossibleSizes) {
  const auto both = [&](const std::vector<std::string>& settings, const std::string& part) {
    expect_refused(settings, part);
    const auto trained = train("run", settings);
    std::vector<std::string> arguments{"model", path("small.toml"), "--set", "data.path=" + path("data")};
    arguments.insert(arguments.end(), settings.begin(), settings.end());
    const auto modelled = fp16lab(arguments);
    EXPECT_EQ(modelled.exit_code, 2) << modelled.err;
    EXPECT_EQ(modelled.out, "");
    EXPECT_EQ(modelled.err.substr(modelled.err.find("error")), trained.err.substr(trained.err.find("error")));
  };
  const std::string widths = "model.layer.mlp1.widths=";
  both({"--set", widths + "[4611686018427387904,10]"},
       "layer of type mlp: widths = [4611686018427387904, 10]: expected a list of integers from 1 to "
       "2147483647");
  both({"--set", widths + "[2147483647,2147483647,10]"},
       "shape (2147483647, 2147483647): expected at most 2^48 elements");
  both({"--set", widths + "[67108864,8388608,10]"}, "shape (8388608, 67108864): expected at most 2^48");
}

/// Every layer that ops are counted for can be named, and the error names no other.
TEST_F(Refusals, TheNamesAreThoseOfTheOps) {
  write_config();
  std::string text;
  for (int i = 0; i < 400; ++i) text += "In the beginning was the word. ";
  testing_support::write_bytes(path("text.txt"), text);
  std::vector<std::string> characters{
      "--set", "data.name=text",  "--set", "data.path=" + path("text.txt"), "--set", "data.test_subset=0",
      "--set", "model.context=8", "--set", "schedule.name=constant"};
  const std::vector<std::string> images{"--set", "data.path=" + path("data"), "--set", "data.test_subset=0"};
  const std::vector<std::pair<std::string, std::vector<std::string>>> networks{
      {"classifier", images},
      {"lenet5", images},
      {"recipe_gan", images},
      {"recipe_two_models", images},
      {"recipe_gradient_penalty", images},
      {"charlm_lstm", characters},
      {"charlm_transformer", characters}};
  const auto train = [&](const std::string& out, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"train", "-o", path(out)});
    return fp16lab(arguments);
  };
  for (const auto& [name, settings] : networks) {
    std::vector<std::string> all{"-c",     name,
                                 "--set",  "train.steps=1",
                                 "--set",  "train.batch_size=8",
                                 "--set",  "train.accumulate=1",
                                 "--quiet"};
    all.insert(all.end(), settings.begin(), settings.end());
    std::vector<std::string> counted = all;
    counted.insert(counted.end(), {"--force", "--op-stats"});
    const auto result = train("counted", counted);
    ASSERT_EQ(result.exit_code, 0) << name << ": " << result.err;
    std::set<std::string> layers;
    for (const std::string& layer : column("counted/op_stats.csv", "layer"))
      if (!layer.empty()) layers.insert(layer);
    layers.insert("loss");

    all.insert(all.end(), {"--set", "amp.level=O1", "--set", "amp.excluded=nosuchlayer"});
    const auto refused = train("run", all);
    const std::string before = "known are ";
    const std::size_t begin = refused.err.find(before);
    ASSERT_NE(begin, std::string::npos) << name << ": " << refused.err;
    std::string known = refused.err.substr(begin + before.size());
    known = known.substr(0, known.find_first_of(";\n"));
    std::set<std::string> listed;
    std::istringstream stream(known);
    for (std::string word; std::getline(stream, word, ',');)
      listed.insert(word.substr(word.find_first_not_of(' ')));
    EXPECT_EQ(listed, layers) << name;
  }
}

TEST_F(Refusals, EntriesThatLaterOnesTakeAllNamesFrom) {
  const std::string told = "later entries take all that it names, and the last match counts";
  expect_refused({"--set", "amp.to_float=[\"fc1=f32\",\"fc1=f16\"]"}, "amp.to_float = \"fc1=f32\": " + told);
  expect_refused({"--set", "amp.to_float=fc1=f32,fc2=f32,fc*=f16"}, told);
  expect_taken({"--set", "amp.to_float=fc*=f16,fc1=f32"});
}

TEST_F(Refusals, ListsThatALevelDoesNotUse) {
  expect_refused({"--set", "amp.level=O0", "--set", "amp.excluded=fc1"},
                 "--set: amp.excluded=fc1: amp.level = O0 does not read it; ");
  expect_taken({"--set", "amp.level=O1", "--set", "amp.excluded=fc1"});
}

TEST_F(Refusals, ParametersThatThePolicyDoesNotHave) {
  expect_refused({"--set", "scaler.policy=torch", "--set", "scaler.hysteresis=3"},
                 "--set: scaler.hysteresis=3: policy torch has no parameter 'hysteresis': known are ");
  expect_refused({"--set", "scaler.hysteresis=3", "--set", "scaler.policy=fixed"},
                 "policy fixed has no parameter");
  expect_taken({"--set", "scaler.policy=megatron", "--set", "scaler.hysteresis=3"});
  const std::string small = read("small.toml");
  const auto with_file = [&](const std::string& scaler, const std::vector<std::string>& more) {
    testing_support::write_bytes(path("own.toml"), small + "[scaler]\n" + scaler);
    std::vector<std::string> arguments{"train",     "-c",      path("own.toml"), "-o",
                                       path("run"), "--force", "--set",          "train.steps=1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return fp16lab(arguments);
  };
  expect_one_line_error(with_file("policy = \"torch\"\nhysteresis = 3\n", {}), 2,
                        "own.toml: scaler.hysteresis = 3.0: policy torch has no parameter 'hysteresis'");
  // What belongs to the file's own policy need not be taken back where --set chooses another one, and what
  // the file leaves to a policy that --set chooses is used.
  EXPECT_EQ(with_file("policy = \"megatron\"\nhysteresis = 3\n", {"--set", "scaler.policy=none"}).exit_code,
            0);
  EXPECT_EQ(with_file("hysteresis = 3\n", {"--set", "scaler.policy=megatron"}).exit_code, 0);
}

TEST_F(Refusals, SchedulesThatDoNotFitTheRun) {
  expect_refused(
      {"--set", "schedule.name=cosine", "--set", "schedule.warmup_steps=40"},
      "train.steps = 40: schedule.name = \"cosine\" needs more steps than schedule.warmup_steps = 40 "
      "where schedule.total_steps is not set");
  expect_refused({"--set", "schedule.name=cosine", "--set", "schedule.warmup_steps=40", "--set",
                  "train.steps=0", "--set", "train.epochs=2"},
                 "train.epochs = 2, of 40 steps: schedule.name");
  expect_refused({"--set", "schedule.name=cosine", "--set", "schedule.warmup_steps=40", "--set",
                  "schedule.total_steps=30"},
                 "schedule.total_steps = 30: must be above warmup_steps = 40");
  expect_refused({"--set", "schedule.name=step"}, "schedule.step_interval = 0: must be >= 1");
  for (const std::string name : {"linear", "polynomial"})
    expect_refused({"--set", "schedule.name=" + name, "--set", "schedule.warmup_steps=40"},
                   "train.steps = 40: schedule.name = \"" + name + "\" needs more steps than");
}

TEST_F(Refusals, NumericsWithoutMeaningWhereTheyAreAskedFor) {
  expect_refused({"--set", "optimizer.kahan=true"},
                 "optimizer.kahan = true: it sums updates of 16-bit weights");
  expect_refused({"--set", "amp.rounding=stochastic", "--set", "amp.level=O0"},
                 "amp.rounding=stochastic: amp.level = O0 does not read it; ");
  expect_refused({"--set", "amp.rounding=stochastic_weights", "--set", "amp.level=O1"},
                 "amp.rounding = \"stochastic_weights\": it rounds updates of 16-bit weights");
  expect_refused({"--set", "amp.dtype=tf32", "--set", "amp.level=O2", "--set", "amp.dialect=paddle"},
                 "amp.dtype = \"tf32\": no tensor is stored in TF32");
  expect_refused(
      {"--set", "amp.dtype=tf32", "--set", "amp.level=O1", "--set", "backend.tensor_core=turing"},
      "amp.dtype = \"tf32\" with backend.tensor_core = \"turing\": these tensor cores have no tf32 products");
  expect_refused({"--set", "amp.dtype=tf32", "--set", "amp.level=O1", "--set", "backend.accumulator=f16"},
                 "backend.accumulator = \"f16\" with TF32: tensor cores sum products of TF32 in FP32 only");
  expect_refused({"--set", "optimizer.kahan=true", "--set", "amp.rounding=stochastic", "--set",
                  "amp.level=O2", "--set", "amp.dialect=paddle", "--set", "amp.master_weights=false"},
                 "expected one of the two");
  expect_refused({"--set", "optimizer.nesterov=true", "--set", "optimizer.dampening=0.5"},
                 "optimizer.dampening = 0.500000: must be 0 with nesterov");
}

TEST_F(Refusals, EmptyNamesOfFilesAndFolders) {
  write_config();
  expect_one_line_error(fp16lab({"train", "-c", ""}), 2, "--config: '': expected a file");
  expect_one_line_error(fp16lab({"train", "-c", path("small.toml"), "-o", ""}), 2,
                        "--out: '': expected a folder");
  expect_one_line_error(fp16lab({"sweep", "-c", ""}), 2, "--config: '': expected a file");
  expect_one_line_error(fp16lab({"replay", path("run"), "-o", ""}), 2, "--out: '': expected a folder");
  expect_one_line_error(fp16lab({"report", ""}), 2, "RUN: '': expected a folder");
  expect_one_line_error(fp16lab({"replay", ""}), 2, "RUN: '': expected a folder");
  expect_one_line_error(fp16lab({"compare", path("run"), ""}), 2, "B: '': expected a folder");
  expect_refused({"--tensorboard", ""}, "--tensorboard: '': expected a folder");
  expect_refused({"--dump-initial", ""}, "--dump-initial: '': expected a file");
  expect_refused({"--dump-gradients", "1", ""}, "--dump-gradients: '': expected a file");
}

TEST_F(Refusals, NumbersOutOfRange) {
  expect_refused({"--threads", "100000"}, "--threads: '100000': expected an integer from 1 to 1024");
  expect_refused({"--threads", "99999999999999999999"},
                 "--threads: '99999999999999999999': expected an integer");
  expect_refused({"--seed", "9007199254740992"},
                 "--seed: '9007199254740992': expected an integer from 0 to 9007199254740991");
  expect_refused({"--seed", "-1"}, "--seed: '-1': expected an integer, 0 or more");
  for (const char* const key : {"train.seed", "train.steps"})
    for (const char* const large : {"9007199254740992", "9007199254740993"})
      expect_refused({"--set", std::string(key) + "=" + large},
                     std::string(key) + " = " + large + ": expected integers up to 9007199254740991");
  EXPECT_NE(fp16lab({"list", "config_keys", "*"}).out.find("up to 9007199254740991"), std::string::npos);
  const auto compared = [&](const std::string& threshold) {
    return fp16lab({"compare", path("a"), path("b"), "--threshold", threshold});
  };
  for (const char* const bad : {"nan", "inf", "-0.5", "x", "1e999"})
    expect_one_line_error(compared(bad), 2,
                          std::string("--threshold: '") + bad + "': expected a finite number, 0 or more");
  testing_support::write_bytes(
      path("seeds.toml"),
      "[[workload]]\nname = \"a\"\nconfig = \"small.toml\"\nseeds = [9007199254740992]\n"
      "[[variant]]\nname = \"b\"\n");
  expect_one_line_error(fp16lab({"sweep", "-c", path("seeds.toml")}), 2, "seeds.toml:4: seeds");
}

TEST_F(Refusals, NumbersThatFp32DoesNotHold) {
  expect_refused(
      {"--set", "train.clip_value=1e308"},
      "train.clip_value = 1e+308: expected a number, 0 or more, also in FP32, which holds 2^-149 to "
      "3.4028235e+38 and would make inf of it");
  expect_refused({"--set", "train.clip_value=1e-60"}, "would make 0 of it");
  expect_refused({"--set", "optimizer.beta1=0.9999999999"}, "would make 1 of it");
  expect_refused(
      {"--set", "scaler.initial_scale=0.1"},
      "scaler.initial_scale = 0.1: expected an FP32 number; the nearest ones are 0.09999999403953552 "
      "and 0.10000000149011612");
  expect_one_line_error(
      fp16lab({"policy", "--policy", "torch", "--set", "initial_scale=0.1", "--trace", "F"}), 2,
      "must be an FP32 number; the nearest ones are 0.09999999403953552");
  model_ =
      R"(layer = [{ type = "flatten" }, { type = "linear", out_features = 16 }, { type = "layer_norm", eps = 1e308 }])";
  expect_refused({}, "eps = 1e+308: expected a number that FP32 holds");
}

/// The class of all messages: whatever a long name or value stands in, the line is short and says what is
/// right.
TEST_F(Refusals, LongInputMakesNoLongMessage) {
  write_config();
  const std::string name(40000, 'x');
  const std::vector<std::vector<std::string>> commands{
      {name},
      {"train", "--" + name},
      {"train", name},
      {"train", "-c", path("small.toml"), "--set", name + "=1"},
      {"train", "-c", path("small.toml"), "--set", "train." + name + "=1"},
      {"train", "-c", path("small.toml"), "--set", "train.steps=" + name},
      {"train", "-c", path("small.toml"), "--set", "scaler.policy=" + name},
      {"train", "-c", path("small.toml"), "--set", "amp.excluded=" + name},
      {"train", "-c", path("small.toml"), "--set", "amp.white=" + name},
      {"train", "-c", path("small.toml"), "--set", "model.layer." + name + ".widths=[1]"},
      {"train", "-c", path("small.toml"), "--set", "data.path=" + name},
      {"train", "-c", path("small.toml"), "-o", name},
      {"train", "-c", path("small.toml"), "--threads", name},
      {"list", name},
      {"list", "policies", name},
      {"hist", name},
      {"replay", name},
      {"report", name},
      {"compare", name, name},
      {"help", name},
      {"mma", "--model", name},
      {"softfloat", name},
      {"inspect", name},
      {"policy", "--policy", name},
      {"policy", "--policy", "torch", "--set", name + "=1"},
      {"sweep", "-c", name}};
  for (const std::vector<std::string>& command : commands) {
    const auto result = fp16lab(command);
    EXPECT_NE(result.exit_code, 0) << command.front();
    EXPECT_LE(result.err.size(), 2100u) << command.front() << " " << command.back().substr(0, 20);
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << command.front();
    EXPECT_NE(result.err.find("error: "), std::string::npos) << command.front();
  }
  std::string many = "[[workload]]\nname = \"a\"\nconfig = \"small.toml\"\nvariants = [";
  for (int i = 0; i < 5000; ++i) many += "\"v" + std::to_string(i) + "\", ";
  testing_support::write_bytes(path("many.toml"), many + "]\n[[variant]]\nname = \"b\"\n");
  const auto sweep = fp16lab({"sweep", "-c", path("many.toml")});
  EXPECT_EQ(sweep.exit_code, 2);
  EXPECT_LE(sweep.err.size(), 2100u);
}

/// With so many threads as are allowed a run still comes to its end.
TEST_F(Refusals, TheLargestNumberOfThreadsWorks) {
  const auto many = train("many", {"--threads", "1024", "--set", "train.steps=2"});
  EXPECT_EQ(many.exit_code, 0) << many.err;
}

TEST_F(Refusals, AConfigurationForAnotherCommand) {
  write_config();
  testing_support::write_bytes(
      path("grid.toml"),
      "[[workload]]\nname = \"small\"\nconfig = \"small.toml\"\n[[variant]]\nname = \"a\"\n");
  const std::string grid = path("grid.toml"), small = path("small.toml");
  expect_one_line_error(fp16lab({"train", "-c", grid}), 2,
                        grid + ": this is a sweep: fp16lab sweep -c " + grid);
  expect_one_line_error(fp16lab({"sweep", "-c", small, "--policies", "tourch"}), 2, "no policy 'tourch'");
}

}  // namespace
}  // namespace fp16lab::experiments
