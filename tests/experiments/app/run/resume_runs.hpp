// What the tests of resuming share: runs with every kind of state that are begun, interrupted, resumed and
// compared.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/experiments/app/small_runs.hpp"

namespace fp16lab::experiments {

using nlohmann::json;

class Resume : public SmallRuns {
 protected:
  static std::vector<std::string> set(const std::vector<std::string>& settings) {
    std::vector<std::string> all;
    for (const std::string& setting : settings) all.insert(all.end(), {"--set", setting});
    return all;
  }
  /// Adam under dynamic scaling that overflows at first and later grows (every 7 good steps, three
  /// checkpoints), three micro-batches a step, evaluations on the way.
  static std::vector<std::string> settings(const std::vector<std::string>& more = {}) {
    std::vector<std::string> all{"train.accumulate=3",     "optimizer.name=adam",       "optimizer.lr=0.001",
                                 "scaler.policy=dynamic",  "scaler.initial_scale=2^24", "checkpoint.every=2",
                                 "train.evaluate_every=5", "observe.histograms_every=3"};
    // Policies that do not count good steps would refuse these.
    const bool counts = std::none_of(more.begin(), more.end(), [](const std::string& setting) {
      return setting == "scaler.policy=ada-loss" || setting == "scaler.policy=lost-mass";
    });
    if (counts) all.insert(all.end(), {"scaler.growth_interval=7", "scaler.growth_factor=16"});
    all.insert(all.end(), more.begin(), more.end());
    return set(all);
  }
  std::vector<std::string> arguments(const std::string& run, const std::vector<std::string>& more) {
    std::vector<std::string> all{"train", "-c", write_config().string(), "-o", path(run), "--threads", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  testing_support::Finished begin(const std::string& run, const std::vector<std::string>& more = {}) {
    return fp16lab(arguments(run, settings(more)));
  }
  /// With another number of threads than it was begun with.
  testing_support::Finished resume(const std::string& run, std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"train", "--resume", "-o", path(run), "--threads", "2"});
    return fp16lab(more);
  }
  /// A run that was interrupted somewhere after its first checkpoint.
  void begin_and_interrupt(const std::string& run, const std::vector<std::string>& more = {},
                           int signal = SIGTERM) {
    std::vector<std::string> long_run = more;
    long_run.insert(long_run.begin(), "train.steps=100000");
    testing_support::Spawned child(fp16lab_binary, arguments(run, settings(long_run)), folder_);
    const auto start = std::chrono::steady_clock::now();
    while (checkpoints(run).size() < 2 && child.running() &&
           std::chrono::steady_clock::now() - start < std::chrono::seconds(60))
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    child.signal(signal);
    const auto result = child.wait();
    ASSERT_EQ(result.exit_code, signal == SIGKILL ? 128 + SIGKILL : 130) << result.err;
  }

  std::vector<std::string> checkpoints(const std::string& run) const {
    std::vector<std::string> names;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / run / "checkpoints", none))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  std::string newest(const std::string& run) const { return run + "/checkpoints/" + checkpoints(run).back(); }
  std::uint64_t newest_step(const std::string& run) const {
    return std::stoull(checkpoints(run).back().substr(5));
  }
  std::size_t rows(const std::string& run) const {
    const std::string text = read(run + "/steps.csv");
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  }
  std::vector<json> json_lines(const std::string& file) const {
    std::istringstream lines(read(file));
    std::vector<json> all;
    for (std::string line; std::getline(lines, line);) all.push_back(json::parse(line));
    return all;
  }
  std::vector<json> overflows(const std::string& run) const { return json_lines(run + "/overflows.jsonl"); }
  json manifest(const std::string& run) const { return json::parse(read(run + "/manifest.json")); }

  void expect_same_files(const std::string& expected, const std::string& actual) const {
    EXPECT_EQ(steps(actual), steps(expected));
    EXPECT_EQ(read(actual + "/evaluations.csv"), read(expected + "/evaluations.csv"));
    EXPECT_EQ(read(actual + "/histograms.jsonl"), read(expected + "/histograms.jsonl"));
    EXPECT_EQ(read(actual + "/overflows.jsonl"), read(expected + "/overflows.jsonl"));
    EXPECT_EQ(read(actual + "/config.toml"), read(expected + "/config.toml"));
    EXPECT_EQ(checkpoints(actual), checkpoints(expected));
    EXPECT_EQ(read(newest(actual)), read(newest(expected)));
  }
  /// A run "killed" that is killed and resumed has the files of one, "whole", that was not.
  void expect_a_kill_to_change_nothing(const std::vector<std::string>& more) {
    begin_and_interrupt("killed", more, SIGKILL);
    const std::string steps = "train.steps=" + std::to_string(newest_step("killed") + 5);
    const auto resumed = resume("killed", {"--set", steps});
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    std::vector<std::string> same = more;
    same.push_back(steps);
    const auto whole = begin("whole", same);
    ASSERT_EQ(whole.exit_code, 0) << whole.err;
    expect_same_files("whole", "killed");
  }
};

}  // namespace fp16lab::experiments
