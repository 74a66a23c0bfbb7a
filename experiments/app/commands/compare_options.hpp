// The options of fp16lab compare.
#pragma once

#include "experiments/app/arguments.hpp"

namespace fp16lab::experiments {

inline constexpr const char* compare_description =
    "Two runs, step by step and tensor by tensor: are they the same bits, which settings differ, at which "
    "step do\n"
    "their states part, how fast does the difference of the losses grow, how far apart are the gradients'\n"
    "distributions, and what do the last evaluations say? A table on stdout; -o DIR adds compare.json, "
    "compare.csv and a\n"
    "figure. Runs that differ are no error; with --strict they are one, exit code 5.";
inline constexpr const char* compare_examples =
    "  fp16lab compare results/fp32 results/fp16\n"
    "  fp16lab compare results/emulated results/device --strict --quiet\n"
    "  fp16lab compare results/fp32 results/fp16 --threshold 0.05 --json -o results/fp32-fp16";

void add_compare_options(CLI::App& app, CompareCommand& command);

}  // namespace fp16lab::experiments
