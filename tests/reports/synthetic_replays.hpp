// Replays that look like real ones, without a run: for tests of reports/ and for looking at its pictures.
#pragma once

#include <cstdint>
#include <string>

#include "numerics/files/run/replay_file.hpp"

namespace fp16lab::reports {

/// Doubling and halving rules of many kinds over a ceiling that rises late in training: 24 policies, one
/// without certain bounds, one that moves layers apart, one that cannot be replayed, and the oracle.
ReplayFile synthetic_replay(const std::string& run, std::uint64_t steps);

}  // namespace fp16lab::reports
