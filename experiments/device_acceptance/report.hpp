// The acceptance report: sections and goals as JSON and as Markdown.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "experiments/device_acceptance/section.hpp"
#include "experiments/exit_code.hpp"

namespace fp16lab::experiments::acceptance {

struct SectionReport {
  std::string name, question;
  bool timing = false;
  SectionResult result;
  std::string failure;  ///< what stopped the section; empty: nothing did
  double seconds = 0;
};

/// Runs a section; whatever it throws becomes its failure.
SectionReport run_section(const Section& section, const Settings& settings);

struct Outcome {
  std::size_t passed = 0, missed = 0, behind = 0, rehearsed = 0, not_measured = 0, failed_sections = 0;
};
Outcome outcome_of(const std::vector<SectionReport>& sections);
/// mismatch where bits are missed, failed where a section did not run, else ok: a goal of speed or memory decides nothing.
ExitCode exit_code_of(const Outcome& outcome);
/// "FAIL", "PASS", ...: a goal that nobody measured is none that was met, and a rehearsal meets none.
std::string verdict_of(const Outcome& outcome, bool rehearsal);
/// "3 goals passed, 0 missed, 1 behind, 2 not measured"
std::string counts_text(const Outcome& outcome);

std::string json_of(const Settings& settings, const std::vector<SectionReport>& sections);
std::string markdown_of(const Settings& settings, const std::vector<SectionReport>& sections);
/// The table of all goals, for the terminal.
std::string goals_text(const std::vector<SectionReport>& sections);
/// acceptance.json and acceptance.md, each written atomically.
void write_report(const Settings& settings, const std::vector<SectionReport>& sections);

}  // namespace fp16lab::experiments::acceptance
