// From argv to commands, and from errors to exit codes.
#pragma once

#include <string>

#include "experiments/app/arguments.hpp"

namespace fp16lab::experiments {

/// The whole fp16lab program. Errors are one line on stderr; the result is the process's exit code.
int fp16lab_main(int argc, char** argv);

/// Which of the common options an experiment binary has, besides --out, --threads and --quiet.
struct ExperimentUses {
  std::string out = {};     ///< where it writes without --out; empty: nowhere
  std::string config = {};  ///< the shipped configuration that it takes without --config: "autoencoder.toml"
  bool settings = false;    ///< has --config and --set; implied by `config`
  bool seed = false;        ///< has --seed; implied by `settings`
};
/// The main function of an experiment binary. `command.uses` is made from `uses`; the command gets the folder
/// and the configuration filled in; what is written where is said on stderr first.
int experiment_main(int argc, char** argv, const Command& command, const ExperimentUses& uses);

}  // namespace fp16lab::experiments
