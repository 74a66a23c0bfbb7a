// fp16lab train and those who watch it: --explain-overflow, --live and --tensorboard, through the real
// binary.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "numerics/files/run/run_folder.hpp"
#include "numerics/text/scale_text.hpp"
#include "tests/experiments/app/small_runs.hpp"

namespace fp16lab::experiments {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size()))
    ++count;
  return count;
}

/// How many of these are of another operation or tensor than all before them.
std::size_t kinds_of(const std::vector<CulpritRow>& rows) {
  std::set<std::pair<std::string, std::string>> kinds;
  for (const CulpritRow& row : rows) kinds.emplace(row.op, row.tensor);
  return kinds.size();
}

/// What is said at the end of those that are like the first one, where they are of steps in a row.
std::string alike(const std::vector<CulpritRow>& rows) {
  std::vector<CulpritRow> same;
  for (const CulpritRow& row : rows)
    if (row.op == rows.front().op && row.tensor == rows.front().tensor) same.push_back(row);
  return fmt::format(" in steps {} to {}, at scales from {} down to {}\n", same.at(1).step, same.back().step,
                     scale_text(same.at(1).loss_scale), scale_text(same.back().loss_scale));
}

class TrainWatching : public SmallRuns {
 protected:
  /// Overflows in the first steps, and checkpoints.
  static std::vector<std::string> overflowing(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"--set", "train.steps=8", "--set", "scaler.policy=dynamic", "--set",
                               "scaler.initial_scale=2^24", "--set", "checkpoint.every=2", "--set",
                               "train.accumulate=2", "--set", "observe.histograms_every=2"});
    return more;
  }
  std::vector<std::filesystem::path> event_files(const std::string& name) const {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / name))
      files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    return files;
  }
};

TEST_F(TrainWatching, EveryOverflowHasItsCulpritAndNoBitChanges) {
  const auto plain = train("plain", overflowing({"--quiet"}));
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "plain/culprits.jsonl"));
  const auto explained = train("explained", overflowing({"--explain-overflow"}));
  ASSERT_EQ(explained.exit_code, 0) << explained.err;
  EXPECT_EQ(column("plain/steps.csv", "state_hash"), column("explained/steps.csv", "state_hash"));
  EXPECT_EQ(read("plain/overflows.jsonl"), read("explained/overflows.jsonl"));
  EXPECT_THAT(read("explained/config.toml"), HasSubstr("explain_overflow = true"));

  const std::vector<OverflowRow> overflows = read_overflows(folder_ / "explained");
  const std::vector<CulpritRow> culprits = read_culprits(folder_ / "explained");
  ASSERT_FALSE(overflows.empty());
  ASSERT_EQ(culprits.size(), overflows.size()) << "of these, all are of backward passes";
  for (std::size_t i = 0; i < culprits.size(); ++i) {
    EXPECT_EQ(culprits[i].step, overflows[i].step);
    EXPECT_EQ(culprits[i].pass, CulpritPass::backward);
    EXPECT_EQ(culprits[i].loss_scale, overflows[i].loss_scale);
    EXPECT_EQ(culprits[i].verdict, CulpritVerdict::lower_scale);
    EXPECT_GE(culprits[i].wide_greatest, 65520.0);
    EXPECT_TRUE(culprits[i].reached);
  }
  // The first explanation whole, where it happened and in the account; of those alike one line between them.
  ASSERT_GT(culprits.size(), 1u);
  EXPECT_THAT(explained.err, HasSubstr(culprits.front().advice));
  EXPECT_EQ(occurrences(explained.err, "Advice: "), kinds_of(culprits));
  const std::string line = alike(culprits);
  EXPECT_EQ(occurrences(explained.err, line), 1u) << line << "\n" << explained.err;
  EXPECT_LT(explained.err.find(line), explained.err.find("Next: "));
  const json first =
      json::parse(read("explained/culprits.jsonl").substr(0, read("explained/culprits.jsonl").find('\n')));
  EXPECT_EQ(first.at("shape").size(), first.at("index").size());

  const auto quiet = train("quiet", overflowing({"--explain-overflow", "--quiet"}));
  EXPECT_EQ(quiet.err, "");
  EXPECT_EQ(read("quiet/culprits.jsonl"), read("explained/culprits.jsonl"));
  // The option is the key.
  ASSERT_EQ(train("key", overflowing({"--set", "observe.explain_overflow=true", "--quiet"})).exit_code, 0);
  EXPECT_EQ(read("key/culprits.jsonl"), read("explained/culprits.jsonl"));
}

