// The course of every experiment: criteria are written down, something is measured, claims are judged.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/claim.hpp"
#include "experiments/app/common_options.hpp"
#include "experiments/app/exit_code.hpp"
#include "experiments/app/sweep/sweep.hpp"

namespace fp16lab::experiments {

using analysis::Claim;
using analysis::Verdict;
using analysis::verdict_of;

/// The file beside an experiment's results, with every claim: before the run NOT RUN, behind it as judged.
inline constexpr const char* claims_file = "claims.json";

/// What a measurement says about one claim.
struct Answer {
  Verdict verdict = Verdict::not_run;
  std::string measured{};
  std::vector<std::string> notes{};
};

/// A claim with its criterion, fixed before anything is measured, and how to judge it.
template <class Measured>
struct Question {
  std::string claim, criterion;
  std::function<Answer(const Measured&)> judge;
};

/// Writes claims.json into the output folder, if there is one.
void write_claims(const CommonOptions& common, const std::string& question, std::span<const Claim> claims);
/// How claims stand on stdout.
struct Printing {
  std::string (*list)(std::span<const Claim>) = analysis::claims_text;  ///< or claims_lines
  std::string mark = {};  ///< before every line: that it is a rehearsal
};
/// `text` with `mark` before each of its lines.
std::string marked(std::string_view mark, std::string_view text);

/// mismatch where a claim is not as it must be, else ok.
ExitCode exit_code_of(std::span<const Claim> claims);
/// Writes and prints claims that were judged, and their count.
ExitCode conclude(const CommonOptions& common, const std::string& question, std::span<const Claim> claims,
                  const Printing& printing = {});

/// "question: ...", then the tables.
void print_question(const std::string& question, const std::string& tables, const Printing& printing = {});

/// That the run was too short to decide anything.
void print_rehearsal(const Printing& printing = {});

template <class Measured>
struct Study {
  std::string question;  ///< in one line: "which loss-scale policy skips least, loses least and trains best?"
  std::vector<Question<Measured>> questions;
  std::function<Measured()> measure;
  /// Writes files, and gives the tables that stdout shows before the claims.
  std::function<std::string(const Measured&)> describe;
  bool decides = true;  ///< false: too short to decide anything, so that every claim ends as REHEARSED
  Printing printing = {};
};

/// The claims as a measurement decides them.
template <class Measured>
std::vector<Claim> judged(const std::vector<Question<Measured>>& questions, const Measured& measured,
                          bool decides = true) {
  std::vector<Claim> claims;
  for (const Question<Measured>& asked : questions) {
    Answer answer = asked.judge(measured);
    const bool is_said = decides || answer.verdict == Verdict::not_run;
    claims.push_back({.claim = asked.claim,
                      .criterion = asked.criterion,
                      .measured = std::move(answer.measured),
                      .verdict = is_said ? answer.verdict : Verdict::rehearsed,
                      .notes = std::move(answer.notes)});
  }
  return claims;
}

/// Criteria into claims.json, then measure, describe, judge, conclude.
template <class Measured>
ExitCode run_study(const CommonOptions& common, const Study<Measured>& study) {
  std::vector<Claim> claims;
  for (const Question<Measured>& asked : study.questions)
    claims.push_back({.claim = asked.claim, .criterion = asked.criterion});
  write_claims(common, study.question, claims);
  const Measured measured = study.measure();
  print_question(study.question, study.describe ? study.describe(measured) : std::string(), study.printing);
  const ExitCode code =
      conclude(common, study.question, judged(study.questions, measured, study.decides), study.printing);
  if (!study.decides) print_rehearsal(study.printing);
  return code;
}

/// Trains a plan's runs. CommandError(interrupted) where that was interrupted, (run_failed) where runs
/// failed, naming them: the others are kept, and the same command carries on.
void train_all(const SweepPlan& plan, const CommonOptions& common, const SweepOptions& options);

}  // namespace fp16lab::experiments
