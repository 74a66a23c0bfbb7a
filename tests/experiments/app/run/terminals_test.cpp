// What the loss of its terminal does to a run: it saves its state, or goes on. Other losses stand in
// tests/transcripts/lost-streams.t.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/experiments/app/run/resume_runs.hpp"

namespace fp16lab::experiments {
namespace {

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

std::string drain(int master, std::chrono::milliseconds time) {
  std::string text;
  fcntl(master, F_SETFL, O_NONBLOCK);
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
    char block[4096];
    const ssize_t count = read(master, block, sizeof block);
    if (count > 0)
      text.append(block, static_cast<std::size_t>(count));
    else
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return text;
}

class Terminals : public Resume {
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

TEST_F(Terminals, TheAccountBeginsOnALineOfItsOwn) {
  std::string text;
  const auto arguments_of_run = arguments("run", settings({"train.steps=3"}));
  const int code = on_terminal([&](int terminal) -> int { become(terminal, arguments_of_run); },
                               [&](int master) {
                                 while (text.find("Next: ") == std::string::npos && text.size() < 100000)
                                   text += drain(master, std::chrono::milliseconds(50));
                               });
  EXPECT_EQ(code, 0);
  const std::size_t account = text.find("fp16lab: " + path("run"));
  ASSERT_NE(account, std::string::npos) << text;
  EXPECT_EQ(text.substr(account - 2, 2), "\r\n") << text;
  EXPECT_NE(text.find("step 3/3"), std::string::npos) << text;
}

TEST_F(Terminals, MessagesStopNoRunInTheBackground) {
  const auto arguments_of_run =
      std::vector<std::string>{"train", "-c", write_config().string(), "-o", path("run"), "--threads", "1"};
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

}  // namespace
}  // namespace fp16lab::experiments
