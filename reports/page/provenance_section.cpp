// Where the numbers of a page come from.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "numerics/text/text.hpp"
#include "reports/page/marked.hpp"
#include "reports/page/page_sections.hpp"
#include "reports/page/table.hpp"

namespace fp16lab::reports {
namespace {

/// Rows of runs in a group: one takes half a kilobyte, and a page is to stay below a megabyte.
constexpr std::size_t most_listed = 300;

/// What computed each group of runs: device, tensor-core row and route of the products.
OrderedJson computed_by(const RunSet& set) {
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
      {"device", "What computed the products: the emulated tensor core, or a GPU.", true},
      {"machine", "The processor, or the GPU with its compute capability.", true},
      {"tensor-core row", "The model that products of 16 bits follow.", true},
      {"route of products",
       "What multiplied matrices (backend.gemm); cublas is not covered by the promise of equal bits.", true},
      {"vector target", "The vector instructions that ran the products on the host.", true},
      {"driver, libraries", "Versions for the GPU.", true},
      {"chosen because", "Why backend.device = auto took this device.", true},
      {"runs", "Number of runs that it computed."}};
  std::vector<TableRow> rows;
  for (const Machine& machine : machines) {
    TableRow row;
    for (const std::string& cell : machine.cells) row.cells.push_back({plain(cell)});
    row.cells.push_back({fmt::format("{}", machine.runs), static_cast<double>(machine.runs)});
    rows.push_back(std::move(row));
  }
  return table_json("What computed the runs", columns, rows);
}

/// Facts that runs share: [[name, text], ...].
OrderedJson facts_of(const Manifest& m) {
  std::string data;
  for (const DataFile& file : m.data)
    data += (data.empty() ? "" : "\n") + plain(file.path) + "\n" + code("sha256 " + plain(file.sha256));
  return {{"sources", "git " + code(plain(m.git_hash))},
          {"CPU", plain(fmt::format("{}, {}, products on {}", m.cpu,
                                    counted(static_cast<std::size_t>(m.threads), "thread"), m.gemm_target))},
          {"GPU", m.gpu ? plain(*m.gpu + (m.driver ? ", driver " + *m.driver : "")) : "none"},
          {"compiler", plain(m.compiler) + " " + code(plain(m.flags))},
          {"data", data.empty() ? "none" : data}};
}

}  // namespace

OrderedJson provenance_json(const RunSet& set) {
  // The page prints facts that runs share once, for the group of runs that share them.
  std::vector<std::pair<OrderedJson, std::vector<const Run*>>> groups;
  std::map<std::string, std::size_t> group_of;  // by facts
  for (const Run& run : set.runs) {
    if (run.missing) continue;
    OrderedJson facts = facts_of(run.folder.manifest);
    const auto [place, is_new] = group_of.try_emplace(
        facts.dump(-1, ' ', false, OrderedJson::error_handler_t::replace), groups.size());
    if (is_new) groups.push_back({std::move(facts), {}});
    groups[place->second].second.push_back(&run);
  }
  OrderedJson listed = OrderedJson::array();
  for (auto& [facts, runs] : groups) {
    OrderedJson commands = OrderedJson::array(), rows = OrderedJson::array();  // in the order of the runs
    std::set<std::string> known;
    for (const Run* run : runs) {
      std::string command = plain(shell_line(run->folder.manifest.argv));
      if (known.insert(command).second && commands.size() < most_listed)
        commands.push_back(std::move(command));
    }
    for (const Run* run : std::span(runs).first(std::min(runs.size(), most_listed))) {
      const Manifest& m = run->folder.manifest;
      rows.push_back(
          {plain(run->name), name_of(m.state), run->seed, run->folder.steps.size(), plain(m.start),
           plain(m.end.value_or("–")),
           run->folder.steps.empty() ? "–" : fmt::format("{:016x}", run->folder.steps.back().state_hash)});
    }
    listed.push_back({{"facts", std::move(facts)},
                      {"commands", std::move(commands)},
                      {"count", runs.size()},
                      {"runs", std::move(rows)},
                      {"configuration", plain(runs.front()->folder.manifest.config)}});
  }
  return {{"computed_by", computed_by(set)}, {"groups", std::move(listed)}};
}

}  // namespace fp16lab::reports
