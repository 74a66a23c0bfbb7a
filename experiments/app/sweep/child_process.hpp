// Programs in processes of their own: runs of fp16lab, and the schedulers that start them.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace fp16lab::experiments {

/// The fp16lab program: this very binary, or its neighbour where another program asks.
std::filesystem::path fp16lab_program();

/// The program that a shell would start by this name; empty: none is in PATH.
std::filesystem::path program_called(const std::string& name);

/// stdin is empty, stdout goes to /dev/null, stderr is shared. The child is in a process group of its own
/// (Ctrl-C reaches the parent, which passes it on with `stop`), and is asked to stop if the parent dies. Its
/// signals are as process.hpp says.
class ChildProcess {
 public:
  /// `output`: a descriptor for stdout and stderr. std::runtime_error if it cannot be started.
  ChildProcess(const std::filesystem::path& program, const std::vector<std::string>& arguments,
               int output = -1);
  /// Asks a child that is still running to stop, and waits until it has finished its step and saved.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// Exit status once it has ended: the exit code, or 128 + signal. Does not wait.
  std::optional<int> poll();
  /// SIGTERM, once: the run finishes its step and saves.
  void stop();
  /// SIGKILL, to its whole process group: for one that does not listen.
  void kill();

 private:
  pid_t pid_ = -1;
  bool asked_to_stop_ = false;
  std::optional<int> status_;
};

/// What a program wrote to stdout and stderr.
struct ProgramAnswer {
  int status = 0;  ///< as ChildProcess::poll
  std::string text;
};
/// Waits for the program's end. CommandError(run_failed) if it takes more than two minutes.
ProgramAnswer ask(const std::filesystem::path& program, const std::vector<std::string>& arguments);

}  // namespace fp16lab::experiments
