#include "experiments/device_acceptance/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "experiments/app/build_info.hpp"
#include "experiments/device_acceptance/case_section.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/files/run/run_schema.hpp"
#include "numerics/text/nesting.hpp"
#include "numerics/text/text.hpp"

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

Json json_of(const std::string& question, const std::vector<Claim>& claims) {
  return parse_json(analysis::claims_json(question, claims))["claims"];
}

/// The claims of all sections that ran or failed, each under its section's name.
std::vector<Claim> claims_of(const std::vector<SectionReport>& reports) {
  std::vector<Claim> all;
  for (const SectionReport& report : reports)
    for (Claim claim : report.result.claims) {
      claim.topic = report.name;
      all.push_back(std::move(claim));
    }
  return all;
}

/// A bar in a cell would end it.
std::string cell(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  std::string escaped;
  for (const char c : printable(text)) escaped += c == '|' ? std::string("\\|") : std::string(1, c);
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

SectionReport not_run(const Section& section, const Settings& settings) {
  SectionReport report{.name = section.name,
                       .question = section.question,
                       .timing = section.timing,
                       .result = {},
                       .failure = {}};
  for (const Goal& goal : section.goals(settings)) report.result.claims.push_back(goal.claim);
  return report;
}

SectionReport run_section(const Section& section, const Settings& settings) {
  const auto start = std::chrono::steady_clock::now();
  SectionReport report = not_run(section, settings);
  try {
    Settings own = settings;
    own.section = section.name;
    report.result = section.run(own, section.goals(settings));
  } catch (const DeviceLost& lost) {
    if (!settings.journal.empty()) throw;
    report.failure = lost.what();
  } catch (const std::exception& error) {
    report.failure = error.what();
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

std::vector<Claim> claims_of(const Settings& settings, const std::vector<Section>& sections,
                             const std::vector<SectionReport>& reports) {
  std::vector<SectionReport> all = reports;
  for (std::size_t i = reports.size(); i < sections.size(); ++i)
    all.push_back(not_run(sections[i], settings));
  return claims_of(all);
}

std::size_t failed_sections(const std::vector<SectionReport>& reports) {
  return static_cast<std::size_t>(
      std::ranges::count_if(reports, [](const SectionReport& report) { return !report.failure.empty(); }));
}

ExitCode exit_code_of(const std::vector<SectionReport>& reports) {
  return analysis::any_mismatch(claims_of(reports)) ? ExitCode::mismatch
         : failed_sections(reports) > 0             ? ExitCode::run_failed
                                                    : ExitCode::ok;
}

std::string outcome_text(const std::vector<SectionReport>& reports) {
  return fmt::format("{}; {} of {} sections failed to run", analysis::claims_count(claims_of(reports)),
                     failed_sections(reports), reports.size());
}

std::string json_of(const Settings& settings, const std::vector<SectionReport>& sections) {
  Json json{{"format", "fp16lab-acceptance"},
            {"version", 2},
            {"rehearsal", settings.rehearsal()},
            {"device", settings.side.description},
            {"tensor_core", settings.side.tensor_core},
            {"quick", settings.quick},
            {"command", settings.command},
            {"git_hash", git_hash()},
            {"compiler", compiler_name()},
            {"cpu", cpu_name()},
            {"written", utc_now()},
            {"outcome", outcome_text(sections)},
            {"sections_failed", failed_sections(sections)}};
  Json all = Json::array();
  for (const SectionReport& section : sections) {
    Json one{{"name", section.name}, {"question", section.question}, {"seconds", section.seconds}};
    if (section.timing && settings.rehearsal()) one["label"] = "rehearsal, meaningless";
    if (!section.failure.empty()) one["failure"] = section.failure;
    one["tables"] = Json::array();
    for (const Table& table : section.result.tables) one["tables"].push_back(json_of(table));
    one["notes"] = section.result.notes;
    one["claims"] = json_of(section.question, section.result.claims);
    all.push_back(std::move(one));
  }
  json["sections"] = std::move(all);
  return json.dump(2) + "\n";
}

std::string markdown_of(const Settings& settings, const std::vector<SectionReport>& sections) {
  std::string text = "# Device acceptance\n\n";
  if (settings.rehearsal())
    text +=
        "**REHEARSAL: no GPU took part.** The PTX machine executed the CUDA kernels on the CPU; times "
        "are meaningless.\n\n";
  text += fmt::format("Device: {}  \nTensor cores: {}  \nVersion: {}  \nCommand: `{}`  \nWritten: {}\n\n",
                      settings.side.description, settings.side.tensor_core, git_hash(), settings.command,
                      utc_now());
  text += outcome_text(sections) + ".\n";
  Table claims{.caption = "## Claims", .columns = {"claim", "criterion", "measured", "verdict"}, .rows = {}};
  for (const Claim& claim : claims_of(sections))
    claims.rows.push_back({claim.claim, claim.criterion, claim.measured, verdict_text(claim)});
  text += markdown_of(claims);
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

std::string text_of(const SectionReport& report) {
  return fmt::format("{} ({:.1f} s): {}\n{}", report.name, report.seconds,
                     report.failure.empty() ? "ran" : "FAILED to run: " + report.failure,
                     analysis::claims_lines(report.result.claims));
}

void write_report(const Settings& settings, const std::vector<SectionReport>& sections) {
  make_folders(settings.out);
  write_file_atomically(settings.out / "acceptance.json", json_of(settings, sections));
  write_file_atomically(settings.out / "acceptance.md", markdown_of(settings, sections));
}

}  // namespace fp16lab::experiments::acceptance
