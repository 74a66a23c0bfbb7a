#include "experiments/app/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>

#include "numerics/text/message.hpp"

namespace fp16lab::experiments {

using std::chrono::steady_clock;

Progress::Progress(bool quiet)
    : quiet_(quiet),
      terminal_(isatty(STDERR_FILENO) == 1),
      last_(steady_clock::now() - std::chrono::hours(1)) {}

Progress::~Progress() { end(); }

void Progress::end() {
  if (open_) show_text("\n");
  open_ = false;
}

bool Progress::due() const {
  return !quiet_ && steady_clock::now() - last_ >= std::chrono::milliseconds(terminal_ ? 200 : 5000);
}

void Progress::show(const std::string& line) {
  if (quiet_) return;
  last_ = steady_clock::now();
  if (terminal_) {
    show_text(fmt::format("\r{}\x1b[K", message_line(line)));
    open_ = true;
  } else {
    say("{}", line);
  }
}

void Progress::message(const std::string& line) {
  if (quiet_) return;
  if (open_) show_text("\r\x1b[K");
  open_ = false;
  say("{}", line);
}

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

}  // namespace fp16lab::experiments
