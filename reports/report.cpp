#include "reports/report.hpp"

#include <fmt/core.h>

#include <cstdlib>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <system_error>

#include "numerics/files/atomic_file.hpp"
#include "reports/embedded_page.hpp"
#include "reports/figures.hpp"
#include "reports/html.hpp"
#include "reports/page_sections.hpp"
#include "reports/report_data.hpp"

namespace fp16lab::reports {
namespace {

/// Observed steps that are kept of a run: enough for a heat map, few enough for a page of a few megabytes.
constexpr std::size_t max_snapshots = 40;
constexpr const char* debian_chart_js = "/usr/share/javascript/chart.js/chart.min.js";

void tell(const ReportOptions& options, const std::string& message) {
  if (options.messages != nullptr && !message.empty()) *options.messages << message << '\n';
}

std::optional<std::string> read_chart_js(const ReportOptions& options) {
  std::filesystem::path path = options.chart_js;
  if (path.empty()) {
    const char* chosen = std::getenv("FP16LAB_CHARTJS");
    path = chosen != nullptr && *chosen != '\0' ? chosen : debian_chart_js;
  }
  try {
    std::string script = read_file(path);
    // A script element ends at the first "</script"; the library has none, another file given here might.
    if (script.find("</script") != std::string::npos)
      throw std::runtime_error(path.string() + " cannot be inlined: it holds </script");
    return script;
  } catch (const std::runtime_error& error) {
    tell(options,
         fmt::format("{}; the page shows still figures in place of charts (Debian: libjs-chart.js, or set "
                     "FP16LAB_CHARTJS)",
                     error.what()));
    return std::nullopt;
  }
}

std::vector<WorkloadMaterial> collect(const RunSet& set) {
  std::vector<WorkloadMaterial> material;
  for (const Workload& workload : set.workloads) {
    WorkloadMaterial item{&workload, summarise(set, workload), {}};
    for (const Configuration& configuration : workload.configurations) {
      const Run* run = representative(set, configuration);
      item.gradients.push_back(run == nullptr ? RunGradients{} : load_gradients(*run, max_snapshots));
    }
    material.push_back(std::move(item));
  }
  return material;
}

std::filesystem::path make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw std::runtime_error(fmt::format("cannot create {}: {}", folder.string(), error.message()));
  return folder;
}

std::string page_of(const RunSet& set, const std::vector<WorkloadMaterial>& material,
                    const std::vector<Figure>& figures, const std::filesystem::path& figure_folder,
                    const ReportOptions& options) {
  const std::optional<std::string> chart_js = read_chart_js(options);
  bool has_gradients = false;
  std::string workloads;
  for (std::size_t i = 0; i < material.size(); ++i) {
    workloads += workload_section(set, material[i], i, figures, figure_folder, chart_js.has_value());
    for (const RunGradients& gradients : material[i].gradients) has_gradients |= !gradients.snapshots.empty();
  }
  const std::string subtitle =
      fmt::format("{} runs of {} workload{}, written {}", set.runs.size(), set.workloads.size(),
                  set.workloads.size() == 1 ? "" : "s", utc_now());
  const std::string note =
      chart_js ? "" : "<p class=\"soft\">Chart.js was not found; charts are shown as still figures.</p>\n";

  const std::string title = html_escape(options.title), summary = summary_section(set, material);
  const std::string library = chart_js ? "<script>" + *chart_js + "</script>" : "";
  const std::string data = report_data(set, material), provenance = provenance_section(set);
  const std::string body = note + workloads;
  const Slot slots[] = {
      {"TITLE", title},
      {"SUBTITLE", subtitle},
      {"STYLE", page::report_css},
      {"SUMMARY", summary},
      {"WORKLOADS", body},
      {"EXPLORER",
       has_gradients ? page::explorer_html
                     : std::string_view("<p class=\"soft\">These runs recorded no gradient histograms.</p>")},
      {"PROVENANCE", provenance},
      {"DATA", data},
      {"CHART_LIBRARY", library},
      {"SCRIPT", page::report_js}};
  return fill_slots(page::report_html, slots);
}

}  // namespace

std::filesystem::path write_report(std::span<const std::filesystem::path> runs,
                                   const std::filesystem::path& out, const ReportOptions& options) {
  const RunSet set = load_runs(runs);
  const std::filesystem::path figure_folder = make_folder(out / run_file::figures);
  const std::vector<WorkloadMaterial> material = collect(set);
  std::vector<Figure> figures;
  for (const WorkloadMaterial& item : material) {
    const WorkloadFigures input{set, *item.workload, item.summary, item.gradients};
    for (Figure& figure : write_figures(input, figure_folder)) figures.push_back(std::move(figure));
  }
  tell(options, draw_figures(figures, figure_folder, options.gnuplot));
  std::filesystem::path path = out / run_file::report;
  write_file_atomically(path, page_of(set, material, figures, figure_folder, options));
  return path;
}

}  // namespace fp16lab::reports
