// Section "sanitizer": the verbs' cases once more, each tool of compute-sanitizer watching.
#include <fmt/format.h>

#include "experiments/device_acceptance/child.hpp"
#include "experiments/device_acceptance/sanitizer_output.hpp"
#include "experiments/device_acceptance/watched.hpp"
#include "numerics/files/disk/atomic_file.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

constexpr const char* tools[] = {"memcheck", "synccheck", "racecheck"};

}  // namespace

Goals sanitizer_goals(const Settings&) {
  Goals goals;
  for (const char* tool : tools)
    goals.push_back({.claim = {.claim = fmt::format("errors that {} finds in the verbs", tool),
                               .criterion = "0 errors"}});
  return goals;
}

SectionResult run_sanitizers(const Settings& settings, const Goals& goals) {
  SectionResult result;
  const std::filesystem::path sanitizer = tool_called("compute-sanitizer");
  Table table{.caption = "compute-sanitizer on --section verbs --quick",
              .columns = {"tool", "errors", "first finding", "first kernel", "ended with"},
              .rows = {}};
  for (std::size_t i = 0; const char* tool : tools) {
    Claim claim = goals[i++].claim;
    if (sanitizer.empty()) {
      claim.measured = "skipped: " + not_installed_text("compute-sanitizer");
      result.claims.push_back(std::move(claim));
      continue;
    }
    if (settings.progress) settings.progress(tool);
    std::vector<std::string> arguments{"--tool", tool, "--error-exitcode", "99",
                                       std::filesystem::read_symlink("/proc/self/exe").string()};
    const std::filesystem::path task = settings.out / fmt::format("{}-task.json", tool);
    for (std::string& argument : direct_arguments(settings, "verbs", task))
      arguments.push_back(std::move(argument));
    std::string text;
    const Ended ended = run_watched(sanitizer, arguments, settings.silence, [&](const std::string& line) {
      text += line + '\n';
      if (settings.progress) settings.progress(fmt::format("{}: {}", tool, line));
    });
    std::filesystem::remove(task);
    const std::string log = fmt::format("sanitizer-{}.log", tool);
    write_file_atomically(settings.out / log, text);
    const SanitizerFindings findings = read_sanitizer_output(text);
    const bool saw_all = findings.errors.has_value();
    table.rows.push_back({tool, saw_all ? fmt::format("{}", *findings.errors) : "no summary", findings.first,
                          findings.kernel, ended.how(settings.silence)});
    claim.measured = saw_all ? fmt::format("{} errors", *findings.errors)
                             : fmt::format("no summary; it ended with {}", ended.how(settings.silence));
    if (!findings.kernel.empty()) claim.measured += ", the first in " + findings.kernel;
    // Without a GPU nothing runs on one: a tool may only show that it finds what it was made to say.
    const bool clean = saw_all && *findings.errors == 0 && ended.status == 0;
    claim.verdict = clean && settings.rehearsal() ? Verdict::rehearsed : analysis::verdict_of(clean);
    result.claims.push_back(std::move(claim));
    if (!clean) result.notes.push_back(fmt::format("{}: {} has all that it said", tool, log));
  }
  if (!sanitizer.empty()) result.tables.push_back(std::move(table));
  return result;
}

}  // namespace fp16lab::experiments::acceptance
