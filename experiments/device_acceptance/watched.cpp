#include "experiments/device_acceptance/watched.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <stdexcept>
#include <thread>

#include "experiments/app/process.hpp"
#include "experiments/app/sweep/child_process.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Cuts what is read into lines, and keeps the last ones.
class Lines {
 public:
  explicit Lines(const std::function<void(const std::string&)>& on_line) : on_line_(on_line) {}
  void add(std::string_view block) {
    for (const char c : block) {
      if (c == '\n')
        end();
      else
        line_ += c;
    }
  }
  void end() {
    if (line_.empty()) return;
    constexpr std::size_t most = 12;
    if (last_.size() == most) last_.pop_front();
    last_.push_back(line_);
    on_line_(line_);
    line_.clear();
  }
  std::string last() const {
    std::string text;
    for (const std::string& line : last_) text += (text.empty() ? "" : "\n") + line;
    return text;
  }

 private:
  const std::function<void(const std::string&)>& on_line_;
  std::string line_;
  std::deque<std::string> last_;
};

}  // namespace

std::string Ended::how(double silence) const {
  if (silent) return fmt::format("no word for {:g} s, killed", silence);
  if (status > 128) return fmt::format("signal {} ({})", status - 128, strsignal(status - 128));
  return fmt::format("exit code {}", status);
}

std::filesystem::path tool_called(const std::string& name) {
  if (std::filesystem::path program = program_called(name); !program.empty()) return program;
  const char* const home = std::getenv("CUDA_HOME");
  for (const std::string folder : {home == nullptr ? "" : home, "/usr/local/cuda"}) {
    std::filesystem::path program = std::filesystem::path(folder) / "bin" / name;
    if (!folder.empty() && access(program.c_str(), X_OK) == 0) return program;
  }
  return {};
}

std::string not_installed_text(const std::string& name) {
  return name + " is not installed (neither in PATH nor in CUDA_HOME/bin or /usr/local/cuda/bin)";
}

Ended run_watched(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                  double silence, const std::function<void(const std::string&)>& on_line) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    throw std::runtime_error(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  ChildProcess child(program, arguments, ends[1]);
  close(ends[1]);
  Ended ended;
  Lines lines(on_line);
  auto heard = Clock::now();
  std::optional<Clock::time_point> asked;  // to stop
  std::optional<int> status;
  // A grandchild may hold the pipe open when the child has ended, so the child's end is what counts.
  for (bool open = true; !status || open;) {
    constexpr int milliseconds = 50;
    pollfd ready{.fd = ends[0], .events = POLLIN, .revents = 0};
    const bool readable = open && ::poll(&ready, 1, milliseconds) > 0;
    if (readable) {
      std::array<char, 4096> block;
      const ssize_t count = read(ends[0], block.data(), block.size());
      if (count > 0) lines.add({block.data(), static_cast<std::size_t>(count)});
      open = count > 0 || (count < 0 && errno == EINTR);
      heard = Clock::now();
      continue;
    }
    if (!open) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (status) break;
    status = child.poll();
    if (interrupted() && !asked) {
      ended.stopped = true;
      asked = Clock::now();
      child.stop();
    }
    constexpr double patience = 5;
    if (asked && seconds_since(*asked) > patience) child.kill();
    if (!asked && seconds_since(heard) > silence) {
      ended.silent = true;
      asked = heard;
      child.kill();
    }
  }
  lines.end();
  close(ends[0]);
  ended.status = *status;
  ended.last_words = lines.last();
  return ended;
}

}  // namespace fp16lab::experiments::acceptance
