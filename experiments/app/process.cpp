#include "experiments/app/process.hpp"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "numerics/platform/standard_streams.hpp"

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

volatile std::sig_atomic_t signals_seen[NSIG] = {};

int first_result_error = 0;

extern "C" void on_interrupt(int number) {
  if (is_repeated(number)) return;
  if (signals_seen[number] != 0 && number != SIGINT && number != SIGTERM) return;
  if (signals_seen[number] != 0) {
    std::signal(number, SIG_DFL);
    raise(number);  // comes when this handler returns
    return;
  }
  signals_seen[number] = 1;
  interrupt_flag = 1;
  if (text_length == 0) return;
  const int error = errno;
  [[maybe_unused]] const ssize_t written =
      write(STDERR_FILENO, text_begin, static_cast<std::size_t>(text_length));
  errno = error;
}

extern "C" void on_failed_write(int /*number*/) {}

/// Where `number` was not ignored.
void handle(int number, void (*handler)(int), int flags) {
  struct sigaction action {};
  if (sigaction(number, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) return;
  action = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  sigaction(number, &action, nullptr);
}

}  // namespace

void prepare_process() {
  open_standard_descriptors();
  for (const int number : {SIGPIPE, SIGXFSZ}) handle(number, on_failed_write, SA_RESTART);
}

void catch_interrupts() {
  sigset_t caught;
  sigemptyset(&caught);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGXCPU}) {
    handle(number, on_interrupt, 0);
    sigaddset(&caught, number);
  }
  pthread_sigmask(SIG_UNBLOCK, &caught, nullptr);  // whoever started the program may have blocked them
}

bool interrupted() { return interrupt_flag != 0; }

void write_on_interrupt(std::string_view text) {
  text_length = 0;  // no moment at which the two do not fit
  text_begin = text.data();
  text_length = static_cast<std::sig_atomic_t>(text.size());
}

void print_result(std::string_view text) noexcept {
  if (standard_output_was_closed()) return;
  const bool good = std::fflush(stdout) == 0 && write_text(STDOUT_FILENO, text);
  if (!good && first_result_error == 0) first_result_error = errno;
}

int result_error() noexcept { return first_result_error; }

}  // namespace fp16lab::experiments
