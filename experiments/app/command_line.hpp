// From argv to commands and questions, and from errors to exit codes.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "experiments/app/arguments.hpp"

namespace fp16lab::experiments {

/// A question as it is asked: `fp16lab ask NAME` and its link exp_NAME, or a program of its own.
struct Experiment {
  std::string name;         ///< "exp_underflow"
  std::string question;     ///< in one sentence: "Which loss-scale policy trains best?"
  std::string more = {};    ///< what --help says after it
  std::string time = {};    ///< how long two cores take: "a minute"
  std::string examples;     ///< a line each; "{}" is the program as it was called
  std::string out = {};     ///< where it writes without --out; empty: nowhere
  std::string config = {};  ///< the shipped configuration that it takes without --config: "autoencoder.toml"
  bool sweeps = false;      ///< is that a sweep's?
  bool settings = false;    ///< has --config and --set; implied by `config`
  bool seed = false;        ///< has --seed; implied by `settings`
  bool device = false;      ///< may find no device, so it calls announce_output itself once it has one
  std::function<Command::Run(Options& options)> declare;  ///< as in Command
};

/// The main function of an experiment with a program of its own. It gets the folder and the configuration
/// filled in.
int experiment_main(int argc, char** argv, const Experiment& experiment);

/// The whole fp16lab program. Called as exp_NAME it is that experiment. Errors are one line on stderr; the
/// result is the process's exit code.
int fp16lab_main(int argc, char** argv, std::span<const Experiment> experiments);

}  // namespace fp16lab::experiments
