// The report: run folders in, figures and one offline page out.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "reports/data/run_set.hpp"
#include "reports/data/summary.hpp"
#include "reports/figures/figure.hpp"

namespace fp16lab::reports {

struct ReportOptions {
  std::string title = "fp16lab report";
  DrawingOptions drawing{};      ///< the figures that are files
  std::string graphviz = "dot";  ///< program that draws networks
  /// The page is written again as its runs go on: browsers load it anew after so many seconds, and pictures
  /// wait for the last time. 0: this is the last time.
  int follow_seconds = 0;
  std::ostream* messages = nullptr;  ///< gets one line for each missing tool
  /// Gets why files of figures are missing, in one line, in the place of `messages`; empty: none is.
  std::string* undrawn = nullptr;
};

/// Writes `out`/figures/ (description, SVG and PNG of every figure, and draw.js) and `out`/report.html, and
/// returns the page's path. `folders` are runs, replays, or hold such (reports/data/report_input.hpp). The
/// page is one file below 5 MB that needs no network and draws its own figures; it shows fewer of the
/// observed steps of long runs, and the first workloads and configurations of very many, and says so. Without
/// node the page draws all the same, and there are no files of figures. Runs that cannot be read, or an `out`
/// that cannot be written, throw std::runtime_error.
std::filesystem::path write_report(std::span<const std::filesystem::path> folders,
                                   const std::filesystem::path& out, const ReportOptions& options = {});
/// The same of runs that are loaded already, and summarised (reports/data/summary.hpp); `replays` are
/// replay.json files.
std::filesystem::path write_report(const RunSet& set, const std::vector<WorkloadSummary>& summaries,
                                   std::span<const std::filesystem::path> replays,
                                   const std::filesystem::path& out, const ReportOptions& options = {});

}  // namespace fp16lab::reports
