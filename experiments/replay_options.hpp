// The options of fp16lab replay.
#pragma once

#include "experiments/arguments.hpp"

namespace fp16lab::experiments {

inline constexpr const char* replay_description =
    "What every loss-scale policy would have done on a recorded run, and what it would have cost: skipped "
    "and wasted\n"
    "steps, lost gradients by count and by mass, a bound on the angle. One table on stdout; -o DIR adds "
    "replay.json,\n"
    "replay.csv, replay_traces.csv and a figure. Where an overflow is only possible both answers are "
    "followed, and the\n"
    "numbers are bounds; the best source is a run in FP32 with observe.histograms_every=1.\n"
    "--set POLICY.PARAMETER=VALUE sets a parameter of one policy, --set scaler.PARAMETER=VALUE of all that "
    "have it.";
inline constexpr const char* replay_examples =
    "  fp16lab replay results/classifier --interval 20 -o results/classifier-replay\n"
    "  fp16lab replay results/classifier --policy torch --policy lost-mass --set torch.growth_interval=50";

void add_replay_options(CLI::App& app, ReplayCommand& command);

}  // namespace fp16lab::experiments
