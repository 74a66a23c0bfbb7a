#include "experiments/app/process.hpp"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>

namespace fp16lab::experiments {

namespace {

volatile std::sig_atomic_t interrupt_flag = 0;

volatile std::sig_atomic_t text_length = 0;
const char* volatile text_begin = nullptr;

/// When SIGTERM came first, in seconds since boot; 0: it did not.
volatile std::sig_atomic_t asked_at = 0;

/// Is it the SIGTERM that was there already? A scheduler tells the script of a job and, besides, each process
/// of it, and the script tells them, too.
bool is_repeated(int number) {
  if (number != SIGTERM) return false;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  constexpr std::sig_atomic_t seconds = 2;
  const auto at = static_cast<std::sig_atomic_t>(now.tv_sec);
  if (asked_at != 0) return at - asked_at <= seconds;
  asked_at = at;
  return false;
}

volatile std::sig_atomic_t seen[NSIG] = {};

extern "C" void on_interrupt(int number) {
  if (is_repeated(number)) return;
  if (seen[number] != 0) {
    std::signal(number, SIG_DFL);
    raise(number);  // comes when this handler returns
    return;
  }
  seen[number] = 1;
  interrupt_flag = 1;
  if (text_length == 0) return;
  const int error = errno;
  [[maybe_unused]] const ssize_t written =
      write(STDERR_FILENO, text_begin, static_cast<std::size_t>(text_length));
  errno = error;
}

}  // namespace

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return interrupt_flag != 0; }

void write_on_interrupt(std::string_view text) {
  text_length = 0;  // no moment at which the two do not fit
  text_begin = text.data();
  text_length = static_cast<std::sig_atomic_t>(text.size());
}

}  // namespace fp16lab::experiments
