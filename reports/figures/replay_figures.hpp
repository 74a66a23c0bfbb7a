// Still figures of a replay: the scale traces of all policies, and the league as dots.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "numerics/files/run/replay_file.hpp"
#include "reports/figures/figures.hpp"

namespace fp16lab::reports {

/// Writes STEM.dat and STEM.gp into `folder` for each, to be drawn by draw_figures(); none where no policy
/// was replayed. Figure::workload is the replay's run.
std::vector<Figure> write_replay_figures(const ReplayFile& replay, const std::filesystem::path& folder);

/// The first of them alone, as replay.dat, replay.gp, replay.svg and replay.png: the scale of every policy
/// over the steps, policies of one trace in one panel, the band of scales that the run allowed behind it,
/// skipped steps marked. Returns why gnuplot (a program name or path) drew nothing, or an empty string; there
/// are no files where no policy was replayed.
std::string draw_replay(const ReplayFile& replay, const std::filesystem::path& folder,
                        const std::string& gnuplot = "gnuplot");

}  // namespace fp16lab::reports
