// The options of fp16lab sweep.
#pragma once

#include "experiments/app/arguments.hpp"

namespace fp16lab::experiments {

inline constexpr const char* sweep_description = "A grid of runs, resumable; a summary table on stdout";
inline constexpr const char* sweep_examples =
    "  fp16lab sweep -c experiments/configs/demo.toml -o results/demo --report\n"
    "  fp16lab sweep -c experiments/configs/full.toml -o results/full --dry-run";

void add_sweep_options(CLI::App& app, SweepCommand& command);

}  // namespace fp16lab::experiments
