// The sections of report.html that need no script: words, tables, still figures, provenance.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "numerics/files/run/replay_file.hpp"
#include "reports/page/report_data.hpp"

namespace fp16lab::reports {

/// "worse", "better", "equal", "soft": how the page shows a word.
std::string_view css_class_of(analysis::Word word);

/// Buttons that choose a workload, or a list where there are many; empty for one. (first_screen.cpp)
std::string workload_choice(const std::vector<WorkloadMaterial>& material);

/// What a visitor sees first of a workload, in 1400 by 900 pixels: the verdict with its interval and the
/// twin's band, three answers (answers.hpp), places for the worst tensor's histogram (if `gradients`) and for
/// the curves. (first_screen.cpp)
std::string first_screen(const WorkloadMaterial& material, std::size_t index, bool gradients);

/// One paragraph a workload, the notes about unfinished or damaged runs, and `extent` (HTML): how much is
/// shown.
std::string words_section(const RunSet& set, const std::vector<WorkloadMaterial>& material,
                          const std::string& extent);

/// Configurations that several workloads share, one row each: how they fare in every one of them. Empty where
/// there are fewer than two workloads or two such configurations. (overview_section.cpp)
std::string overview_section(const RunSet& set, const std::vector<WorkloadMaterial>& material);

/// The place of the loss scales of one workload, and its overflows in words.
std::string scales_of(const RunSet& set, const WorkloadMaterial& material, std::size_t index);

/// Table of one workload, places for what a step takes, and the network.
std::string tables_of(const RunSet& set, const WorkloadMaterial& material, std::size_t index,
                      const PageDetail& detail);

/// The layers of the workload's network, folded away, and `drawing` (HTML) below them. Empty where no
/// manifest tells them. std::runtime_error for one that tells something else. (network_section.cpp)
std::string network_section(const RunSet& set, const WorkloadMaterial& material, const std::string& drawing);

/// A table for each kind of tensors other than gradients that a run has recorded. Empty where none has.
/// (observed_section.cpp)
std::string observed_section(const RunSet& set, const std::vector<WorkloadMaterial>& material);

/// What computed the runs, and command, sources, machine and data of every one. (provenance_section.cpp)
std::string provenance_section(const RunSet& set);

/// One section a replay: a league table of policies and their scale traces. Empty without any.
/// (league_section.cpp)
std::string league_sections(std::span<const ReplayFile> replays);

}  // namespace fp16lab::reports
