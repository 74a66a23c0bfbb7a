// From argv to commands, and from errors to exit codes.
#pragma once

#include <functional>
#include <string>

#include "experiments/commands.hpp"

namespace fp16lab::experiments {

/// The whole fp16lab program. Errors are one line on stderr; the result is the process's exit code.
int fp16lab_main(int argc, char** argv);

struct ExperimentInfo {
  std::string name;         ///< "exp_underflow"
  std::string description;  ///< the question it answers
  std::string examples;     ///< two lines
};
/// The main function of an experiment binary, with the common options.
int experiment_main(int argc, char** argv, const ExperimentInfo& info,
                    const std::function<ExitCode(const CommonOptions& common)>& run);

}  // namespace fp16lab::experiments
