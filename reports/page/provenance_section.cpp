// Where the numbers of a page come from.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "numerics/text/text.hpp"
#include "reports/page/html.hpp"
#include "reports/page/html_table.hpp"
#include "reports/page/page_sections.hpp"

namespace fp16lab::reports {
namespace {

/// Rows of runs in a group: one takes half a kilobyte, and a page is to stay below a megabyte.
constexpr std::size_t most_listed = 300;

std::string fact(std::string_view name, std::string_view value) {
  return fmt::format("<dt>{}</dt><dd>{}</dd>", name, value);
}

/// What computed each group of runs: device, tensor-core row and route of the products.
std::string computed_by(const RunSet& set) {
  struct Machine {
    std::vector<std::string> cells;
    std::size_t runs = 0;
  };
  std::vector<Machine> machines;
  for (const Run& run : set.runs) {
    if (run.missing) continue;
    const Manifest& m = run.folder.manifest;
    const std::optional<BackendRecord>& backend = m.backend;
    // Folders from before there were several back ends say it in their configuration only.
    const auto told = [&](std::string_view key, const std::string& recorded) {
      return recorded.empty() ? value_or(run.config, key, "–") : recorded;
    };
    const std::string device = told("backend.device", backend ? backend->device : "");
    std::vector<std::string> cells{
        device,
        m.gpu
            ? *m.gpu + (backend && backend->capability ? ", compute capability " + *backend->capability : "")
            : m.cpu,
        told("backend.tensor_core", backend ? backend->tensor_core : ""),
        told("backend.gemm", backend ? backend->gemm.value_or("") : ""),
        m.gemm_target.empty() ? "–" : m.gemm_target,
        m.driver || (backend && backend->runtime)
            ? fmt::format(
                  "{}{}", m.driver ? "driver " + *m.driver : "",
                  backend && backend->runtime ? (m.driver ? ", " : "") + ("CUDA " + *backend->runtime) : "")
            : "–",
        backend && !backend->note.empty() ? backend->note : "–"};
    const auto found = std::find_if(machines.begin(), machines.end(),
                                    [&](const Machine& machine) { return machine.cells == cells; });
    if (found == machines.end())
      machines.push_back({std::move(cells), 1});
    else
      ++found->runs;
  }
  const std::vector<TableColumn> columns{
      {"device", "What made the products: the emulated tensor core, or a GPU.", true},
      {"machine", "The processor, or the GPU with its compute capability.", true},
      {"tensor-core row", "The model that products of 16 bits follow.", true},
      {"route of products",
       "Who multiplied matrices (backend.gemm); cublas is outside of the promise of equal bits.", true},
      {"vector target", "The vector instructions that ran the products on the host.", true},
      {"driver, libraries", "Of the GPU.", true},
      {"chosen because", "Why backend.device = auto took this device.", true},
      {"runs", "How many runs it computed."}};
  std::vector<TableRow> rows;
  for (const Machine& machine : machines) {
    TableRow row;
    for (const std::string& cell : machine.cells) row.cells.push_back({html_escape(cell)});
    row.cells.push_back({fmt::format("{}", machine.runs), static_cast<double>(machine.runs)});
    rows.push_back(std::move(row));
  }
  return "<h3>What computed the runs</h3>\n" + html_table("What computed the runs", columns, rows);
}

}  // namespace

std::string provenance_section(const RunSet& set) {
  std::string html = "<section id=\"provenance\">\n<h2>Provenance</h2>\n";
  html += computed_by(set);
  // Facts that runs share are told once, for the group of runs that share them.
  struct Group {
    std::string facts;
    std::vector<const Run*> runs;
  };
  std::vector<Group> groups;
  std::map<std::string, std::size_t> group_of;  // by facts
  for (const Run& run : set.runs) {
    if (run.missing) continue;
    const Manifest& m = run.folder.manifest;
    std::string data;
    for (const DataFile& file : m.data)
      data += fmt::format("{}{}<br><code>sha256 {}</code>", data.empty() ? "" : "<br>",
                          html_escape(file.path), html_escape(file.sha256));
    const std::string facts =
        fact("sources", "git <code>" + html_escape(m.git_hash) + "</code>") +
        fact("CPU", html_escape(fmt::format("{}, {}, products on {}", m.cpu,
                                            counted(static_cast<std::size_t>(m.threads), "thread"),
                                            m.gemm_target))) +
        fact("GPU", m.gpu ? html_escape(*m.gpu + (m.driver ? ", driver " + *m.driver : "")) : "none") +
        fact("compiler", html_escape(m.compiler) + " <code>" + html_escape(m.flags) + "</code>") +
        fact("data", data.empty() ? "none" : data);
    const auto [place, is_new] = group_of.try_emplace(facts, groups.size());
    if (is_new) groups.push_back({facts, {}});
    groups[place->second].runs.push_back(&run);
  }
  for (const Group& group : groups) {
    std::vector<std::string> commands;  // in the order of the runs
    std::set<std::string> known;
    for (const Run* run : group.runs) {
      std::string command = html_escape(shell_line(run->folder.manifest.argv));
      if (known.insert(command).second) commands.push_back(std::move(command));
    }
    const std::string command =
        commands.size() == 1 ? fact("command", "<code>" + commands.front() + "</code>") : "";
    html += fmt::format(
        "<dl class=\"facts\">{}{}</dl>\n<details><summary>{}</summary>\n<div class=\"scroll\"><table>\n",
        command, group.facts, counted(group.runs.size(), "run"));
    html +=
        "<thead><tr><th>run</th><th class=\"text\">state</th><th>seed</th><th>steps</th><th "
        "class=\"text\">start</th><th class=\"text\">end</th>"
        "<th class=\"text\">last state_hash</th></tr></thead>\n<tbody>\n";
    const std::size_t listed = std::min(group.runs.size(), most_listed);
    for (const Run* run : std::span(group.runs).first(listed)) {
      const Manifest& m = run->folder.manifest;
      html += fmt::format(
          "<tr><td>{}</td><td class=\"text\">{}</td><td>{}</td><td>{}</td><td class=\"text\">{}</td><td "
          "class=\"text\">{}</td><td class=\"text\"><code>{}</code></td></tr>\n",
          html_escape(run->name), name_of(m.state), run->seed, run->folder.steps.size(), html_escape(m.start),
          html_escape(m.end.value_or("–")),
          run->folder.steps.empty() ? "–" : fmt::format("{:016x}", run->folder.steps.back().state_hash));
    }
    html += "</tbody></table></div>\n";
    if (listed < group.runs.size())
      html += fmt::format(
          "<p class=\"soft\">And {} more: command, start and end stand in the manifest.json of each, its "
          "state_hash in steps.csv.</p>\n",
          group.runs.size() - listed);
    if (commands.size() > 1) {
      html += "<p class=\"soft\">Commands:</p>\n<pre>";
      for (const std::string& line : std::span(commands).first(std::min(commands.size(), most_listed)))
        html += line + "\n";
      html += "</pre>\n";
    }
    html += fmt::format("<p class=\"soft\">Resolved configuration of {}:</p>\n<pre>{}</pre>\n</details>\n",
                        html_escape(group.runs.front()->name),
                        html_escape(group.runs.front()->folder.manifest.config));
  }
  return html + "</section>\n";
}

}  // namespace fp16lab::reports
