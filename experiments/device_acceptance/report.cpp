#include "experiments/device_acceptance/report.hpp"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "experiments/build_info.hpp"
#include "numerics/files/atomic_file.hpp"
#include "numerics/files/run_schema.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Table& table) {
  Json rows = Json::array();
  for (const std::vector<std::string>& row : table.rows) {
    Json object = Json::object();
    for (std::size_t i = 0; i < row.size(); ++i) object[table.columns[i]] = row[i];
    rows.push_back(std::move(object));
  }
  return {{"caption", table.caption}, {"rows", std::move(rows)}};
}

Json json_of(const Goal& goal) {
  return {{"goal", goal.name},
          {"target", goal.target},
          {"measured", goal.measured},
          {"verdict", name_of(goal.verdict)}};
}

/// A bar in a cell would end it.
std::string cell(const std::string& text) {
  std::string escaped;
  for (const char c : text) escaped += c == '|' ? std::string("\\|") : c == '\n' ? " " : std::string(1, c);
  return escaped;
}

std::string markdown_of(const Table& table) {
  std::string text = fmt::format("\n{}\n\n|", table.caption), line = "|";
  for (const std::string& column : table.columns) {
    text += ' ' + cell(column) + " |";
    line += "---|";
  }
  text += '\n' + line + '\n';
  for (const std::vector<std::string>& row : table.rows) {
    text += '|';
    for (const std::string& value : row) text += ' ' + cell(value) + " |";
    text += '\n';
  }
  return text;
}

}  // namespace

