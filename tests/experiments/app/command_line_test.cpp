// The command line as users meet it: help, mistakes, exit codes, streams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/experiments/app/small_runs.hpp"

namespace fp16lab::experiments {
namespace {

class CommandLine : public SmallRuns {};

TEST_F(CommandLine, HelpGoesToStdoutWithExamplesAndExitCodes) {
  for (const char* command :
       {"", "train", "sweep", "hist", "replay", "compare", "sensitivity", "report", "inspect", "softfloat",
        "mma", "reveal", "policy", "list", "devices", "ask", "help", "completion"}) {
    std::vector<std::string> arguments{"--help"};
    if (*command != '\0') arguments.insert(arguments.begin(), command);
    const auto result = fp16lab(arguments);
    EXPECT_EQ(result.exit_code, 0) << command;
    EXPECT_EQ(result.err, "") << command;
    EXPECT_NE(result.out.find("Examples:"), std::string::npos) << command;
    EXPECT_NE(result.out.find("Exit codes:"), std::string::npos) << command;
    for (const char* code :
         {"0 ok", "1 run failed", "2 usage", "3 back end", "4 diverged", "5 verification", "130 "})
      EXPECT_NE(result.out.find(code), std::string::npos) << command << ": " << code;
  }
}

TEST_F(CommandLine, HelpShowsAndCommandsTakeTheirOwnOptionsOnly) {
  const std::map<std::string, std::set<std::string>> own{{"train", {"--config", "--set", "--out", "--seed"}},
                                                         {"sweep", {"--config", "--set", "--out", "--seed"}},
                                                         {"hist", {"--out"}},
                                                         {"replay", {"--set", "--out"}},
                                                         {"compare", {"--out"}},
                                                         {"sensitivity", {}},
                                                         {"report", {"--out"}},
                                                         {"inspect", {}},
                                                         {"softfloat", {}},
                                                         {"mma", {}},
                                                         {"reveal", {"--out"}},
                                                         {"policy", {"--config", "--set"}},
                                                         {"list", {}},
                                                         {"devices", {}},
                                                         {"ask", {}},
                                                         {"help", {}},
                                                         {"completion", {}}};
  const std::set<std::string> threaded{"train", "sweep", "hist", "sensitivity"};
  for (const auto& [command, options] : own) {
    const std::string help = fp16lab({command, "--help"}).out;
    const std::string before_examples = help.substr(0, help.find("Examples:"));
    // Every command takes these, and says what comes of them.
    EXPECT_NE(before_examples.find("--quiet "), std::string::npos) << command;
    const std::size_t threads = before_examples.find("--threads N");
    ASSERT_NE(threads, std::string::npos) << command;
    EXPECT_EQ(before_examples.find("Without effect", threads) == std::string::npos,
              threaded.contains(command))
        << command;
    for (const char* const option : {"--config", "--set", "--out", "--seed"})
      EXPECT_EQ(before_examples.find(option + std::string(" ")) != std::string::npos,
                options.contains(option))
          << command << " " << option;
    for (const char* const option : {"--config", "--set", "--out", "--seed"}) {
      if (options.contains(option)) continue;
      const auto refused = fp16lab({command, option, "1"});
      EXPECT_EQ(refused.exit_code, 2) << command << " " << option;
      EXPECT_NE(refused.err.find(std::string("unknown option '") + option), std::string::npos)
          << command << ": " << refused.err;
    }
  }
  EXPECT_EQ(fp16lab({"list", "--threads", "1", "--quiet"}).exit_code, 0);
}

TEST_F(CommandLine, HelpNamesTheTwoArgumentsOfDumpGradients) {
  const std::string help = fp16lab({"train", "--help"}).out;
  EXPECT_NE(help.find("--dump-gradients STEP FILE"), std::string::npos);
  EXPECT_EQ(help.find("STEP FILE x"), std::string::npos) << "the pair is given once";
  expect_one_line_error(fp16lab({"train", "--dump-gradients", "1"}), 2, "--dump-gradients");
}

TEST_F(CommandLine, MistypedNamesAreErrorsWithSuggestions) {
  expect_one_line_error(fp16lab({}), 2, "expected a command");
  expect_one_line_error(fp16lab({"trian"}), 2, "unknown command 'trian'; did you mean 'train'?");
  expect_one_line_error(fp16lab({"train", "--threds", "2"}), 2,
                        "unknown option '--threds'; did you mean '--threads'?");
  expect_one_line_error(fp16lab({"list", "--jsn"}), 2, "did you mean '--json'?");
  expect_one_line_error(fp16lab({"list", "extra"}), 2, "list: 'extra': known are layers");
  EXPECT_EQ(fp16lab({"list", "layers"}).out.find("train.seed"), std::string::npos);
  expect_one_line_error(fp16lab({"train", "--seed", "x"}), 2, "--seed: 'x': expected an integer, 0 or more");
  expect_one_line_error(fp16lab({"train", "--threads", "0"}), 2,
                        "--threads: '0': expected an integer from 1 to 1024");
  expect_one_line_error(fp16lab({"train", "--seed"}), 2, "--seed");
  expect_one_line_error(fp16lab({"train", "--graph=false"}), 2, "--graph takes no value");
  expect_one_line_error(fp16lab({"list", "--quiet=false"}), 2, "--quiet takes no value");
  expect_one_line_error(fp16lab({"inspect"}), 2, "VALUE");
}

TEST_F(CommandLine, ArgumentsThatAreNoUtf8AreOneErrorAndLeaveNothingBehind) {
  for (const char* command : {"train", "sweep", "report", "hist"}) {
    const auto result = fp16lab({command, "-c", write_config().string(), "-o", path("out\xff")});
    expect_one_line_error(result, 2, "out\\xff', is not UTF-8");
  }
  expect_one_line_error(fp16lab({"train", "-c", write_config().string(), "--name", "a\xff"}), 2,
                        "argument 5, 'a\\xff', is not UTF-8: expected UTF-8; where it names a file");
  for (const auto& [name, shown] : {std::pair{"v\nsystem(\"touch x\")\n#", "v\\x0asystem(\"touch x\")\\x0a#"},
                                    {"\x1b[31m", "\\x1b[31m"},
                                    {"\u202ex", "\\u202ex"}})
    expect_one_line_error(fp16lab({"train", "-c", write_config().string(), "--name", name}), 2,
                          fmt::format("--name: '{}': expected text without control characters", shown));
  expect_one_line_error(
      fp16lab({"train", "-c", write_config().string(), "--set", "data.path=\xc3", "-o", path("a")}), 2,
      "argument 5, 'data.path=\\xc3', is not UTF-8");
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
    EXPECT_THAT((std::set<std::string>{"data", "small.toml"}),
                ::testing::Contains(entry.path().filename().string()));
  EXPECT_EQ(
      fp16lab({"train", "-c", write_config("1").string(), "-o", path("\xc3\xa9\xe4\xb8\xad")}).exit_code, 0);
}

TEST_F(CommandLine, BadConfigurationsAreUsageErrors) {
  testing_support::write_bytes(path("bad.toml"), "[train]\nseed = 1\n\n\n\n[scaler]\npolcy = \"none\"\n");
  expect_one_line_error(fp16lab({"train", "-c", path("bad.toml")}), 2,
                        path("bad.toml") + ":7: unknown key 'scaler.polcy'; did you mean 'scaler.policy'?");
  testing_support::write_bytes(path("type.toml"), "[train]\nbatch_size = \"big\"\n");
  expect_one_line_error(fp16lab({"train", "-c", path("type.toml")}), 2,
                        "type.toml:2: train.batch_size = 'big'");
  expect_one_line_error(fp16lab({"train", "-c", path("absent.toml")}), 2, "absent.toml");
  expect_one_line_error(train("run", {"--set", "train.batch_size=0"}), 2,
                        "train.batch_size = 0: expected an integer");
  expect_one_line_error(train("run", {"--set", "optimizer.lr=-1"}), 2, "optimizer.lr");
  expect_one_line_error(train("run", {"--set", "amp.level=O7"}), 2,
                        "expected one of O0, OD, O1, O2, O3, auto, auto-r1.7");
  expect_one_line_error(train("run", {"--set", "backend.tensor_core=hoper"}), 2, "did you mean 'hopper'?");
  expect_one_line_error(train("run", {"--set", "model.layer.mlp1.widths=[11]"}), 2,
                        "the network ends with (N, 11), 'mlp1' (mlp); expected (N, 10)");
  expect_one_line_error(train("run", {"--set", "model.layer.mpl1.widths=[10]"}), 2,
                        "did you mean 'model.layer.mlp1'?");
  expect_one_line_error(train("run", {"--set", "train.batch_size=401"}), 2, "401");
  expect_one_line_error(train("run", {"--set", "data.subset=401"}), 2, "401");
  EXPECT_FALSE(std::filesystem::exists(path("run"))) << "nothing is left behind";
}

TEST_F(CommandLine, UnreadableDataFailsTheRunAndLeavesNothing) {
  write_config();
  const std::filesystem::path data = folder_ / "data";
  const auto expect_failure = [&](const std::string& part) {
    expect_one_line_error(train("run"), 1, part);
    EXPECT_FALSE(std::filesystem::exists(path("run")));
  };
  // One label too few.
  const std::string labels = testing_support::slurp(data / "train-labels-idx1-ubyte");
  testing_support::write_bytes(data / "train-labels-idx1-ubyte",
                               testing_support::idx_bytes({399}, labels.substr(8, 399)));
  expect_failure("expected 400 labels");
  // Cut short.
  testing_support::write_bytes(data / "train-labels-idx1-ubyte", labels.substr(0, 300));
  expect_failure("train-labels-idx1-ubyte: truncated");
  // Another kind of file.
  std::string magic = labels;
  magic[2] = 0x0d;
  testing_support::write_bytes(data / "train-labels-idx1-ubyte", magic);
  expect_failure("wrong magic number at byte 0");
  testing_support::write_bytes(data / "train-labels-idx1-ubyte", labels);
  // A flipped bit in the middle of the compressed images.
  const std::string images = testing_support::slurp(data / "train-images-idx3-ubyte.gz");
  std::string damaged = images;
  damaged[images.size() / 2] = static_cast<char>(damaged[images.size() / 2] ^ 0x20);
  testing_support::write_bytes(data / "train-images-idx3-ubyte.gz", damaged);
  expect_failure("train-images-idx3-ubyte.gz: ");
  std::filesystem::remove(data / "train-images-idx3-ubyte.gz");
  expect_failure("dataset-fashion-mnist");
}

TEST_F(CommandLine, UnwritableOutputIsOneLine) {
  write_config();
  testing_support::write_bytes(path("file"), "in the way");
  expect_one_line_error(train("file/run"), 1, "file/run");
  expect_one_line_error(train("/proc/fp16lab-run"), 1, "/proc/fp16lab-run");
  std::filesystem::create_directories(path("full"));
  testing_support::write_bytes(path("full/notes.txt"), "mine");
  expect_one_line_error(train("full"), 2, "is not empty and holds no run");
  expect_one_line_error(train("full", {"--force"}), 2, "is not empty and holds no run");
  EXPECT_EQ(read("full/notes.txt"), "mine");
}

TEST_F(CommandLine, HistAndReportWantRunFoldersOrDumps) {
  expect_one_line_error(fp16lab({"hist", path("absent")}), 2, "no such file or run folder");
  testing_support::write_bytes(path("dump.npy"), "x");
  expect_one_line_error(fp16lab({"hist", path("dump.npy")}), 1,
                        "dump.npy: byte 1: the data end in the magic string");
  expect_one_line_error(fp16lab({"report", path("absent")}), 2, "no such run folder");
  expect_one_line_error(fp16lab({"hist"}), 2, "FILE");
}

TEST_F(CommandLine, ListNamesEverythingInJson) {
  const auto result = fp16lab({"list", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json json = nlohmann::json::parse(result.out);
  const auto names = [&json](const char* section) {
    std::set<std::string> set;
    for (const auto& row : json.at(section)) set.insert(row.at("name").get<std::string>());
    return set;
  };
  EXPECT_THAT(names("layers"), testing::IsSupersetOf({"linear", "conv2d", "batch_norm2d", "lstm", "add"}));
  for (const auto& row : json.at("layers"))
    if (row.at("name") == "dropout") {
      EXPECT_EQ(row.at("arguments").at(0).at("name"), "p");
      EXPECT_EQ(row.at("arguments").at(0).at("default"), "0.5");
    }
  std::map<std::string, std::string> commands;
  for (const auto& row : json.at("configs")) {
    commands[std::filesystem::path(row.at("path").get<std::string>()).stem()] = row.at("command");
    EXPECT_NE(row.at("description"), "");
  }
  EXPECT_EQ(commands.at("lenet5"), "train");
  EXPECT_EQ(commands.at("demo"), "sweep");
  EXPECT_EQ(names("dialects"), (std::set<std::string>{"torch", "paddle", "mindspore", "apex"}));
  for (const auto& dialect : json.at("dialects")) {
    for (const auto& level : dialect.at("levels")) {
      EXPECT_FALSE(level.at("source").get<std::string>().empty()) << dialect.at("name") << level.at("level");
      EXPECT_TRUE(names("policies").contains(level.at("scaler").get<std::string>())) << level;
      EXPECT_EQ(level.contains("op_lists"), level.at("uses_lists").get<bool>());
    }
    EXPECT_EQ(dialect.at("levels").at(0).at("level"), "O0");
  }
  EXPECT_EQ(json.at("dialects").at(2).at("levels").back().at("level"), "auto-r1.7") << "mindspore's";
  EXPECT_EQ(json.at("dialects").at(2).at("levels").back().at("means"), "O2");
  EXPECT_EQ(json.at("dialects").at(1).at("levels").at(2).at("op_lists").at("white").at(0).at("op"), "matmul");
  for (const char* policy : {"none", "fixed", "torch", "paddle", "megatron", "lost-mass"})
    EXPECT_TRUE(names("policies").contains(policy)) << policy;
  EXPECT_EQ(names("datasets"), (std::set<std::string>{"fashion-mnist", "mnist", "cifar10", "random-images",
                                                      "arrays", "bible-kjv", "text", "uniform", "normal"}));
  EXPECT_TRUE(names("tensor_cores").contains("hopper"));
  EXPECT_TRUE(names("formats").contains("FP16"));
  EXPECT_TRUE(names("config_keys").contains("scaler.policy"));
  for (const auto& row : json.at("formats"))
    if (row.at("name") == "FP16") {
      EXPECT_EQ(row.at("max_finite"), "65504");
      EXPECT_EQ(row.at("min_subnormal"), "5.9604644775390625e-08");
    }
  EXPECT_EQ(fp16lab({"list"}).exit_code, 0);
  EXPECT_TRUE(nlohmann::json::accept(fp16lab({"devices", "--json"}).out));
}

/// A configuration that comes with the program needs no path, wherever one is.
TEST_F(CommandLine, ShippedConfigurationsAreFoundByName) {
  for (const char* const name : {"lenet5", "lenet5.toml"}) {
    const auto result = run_inside("fp16lab", {"train", "-c", name, "--set", "train.nonesuch=1"});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, testing::HasSubstr("unknown key 'train.nonesuch'")) << name;
  }
  testing_support::write_bytes(path("lenet5"), "[nonesuch]\n");
  EXPECT_THAT(run_inside("fp16lab", {"train", "-c", "lenet5"}).err, testing::HasSubstr("nonesuch"))
      << "a file of the user's own comes first";
  const auto unknown = run_inside("fp16lab", {"train", "-c", "lenet"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, testing::AllOf(testing::HasSubstr("--config lenet: there is no such file"),
                                          testing::HasSubstr("did you mean 'lenet5'?")));
  EXPECT_THAT(run_inside("fp16lab", {"train", "-c", "lenet.toml"}).err,
              testing::HasSubstr("cannot read lenet.toml"));
  testing_support::write_bytes(path("mine.toml"), "[nonesuch]\n");
  for (const std::string& typed : {std::string("mien.toml"), path("mien.toml")})
    expect_one_line_error(run_inside("fp16lab", {"train", "-c", typed}), 2,
                          "there is no such file; did you mean '" +
                              (typed == "mien.toml" ? "mine.toml" : path("mine.toml")) + "'?");
  EXPECT_THAT(run_inside("fp16lab", {"train", "-c", "configs/classifier.toml"}).err,
              testing::HasSubstr("fp16lab brings one of that name: -c classifier"));
}

}  // namespace
}  // namespace fp16lab::experiments
