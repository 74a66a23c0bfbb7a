// Runs in processes of their own: their ends are noticed when they come.
#include "experiments/app/sweep/child_process.hpp"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "experiments/app/process.hpp"

namespace fp16lab::experiments {
namespace {

using std::chrono::seconds;

TEST(ChildProcess, TheFirstEndOfSeveralEndsTheWait) {
  const int self = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
  if (self < 0) GTEST_SKIP() << "this system has no descriptors of processes: the wait is for the whole time";
  close(self);
  ChildProcess soon("/bin/sh", {"-c", "exit 7"}), late("/bin/sleep", {"600"});
  const auto start = std::chrono::steady_clock::now();
  ChildProcess::wait_any({&late, &soon}, seconds(300));
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(200));
  EXPECT_EQ(soon.poll(), 7);
  EXPECT_EQ(late.poll(), std::nullopt);
  late.stop();
  ChildProcess::wait_any({&late}, seconds(300));
  EXPECT_EQ(late.poll(), 128 + SIGTERM);
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(250));
}

TEST(ChildProcess, AWaitHasAnEnd) {
  ChildProcess late("/bin/sleep", {"600"});
  ChildProcess::wait_any({&late}, std::chrono::milliseconds(1));
  ChildProcess::wait_any({}, std::chrono::milliseconds(1));
  EXPECT_EQ(late.poll(), std::nullopt);
}

/// The lines of /proc/self/status that say what is blocked, ignored and caught, as `grep` has them.
std::string signals_of_a_child() {
  const ProgramAnswer answer = ask("/bin/grep", {"-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"});
  EXPECT_EQ(answer.status, 0);
  return answer.text;
}

TEST(ChildProcess, BeginsWithTheSignalsThatTheProgramBeganWith) {
  const std::string before = signals_of_a_child();
  prepare_process();
  catch_interrupts();
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  const auto ignored = std::signal(SIGTERM, SIG_IGN);
  EXPECT_EQ(signals_of_a_child(), before) << "nothing blocked, and SIGTERM ends it";
  std::signal(SIGTERM, ignored);
  pthread_sigmask(SIG_UNBLOCK, &all, nullptr);
}

}  // namespace
}  // namespace fp16lab::experiments
