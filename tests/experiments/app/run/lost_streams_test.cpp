// What ends a run and what does not: a terminal or a log that is gone, descriptors that were never there, signals,
// limits. Everything through the real binary.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/experiments/app/run/resume_runs.hpp"

namespace fp16lab::experiments {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using testing_support::Finished;

class LostStreams : public Resume {
 protected:
  /// `script` has the program as $0 and its arguments as "$@".
  Finished in_shell(const std::string& script, std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"-c", script, fp16lab_binary});
    return testing_support::run_program("/bin/sh", arguments, folder_);
  }
  std::vector<std::string> training(const std::string& out, const std::vector<std::string>& more = {}) {
    std::vector<std::string> all{"train", "-c", write_config().string(), "-o", path(out), "--threads", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::vector<std::string> sweeping(const std::string& out) {
    write_config("6");
    testing_support::write_bytes(folder_ / "sweep.toml",
                                 "[[workload]]\nname = \"small\"\nconfig = \"small.toml\"\n"
                                 "[[variant]]\nname = \"one\"\nset = [\"amp.level=O1\"]\n");
    return {"sweep", "-c", path("sweep.toml"), "-o", path(out), "--threads", "1"};
  }
  /// One line that says it.
  static void expect_one_line(const std::string& text, const std::string& part) {
    EXPECT_THAT(text, HasSubstr(part));
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
  }
  void wait_for_checkpoints(const std::string& run, testing_support::Spawned& child) const {
    const auto start = std::chrono::steady_clock::now();
    while (checkpoints(run).size() < 2 && child.running() &&
           std::chrono::steady_clock::now() - start < std::chrono::seconds(60))
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
};

// ---- stderr -------------------------------------------------------------------------------------------

TEST_F(LostStreams, ARunGoesOnWithoutStderr) {
  ASSERT_EQ(train("whole", {"--threads", "1"}).exit_code, 0);
  const std::string all = "exec \"$0\" \"$@\" ";
  int number = 0;
  for (const std::string& script :
       {all + "2>/dev/full", all + "2>&-", all + "<&- >&- 2>&-", all + "2>&- >&-",
        // The reader of a pipe is gone before the first line.
        std::string("{ sleep 0.05; \"$0\" \"$@\"; echo $? >code; } 2>&1 >out | true; exit $(cat code)"),
        std::string("{ sleep 0.05; \"$0\" \"$@\" --live=always; echo $? >code; } 2>&1 >out | true; exit "
                    "$(cat code)")}) {
    const std::string run = "run" + std::to_string(++number);
    const Finished result = in_shell("cd '" + folder_.string() + "'; " + script, training(run));
    EXPECT_EQ(result.exit_code, 0) << script << ": " << result.err;
    EXPECT_EQ(steps(run), steps("whole")) << script;
    EXPECT_EQ(manifest(run).at("state"), "finished") << script;
  }
}

TEST_F(LostStreams, NoFileGetsTheTextOfAClosedDescriptor) {
  testing_support::Spawned child(
      "/bin/sh",
      [&] {
        std::vector<std::string> all = arguments("run", settings({"train.steps=100000"}));
        all.insert(all.begin(), {"-c", "exec \"$0\" \"$@\" <&- >&- 2>&-", fp16lab_binary});
        return all;
      }(),
      folder_);
  wait_for_checkpoints("run", child);
  const std::string claim = read("run/claim.json");
  EXPECT_TRUE(json::accept(claim)) << claim;
  EXPECT_EQ(std::count(claim.begin(), claim.end(), '\n'), 1) << claim;
  child.signal(SIGTERM);
  EXPECT_EQ(child.wait().exit_code, 130);
  EXPECT_EQ(manifest("run").at("state"), "stopped");
  EXPECT_FALSE(std::filesystem::exists(path("run/claim.json")));
}

TEST_F(LostStreams, ErrorsKeepTheirExitCodesWithoutStderr) {
  for (const char* const lost : {"2>/dev/full", "2>&-"}) {
    const std::string script = std::string("exec \"$0\" \"$@\" ") + lost;
    EXPECT_EQ(in_shell(script, {"trian"}).exit_code, 2) << lost;
    EXPECT_EQ(in_shell(script, {"report", path("nosuch")}).exit_code,
              fp16lab({"report", path("nosuch")}).exit_code);
    EXPECT_EQ(in_shell(script, {"hist", path("nosuch")}).exit_code,
              fp16lab({"hist", path("nosuch")}).exit_code);
  }
}

TEST_F(LostStreams, ASweepGoesOnWithoutStderr) {
  int number = 0;
  for (const char* const lost : {"2>/dev/full", "<&- >&- 2>&-"}) {
    const std::string out = "sweep" + std::to_string(++number);
    EXPECT_EQ(in_shell(std::string("exec \"$0\" \"$@\" ") + lost, sweeping(out)).exit_code, 0) << lost;
    EXPECT_THAT(read(out + "/summary.csv"), HasSubstr("one: FP16"));
  }
}

// ---- stdout -------------------------------------------------------------------------------------------

TEST_F(LostStreams, DataThatCannotBeWrittenAreAnError) {
  const std::string reader_gone =
      "cd '" + folder_.string() +
      "'; { sleep 0.05; \"$0\" \"$@\" 2>err; echo $? >code; } | true; cat err >&2; exit $(cat code)";
  for (const std::string& script :
       {std::string("exec \"$0\" \"$@\" >/dev/full"), std::string("exec \"$0\" \"$@\" >&-"), reader_gone}) {
    for (const std::vector<std::string>& command : {std::vector<std::string>{"list", "config_keys"},
                                                    {"inspect", "1", "--json"},
                                                    {"--help"},
                                                    {"policy", "--list"},
                                                    {"completion", "bash"}}) {
      const Finished result = in_shell(script, command);
      EXPECT_EQ(result.exit_code, 1) << script << " " << command.front() << result.err;
      expect_one_line(result.err, "cannot write to the standard output: ");
    }
  }
}

TEST_F(LostStreams, ALostResultOfARunLosesNoRun) {
  const Finished result = in_shell("exec \"$0\" \"$@\" >/dev/full", training("run", {"--quiet"}));
  EXPECT_EQ(result.exit_code, 1);
  expect_one_line(result.err, "cannot write to the standard output: No space left on device");
  EXPECT_EQ(manifest("run").at("state"), "finished");
  EXPECT_EQ(fp16lab({"train", "--resume", "-o", path("run")}).exit_code, 0);

  const Finished sweep = in_shell("exec \"$0\" \"$@\" --report --quiet >/dev/full", sweeping("sweep"));
  EXPECT_EQ(sweep.exit_code, 1);
  EXPECT_THAT(sweep.err, HasSubstr("cannot write to the standard output"));
  EXPECT_THAT(read("sweep/summary.csv"), HasSubstr("one: FP16"));
  EXPECT_THAT(read("sweep/report.html"), HasSubstr("</html>"));
}

// ---- terminals ----------------------------------------------------------------------------------------

/// What a program ends with whose stderr is a terminal: `in_session` is called in the leader of a session of its
/// own, which has the terminal, and gives the exit code; `meanwhile` is called by the test with the other end.
int on_terminal(const std::function<int(int terminal)>& in_session,
                const std::function<void(int master)>& meanwhile) {
  const int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) return -1;
  const std::string name = ptsname(master);
  const pid_t leader = fork();
  if (leader == 0) {
    setsid();
    const int terminal = open(name.c_str(), O_RDWR);  // of a leader without one: it becomes its own
    _exit(in_session(terminal));
  }
  meanwhile(master);
  int status = 0;
  waitpid(leader, &status, 0);
  close(master);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void drain(int master, std::chrono::milliseconds time) {
  fcntl(master, F_SETFL, O_NONBLOCK);
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
    char block[4096];
    if (read(master, block, sizeof block) <= 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

class Terminals : public LostStreams {
 protected:
  /// With stderr, or stdout too, on the terminal. Never returns.
  [[noreturn]] void become(int terminal, const std::vector<std::string>& arguments,
                           bool with_stdout = false) const {
    const int out = open(path("out.txt").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(with_stdout ? terminal : out, STDOUT_FILENO);
    dup2(terminal, STDERR_FILENO);
    std::vector<std::string> text{fp16lab_binary};
    text.insert(text.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : text) argv.push_back(word.data());
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
};

TEST_F(Terminals, ThatGoAwaySaveTheRunOrWithNohupChangeNothing) {
  for (const std::string run : {"plain", "stdout too", "nohup"}) {
    const bool nohup = run == "nohup";
    const auto arguments_of_run = arguments(run, settings({nohup ? "train.steps=60" : "train.steps=100000"}));
    const int code = on_terminal(
        [&](int terminal) -> int {
          std::signal(SIGHUP, nohup ? SIG_IGN : SIG_DFL);
          become(terminal, arguments_of_run, run == "stdout too");
        },
        [&](int master) {
          for (int i = 0; i < 2000 && checkpoints(run).size() < 2; ++i)
            drain(master, std::chrono::milliseconds(5));
          close(master);
        });
    EXPECT_EQ(code, nohup ? 0 : 130) << run;
    EXPECT_EQ(manifest(run).at("state"), nohup ? "finished" : "stopped");
  }
  const auto resumed = resume("plain", {"--set", "train.steps=" + std::to_string(newest_step("plain") + 2)});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
}

TEST_F(Terminals, MessagesStopNoRunInTheBackground) {
  const auto arguments_of_run = training("run");
  const int code = on_terminal(
      [&](int terminal) {
        termios mode{};
        tcgetattr(terminal, &mode);
        mode.c_lflag |= TOSTOP;
        tcsetattr(terminal, TCSANOW, &mode);
        const pid_t job = fork();
        if (job == 0) {
          setpgid(0, 0);
          become(terminal, arguments_of_run);
        }
        int status = 0;
        waitpid(job, &status, WUNTRACED);
        if (WIFSTOPPED(status)) kill(job, SIGKILL);
        return WIFSTOPPED(status) ? 99 : WIFEXITED(status) ? WEXITSTATUS(status) : 98;
      },
      [&](int master) { drain(master, std::chrono::milliseconds(700)); });
  EXPECT_EQ(code, 0) << "99: stopped";
  EXPECT_EQ(manifest("run").at("state"), "finished");
}

// ---- signals ------------------------------------------------------------------------------------------

class Signals : public LostStreams {};

TEST_F(Signals, HangupAndTheLimitOfProcessorTimeSaveTheRun) {
  for (const int signal : {SIGHUP, SIGXCPU}) {
    const std::string run = "run" + std::to_string(signal);
    testing_support::Spawned child(fp16lab_binary, arguments(run, settings({"train.steps=100000"})), folder_);
    wait_for_checkpoints(run, child);
    child.signal(signal);
    child.signal(signal);  // again: a session's end is told twice, and the limit every second
    child.signal(SIGCONT);
    if (signal == SIGHUP) child.signal(SIGTERM);
    child.signal(signal);
    const Finished result = child.wait();
    EXPECT_EQ(result.exit_code, 130) << result.err;
    EXPECT_THAT(result.err, HasSubstr("interrupted with state saved"));
    EXPECT_EQ(manifest(run).at("state"), "stopped");
    EXPECT_EQ(newest_step(run) + 1, rows(run)) << "the last step is in the checkpoint";
  }
}

TEST_F(Signals, APipeThatNobodyReadsIsLeftByAnInterrupt) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  testing_support::Spawned child(fp16lab_binary, training("run", {"--dump-initial", path("pipe")}), folder_);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_TRUE(child.running());
  child.signal(SIGINT);
  const Finished result = child.wait();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_THAT(result.err, HasSubstr("cannot write to " + path("pipe") + ": "));
}

TEST_F(Signals, TheKernelsOwnLimitOfProcessorTimeSavesTheRun) {
  const auto all = arguments("run", settings({"train.steps=100000"}));
  const Finished result = in_shell("ulimit -S -t 1; exec \"$0\" \"$@\"", all);
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_EQ(manifest("run").at("state"), "stopped");
}

TEST_F(Signals, OnesThatWereIgnoredStayIgnored) {
  std::vector<std::string> all = arguments("run", settings({"train.steps=100000"}));
  all.insert(all.begin(), {"-c", "trap '' HUP XCPU INT; exec \"$0\" \"$@\"", fp16lab_binary});
  testing_support::Spawned child("/bin/sh", all, folder_);
  wait_for_checkpoints("run", child);
  for (const int signal : {SIGHUP, SIGXCPU, SIGINT}) child.signal(signal);
  const std::size_t before = rows("run");
  for (int i = 0; i < 2000 && rows("run") < before + 20; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_TRUE(child.running());
  EXPECT_GE(rows("run"), before + 20);
  child.signal(SIGTERM);
  EXPECT_EQ(child.wait().exit_code, 130);
}

TEST_F(Signals, ASweepPassesAHangupOn) {
  std::vector<std::string> all = sweeping("sweep");
  all.insert(all.end(), {"--set", "train.steps=100000", "--set", "checkpoint.every=2"});
  testing_support::Spawned child(fp16lab_binary, all, folder_);
  const std::string run = "sweep/small-one-seed1";
  wait_for_checkpoints(run, child);
  child.signal(SIGHUP);
  const Finished result = child.wait();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  ASSERT_TRUE(std::filesystem::exists(path(run)));
  EXPECT_EQ(manifest(run).at("state"), "stopped");
  EXPECT_FALSE(std::filesystem::exists(path(run + "/claim.json")));
}

// ---- limits -------------------------------------------------------------------------------------------

class Limits : public LostStreams {};

TEST_F(Limits, AFileThatMayNotGrowIsAnError) {
  // 100 blocks of 512 bytes.
  const Finished result = in_shell(
      "ulimit -f 100; exec \"$0\" \"$@\"",
      training("run", {"--quiet", "--set", "train.steps=100000", "--set", "observe.histograms_every=0"}));
  EXPECT_EQ(result.exit_code, 1) << result.err;
  expect_one_line(result.err, "steps.csv: File too large");
  EXPECT_EQ(manifest("run").at("state"), "failed");
  EXPECT_GT(rows("run"), 100u);
}

TEST_F(Limits, MemoryThatIsMissingIsSaidBeforeAndAfter) {
  const std::vector<std::string> large{"--set", "model.layer.mlp1.widths=[200000, 10]", "--set",
                                       "train.steps=1"};
  const Finished result = in_shell("ulimit -v 700000; exec \"$0\" \"$@\"", training("run", large));
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("warning: a step takes "));
  EXPECT_THAT(result.err, HasSubstr("this process (RLIMIT_AS, ulimit -v) leaves "));
  EXPECT_THAT(result.err, HasSubstr("error: out of host memory"));
  EXPECT_THAT(result.err, Not(HasSubstr("bad_alloc")));
  const Finished small = in_shell("ulimit -v 700000; exec \"$0\" \"$@\"", training("small"));
  EXPECT_EQ(small.exit_code, 0) << small.err;
  EXPECT_THAT(small.err, Not(HasSubstr("warning")));
}

}  // namespace
}  // namespace fp16lab::experiments
