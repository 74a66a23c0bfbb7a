// The acceptance report: sections and claims as JSON and as Markdown.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "experiments/app/exit_code.hpp"
#include "experiments/device_acceptance/section.hpp"

namespace fp16lab::experiments::acceptance {

struct SectionReport {
  std::string name, question;
  bool timing = false;
  SectionResult result;  ///< where it failed: its claims, not run
  std::string failure;   ///< what stopped the section; empty: nothing did
  double seconds = 0;
};

/// A section before it runs.
SectionReport not_run(const Section& section, const Settings& settings);
/// Runs a section; whatever it throws becomes its failure. With a journal DeviceLost (case_section.hpp) is
/// thrown on: another process goes on.
SectionReport run_section(const Section& section, const Settings& settings);

/// Claims of all sections, those that have not run yet (reports are the first of them) as they stand before
/// it.
std::vector<Claim> claims_of(const Settings& settings, const std::vector<Section>& sections,
                             const std::vector<SectionReport>& reports);
/// How many sections failed to run.
std::size_t failed_sections(const std::vector<SectionReport>& reports);
/// mismatch where bits are missed, failed where a section did not run, else ok: a goal of speed or memory
/// decides nothing.
ExitCode exit_code_of(const std::vector<SectionReport>& reports);
/// "12 claims: 11 hold, 1 is behind; 0 of 10 sections failed to run"
std::string outcome_text(const std::vector<SectionReport>& reports);

std::string json_of(const Settings& settings, const std::vector<SectionReport>& sections);
std::string markdown_of(const Settings& settings, const std::vector<SectionReport>& sections);
/// How a section went, and its claims, for the terminal.
std::string text_of(const SectionReport& report);
/// acceptance.json and acceptance.md, each written atomically.
void write_report(const Settings& settings, const std::vector<SectionReport>& sections);

}  // namespace fp16lab::experiments::acceptance
