// fp16lab train --resume after kills at random moments: the same bits. tests/transcripts/resume.t has
// what it refuses.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <random>
#include <set>
#include <thread>

#include "tests/experiments/app/run/resume_runs.hpp"

namespace fp16lab::experiments {
namespace {

TEST_F(Resume, TwentyKillsAtRandomMomentsChangeNoBit) {
  constexpr int rounds = 20;
  ASSERT_EQ(begin("whole").exit_code, 0);
  const auto expected = column("whole/steps.csv", "state_hash");
  ASSERT_EQ(expected.size(), 40u);
  const auto skipped = column("whole/steps.csv", "skipped");
  const auto scales = column("whole/steps.csv", "loss_scale");
  ASSERT_GE(std::count(skipped.begin(), skipped.end(), "1"), 3) << "overflows were provoked";
  ASSERT_GE((std::set<std::string>(scales.begin(), scales.end()).size()), 5u) << "the scale moved";

  // Start or resume, SIGKILL after a random delay, until there were 20 kills of a living process: where the
  // run was faster, it counts for nothing but must have ended well, the next run begins, and delays get
  // shorter.
  std::mt19937_64 random(20260731);
  const std::vector<std::string> command = [] {
    std::vector<std::string> all = settings();
    all.emplace_back("--resume");
    return all;
  }();
  int kills = 0, finished = 0, in_the_middle = 0, steps_lost = 0, after_a_checkpoint = 0, half_written = 0;
  double longest = 0.3;  // seconds
  std::string run = "run0";
  const auto expect_whole = [&](const testing_support::Finished& result) {
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(column(run + "/steps.csv", "state_hash"), expected);
    expect_same_files("whole", run);
    run = "run" + std::to_string(++finished);
  };
  for (int attempt = 0; kills < rounds && attempt < 10 * rounds; ++attempt) {
    testing_support::Spawned child(fp16lab_binary, arguments(run, command), folder_);
    const auto start = std::chrono::steady_clock::now();
    const std::chrono::duration<double> delay(longest * std::uniform_real_distribution<double>(0, 1)(random));
    while (std::chrono::steady_clock::now() - start < delay && child.running())
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    child.signal(SIGKILL);
    const auto result = child.wait();
    if (result.exit_code != 128 + SIGKILL) {
      longest *= 0.7;
      expect_whole(result);
      continue;
    }
    ++kills;
    longest *= 1.1;
    if (!std::filesystem::exists(folder_ / run / "steps.csv")) continue;
    // Every row that was ever written is one of the whole run's.
    const auto hashes = column(run + "/steps.csv", "state_hash");
    ASSERT_LE(hashes.size(), expected.size());
    for (std::size_t i = 0; i < hashes.size(); ++i) ASSERT_EQ(hashes[i], expected[i]) << "kill " << kills;
    if (!hashes.empty() && hashes.size() < expected.size()) ++in_the_middle;
    std::uint64_t saved = 0;
    for (const std::string& name : checkpoints(run)) {
      if (name.ends_with(".safetensors"))
        saved = std::stoull(name.substr(5));
      else
        ++half_written;
    }
    if (saved > 0) ++after_a_checkpoint;
    if (hashes.size() > saved) ++steps_lost;
  }
  EXPECT_EQ(kills, rounds);
  expect_whole(fp16lab(arguments(run, command)));
  std::printf(
      "%d kills in %d runs: %d between the first step and the last, %d after a checkpoint, %d with steps "
      "after it, %d with a half-written checkpoint\n",
      kills, finished, in_the_middle, after_a_checkpoint, steps_lost, half_written);
  EXPECT_GE(in_the_middle, rounds / 4);
  EXPECT_GE(after_a_checkpoint, rounds / 4);
}

}  // namespace
}  // namespace fp16lab::experiments
