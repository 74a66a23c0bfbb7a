// The sections of report.html that need no script: words, tables, still figures, provenance.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "reports/figures.hpp"
#include "reports/report_data.hpp"

namespace fp16lab::reports {

/// One paragraph a workload, and the notes about unfinished or damaged runs.
std::string summary_section(const RunSet& set, const std::vector<WorkloadMaterial>& material);

/// Table and charts of one workload. `with_charts`: places for Chart.js, else the still figures stand in for
/// them. `folder` holds the drawn figures.
std::string workload_section(const RunSet& set, const WorkloadMaterial& material, std::size_t index,
                             const std::vector<Figure>& figures, const std::filesystem::path& folder,
                             bool with_charts);

/// Command, sources, machine and data of every run.
std::string provenance_section(const RunSet& set);

}  // namespace fp16lab::reports
