#include "experiments/app/process.hpp"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

namespace fp16lab::experiments {

namespace {

volatile std::sig_atomic_t interrupt_flag = 0;

volatile std::sig_atomic_t text_length = 0;
const char* volatile text_begin = nullptr;

extern "C" void on_interrupt(int) {
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
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second signal has its usual effect
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
