// The course of every experiment: criteria are written down, something is measured, claims are judged.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/claim.hpp"
#include "experiments/app/arguments.hpp"
#include "experiments/app/exit_code.hpp"
#include "experiments/app/sweep/sweep.hpp"

namespace fp16lab::experiments {

using analysis::Claim;
using analysis::Verdict;
using analysis::verdict_of;

/// The file beside an experiment's results, with every claim: before the run NOT RUN, after it as judged.
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

/// What an experiment leaves beside its claims.
struct Described {
  std::string text = {};  ///< that stdout shows before the claims
  std::vector<std::pair<std::string, std::string>> files =
      {};                    ///< name and text, written into the output folder
  std::string undrawn = {};  ///< why figures were not drawn, which is printed; empty: they were
};

/// Writes claims.json into the output folder, if there is one.
void write_claims(const CommonOptions& common, const std::string& question, std::span<const Claim> claims);
/// Writes the files, if there is an output folder, and prints "question: ..." and the text, with `mark` before
/// each line: that it is a rehearsal.
void show(const CommonOptions& common, const std::string& question, const Described& described,
          const std::string& mark = {});
/// Writes and prints claims that were judged, and their count: mismatch where one is not as it must be, else
/// ok. `list`: claims_text or claims_lines.
ExitCode conclude(const CommonOptions& common, const std::string& question, std::span<const Claim> claims,
                  const std::string& mark = {},
                  std::string (*list)(std::span<const Claim>) = analysis::claims_text);
/// An experiment that has computed its claims by now: the files, and a line each. `json`: claims.json instead.
ExitCode show_claims(const CommonOptions& common, std::span<const Claim> claims, const Described& described,
                     bool json = false);

/// That the run was too short to decide anything.
void print_rehearsal();

template <class Measured>
struct Study {
  std::vector<Question<Measured>> questions;
  std::function<Measured()> measure;
  std::function<Described(const Measured&)> describe;
  bool decides = true;        ///< false: too short to decide anything, so that every claim ends as REHEARSED
  std::string mark = {};      ///< before every line: that it is a rehearsal
  std::string question = {};  ///< empty: the experiment's
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
  const std::string& question = study.question.empty() ? common.question : study.question;
  std::vector<Claim> claims;
  for (const Question<Measured>& asked : study.questions)
    claims.push_back({.claim = asked.claim, .criterion = asked.criterion});
  write_claims(common, question, claims);
  const Measured measured = study.measure();
  show(common, question, study.describe(measured), study.mark);
  const ExitCode code =
      conclude(common, question, judged(study.questions, measured, study.decides), study.mark);
  if (!study.decides) print_rehearsal();
  return code;
}

/// The options of everything that sweeps, and what becomes of them.
Command::Run ask_with_sweep(
    Options& options, std::function<ExitCode(const CommonOptions& common, const SweepOptions& sweep)> run);

/// Trains a plan's runs. CommandError(interrupted) where that was interrupted, (run_failed) where runs
/// failed, naming them: the others are kept, and the same command carries on.
void train_all(const SweepPlan& plan, const CommonOptions& common, const SweepOptions& options);

}  // namespace fp16lab::experiments
