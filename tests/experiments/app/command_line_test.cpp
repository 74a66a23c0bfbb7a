// Help, lists and damaged data; tests/transcripts/command-line.t has what else the command line says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/experiments/app/small_runs.hpp"

namespace fp16lab::experiments {
namespace {

class CommandLine : public SmallRuns {};

TEST_F(CommandLine, HelpGoesToStdoutWithExamplesAndExitCodes) {
  for (const char* command :
       {"", "train", "sweep", "hist", "replay", "compare", "mismatch", "sensitivity", "report", "inspect", "softfloat",
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
                                                         {"mismatch", {"--set", "--out"}},
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
  const std::set<std::string> threaded{"train", "sweep", "hist", "mismatch", "sensitivity"};
  for (const auto& [command, options] : own) {
    const std::string help = fp16lab({command, "--help"}).out;
    const std::string before_examples = help.substr(0, help.find("Examples:"));
    // Every command takes these, and says what comes of them.
    EXPECT_NE(before_examples.find("--quiet "), std::string::npos) << command;
    const std::size_t threads = before_examples.find("--threads N");
    ASSERT_NE(threads, std::string::npos) << command;
    EXPECT_EQ(before_examples.find("No effect", threads) == std::string::npos, threaded.contains(command))
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
  testing_support::write_bytes(data / "train-images-idx3-ubyte.gz", images);
  for (const char* const setting : {"train.batch_size=401", "data.subset=401"})
    expect_one_line_error(train("run", {"--set", setting}), 2, "401");
  std::filesystem::remove(data / "train-images-idx3-ubyte.gz");
  expect_failure("dataset-fashion-mnist");
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

}  // namespace
}  // namespace fp16lab::experiments
