#include "reports/page/report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <system_error>

#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/text/text.hpp"
#include "reports/data/report_input.hpp"
#include "reports/figures/figures.hpp"
#include "reports/figures/replay_figures.hpp"
#include "reports/page/embedded_page.hpp"
#include "reports/page/html.hpp"
#include "reports/page/league_section.hpp"
#include "reports/page/page_extent.hpp"
#include "reports/page/page_sections.hpp"
#include "reports/page/report_data.hpp"

namespace fp16lab::reports {
namespace {

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
    // They change where a script element ends; the library has none, another file given here might.
    for (const char* tag : {"</script", "</SCRIPT", "<!--"})
      if (script.find(tag) != std::string::npos)
        throw std::runtime_error(path.string() + " cannot be inlined: it holds " + tag);
    return script;
  } catch (const std::runtime_error& error) {
    tell(options,
         fmt::format("{}; the page shows still figures in place of charts (Debian: libjs-chart.js, or set "
                     "FP16LAB_CHARTJS)",
                     error.what()));
    return std::nullopt;
  }
}

std::vector<WorkloadMaterial> collect(const RunSet& set, const PageExtent& extent) {
  std::vector<WorkloadMaterial> material;
  for (std::size_t w = 0; w < extent.workloads.size(); ++w) {
    const Workload& workload = extent.workloads[w];
    WorkloadMaterial item{&workload, extent.summaries[w], {}};
    for (const Configuration& configuration : workload.configurations) {
      const Run* run = representative(set, configuration);
      item.gradients.push_back(run == nullptr ? RunGradients{}
                                              : load_gradients(*run, page_details.front().snapshots));
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

/// Everything that a page shows.
struct PageContent {
  const RunSet& set;
  const PageExtent& extent;
  const std::vector<WorkloadMaterial>& material;
  const std::vector<ReplayFile>& replays;
  const std::vector<Figure>& figures;
  const std::filesystem::path& figure_folder;
};

std::string navigation(const PageContent& content, bool has_overview, bool has_gradients, bool has_others) {
  std::string html = "<nav aria-label=\"Sections\">";
  const auto link = [&](std::string_view id, std::string_view name) {
    html += fmt::format("<a href=\"#{}\">{}</a> ", id, html_escape(name));
  };
  if (has_overview) link("overview", "All workloads");
  for (std::size_t i = 0; i < content.material.size(); ++i)
    link(fmt::format("workload-{}", i), content.material[i].workload->name);
  if (!content.replays.empty()) link("replays", "Policies replayed");
  if (has_gradients) link("gradients", "Gradients");
  if (has_others) link("tensors", "Other tensors");
  if (!content.set.runs.empty()) link("provenance", "Provenance");
  return html + "</nav>\n";
}

std::string page_of(const PageContent& content, const std::optional<std::string>& chart_js,
                    const std::string& title, const PageDetail& detail) {
  const auto& [set, extent, material, replays, figures, figure_folder] = content;
  bool has_gradients = false;
  std::string workloads;
  for (std::size_t i = 0; i < material.size(); ++i) {
    workloads += workload_section(set, material[i], i, figures, figure_folder, chart_js.has_value(), detail);
    for (const RunGradients& gradients : material[i].gradients) has_gradients |= !gradients.snapshots.empty();
  }
  workloads += league_sections(replays);
  std::string subtitle;
  if (!set.runs.empty())
    subtitle += counted(set.runs.size() - set.missing(), "run") + " of " +
                counted(set.workloads.size(), "workload") + ", ";
  if (!replays.empty()) subtitle += counted(replays.size(), "replay") + ", ";
  subtitle += "written " + utc_now();
  const std::string note =
      chart_js || set.runs.empty()
          ? ""
          : "<p class=\"soft\">Chart.js was not found; charts are shown as still figures.</p>\n";

  const std::string escaped = html_escape(title);
  const std::string overview = overview_section(material);
  const std::string others = observed_section(set, material);
  const std::string summary = navigation(content, !overview.empty(), has_gradients, !others.empty()) +
                              summary_section(set, material, extent_words(set, extent, figures)) + overview;
  const std::string library = chart_js ? "<script>" + *chart_js + "</script>" : "";
  const std::string data = report_data(set, material, replays, detail);
  const std::string provenance = set.runs.empty() ? "" : provenance_section(set);
  const std::string body = note + workloads;
  std::string explorer;
  if (has_gradients)
    explorer = page::explorer_html;
  else if (!set.runs.empty())
    explorer = "<p class=\"soft\">These runs recorded no gradient histograms.</p>";
  explorer += others;
  const Slot slots[] = {{"TITLE", escaped},         {"SUBTITLE", subtitle}, {"STYLE", page::report_css},
                        {"SUMMARY", summary},       {"WORKLOADS", body},    {"EXPLORER", explorer},
                        {"PROVENANCE", provenance}, {"DATA", data},         {"CHART_LIBRARY", library},
                        {"SCRIPT", page::report_js}};
  return fill_slots(page::report_html, slots);
}

}  // namespace

std::filesystem::path write_report(std::span<const std::filesystem::path> folders,
                                   const std::filesystem::path& out, const ReportOptions& options) {
  const ReportInput input = find_report_input(folders);
  const RunSet set = input.runs.empty() ? RunSet{} : load_runs(input.runs, input.missing);
  return write_report(set, summarise(set), input.replays, out, options);
}

std::filesystem::path write_report(const RunSet& set, const std::vector<WorkloadSummary>& summaries,
                                   std::span<const std::filesystem::path> replay_files,
                                   const std::filesystem::path& out, const ReportOptions& options) {
  for (const Run& run : set.runs)
    for (const std::string& damage : run.folder.damage)
      tell(options, fmt::format("{} is damaged: {}", run.name, damage));
  std::vector<ReplayFile> replays;
  for (const std::filesystem::path& file : replay_files) replays.push_back(read_replay(file));

  const std::filesystem::path figure_folder = make_folder(out / run_file::figures);
  const PageExtent extent = extent_of(set, summaries);
  const std::vector<WorkloadMaterial> material = collect(set, extent);
  std::vector<Figure> figures;
  for (const WorkloadMaterial& item : material) {
    const WorkloadFigures workload{set, *item.workload, item.summary, item.gradients};
    for (Figure& figure : write_figures(workload, figure_folder)) figures.push_back(std::move(figure));
  }
  for (const ReplayFile& replay : replays)
    for (Figure& figure : write_replay_figures(replay, figure_folder)) figures.push_back(std::move(figure));
  // What compares configurations comes before what shows one, lest the first workload take all pictures.
  std::stable_partition(figures.begin(), figures.end(),
                        [](const Figure& figure) { return !figure.stem.starts_with("histogram-"); });
  const std::span<Figure> drawn = std::span(figures).first(std::min(figures.size(), most_drawings));
  tell(options, draw_figures(drawn, figure_folder, options.gnuplot, options.graphviz));

  const PageContent content{set, extent, material, replays, figures, figure_folder};
  const std::optional<std::string> chart_js = read_chart_js(options);
  std::string html;
  for (const PageDetail& detail : page_details) {
    html = page_of(content, chart_js, options.title, detail);
    if (html.size() < largest_page) break;
  }
  std::filesystem::path path = out / run_file::report;
  write_file_atomically(path, html);
  return path;
}

}  // namespace fp16lab::reports
