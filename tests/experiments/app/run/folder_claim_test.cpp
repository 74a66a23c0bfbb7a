// Who writes in a folder: one of several that want it, and whoever finds its owner dead.
#include "experiments/app/run/folder_claim.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <fstream>
#include <optional>
#include <thread>

#include "experiments/app/exit_code.hpp"
#include "tests/experiments/app/small_runs.hpp"

namespace fp16lab::experiments {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

/// A process that has ended, of this machine or of `host`.
Claimant dead_claimant(const std::string& host = this_claimant().host) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  return {.host = host, .process = child, .since = "2026-11-23T09:00:00Z"};
}

class FolderClaimTest : public SmallRuns {
 protected:
  std::optional<CommandError> refusal() {
    try {
      const FolderClaim claim(run_, "another process is writing this run");
      EXPECT_EQ(claimant_of(run_)->process, getpid());
    } catch (const CommandError& error) {
      return error;
    }
    return std::nullopt;
  }
  void leave(const std::string& text) {
    std::filesystem::create_directories(run_);
    testing_support::write_bytes(run_ / "claim.json", text);
  }
  const std::filesystem::path run_ = folder_ / "deep" / "run";
};

TEST_F(FolderClaimTest, OneOwnerAtATimeAndAnotherAfterIt) {
  {
    const FolderClaim claim(run_, "");
    for (int again = 0; again < 2; ++again) {
      const auto refused = refusal();
      ASSERT_TRUE(refused);
      EXPECT_EQ(refused->code, ExitCode::usage);
      EXPECT_THAT(refused->what(),
                  HasSubstr("--out: " + run_.string() + ": another process is writing this run (host "));
      EXPECT_THAT(refused->what(), HasSubstr("process " + std::to_string(getpid()) + ", since 2"));
    }
  }
  EXPECT_FALSE(std::filesystem::exists(run_)) << "nothing was left in it";
  EXPECT_FALSE(refusal());
}

TEST_F(FolderClaimTest, WhatCannotBeMadeSaysWhy) {
  std::filesystem::create_directories(run_.parent_path());
  std::ofstream(run_) << "a file";
  try {
    const FolderClaim claim(run_ / "inside", "");
    FAIL() << "claimed";
  } catch (const CommandError& refused) {
    EXPECT_EQ(refused.code, ExitCode::run_failed);
    EXPECT_THAT(refused.what(), HasSubstr("cannot make this folder: Not a directory"));
  }
}

TEST_F(FolderClaimTest, ADeadOwnersFolderIsTakenOver) {
  for (const std::string& text : {to_json(dead_claimant()), std::string(), std::string("claimed by hand")}) {
    leave(text);
    testing::internal::CaptureStderr();
    EXPECT_FALSE(refusal()) << text;
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    EXPECT_TRUE(std::filesystem::is_empty(run_)) << "who did not make the folder does not remove it";
  }
  leave(to_json(dead_claimant("node7")));
  testing::internal::CaptureStderr();
  EXPECT_FALSE(refusal());
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      HasSubstr(run_.string() + ": taken over from a process that no longer holds its lock (host node7, "));
}

TEST_F(FolderClaimTest, WhoseClaimWasReplacedLeavesTheOther) {
  std::optional<FolderClaim> first;
  first.emplace(run_, "");
  std::filesystem::remove(run_ / "claim.json");
  const FolderClaim second(run_, "");
  first.reset();
  EXPECT_TRUE(claimant_of(run_));
  EXPECT_TRUE(refusal());
}

TEST_F(FolderClaimTest, WhatIsNoClaimIsNothing) {
  for (const char* const text : {"", "{}", "{\"host\": 1}", "[]", "claimed by hand"}) {
    leave(text);
    EXPECT_FALSE(claimant_of(run_)) << text;
  }
}

/// Processes that all want the folder at the same moment; whoever gets it keeps it until all have answered.
std::string race(const std::filesystem::path& folder, int processes) {
  std::array<int, 2> start{}, answers{}, end{};
  EXPECT_EQ(pipe(start.data()) | pipe(answers.data()) | pipe(end.data()), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < processes; ++i) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    close(start[1]);
    close(end[1]);
    char none = 0;
    if (read(start[0], &none, 1) != 0) _exit(1);  // until the parent closes it
    char answer = 'r';
    try {
      const FolderClaim claim(folder, "");
      answer = 'w';
      if (write(answers[1], &answer, 1) != 1 || read(end[0], &none, 1) != 0) _exit(1);
      answer = 0;
    } catch (const std::exception&) {
      if (write(answers[1], &answer, 1) != 1) _exit(1);
    }
    _exit(0);
  }
  close(start[0]);
  close(start[1]);
  std::string all(static_cast<std::size_t>(processes), ' ');
  for (char& answer : all) {
    pollfd waiting{answers[0], POLLIN, 0};
    EXPECT_TRUE(::poll(&waiting, 1, 30000) == 1 && read(answers[0], &answer, 1) == 1);
  }
  close(end[1]);
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  for (const int descriptor : {answers[0], answers[1], end[0]}) close(descriptor);
  std::sort(all.begin(), all.end());
  return all;
}

TEST_F(FolderClaimTest, OfProcessesThatRaceOneWins) {
  constexpr int rounds = 20;
  for (int round = 0; round < rounds; ++round) {
    EXPECT_EQ(race(run_, 4), "rrrw") << "a free folder, round " << round;
    leave(to_json(dead_claimant()));
    EXPECT_EQ(race(run_, 4), "rrrw") << "a dead owner, round " << round;
  }
}

// The same through the program.

TEST_F(FolderClaimTest, AKilledTrainingIsContinuedAtOnce) {
  const std::vector<std::string> arguments{
      "train",   "-c",    write_config("400").string(), "-o", path("run"),
      "--quiet", "--set", "checkpoint.every=50"};
  testing_support::Spawned training(fp16lab_binary, arguments, folder_);
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (!std::filesystem::exists(folder_ / "run" / "checkpoints" / "step-000100.safetensors")) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    std::this_thread::sleep_for(1ms);
  }
  training.signal(SIGKILL);
  EXPECT_EQ(training.wait().exit_code, 128 + SIGKILL);
  EXPECT_TRUE(claimant_of(folder_ / "run")) << "it could not be removed";
  const auto resumed = fp16lab({"train", "--resume", "-o", path("run"), "--quiet"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(column("run/steps.csv", "state_hash").size(), 400u);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run" / "claim.json"));
}

}  // namespace
}  // namespace fp16lab::experiments
