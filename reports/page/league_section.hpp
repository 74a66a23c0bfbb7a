// The part of report.html about replays: each a league table of policies and their scale traces.
#pragma once

#include <span>
#include <string>

#include "numerics/files/run/replay_file.hpp"

namespace fp16lab::reports {

/// One section a replay; empty without any.
std::string league_sections(std::span<const ReplayFile> replays);

}  // namespace fp16lab::reports
