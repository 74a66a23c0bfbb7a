// Still figures of a replay: the scale traces of all policies, and the league as dots.
#pragma once

#include <filesystem>
#include <vector>

#include "numerics/files/run/replay_file.hpp"
#include "reports/figures/figures.hpp"

namespace fp16lab::reports {

/// Writes STEM.dat and STEM.gp into `folder` for each, to be drawn by draw_figures(); none where no policy was replayed.
/// Figure::workload is the replay's run.
std::vector<Figure> write_replay_figures(const ReplayFile& replay, const std::filesystem::path& folder);

}  // namespace fp16lab::reports
