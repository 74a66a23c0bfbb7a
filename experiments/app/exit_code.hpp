// How a command ends.
#pragma once

#include <new>
#include <stdexcept>
#include <string>

namespace fp16lab::experiments {

enum class ExitCode : int {
  ok = 0,
  run_failed = 1,
  usage = 2,          ///< command line or configuration
  unavailable = 3,    ///< a back end or device that is not here
  diverged = 4,       ///< a skip limit, no step possible, or a loss not finite (50 in a row, or the last)
  mismatch = 5,       ///< a verification or an experiment's claim failed
  interrupted = 130,  ///< Ctrl-C; what was done is saved
};

/// An error with the exit code it leads to. `what()` is the one line that the user reads; empty: none.
class CommandError : public std::runtime_error {
 public:
  CommandError(ExitCode exit_code, const std::string& message)
      : std::runtime_error(message), code(exit_code) {}
  ExitCode code;
};

/// What messages say of an error: what() is not meant for people where memory ran out.
inline std::string reason_of(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) == nullptr) return error.what();
  return "there is not enough memory (the system or a limit refused more); a smaller train.batch_size, a "
         "smaller model or fewer --jobs need less";
}

}  // namespace fp16lab::experiments
