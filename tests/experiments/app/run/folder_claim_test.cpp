// Who writes in a folder: one of several that want it, whoever finds its owner dead, nobody who was overtaken.
#include "experiments/app/run/folder_claim.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <fstream>
#include <functional>
#include <optional>
#include <thread>

#include "experiments/app/exit_code.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "tests/experiments/app/small_runs.hpp"

namespace fp16lab::experiments {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr FolderClaim::Timing quick{.renewal = 20ms, .patience = 300ms};

/// A process of this machine that has ended: its id may come again, with another start.
Claimant dead_claimant() {
  Claimant dead = this_claimant();
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  dead.process = child;
  return dead;
}

Claimant foreign(const std::string& host) {
  Claimant claimant = this_claimant();
  claimant.host = claimant.machine = host;
  return claimant;
}

class FolderClaimTest : public SmallRuns {
 protected:
  std::optional<CommandError> refusal(const Claimant& self = this_claimant()) {
    try {
      const FolderClaim claim(run_, "another process is writing this run", self, quick);
    } catch (const CommandError& error) {
      return error;
    }
    return std::nullopt;
  }
  void leave(const std::string& text, const char* name = "claim.json") {
    std::filesystem::create_directories(run_);
    testing_support::write_bytes(run_ / name, text);
  }
  static double seconds_of(const std::function<void()>& what) {
    const auto start = std::chrono::steady_clock::now();
    what();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  const std::filesystem::path run_ = folder_ / "deep" / "run";
};

TEST_F(FolderClaimTest, OneOwnerAtATimeAndAnotherAfterIt) {
  {
    const FolderClaim claim(run_, "");
    EXPECT_TRUE(claim.held());
    EXPECT_EQ(claimant_of(run_)->process, getpid());
    const auto refused = refusal();
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->code, ExitCode::usage);
    EXPECT_THAT(refused->what(),
                HasSubstr("--out: " + run_.string() + ": another process is writing this run (host "));
    EXPECT_THAT(refused->what(), HasSubstr("process " + std::to_string(getpid()) + ", since 2"));
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

TEST_F(FolderClaimTest, ADeadProcessOfThisMachineIsFollowedAtOnce) {
  Claimant reborn = this_claimant();
  reborn.process_start -= 1;  // another process had this id
  for (const Claimant& owner : {dead_claimant(), reborn}) {
    leave(to_json(owner));
    const double seconds = seconds_of([&] {
      const FolderClaim claim(run_, "");
      EXPECT_TRUE(claim.held());
      EXPECT_FALSE(claim.took_over_unseen()) << "it is known to be dead";
    });
    EXPECT_LT(seconds, 5) << "no wait for the patience of a minute";
  }
}

TEST_F(FolderClaimTest, AnotherMachinesClaimIsWatchedForASignOfLife) {
  const FolderClaim owner(run_, "", foreign("far"), quick);
  const auto refused = refusal(foreign("here"));
  ASSERT_TRUE(refused);
  EXPECT_THAT(refused->what(), HasSubstr("(host far, process"));
  EXPECT_TRUE(owner.held());
}

TEST_F(FolderClaimTest, WhatIsNotRenewedIsTakenOverAndItsOwnerFindsOut) {
  // An owner that is cut off: its thread renews nothing for an hour.
  const FolderClaim owner(run_, "", foreign("far"), {.renewal = 1h, .patience = 1h});
  {
    std::optional<FolderClaim> next;
    const double seconds = seconds_of([&] { next.emplace(run_, "", foreign("near"), quick); });
    EXPECT_GE(seconds, .3);
    EXPECT_TRUE(next->took_over_unseen());
    EXPECT_TRUE(next->held());
    EXPECT_FALSE(owner.held());
    try {
      owner.require_held();
      FAIL() << "still held";
    } catch (const CommandError& lost) {
      EXPECT_EQ(lost.code, ExitCode::run_failed);
      EXPECT_THAT(lost.what(), HasSubstr(run_.string() + ": this process was overtaken (host near, process"));
    }
  }
  EXPECT_FALSE(std::filesystem::exists(run_ / "claim.json"));
  EXPECT_THROW(owner.require_held(), CommandError);
}

TEST_F(FolderClaimTest, AnOvertakenOwnerLeavesTheClaimThatIsNotItsOwn) {
  std::optional<FolderClaim> owner;
  owner.emplace(run_, "", foreign("far"), FolderClaim::Timing{.renewal = 1h, .patience = 1h});
  const FolderClaim next(run_, "", foreign("near"), quick);
  owner.reset();
  EXPECT_TRUE(next.held());
}

TEST_F(FolderClaimTest, WhatIsNoClaimAges) {
  for (const char* const text : {"", "{}", "{\"host\": 1}", "[]", "claimed by hand"}) {
    leave(text);
    EXPECT_FALSE(claimant_of(run_));
    const FolderClaim claim(run_, "", this_claimant(), quick);
    EXPECT_TRUE(claim.took_over_unseen()) << text;
  }
}

TEST_F(FolderClaimTest, ATakeoverThatDiedHalfWayIsFinishedByTheNext) {
  leave(to_json(dead_claimant()));
  leave(to_json(dead_claimant()), "claim.json.next");
  EXPECT_FALSE(refusal());
  leave(to_json(foreign("far")));
  leave(to_json(foreign("farther")), "claim.json.next");
  EXPECT_FALSE(refusal());
  EXPECT_TRUE(std::filesystem::is_empty(run_)) << "who did not make the folder does not remove it";
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
      const FolderClaim claim(folder, "", this_claimant(), quick);
      answer = 'w';
      if (write(answers[1], &answer, 1) != 1 || read(end[0], &none, 1) != 0 || !claim.held()) _exit(1);
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
    leave(to_json(dead_claimant()));
    leave(to_json(dead_claimant()), "claim.json.next");
    EXPECT_EQ(race(run_, 4), "rrrw") << "a dead owner and a dead follower, round " << round;
  }
}

// The same through the program.

TEST_F(FolderClaimTest, ATrainingThatIsOvertakenWritesNothingMore) {
  const std::vector<std::string> arguments{
      "train",   "-c",    write_config("1000000").string(), "-o", path("run"),
      "--quiet", "--set", "checkpoint.every=1000"};
  testing_support::Spawned training(fp16lab_binary, arguments, folder_);
  const auto rows = [&] { return std::filesystem::file_size(folder_ / "run" / "steps.csv"); };
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (!std::filesystem::exists(folder_ / "run" / "steps.csv") || rows() < 1000) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    std::this_thread::sleep_for(5ms);
  }
  training.signal(SIGSTOP);
  write_file_atomically(folder_ / "run" / "claim.json", to_json(foreign("elsewhere")));
  // Between stop and file it may have been inside a row: that one is still written.
  const std::string manifest = read("run/manifest.json");
  const auto before = rows();
  training.signal(SIGCONT);
  const auto ended = training.wait();
  expect_one_line_error(ended, 1, "this process was overtaken (host elsewhere, process ");
  EXPECT_LE(rows(), before + 200) << "at most the row that it was writing";
  EXPECT_EQ(read("run/manifest.json"), manifest) << "its end is not the run's";
  EXPECT_EQ(claimant_of(folder_ / "run")->host, "elsewhere");
}

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
  EXPECT_TRUE(claimant_of(folder_ / "run")) << "nobody could remove it";
  const auto resumed = fp16lab({"train", "--resume", "-o", path("run"), "--quiet"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(column("run/steps.csv", "state_hash").size(), 400u);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run" / "claim.json"));
}

}  // namespace
}  // namespace fp16lab::experiments
