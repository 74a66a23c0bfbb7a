// Runs in processes of their own.
#include "experiments/app/sweep/child_process.hpp"

#include <gtest/gtest.h>
#include <csignal>
#include <optional>
#include <string>
#include <thread>

#include "experiments/app/process.hpp"

namespace fp16lab::experiments {
namespace {

TEST(ChildProcess, SaysHowItEnded) {
  ChildProcess soon("/bin/sh", {"-c", "exit 7"}), late("/bin/sleep", {"600"});
  const auto end_of = [](ChildProcess& child) {
    std::optional<int> status = child.poll();
    for (int i = 0; i < 20000 && !status; ++i, status = child.poll())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return status;
  };
  EXPECT_EQ(end_of(soon), 7);
  EXPECT_EQ(late.poll(), std::nullopt);
  late.stop();
  EXPECT_EQ(end_of(late), 128 + SIGTERM);
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
