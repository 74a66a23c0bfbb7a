#include "reports/page/report.hpp"
#include "reports/figures/figure_style.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <ostream>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/text/text.hpp"
#include "reports/data/report_input.hpp"
#include "reports/embedded.hpp"
#include "reports/figures/network_figure.hpp"
#include "reports/page/emulation.hpp"
#include "reports/page/html.hpp"
#include "reports/page/page_extent.hpp"
#include "reports/page/report_data.hpp"
#include "reports/page/shown_names.hpp"

namespace fp16lab::reports {
namespace {

/// Figures need one run of each configuration.
constexpr PageDetail figure_detail{.seeds = 1};

/// Runs whose histograms the page has beside those that represent their configurations.
constexpr std::size_t most_seeds = 120;

void tell(const ReportOptions& options, const std::string& message) {
  if (options.messages != nullptr && !message.empty()) *options.messages << printable(message) << '\n';
}

/// The network of the first run whose manifest has it, drawn where graphviz is installed.
WorkloadMaterial::Network draw_network_of(const RunSet& set, const Workload& workload,
                                          const std::filesystem::path& folder, const std::string& graphviz) {
  for (const Configuration& configuration : workload.configurations)
    for (const std::size_t run : configuration.runs) {
      const std::string& model = set.runs[run].folder.manifest.model;
      if (model.empty()) continue;
      const std::string stem = "network-" + slug(workload.name);
      const std::filesystem::path source = folder / (stem + ".dot"), svg = folder / (stem + ".svg");
      write_file_atomically(source, network_dot(model));
      const bool drawn = run_graphviz(source, svg, graphviz).empty() &&
                         run_graphviz(source, folder / (stem + ".png"), graphviz).empty();
      return drawn ? WorkloadMaterial::Network{stem, read_file(svg, longest::table)}
                   : WorkloadMaterial::Network{};
    }
  return {};
}

/// The tensors of `run` that are no gradients, in its first and its last recorded step.
std::map<Observed, RunGradients> others_of(const Run& run) {
  std::map<Observed, RunGradients> others;
  for (const Observed observed : other_tensors(run)) others[observed] = load_gradients(run, 2, observed);
  return others;
}

/// `summaries`: all workloads with all of their configurations.
std::vector<WorkloadMaterial> collect(const RunSet& set, const std::vector<WorkloadSummary>& summaries,
                                      const PageExtent& extent) {
  std::vector<WorkloadMaterial> material;
  std::size_t seeds = 0;
  for (std::size_t w = 0; w < extent.workloads.size(); ++w) {
    const Workload& workload = extent.workloads[w];
    const Workload& whole = set.workloads[w];
    WorkloadMaterial item{&workload, with_shown_names(extent.summaries[w], whole, workload), {}};
    item.summary.words = plain_words(quoted(with_shown_names(summaries[w], whole, whole)));
    for (const Configuration& configuration : workload.configurations) {
      const Run* run = representative(set, configuration);
      item.gradients.push_back(run == nullptr ? RunGradients{}
                                              : load_gradients(*run, page_details.front().snapshots));
      std::vector<ExploredRun>& explored = item.explored.emplace_back();
      if (item.gradients.back().snapshots.empty()) continue;
      explored.push_back({run, others_of(*run)});
      for (const std::size_t index : configuration.runs) {
        const Run& other = set.runs[index];
        std::error_code error;
        if (&other == run || other.missing || seeds == most_seeds ||
            !std::filesystem::exists(other.folder.path / run_file::histograms, error))
          continue;
        ++seeds;
        ExploredRun more{&other, others_of(other)};
        more.tensors[Observed::gradients] = load_gradients(other, page_details.front().seed_snapshots);
        if (!more.tensors[Observed::gradients].snapshots.empty()) explored.push_back(std::move(more));
      }
    }
    material.push_back(std::move(item));
  }
  return material;
}

std::string subtitle_of(const RunSet& set, std::size_t replays) {
  std::string words;
  if (!set.runs.empty())
    words += counted(set.runs.size() - set.missing(), "run") + " of " +
             counted(set.workloads.size(), "workload") + emulation_words(set) + ", ";
  if (replays > 0) words += counted(replays, "replay") + ", ";
  return words + "written " + utc_now();
}

/// What the browser lets the page do: its own script and its own style sheet, pictures inside the page, and
/// nothing else, from nowhere else. Scripts draw with style attributes, which run nothing.
std::string content_policy() {
  return fmt::format(
      "default-src 'none'; script-src {}; style-src 'unsafe-inline'; style-src-elem {}; style-src-attr "
      "'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'",
      policy_hash(embedded::report_js), policy_hash(embedded::report_css));
}

std::string page_of(const std::string& title, const std::string& data) {
  const std::string policy = content_policy(), shown = html_escape(printable(title));
  const Slot slots[] = {{"POLICY", policy},
                        {"TITLE", shown},
                        {"STYLE", embedded::report_css},
                        {"DATA", data},
                        {"SCRIPT", embedded::report_js}};
  return fill_slots(embedded::report_html, slots);
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
  for (const std::string& error : set.unreadable) tell(options, unreadable_text(error));
  for (const Run& run : set.runs)
    for (const std::string& damage : run.folder.damage)
      tell(options, fmt::format("{} is damaged: {}", run.name, damage));
  std::vector<ReplayFile> replays;
  for (const std::filesystem::path& file : replay_files) {
    replays.push_back(read_replay(file));
    if (replays.back().altered)
      tell(options, fmt::format("{}: {}", file.string(), replays.back().notes.back()));
  }

  const std::filesystem::path figure_folder = out / run_file::figures;
  make_folders(out);
  make_folder_inside(figure_folder);
  const PageExtent extent = extent_of(set, summaries);
  std::vector<WorkloadMaterial> material = collect(set, summaries, extent);
  const PageHead head{options.title, subtitle_of(set, replays.size()),
                      set.runs.empty() ? "" : extent_words(set, extent), options.follow_seconds};
  if (options.follow_seconds == 0) {
    for (WorkloadMaterial& item : material)
      item.network = draw_network_of(set, *item.workload, figure_folder, options.graphviz);
    std::string undrawn = draw_report_figures(report_data(set, material, replays, head, figure_detail),
                                              figure_folder, options.drawing);
    if (options.undrawn != nullptr)
      *options.undrawn = std::move(undrawn);
    else
      tell(options, undrawn);
  }
  std::string html;
  for (const PageDetail& detail : page_details) {
    html = page_of(options.title, report_data(set, material, replays, head, detail));
    if (html.size() < largest_page) break;
  }
  std::filesystem::path path = out / run_file::report;
  write_file_atomically(path, html);
  return path;
}

}  // namespace fp16lab::reports
