// From argv to commands, and from errors to exit codes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "experiments/app/commands.hpp"

namespace fp16lab::experiments {

/// The whole fp16lab program. Errors are one line on stderr; the result is the process's exit code.
int fp16lab_main(int argc, char** argv);

/// An option beside the common ones: takes one value, as text; or none, where it sets a flag.
struct ExperimentOption {
  std::string name;  ///< "--model"
  std::string type;  ///< how --help shows the value: "NAME"
  std::string description;
  std::string* value;
  bool* flag = nullptr;  ///< then `type` and `value` are not used
  std::vector<std::string>* list =
      nullptr;  ///< takes every value that it is given (repeatable); `value` is not used
};
struct ExperimentFlag {
  std::string name;  ///< "--full"
  std::string description;
  bool* value;
};
struct ExperimentInfo {
  std::string name;                            ///< "exp_underflow"
  std::string description;                     ///< the question it answers
  std::string examples;                        ///< two lines
  std::vector<ExperimentOption> options = {};  ///< its own
  std::vector<ExperimentFlag> flags = {};
  SweepOptions* sweep = nullptr;  ///< where --force, --mix-builds and --jobs go; null: it does not sweep
};
/// Which of the common options an experiment binary has, besides --out, --threads and --quiet.
struct ExperimentUses {
  std::string out = {};     ///< where it writes without --out; empty: nowhere
  std::string config = {};  ///< the shipped configuration that it takes without --config: "autoencoder.toml"
  bool settings = false;    ///< has --config and --set; implied by `config`
  bool seed = false;        ///< has --seed; implied by `settings`
};
/// The main function of an experiment binary, with the common options and its own. `run` gets the folder and the
/// configuration filled in; what is written where is said on stderr first.
int experiment_main(int argc, char** argv, const ExperimentInfo& info, const ExperimentUses& uses,
                    const std::function<ExitCode(const CommonOptions& common)>& run);

}  // namespace fp16lab::experiments
