// fp16lab sweep as a list of tasks: one run at a time by whoever calls, and what is there summed up
// meanwhile.
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "tests/experiments/app/sweep/sweep_runs.hpp"

namespace fp16lab::experiments {
namespace {

using nlohmann::json;

class SweepTask : public SweepRuns {
 protected:
  /// In the folder "out", whose plan is already written.
  testing_support::Finished of_folder(std::vector<std::string> more) const {
    more.insert(more.begin(), {"sweep", "-o", path("out")});
    return fp16lab(more);
  }
};

TEST_F(SweepTask, TasksGiveTheBitsOfTheSweep) {
  ASSERT_EQ(fp16lab({"sweep", "-c", write_sweep().string(), "-o", path("whole"), "--quiet"}).exit_code, 0);
  const auto first = sweep({"--task", "3"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(json::parse(first.out).at("folder"), path("out/" + all_runs[2]));
  EXPECT_FALSE(std::filesystem::exists(path("out/" + all_runs[1]))) << "exactly that one";

  const auto some = sweep({"--collect"});
  ASSERT_EQ(some.exit_code, 0) << some.err;
  EXPECT_NE(some.out.find("note: small-fp32-seed2 is missing"), std::string::npos) << some.out;
  EXPECT_NE(some.err.find("1 of 4 runs are complete; incomplete: small-fp32-seed1, small-fp32-seed2, "
                          "small-fixed-2p3-seed2\n"),
            std::string::npos)
      << some.err;
  EXPECT_NE(read("out/report.html").find("small-fp32-seed2 is missing"), std::string::npos);

  // The plan is now in the folder.
  const auto list = of_folder({"--list-tasks"});
  EXPECT_EQ(list.out, "task,folder,state,claimed_by\n1," + path("out/") + all_runs[0] + ",planned,\n2," +
                          path("out/") + all_runs[1] + ",planned,\n3," + path("out/") + all_runs[2] +
                          ",complete,\n4," + path("out/") + all_runs[3] + ",planned,\n")
      << list.err;
  const std::string before = written(all_runs[2]);
  for (const char* const task : {"4", "1", "2", "3"}) {
    const auto result = of_folder({"--task", task});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const bool was_complete = task == std::string("3");
    EXPECT_EQ(result.err == "sweep: " + all_runs[2] + " is already complete\n", was_complete) << result.err;
  }
  EXPECT_EQ(written(all_runs[2]), before) << "a complete run is not made again";
  for (const std::string& run : all_runs) EXPECT_EQ(digests("out/" + run), digests("whole/" + run)) << run;
  const auto collected = of_folder({"--collect"});
  EXPECT_NE(collected.err.find("4 of 4 runs are complete\n"), std::string::npos) << collected.err;
  EXPECT_EQ(column("out/summary.csv", "runs"), (std::vector<std::string>{"2", "2"}));
}

TEST_F(SweepTask, AnInterruptedTaskContinuesFromItsCheckpoint) {
  const std::filesystem::path config = write_sweep("3000");
  ASSERT_EQ(
      fp16lab({"sweep", "-c", config.string(), "-o", path("whole"), "--task", "1", "--quiet"}).exit_code, 0);
  testing_support::Spawned task(
      fp16lab_binary, {"sweep", "-c", config.string(), "-o", path("out"), "--task", "1", "--quiet"}, folder_);
  ASSERT_TRUE(wait_for([&] { return rows(all_runs[0]) > 5; }));
  task.signal(SIGTERM);
  EXPECT_EQ(task.wait().exit_code, 130);
  EXPECT_LT(rows(all_runs[0]), 3001u);
  const auto list = fp16lab({"sweep", "-c", config.string(), "-o", path("out"), "--list-tasks"});
  EXPECT_NE(list.out.find(",unfinished,\n"), std::string::npos) << list.out;
  const auto again = fp16lab({"sweep", "-c", config.string(), "-o", path("out"), "--task", "1"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_NE(again.err.find("resuming after step"), std::string::npos) << again.err;
  EXPECT_EQ(digests("out/" + all_runs[0]), digests("whole/" + all_runs[0]));
}

TEST_F(SweepTask, OfTwoProcessesWithOneTaskOneWorks) {
  const std::filesystem::path config = write_sweep("3000");
  const std::vector<std::string> arguments{"sweep", "-c", config.string(), "-o", path("out"), "--task", "2"};
  testing_support::Spawned one(fp16lab_binary, arguments, folder_), two(fp16lab_binary, arguments, folder_);
  ASSERT_TRUE(wait_for([&] { return rows(all_runs[1]) > 5; }));
  const auto list = fp16lab({"sweep", "-c", config.string(), "-o", path("out"), "--list-tasks"});
  EXPECT_EQ(std::count(list.out.begin(), list.out.end(), ':'), 1) << "host:process of one: " << list.out;
  const auto first = one.wait(), second = two.wait();
  const auto& [worked, other] = first.exit_code == 0 ? std::tie(first, second) : std::tie(second, first);
  EXPECT_EQ(worked.exit_code, 0) << worked.err;
  if (other.exit_code == 0) {  // it came so late
    EXPECT_NE((first.err + second.err).find("is already complete"), std::string::npos);
  } else {
    expect_one_line_error(other, 2, "another process is writing this run (host ");
  }
  EXPECT_EQ(rows(all_runs[1]), 3001u);
  EXPECT_NE(written(all_runs[1]).find("\"resumptions\": []"), std::string::npos);
}

TEST_F(SweepTask, ADivergedRunIsComplete) {
  write_config("200");
  testing_support::write_bytes(folder_ / "diverging.toml",
                               "[[workload]]\nname = \"small\"\nconfig = \"small.toml\"\n[[variant]]\nname = "
                               "\"bad\"\nset = [\"optimizer.lr=1e30\"]\n");
  for (const bool again : {false, true}) {
    const auto result = fp16lab({"sweep", "-c", path("diverging.toml"), "-o", path("out"), "--task", "1"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_NE(result.err.find(again ? "is already complete" : "diverged at step"), std::string::npos)
        << result.err;
  }
  EXPECT_NE(written("small-bad-seed1").find("\"diverged\""), std::string::npos);
}

TEST_F(SweepTask, CollectsWhileRunsGoOn) {
  const std::filesystem::path config = write_sweep("100000");
  testing_support::Spawned sweeping(
      fp16lab_binary, {"sweep", "-c", config.string(), "-o", path("out"), "--jobs", "2", "--quiet"}, folder_);
  ASSERT_TRUE(wait_for([&] { return rows(all_runs[0]) > 5 && rows(all_runs[1]) > 5; }));
  const auto collected = of_folder({"--collect"});
  EXPECT_EQ(collected.exit_code, 0) << collected.err;
  EXPECT_NE(collected.err.find("0 of 4 runs are complete; incomplete: small-fp32-seed1 (unfinished), "),
            std::string::npos)
      << collected.err;
  EXPECT_NE(collected.out.find("small-fp32-seed1 has not finished"), std::string::npos) << collected.out;
  sweeping.signal(SIGINT);
  EXPECT_EQ(sweeping.wait().exit_code, 130);
}

TEST_F(SweepTask, NumbersOfTasksMeanWhatTheWrittenPlanSays) {
  ASSERT_EQ(sweep({"--collect", "--quiet"}).exit_code, 0);
  const std::string plan = read("out/plan/tasks.csv");
  for (const std::vector<std::string>& purpose :
       {std::vector<std::string>{"--collect"}, {"--list-tasks"}, {"--task", "2"}}) {
    const auto refused = [&](std::vector<std::string> more, const std::string& part) {
      more.insert(more.end(), purpose.begin(), purpose.end());
      expect_one_line_error(sweep(more), 2, path("out") + " holds the plan of another sweep: " + part);
    };
    refused({"--seed", "2"}, "task 1 is small-fp32-seed1 there and small-fp32-seed2 here; leave out -c");
    refused({"--policies", "torch"}, "it has 4 runs there and 6 here");
    const std::string first = purpose[0] == "--task" ? all_runs[1] : all_runs[0];
    refused({"--set", "train.steps=30"}, first + ": train.steps is 40 there and 30 here");
  }
  EXPECT_EQ(read("out/plan/tasks.csv"), plan);
  EXPECT_NE(read("out/plan/small-fp32-seed1.toml").find("steps = 40"), std::string::npos);
  for (const std::string& run : all_runs) EXPECT_FALSE(std::filesystem::exists(folder_ / "out" / run)) << run;

  // What an engine knows of a plan that has changed since.
  ASSERT_EQ(sweep({"--seed", "2", "--quiet"}).exit_code, 0);
  expect_one_line_error(of_folder({"--task", "2", "--plan", "0123456789ab"}), 2,
                        "--plan: 0123456789ab: the plan of " + path("out") + " is ");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out" / all_runs[0]));

  // Runs that another plan would leave without a table.
  const auto other = sweep({"--seed", "3", "--dry-run"});
  EXPECT_EQ(other.exit_code, 0);
  EXPECT_NE(other.err.find("sweep: note: " + path("out") +
                           " has 2 runs of an earlier plan that this one leaves out, first small-fp32-seed2: "
                           "table and page will not show them\n"),
            std::string::npos)
      << other.err;
  EXPECT_EQ(sweep({"--dry-run"}).err.find("leaves out"), std::string::npos);
}

TEST_F(SweepTask, WhatIsWrongIsSaidInOneLine) {
  write_sweep();
  const auto refused = [&](const std::vector<std::string>& more, const std::string& part, int code = 2) {
    std::vector<std::string> arguments{"sweep", "-c", path("sweep.toml"), "-o", path("out")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    expect_one_line_error(fp16lab(arguments), code, part);
  };
  refused({"--task", "5"}, "--task: 5: expected 1 to 4, the number of runs of ");
  refused({"--task", "0"}, "--task: '0': expected an integer, 1 or more");
  refused({"--task", "1", "--collect"}, "--task and --collect: expected one of them");
  expect_one_line_error(of_folder({"--task", "1"}), 2, "holds no plan (");
  expect_one_line_error(fp16lab({"sweep", "--list-tasks"}), 2, "sweep needs a sweep file");
  ASSERT_EQ(sweep({"--task", "1", "--quiet"}).exit_code, 0);
  ASSERT_EQ(sweep({"--collect", "--quiet"}).exit_code, 0);
  expect_one_line_error(of_folder({"--task", "1", "--seed", "4"}), 2, "give the file with -c");
  expect_one_line_error(of_folder({"--task", "7"}), 2, "--task: 7: expected 1 to 4, the number of runs of ");
  const std::string whole = read("out/plan/tasks.csv");
  const auto damaged = [&](const std::string& text, const std::string& part) {
    testing_support::write_bytes(path("out/plan/tasks.csv"), text);
    expect_one_line_error(of_folder({"--list-tasks"}), 1, "tasks.csv:" + part);
  };
  damaged("", "1: the header must be 'task,run,workload,variant'");
  damaged(whole.substr(0, whole.size() - 3), "5: the last line is cut off");
  damaged("task,run,workload,variant\n1,../elsewhere,a,b\n", "2: expected '1,RUN,WORKLOAD,VARIANT', found");
  damaged("task,run,workload,variant\n2,a,a,b\n", "2: expected '1,RUN,WORKLOAD,VARIANT', found '2,a,a,b'");
}

}  // namespace
}  // namespace fp16lab::experiments
