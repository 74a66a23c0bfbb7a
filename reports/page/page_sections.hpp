// The parts of report.html, as JSON that assets/sections.js shows. Texts have marks (marked.hpp), tables are table_json()'s.
#pragma once

#include <string_view>
#include <vector>

#include "numerics/files/run/replay_file.hpp"
#include "reports/figures/figure_json.hpp"
#include "reports/page/page_detail.hpp"
#include "reports/page/report_data.hpp"

namespace fp16lab::reports {

/// "worse", "better", "equal", "soft": how the page shows a word.
std::string_view css_class_of(analysis::Word word);

/// What a visitor sees first of a workload, in 1400 by 900 pixels: {"ranking", "word", "tile": the verdict with its interval and
/// the twin's band, "answers": {"wrong", "costs", "fixes"} (answers.hpp), "gradients": whether it has histograms}.
/// (first_screen.cpp)
OrderedJson screen_json(const WorkloadMaterial& material, bool gradients);

/// {"words", "screen", "overflows", "summary": {"words", "table"}, "network"}.
OrderedJson workload_json(const RunSet& set, const WorkloadMaterial& material, bool gradients,
                          const PageDetail& detail);

/// The notes on unfinished or damaged runs.
OrderedJson notes_json(const RunSet& set, const std::vector<WorkloadMaterial>& material);

/// The table of configurations that several workloads share, one row each: how they fare in every one of them. Null where
/// there are fewer than two workloads or two such configurations. (overview_section.cpp)
OrderedJson overview_json(const RunSet& set, const std::vector<WorkloadMaterial>& material);

/// {"summary", "layers": a table, "unfilled": whether a product does not fill tensor cores, "file",
/// "picture"} of the workload's network; the picture only if `drawn`. Null where no manifest has it.
/// std::runtime_error for a manifest that has something else. (network_section.cpp)
OrderedJson network_json(const RunSet& set, const WorkloadMaterial& material, bool drawn);

/// [{"summary", "words", "table"}]: one for each kind of tensors other than gradients that a run has recorded.
/// (observed_section.cpp)
OrderedJson observed_json(const RunSet& set, const std::vector<WorkloadMaterial>& material);

/// {"step", "operands": [{"label": "x, forward", "zeroed", "saturated" (percent of values), "headroom"}]} of at most `points`
/// steps: what the operands of all layers together lost to a recipe. Null for a run without one. (observed_section.cpp)
OrderedJson blocks_json(const Run& run, std::size_t points);

/// {"targets", "batches", "b", "twin", "causes": [{"name", "alone", "without"}], "operations": [{"name", "alone"}]} of what fp16lab
/// mismatch or lab.mismatch left in the run's folder, a gap as [mean, lower, upper], the last two null without an
/// interval, all three where they are not finite. Null for a run without. std::runtime_error for a file that is something else. (mismatch_section.cpp)
OrderedJson mismatch_json(const Run& run);

/// {"computed_by": a table, "groups": [{"facts", "commands", "count", "runs", "configuration"}]}: what computed the runs, and
/// command, sources, machine and data of every one. (provenance_section.cpp)
OrderedJson provenance_json(const RunSet& set);

/// {"words", "table", "left_out", "notes"} of a replay, and "bounds", a policy each: {"label", "yardstick", "skips", "lost" (percent
/// of the L1 norm), "angle" (1 - cosine)}, the last three as [lower, upper]. (league_section.cpp)
OrderedJson league_json(const ReplayFile& replay);

/// A run's recorded histograms for the explorer, its gradients thinned to `snapshots` steps, what the casts
/// did to them, the tensors' formats, the what-if rates over every observed step, and zone counts of this
/// library against which the page tests its own arithmetic. `others`: histograms of tensors that are no
/// gradients. (gradient_data.cpp)
OrderedJson gradients_json(const Run& run, const std::string& workload, const std::string& label,
                           const RunGradients& gradients, const std::map<Observed, RunGradients>& others,
                           std::size_t snapshots);

}  // namespace fp16lab::reports
