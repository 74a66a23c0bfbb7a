// Signals that end a program.
#include "experiments/app/process.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <thread>
#include <vector>

namespace fp16lab::experiments {
namespace {

struct Sent {
  int signal;
  int after;  ///< milliseconds
};
/// What signals do to a process that works on until SIGUSR1: 1, nothing; 0, it was interrupted; or the one
/// that killed it.
int end_of(const std::vector<Sent>& signals, int ignored = 0) {
  std::array<int, 2> ready{};
  if (pipe(ready.data()) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    static volatile std::sig_atomic_t last = 0;
    std::signal(SIGUSR1, [](int) { last = 1; });
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGXCPU})
      std::signal(number, number == ignored ? SIG_IGN : SIG_DFL);
    prepare_process();
    catch_interrupts();
    [[maybe_unused]] const ssize_t written = write(ready[1], "", 1);
    while (last == 0) usleep(1000);
    _exit(interrupted() ? 0 : 1);
  }
  char byte = 0;
  EXPECT_EQ(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  close(ready[1]);
  const auto rest = std::chrono::milliseconds(50);
  for (const Sent& sent : signals) {
    std::this_thread::sleep_for(std::chrono::milliseconds(sent.after));
    kill(child, sent.signal);
  }
  std::this_thread::sleep_for(rest);
  kill(child, SIGUSR1);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(Process, TheSecondSignalKills) {
  EXPECT_EQ(end_of({}), 1);
  EXPECT_EQ(end_of({{SIGINT, 0}}), 0);
  EXPECT_EQ(end_of({{SIGTERM, 0}}), 0);
  EXPECT_EQ(end_of({{SIGINT, 0}, {SIGINT, 50}}), SIGINT);
  EXPECT_EQ(end_of({{SIGINT, 0}, {SIGTERM, 50}}), 0) << "mpirun sends one after the other";
}

TEST(Process, OfSigtermsThatASchedulerSendsWithinTwoSecondsOneCounts) {
  EXPECT_EQ(end_of({{SIGTERM, 0}, {SIGTERM, 50}, {SIGTERM, 300}}), 0);
  EXPECT_EQ(end_of({{SIGTERM, 0}, {SIGTERM, 3100}}), SIGTERM);
}

TEST(Process, HangupsAndTheLimitOfProcessorTimeNeverKill) {
  for (const int number : {SIGHUP, SIGXCPU}) {
    EXPECT_EQ(end_of({{number, 0}}), 0);
    EXPECT_EQ(end_of({{number, 0}, {number, 20}, {number, 20}, {number, 20}}), 0);
    EXPECT_EQ(end_of({{number, 0}, {SIGTERM, 20}, {SIGCONT, 20}, {number, 20}}), 0);
  }
}

TEST(Process, WhatWasIgnoredStaysIgnored) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGXCPU}) {
    EXPECT_EQ(end_of({{number, 0}, {number, 20}}, number), 1) << number;
    EXPECT_EQ(end_of({{number == SIGTERM ? SIGINT : SIGTERM, 0}}, number), 0) << number;
  }
}

TEST(Process, ABrokenPipeAndAFileThatIsTooLargeAreErrorsOfWrite) {
  for (const int number : {SIGPIPE, SIGXFSZ}) EXPECT_EQ(end_of({{number, 0}}), 1);
}

}  // namespace
}  // namespace fp16lab::experiments
