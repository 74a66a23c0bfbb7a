// fp16lab sweep --engine parallel with the real GNU parallel: jobs that fail, are killed, are told to end.
#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "experiments/app/run/folder_claim.hpp"
#include "experiments/app/sweep/child_process.hpp"
#include "tests/experiments/app/sweep/sweep_runs.hpp"

namespace fp16lab::experiments {
namespace {

using nlohmann::json;

class ParallelEngine : public SweepRuns {
 protected:
  void SetUp() override {
    if (program_called("parallel").empty()) GTEST_SKIP() << "GNU parallel is not here (Debian: parallel)";
  }
  std::vector<std::string> arguments(const std::string& out, std::vector<std::string> more = {}) const {
    more.insert(more.begin(),
                {"sweep", "-c", path("sweep.toml"), "-o", path(out), "--threads", "2", "--jobs", "2"});
    return more;
  }
  void make_whole(const std::string& steps) {
    write_sweep(steps);
    ASSERT_EQ(fp16lab(arguments("whole", {"--quiet"})).exit_code, 0);
  }
  testing_support::Finished by_parallel(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"--engine", "parallel"});
    return fp16lab(arguments("out", more));
  }
  void expect_the_whole() const {
    for (const std::string& run : all_runs) {
      EXPECT_EQ(json::parse(written(run)).at("state"), "finished");
      EXPECT_EQ(digests("out/" + run), digests("whole/" + run)) << run;
      EXPECT_FALSE(std::filesystem::exists(path("out/" + run + "/claim.json"))) << run;
    }
    EXPECT_EQ(column("out/summary.csv", "runs"), (std::vector<std::string>{"2", "2"}));
  }
  /// Ends of jobs, as GNU parallel keeps them.
  long logged() const {
    const std::string log = read("out/plan/parallel.joblog");
    return std::count(log.begin(), log.end(), '\n');
  }
};

TEST_F(ParallelEngine, WhatFailedIsMadeByTheSecondCall) {
  make_whole("40");
  std::filesystem::create_directories(path("out"));
  testing_support::write_bytes(path("out/" + all_runs[1]), "in the way of a folder");
  const auto first = by_parallel({"--tries", "2"});
  EXPECT_EQ(first.exit_code, 1) << first.err;
  EXPECT_NE(first.err.find("1 of 4 runs failed: " + all_runs[1] + "; the same command retries them"),
            std::string::npos)
      << first.err;
  EXPECT_NE(first.err.find("parallel ended with exit code 1; " + path("out/plan/parallel.joblog")),
            std::string::npos)
      << first.err;
  const std::string refusal = "cannot make this folder";
  const std::size_t once = first.err.find(refusal);
  ASSERT_NE(once, std::string::npos) << first.err;
  EXPECT_NE(first.err.find(refusal, once + 1), std::string::npos) << "tried twice: " << first.err;
  EXPECT_EQ(logged(), 4);
  const std::string before = written(all_runs[0]);

  std::filesystem::remove(path("out/" + all_runs[1]));
  const auto second = by_parallel();
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_NE(second.err.find("3 of 4 runs are already complete"), std::string::npos) << second.err;
  expect_the_whole();
  EXPECT_EQ(logged(), 5) << "only what was missing";
  EXPECT_EQ(written(all_runs[0]), before);
  EXPECT_EQ(by_parallel().exit_code, 0);
  EXPECT_EQ(logged(), 5) << "nothing was left";
}

