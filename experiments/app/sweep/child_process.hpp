// A run of `fp16lab train` in a process of its own.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace fp16lab::experiments {

/// The fp16lab program: this very binary, or its neighbour where an experiment binary asks.
std::filesystem::path fp16lab_program();

/// stdout goes to /dev/null, stderr is shared. The child is in a process group of its own (Ctrl-C reaches the
/// parent, which passes it on with `stop`), and is asked to stop if the parent dies.
class ChildProcess {
 public:
  /// std::runtime_error if it cannot be started.
  ChildProcess(const std::filesystem::path& program, const std::vector<std::string>& arguments);
  /// Asks a child that is still running to stop, and waits until it has finished its step and saved.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// Returns when one of `children` has ended, when a signal came, or after `most`.
  static void wait_any(const std::vector<const ChildProcess*>& children, std::chrono::milliseconds most);

  /// Exit status once it has ended: the exit code, or 128 + signal. Does not wait.
  std::optional<int> poll();
  /// SIGTERM, once: the run finishes its step and saves.
  void stop();

 private:
  pid_t pid_ = -1;
  int descriptor_ = -1;  ///< readable once it has ended; -1 where the system has none (Linux before 5.3)
  bool asked_to_stop_ = false;
  std::optional<int> status_;
};

}  // namespace fp16lab::experiments
