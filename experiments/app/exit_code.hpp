// How a command ends.
#pragma once

#include <stdexcept>
#include <string>

namespace fp16lab::experiments {

enum class ExitCode : int {
  ok = 0,
  run_failed = 1,
  usage = 2,          ///< command line or configuration
  unavailable = 3,    ///< a back end or device that is not here
  diverged = 4,       ///< skip limit, or loss non-finite on 50 consecutive steps
  mismatch = 5,       ///< a verification or an experiment's claim failed
  interrupted = 130,  ///< Ctrl-C; what was done is saved
};

/// An error with the exit code it leads to. `what()` is the one line that the user reads.
class CommandError : public std::runtime_error {
 public:
  CommandError(ExitCode exit_code, const std::string& message)
      : std::runtime_error(message), code(exit_code) {}
  ExitCode code;
};

}  // namespace fp16lab::experiments
