// What a user should know about a plan before it runs: settings that act twice, or not at all, and what a GPU
// lacks.
#pragma once

#include <string>
#include <vector>

#include "experiments/app/run/prepared_run.hpp"

namespace fp16lab::experiments {

/// Lines on stderr; none where nothing is unusual.
void print_notes(const PreparedRun& run);

/// Why a run of so many steps never sees the policy raise its scale: "torch raises the loss scale first after
/// 2000 clean steps: in 200 steps it can only lower it". Empty where it does, and for policies that do not go
/// by clean steps.
std::string never_grows(const engine::amp::ScalePolicy& policy, std::uint64_t steps);

/// Before the network is made: a warning where a step takes more memory than there is. Says whether there was
/// one.
bool note_memory(const StepCosts& costs);

/// What GPUs that are here lack for this run's products, a line each.
std::vector<std::string> gpu_advice(const RunPlan& plan);

}  // namespace fp16lab::experiments
