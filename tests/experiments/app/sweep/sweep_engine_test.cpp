// fp16lab sweep --engine: what would be called, what is refused, and Slurm's script, with programs in the
// place of Slurm's that write down how they were called. The script itself is run as a node would.
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "tests/experiments/app/sweep/sweep_runs.hpp"

namespace fp16lab::experiments {
namespace {

using nlohmann::json;

class SweepEngine : public SweepRuns {
 protected:
  /// `text` as an executable in the folder that PATH begins with.
  void install(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(path("bin"));
    testing_support::write_bytes(path("bin/" + name), "#!/bin/bash\n" + text);
    std::filesystem::permissions(path("bin/" + name), std::filesystem::perms::owner_all);
  }
  /// A cluster whose jobs are in `state`.
  void install_slurm(const std::string& state = "RUNNING") {
    install("sbatch", "printf '%s\\n' call \"$@\" >> " + path("sbatch.log") +
                          "\necho 'sbatch: note: a line of the site' >&2\n"
                          "id=$((100 + $(grep -c '^call$' " +
                          path("sbatch.log") + ")))\necho \"$id;cluster\"\n");
    install("scontrol", "printf '%s ' \"$@\" >> " + path("scontrol.log") +
                            "\necho 'JobId=7 JobName=x'; echo '   JobState=" + state + " Reason=None'\n");
    install("squeue",
            "echo \"$@\" > " + path("squeue.log") + "\ncat " + path("queue") + " 2>/dev/null\nexit 0\n");
  }
  testing_support::Finished engine(const std::string& name, std::vector<std::string> more = {}) {
    write_sweep(steps_);
    more.insert(more.begin(), {"sweep", "-c", path("sweep.toml"), "-o", path("out"), "--engine", name});
    return testing_support::run_program(fp16lab_binary, more, folder_, environment());
  }
  std::map<std::string, std::string> environment() const {
    return {{"PATH", only_ours_ ? path("bin") : path("bin") + ":/usr/bin:/bin"}};
  }
  std::vector<std::string> calls() const {
    std::vector<std::string> calls;
    std::istringstream lines(read("sbatch.log"));
    for (std::string line; std::getline(lines, line);) {
      if (line == "call")
        calls.emplace_back();
      else
        calls.back() += line + " ";
    }
    return calls;
  }
  /// An element of the array as a node runs it.
  testing_support::Spawned element(int index) const {
    std::map<std::string, std::string> variables = environment();
    variables["SLURM_ARRAY_TASK_ID"] = std::to_string(index);
    variables["SLURM_JOB_ID"] = "7";
    return {"/bin/bash", {path("out/plan/slurm.sh")}, folder_, variables};
  }