TEST_F(ParallelEngine, KilledJobsAreContinuedAndEveryRunIsCompleteOnce) {
  make_whole("3000");
  testing_support::Spawned sweeping(
      fp16lab_binary, arguments("out", {"--engine", "parallel", "--quiet", "--set", "checkpoint.every=100"}),
      folder_);
  std::map<std::string, std::set<std::int64_t>> killed;
  while (sweeping.running()) {
    for (const std::string& run : all_runs) {
      const auto owner = claimant_of(path("out/" + run));
      std::set<std::int64_t>& before = killed[run];
      if (!owner || before.contains(owner->process) || before.size() == 2) continue;
      if (rows(run) < 300 * (before.size() + 1)) continue;
      before.insert(owner->process);
      kill(static_cast<pid_t>(owner->process), SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  const auto result = sweeping.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  expect_the_whole();
  for (const std::string& run : all_runs) {
    const std::size_t resumptions = json::parse(written(run)).at("resumptions").size();
    EXPECT_GE(resumptions, 1u) << run;
    EXPECT_LE(resumptions, killed[run].size()) << run;
    EXPECT_EQ(rows(run), 3001u) << "each step once: " << run;
  }
}

TEST_F(ParallelEngine, RunsSaveWhenTheSweepMustEnd) {
  write_sweep("8000");
  const std::vector<std::string> one_by_one{"sweep",  "-c", path("sweep.toml"), "-o",       path("out"),
                                            "--seed", "1",  "--engine",         "parallel", "--quiet"};
  testing_support::Spawned sweeping(fp16lab_binary, one_by_one, folder_);
  ASSERT_TRUE(wait_for([&] { return rows(all_runs[0]) > 5; }));
  expect_one_line_error(fp16lab(one_by_one), 2, "another sweep is working in it");
  sweeping.signal(SIGTERM);
  const auto told = sweeping.wait();
  EXPECT_EQ(told.exit_code, 130) << told.err;
  EXPECT_NE(told.err.find("interrupted; the same command continues with the remaining runs\n"),
            std::string::npos)
      << told.err;
  EXPECT_EQ(json::parse(written(all_runs[0])).at("state"), "stopped") << "it saved, and was not killed";
  EXPECT_FALSE(std::filesystem::exists(path("out/" + all_runs[2]))) << "no further run began";
  const auto again = fp16lab(one_by_one);
  EXPECT_EQ(again.exit_code, 0) << again.err;
  for (const std::string& run : {all_runs[0], all_runs[2]}) EXPECT_EQ(rows(run), 8001u) << run;
  EXPECT_EQ(json::parse(written(all_runs[0])).at("resumptions").size(), 1u);
  ASSERT_EQ(
      fp16lab({"sweep", "-c", path("sweep.toml"), "-o", path("whole"), "--task", "1", "--quiet"}).exit_code,
      0);
  EXPECT_EQ(digests("out/" + all_runs[0]), digests("whole/" + all_runs[0]));
}

TEST_F(ParallelEngine, OtherMachinesAreReachedByGnuParallel) {
  make_whole("40");
  // A login has a SHELL, which GNU parallel runs its jobs by. The data are found by a variable alone, which a
  // login has not by itself.
  testing_support::write_bytes(path("small.toml"),
                               std::regex_replace(read("small.toml"), std::regex("path = .*\n"), ""));
  testing_support::write_bytes(
      path("ssh"), "#!/bin/sh\nhost=$1\nshift\n[ \"$1\" = -- ] && shift\necho \"$host\" >> " + path("hosts") +
                       "\nunset FP16LAB_DATA\nexport SHELL=/bin/sh\ncd /\nexec sh -c \"$*\"\n");
  std::filesystem::permissions(path("ssh"), std::filesystem::perms::owner_all);
  testing_support::write_bytes(path("machines"), "1/nodeB\n");
  const auto result = testing_support::run_program(
      fp16lab_binary,
      arguments("out", {"--engine", "parallel", "--sshlogin", "1/nodeA", "--sshloginfile", path("machines")}),
      folder_, {{"PARALLEL_SSH", path("ssh")}, {"FP16LAB_DATA", path("data")}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  expect_the_whole();
  const std::string hosts = read("hosts");
  EXPECT_NE(hosts.find("nodeA\n"), std::string::npos) << hosts;
  EXPECT_NE(hosts.find("nodeB\n"), std::string::npos) << hosts;
}

}  // namespace
}  // namespace fp16lab::experiments
