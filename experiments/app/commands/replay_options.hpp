// The options of fp16lab replay.
#pragma once

#include "experiments/app/arguments.hpp"

namespace fp16lab::experiments {

inline constexpr const char* replay_description =
    "What every loss-scale policy would have done on a recorded run, and what it would have cost: skipped "
    "and wasted\n"
    "steps, lost gradients by count and by mass, a bound on the angle. One table on stdout, and below it "
    "whether "
    "the\n"
    "run's own policy, replayed, makes the decisions that the run made; -o DIR adds replay.json, "
    "replay.csv,\n"
    "replay_traces.csv, claims.json and a figure. This is not what training would do: the gradients stay the "
    "recorded "
    "ones,\n"
    "where another scale would have skipped other steps and changed every later gradient. Each tensor is "
    "judged by the "
    "format\n"
    "that held it (of a run in FP32: by FP16). Where an overflow is only possible - the recorded step held "
    "an Inf or NaN, "
    "only\n"
    "gradients behind a ReLU are beyond, an older folder - both answers are followed, and the numbers are "
    "bounds. The "
    "best\n"
    "source is a run in FP32 with observe.histograms_every=1.\n"
    "--set POLICY.PARAMETER=VALUE sets a parameter of one policy, --set scaler.PARAMETER=VALUE of all that "
    "have it.";
inline constexpr const char* replay_examples =
    "  fp16lab replay results/classifier --interval 20 -o results/classifier-replay\n"
    "  fp16lab replay results/classifier --policy torch --policy lost-mass --set torch.growth_interval=50";

void add_replay_options(CLI::App& app, ReplayCommand& command);

}  // namespace fp16lab::experiments
