// The options of fp16lab policy.
#pragma once

#include "experiments/app/arguments.hpp"

namespace fp16lab::experiments {

inline constexpr const char* policy_description =
    "One loss-scale policy over a trace of steps: CSV of step, found_inf, scale, log2_scale, skipped; the "
    "scale is\nthe one after that step's update. Parameters by --set NAME=VALUE. Where the policy's own rule "
    "ends the run, so\ndoes the trace: exit code 4.";
inline constexpr const char* policy_examples =
    "  fp16lab policy --policy megatron --set hysteresis=2 --set growth_interval=4 --trace FFFFFOFFFFOO\n"
    "  fp16lab policy --policy lost-mass --amax 2^-4,2^-3,0.5,7,2^-4\n"
    "  fp16lab policy --list --json";

void add_policy_options(CLI::App& app, PolicyCommand& command);

}  // namespace fp16lab::experiments