SectionReport run_section(const Section& section, const Settings& settings) {
  const auto start = std::chrono::steady_clock::now();
  SectionReport report{.name = section.name,
                       .question = section.question,
                       .timing = section.timing,
                       .result = {},
                       .failure = {}};
  try {
    report.result = section.run(settings);
  } catch (const std::exception& error) {
    report.failure = error.what();
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

Outcome outcome_of(const std::vector<SectionReport>& sections) {
  Outcome outcome;
  for (const SectionReport& section : sections) {
    outcome.failed_sections += section.failure.empty() ? 0 : 1;
    for (const Goal& goal : section.result.goals)
      ++(goal.verdict == Verdict::pass        ? outcome.passed
         : goal.verdict == Verdict::missed    ? outcome.missed
         : goal.verdict == Verdict::behind    ? outcome.behind
         : goal.verdict == Verdict::rehearsed ? outcome.rehearsed
                                              : outcome.not_measured);
  }
  return outcome;
}

ExitCode exit_code_of(const Outcome& outcome) {
  return outcome.missed > 0            ? ExitCode::mismatch
         : outcome.failed_sections > 0 ? ExitCode::run_failed
                                       : ExitCode::ok;
}

std::string verdict_of(const Outcome& outcome, bool rehearsal) {
  if (exit_code_of(outcome) != ExitCode::ok) return "FAIL";
  if (rehearsal) return "REHEARSED";
  const std::string pass = outcome.not_measured > 0 ? "PASS of what was measured" : "PASS";
  return outcome.behind > 0 ? pass + ", BEHIND in speed or memory" : pass;
}

std::string counts_text(const Outcome& outcome) {
  std::string text = fmt::format("{} goals passed, {} missed, {} behind, {} not measured", outcome.passed,
                                 outcome.missed, outcome.behind, outcome.not_measured);
  if (outcome.rehearsed > 0) text += fmt::format(", {} rehearsed", outcome.rehearsed);
  return text;
}

std::string json_of(const Settings& settings, const std::vector<SectionReport>& sections) {
  const Outcome outcome = outcome_of(sections);
  Json json{{"format", "fp16lab-acceptance"},
            {"version", 1},
            {"rehearsal", settings.rehearsal()},
            {"device", settings.side.description},
            {"tensor_core", settings.side.tensor_core},
            {"quick", settings.quick},
            {"command", settings.command},
            {"git_hash", git_hash()},
            {"compiler", compiler_name()},
            {"cpu", cpu_name()},
            {"written", utc_now()},
            {"goals_passed", outcome.passed},
            {"goals_missed", outcome.missed},
            {"goals_behind", outcome.behind},
            {"goals_rehearsed", outcome.rehearsed},
            {"goals_not_measured", outcome.not_measured},
            {"sections_failed", outcome.failed_sections}};
  Json all = Json::array();
  for (const SectionReport& section : sections) {
    Json one{{"name", section.name}, {"question", section.question}, {"seconds", section.seconds}};
    if (section.timing && settings.rehearsal()) one["label"] = "rehearsal, meaningless";
    if (!section.failure.empty()) one["failure"] = section.failure;
    one["tables"] = Json::array();
    for (const Table& table : section.result.tables) one["tables"].push_back(json_of(table));
    one["notes"] = section.result.notes;
    one["goals"] = Json::array();
    for (const Goal& goal : section.result.goals) one["goals"].push_back(json_of(goal));
    all.push_back(std::move(one));
  }
  json["sections"] = std::move(all);
  return json.dump(2) + "\n";
}

std::string markdown_of(const Settings& settings, const std::vector<SectionReport>& sections) {
  const Outcome outcome = outcome_of(sections);
  std::string text = "# Device acceptance\n\n";
  if (settings.rehearsal())
    text +=
        "**REHEARSAL: no GPU took part.** The CUDA kernels were executed on the CPU, thread by thread; times "
        "are "
        "meaningless.\n\n";
  text += fmt::format("Device: {}  \nTensor cores: {}  \nVersion: {}  \nCommand: `{}`  \nWritten: {}\n\n",
                      settings.side.description, settings.side.tensor_core, git_hash(), settings.command,
                      utc_now());
  text += fmt::format("Verdict: {}: {}; {} of {} sections failed to run.\n",
                      verdict_of(outcome, settings.rehearsal()), counts_text(outcome),
                      outcome.failed_sections, sections.size());
  Table goals{.caption = "## Goals", .columns = {"goal", "target", "measured", "verdict"}, .rows = {}};
  for (const SectionReport& section : sections)
    for (const Goal& goal : section.result.goals)
      goals.rows.push_back({goal.name, goal.target, goal.measured, name_of(goal.verdict)});
  text += markdown_of(goals);
  for (const SectionReport& section : sections) {
    text += fmt::format("\n## {}: {}\n", section.name, section.question);
    if (section.timing && settings.rehearsal()) text += "\n**rehearsal, meaningless**\n";
    if (!section.failure.empty()) text += fmt::format("\n**FAILED to run:** {}\n", section.failure);
    for (const Table& table : section.result.tables) text += markdown_of(table);
    for (const std::string& note : section.result.notes) text += fmt::format("\n* {}", note);
    text += fmt::format("{}\n({:.1f} s)\n", section.result.notes.empty() ? "" : "\n", section.seconds);
  }
  return text;
}

std::string goals_text(const std::vector<SectionReport>& sections) {
  std::string text;
  for (const SectionReport& section : sections) {
    text += fmt::format("{} ({:.1f} s): {}\n", section.name, section.seconds,
                        section.failure.empty() ? "ran" : "FAILED to run: " + section.failure);
    for (const Goal& goal : section.result.goals)
      text += fmt::format("  {:<12}  {}: {} (target {})\n", name_of(goal.verdict), goal.name, goal.measured,
                          goal.target);
  }
  return text;
}

void write_report(const Settings& settings, const std::vector<SectionReport>& sections) {
  std::filesystem::create_directories(settings.out);
  write_file_atomically(settings.out / "acceptance.json", json_of(settings, sections));
  write_file_atomically(settings.out / "acceptance.md", markdown_of(settings, sections));
}

}  // namespace fp16lab::experiments::acceptance
