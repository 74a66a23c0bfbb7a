// A run's own policy, replayed on the run: does it make the decisions that the run made? At the recorded
// scale the run's own found_inf answers, so every scale and every skip must come out again; if not, no other
// row of a replay is to be trusted.
#pragma once

#include <filesystem>

#include "analysis/claim.hpp"

namespace fp16lab::experiments {

/// Not run, with the reason, of a run whose decisions do not follow from what it recorded: it rounded or
/// checked nothing, has scales of layers or groups, redid steps, or told its policy what only steps with
/// histograms know. Exceptions as replay_run.
analysis::Claim replay_own_policy(const std::filesystem::path& run);

}  // namespace fp16lab::experiments
