// The options of fp16lab train.
#pragma once

#include <string>
#include <vector>

#include "experiments/app/arguments.hpp"

namespace fp16lab::experiments {

inline constexpr const char* train_description =
    "One training run into one run folder; a JSON summary on stdout";
inline constexpr const char* train_examples =
    "  fp16lab train -c experiments/configs/classifier.toml -o results/classifier\n"
    "  fp16lab train -c experiments/configs/autoencoder.toml --set amp.level=O1 --seed 2\n"
    "  fp16lab train -c experiments/configs/lenet5.toml --set amp.dialect=paddle --set amp.level=O2 "
    "--op-stats\n"
    "  fp16lab train -c experiments/configs/classifier.toml --set backend.device=cuda --graph\n"
    "  fp16lab train --resume -o results/classifier";

/// Where CLI11 writes them: the command, and what has to be read once more.
struct TrainArguments {
  TrainCommand command;
  std::vector<std::string> dump_gradients;  ///< STEP, FILE; empty: not given
  bool graph = false;
  bool explain_overflow = false;
  std::string live;  ///< "auto", "always"; empty: not given
};

/// Adds them to `app`, which keeps pointers into `arguments`.
void add_train_options(CLI::App& app, TrainArguments& arguments);

/// The command as given; flags that stand for a configuration key come behind the settings of `common`. A bad step is
/// a usage error.
TrainCommand finish(const TrainArguments& arguments, const CommonOptions& common);

}  // namespace fp16lab::experiments
