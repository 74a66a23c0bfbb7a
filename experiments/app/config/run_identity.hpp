// What a run is, by its configuration: the one place that decides what is FP32, scaled, or another workload.
#pragma once

#include "experiments/app/config/config.hpp"
#include "reports/data/run_set.hpp"

namespace fp16lab::experiments {

/// By the roles of the keys that the run reads: a seed, machine and watching keys and values that are defaults
/// are no part of what it is, but for backend.device, whose bits may be others. The policy may be "auto" yet: it
/// is the level's, and "none" where the dialect does not have the level.
RunIdentity identity_of(RunConfig config);

/// A run folder as this build tells it (reports::TellRun). Configurations of older builds also have keys that
/// nothing read, and their manifests do not say what the run is. One that this build does not read, and those of
/// lab.watch, are shown as they are, by sections.
reports::ToldRun told(const Manifest& manifest);

}  // namespace fp16lab::experiments