TEST_F(TrainWatching, ResumedRunsHaveTheCulpritsOfWholeOnes) {
  ASSERT_EQ(train("whole", overflowing({"--explain-overflow", "--quiet"})).exit_code, 0);
  const auto part = overflowing({"--explain-overflow", "--quiet", "--set", "train.steps=4"});
  ASSERT_EQ(train("resumed", part).exit_code, 0);
  std::filesystem::remove(folder_ / "resumed/checkpoints/step-000004.safetensors");  // back behind step 2
  const auto resumed =
      fp16lab({"train", "--resume", "-o", path("resumed"), "--set", "train.steps=8", "--quiet"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(read("resumed/culprits.jsonl"), read("whole/culprits.jsonl"));
  EXPECT_FALSE(read_culprits(folder_ / "whole").empty());

  // Without a checkpoint a run begins again, and so does the file; and a replaced run takes it away.
  std::filesystem::remove_all(folder_ / "resumed/checkpoints");
  ASSERT_EQ(train("resumed", overflowing({"--force", "--quiet"})).exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "resumed/culprits.jsonl"));
}

TEST_F(TrainWatching, ThePanelIsForTerminalsUnlessForced) {
  const auto line = train("line", overflowing({"--live"}));
  ASSERT_EQ(line.exit_code, 0) << line.err;
  EXPECT_THAT(line.err, Not(HasSubstr("\x1b")));
  EXPECT_THAT(line.err, HasSubstr("step 8/8"));

  const auto panel = train("panel", overflowing({"--live=always"}));
  ASSERT_EQ(panel.exit_code, 0) << panel.err;
  EXPECT_EQ(occurrences(panel.err, "\x1b[?25l"), 1u);
  EXPECT_TRUE(panel.err.ends_with("\x1b[?25h")) << "the cursor is back";
  EXPECT_LT(panel.err.find("\x1b[?25l"), panel.err.find("step 1/8"));
  EXPECT_THAT(panel.err,
              AllOf(HasSubstr("step 8/8"), HasSubstr("skipped "), HasSubstr("gradients of step 8:"),
                    HasSubstr("fc1"), HasSubstr("fc2"), HasSubstr("% lost")));
  EXPECT_EQ(json::parse(panel.out).at("state"), "finished") << "stdout has data only";
  EXPECT_EQ(column("panel/steps.csv", "state_hash"), column("line/steps.csv", "state_hash"));

  EXPECT_THAT(train("quiet", overflowing({"--live=always", "--quiet"})).err, "");
  expect_one_line_error(train("bad", {"--live=sometimes"}), 2, "sometimes");
}

TEST_F(TrainWatching, CulpritsStayAboveThePanel) {
  const auto result = train("run", overflowing({"--live=always", "--explain-overflow"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(occurrences(result.err, "Advice: "), kinds_of(read_culprits(folder_ / "run")));
}

TEST_F(TrainWatching, AnInterruptBringsTheCursorBack) {
  testing_support::Spawned child(
      fp16lab_binary, {"train", "-c", write_config("1000000").string(), "-o", path("run"), "--live=always"},
      folder_);
  const auto start = std::chrono::steady_clock::now();
  while (child.running() &&
         (!std::filesystem::exists(folder_ / "run/steps.csv") || read("run/steps.csv").size() < 300) &&
         std::chrono::steady_clock::now() - start < std::chrono::seconds(60))
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  child.signal(SIGINT);
  const auto result = child.wait();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  const std::size_t hidden = result.err.rfind("\x1b[?25l");
  ASSERT_NE(hidden, std::string::npos);
  EXPECT_GE(occurrences(result.err.substr(hidden), "\x1b[?25h"), 2u)
      << "at once, for a second Ctrl-C that kills, and at the end";
}

TEST_F(TrainWatching, EventFilesHaveEveryStepAndEveryObservedTensor) {
  ASSERT_EQ(train("run", overflowing({"--tensorboard", path("board"), "--quiet"})).exit_code, 0);
  ASSERT_EQ(event_files("board").size(), 1u);
  const std::string events = testing_support::slurp(event_files("board")[0]);
  EXPECT_THAT(events, HasSubstr("brain.Event:2"));
  EXPECT_EQ(occurrences(events, "\x0aloss_scale"), 8u) << "a tag of ten bytes in every step";
  EXPECT_EQ(occurrences(events, "underflow_rate"), 5u);
  EXPECT_GE(occurrences(events, "exponents/fc1.weight"), 1u) << "none where all of it is Inf or NaN";
  EXPECT_EQ(occurrences(events, "exponents/loss.prediction"), 5u) << "steps 1, 2, 4, 6, 8";
  EXPECT_EQ(occurrences(events, "evaluation/accuracy"), 1u);

  const auto resumed = fp16lab({"train", "--resume", "-o", path("run"), "--set", "train.steps=10",
                                "--tensorboard", path("board"), "--quiet"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  ASSERT_EQ(event_files("board").size(), 2u);
  EXPECT_EQ(testing_support::slurp(event_files("board")[0]), events) << "the older file stays as it is";
  EXPECT_EQ(occurrences(testing_support::slurp(event_files("board")[1]), "\x0aloss_scale"), 2u);

  testing_support::write_bytes(folder_ / "file", "x");
  const auto bad = train("bad", overflowing({"--tensorboard", path("file/board"), "--quiet"}));
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_THAT(bad.err, HasSubstr("file/board"));
}

}  // namespace
}  // namespace fp16lab::experiments