  bool only_ours_ = false;  ///< is nothing else in PATH?
  std::string steps_ = "40";
};

TEST_F(SweepEngine, ADryRunSaysWhatWouldBeCalledAndWritesNothing) {
  const auto parallel = engine("parallel", {"--dry-run", "--jobs", "2", "--threads", "4", "--tries", "5",
                                            "--sshlogin", "2/node 7", "--quiet"});
  ASSERT_EQ(parallel.exit_code, 0) << parallel.err;
  EXPECT_EQ(parallel.out.find("parallel --will-cite --quote --ungroup --joblog +" +
                              path("out/plan/parallel.joblog") + " --retries 5 --jobs 2 --termseq "),
            0u)
      << parallel.out;
  EXPECT_NE(
      parallel.out.find(" --sshlogin '2/node 7' --workdir " + std::filesystem::current_path().string() + " "),
      std::string::npos)
      << parallel.out;
  EXPECT_NE(parallel.out.find(fp16lab_binary + " sweep --out " + path("out") + " --plan "), std::string::npos)
      << parallel.out;
  EXPECT_NE(parallel.out.find(" --threads 2 --quiet --task '{}' ::: 1 2 3 4 </dev/null >/dev/null\n"),
            std::string::npos)
      << parallel.out;

  const auto slurm = engine(
      "slurm", {"--dry-run", "--quiet", "--jobs", "3", "--partition", "cpu", "--time", "1:00:00", "--mem",
                "2G", "--cpus", "4", "--sbatch=--account=lab", "--sbatch", "--comment=two words"});
  ASSERT_EQ(slurm.exit_code, 0) << slurm.err;
  const std::string script = path("out/plan/slurm.sh");
  EXPECT_EQ(slurm.out.find("sbatch --parsable --requeue --job-name=fp16lab-"), 0u) << slurm.out;
  EXPECT_NE(
      slurm.out.find(" --array=0-3%3 --chdir=" + path("out/plan") +
                     " --output=slurm-%A_%a.log --cpus-per-task=4 --partition=cpu --time=1:00:00 --mem=2G "
                     "--account=lab '--comment=two words' " +
                     script + "\n\n" + script + ":\n#!/bin/bash\n"),
      std::string::npos)
      << slurm.out;
  EXPECT_NE(slurm.out.find("#SBATCH --signal=B:TERM@120\n"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(path("out")));
}

TEST_F(SweepEngine, OneArrayAtATimeIsSubmitted) {
  install_slurm();
  const auto result = engine("slurm", {"--sbatch=--qos=low", "--runs-per-element", "3", "--jobs", "2"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "101\n");
  EXPECT_NE(result.err.find("sweep: 4 runs in Slurm's job 101; table and page, also while they run: " +
                            fp16lab_binary + " sweep --collect -o " + path("out") + "\n"),
            std::string::npos)
      << result.err;
  ASSERT_EQ(calls().size(), 1u);
  EXPECT_NE(calls()[0].find("--array=0-1%2 "), std::string::npos) << calls()[0];
  EXPECT_NE(calls()[0].find("--qos=low " + path("out/plan/slurm.sh") + " "), std::string::npos) << calls()[0];
  const std::string name =
      read("squeue.log").substr(std::string("--noheader --format=%F --name=").size(), 20);
  EXPECT_NE(calls()[0].find("--job-name=" + name + " "), std::string::npos) << calls()[0] << name;

  testing_support::write_bytes(path("queue"), "102\n102\n");
  expect_one_line_error(
      engine("slurm"), 2,
      "an earlier Slurm job of this sweep is still in the queue: 102; wait for it, or end it by "
      "'scancel 102'");
  EXPECT_EQ(calls().size(), 1u) << "while it is there nothing is submitted twice";
}

TEST_F(SweepEngine, TheScriptsElementsMakeEveryRunWithTheBitsOfTheSweep) {
  install_slurm();
  write_sweep();
  ASSERT_EQ(fp16lab({"sweep", "-c", path("sweep.toml"), "-o", path("whole"), "--quiet"}).exit_code, 0);
  ASSERT_EQ(engine("slurm", {"--quiet", "--runs-per-element", "3", "--tries", "2"}).out, "101\n");
  ASSERT_EQ(calls().size(), 1u);
  EXPECT_NE(calls()[0].find("--array=0-1 "), std::string::npos) << calls()[0];
  testing_support::write_bytes(path("out/" + all_runs[1]), "in the way of a folder");
  const auto first = element(0).wait();
  EXPECT_EQ(first.exit_code, 1);
  EXPECT_EQ(first.out, "");
  EXPECT_NE(first.err.find("task 2: exit code 1\n"), std::string::npos) << first.err;
  EXPECT_EQ(std::count(first.err.begin(), first.err.end(), '\n'), 3) << "tried twice: " << first.err;
  EXPECT_EQ(digests("out/" + all_runs[2]), digests("whole/" + all_runs[2])) << "the others go on";
  EXPECT_EQ(element(1).wait().exit_code, 0);

  // The second submission has what is left.
  std::filesystem::remove(path("out/" + all_runs[1]));
  ASSERT_EQ(engine("slurm").exit_code, 0);
  EXPECT_NE(read("out/plan/slurm.sh").find("\ntasks=(2)\n"), std::string::npos);
  EXPECT_EQ(element(0).wait().exit_code, 0);
  for (const std::string& run : all_runs) EXPECT_EQ(digests("out/" + run), digests("whole/" + run)) << run;
  const auto nothing = engine("slurm");
  EXPECT_EQ(nothing.exit_code, 0);
  EXPECT_EQ(nothing.out, "");
  EXPECT_NE(nothing.err.find("nothing is left to do"), std::string::npos) << nothing.err;
  EXPECT_EQ(calls().size(), 2u);
}

TEST_F(SweepEngine, AnElementThatMustEndSavesAndIsQueuedAgainUnlessItIsCancelled) {
  install_slurm();
  steps_ = "3000";
  ASSERT_EQ(engine("slurm", {"--quiet", "--runs-per-element", "2"}).exit_code, 0);
  const auto resumptions = [&] { return json::parse(written(all_runs[0])).at("resumptions").size(); };
  const auto told = [&](bool everyone) {
    const std::size_t before = rows(all_runs[0]);
    testing_support::Spawned running = element(0);
    EXPECT_TRUE(wait_for([&] { return rows(all_runs[0]) > before + 5; }));
    if (everyone)  // as at the end of a job: all of its processes, and the script passes it on
      kill(static_cast<pid_t>(json::parse(read("out/" + all_runs[0] + "/claim.json")).at("process")),
           SIGTERM);
    running.signal(SIGTERM);
    const auto result = running.wait();
    EXPECT_EQ(json::parse(written(all_runs[0])).at("state"), "stopped") << result.err;
    return result.exit_code;
  };
  std::filesystem::remove(path("scontrol.log"));
  EXPECT_EQ(told(false), 143);
  EXPECT_EQ(read("scontrol.log"), "show job 7 requeue 7 ");
  EXPECT_FALSE(std::filesystem::exists(path("out/" + all_runs[1]))) << "no further run began";

  install_slurm("CANCELLED");
  EXPECT_EQ(told(true), 130);
  EXPECT_EQ(read("scontrol.log"), "show job 7 requeue 7 show job 7 ");
  EXPECT_EQ(resumptions(), 1u);
  EXPECT_EQ(element(0).wait().exit_code, 0);
  EXPECT_EQ(resumptions(), 2u);
  for (const int run : {0, 1}) EXPECT_EQ(rows(all_runs[static_cast<std::size_t>(run)]), 3001u);
}

TEST_F(SweepEngine, ASweepThatWasPlannedAgainIsNotMadeByOldJobs) {
  install_slurm();
  ASSERT_EQ(engine("slurm", {"--quiet"}).exit_code, 0);
  ASSERT_EQ(sweep({"--seed", "2", "--quiet"}).exit_code, 0);
  const auto result = element(0).wait();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("in which tasks have other numbers; start the sweep's engine again"),
            std::string::npos)
      << result.err;
  EXPECT_FALSE(std::filesystem::exists(path("out/" + all_runs[0])));
}

TEST_F(SweepEngine, WhatIsWrongIsSaidInOneLine) {
  install_slurm();
  expect_one_line_error(engine("pbs"), 2, "--engine: 'pbs': known are local, parallel, slurm");
  expect_one_line_error(engine("local", {"--tries", "2"}), 2, "--tries is for --engine parallel and slurm");
  expect_one_line_error(engine("slurm", {"--sshlogin", "a"}), 2,
                        "--sshlogin is for --engine parallel: expected");
  for (const char* const option :
       {"--runs-per-element=2", "--cpus=2", "--partition=p", "--time=1", "--mem=1G", "--sbatch=--account=a"})
    expect_one_line_error(
        engine("parallel", {option}), 2,
        std::string(option).substr(0, std::string(option).find('=')) + " is for --engine slurm");
  expect_one_line_error(engine("slurm", {"--time", "2"}), 2, "--time 2: Slurm reads minutes");
  expect_one_line_error(engine("slurm", {"--sbatch", "lab"}), 2,
                        "--sbatch: 'lab': expected an option of sbatch");
  expect_one_line_error(engine("slurm", {"--report"}), 2, "--report is not for --engine slurm");
  expect_one_line_error(engine("slurm", {"--collect"}), 2, "--collect and --engine: expected one of them");
  expect_one_line_error(testing_support::run_program(fp16lab_binary,
                                                     {"sweep", "-c", write_sweep().string(), "-o",
                                                      path("a{}b"), "--engine", "parallel", "--dry-run"},
                                                     folder_),
                        2, "GNU parallel takes '{' for a place to fill in");
  expect_one_line_error(testing_support::run_program(fp16lab_binary,
                                                     {"sweep", "-c", path("sweep.toml"), "-o", path("a\nb"),
                                                      "--engine", "parallel", "--dry-run"},
                                                     folder_),
                        2, "a job for a line");
  install("sbatch", "echo 'sbatch: error: invalid partition specified: x' >&2\nexit 1\n");
  expect_one_line_error(engine("slurm"), 1,
                        "sbatch ended with exit code 1: sbatch: error: invalid partition specified: x");
  install("sbatch", "echo what\n");
  expect_one_line_error(engine("slurm"), 1, "sbatch --parsable: expected the number of a job, found 'what");
  install("squeue", "echo 'slurm_load_jobs error' >&2\nexit 1\n");
  expect_one_line_error(engine("slurm"), 1, "squeue ended with exit code 1: slurm_load_jobs error");

  only_ours_ = true;
  install("parallel", "echo 'parallel: invalid option -- -'\nexit 1\n");
  expect_one_line_error(engine("parallel"), 3, "/bin/parallel is another program than GNU parallel");
  std::filesystem::remove_all(path("bin"));
  expect_one_line_error(engine("parallel"), 3, "there is no GNU parallel in PATH (Debian: parallel)");
  expect_one_line_error(engine("slurm"), 3, "there is no squeue in PATH: submit on a machine of the cluster");
  EXPECT_FALSE(std::filesystem::exists(path("out/" + all_runs[0])));
}

}  // namespace
}  // namespace fp16lab::experiments
