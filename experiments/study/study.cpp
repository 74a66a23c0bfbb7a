#include "experiments/study/study.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "experiments/app/process.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/folder.hpp"

namespace fp16lab::experiments {

void write_claims(const CommonOptions& common, const std::string& question, std::span<const Claim> claims) {
  if (common.out.empty()) return;
  make_folders(common.out);
  write_file_atomically(common.out / claims_file, analysis::claims_json(question, claims));
}

std::string marked(std::string_view mark, std::string_view text) {
  std::string result;
  bool begins = true;
  for (const char c : text) {
    if (begins) result += mark;
    result += c;
    begins = c == '\n';
  }
  return result;
}

void print_question(const std::string& question, const std::string& tables, const Printing& printing) {
  print_result(
      marked(printing.mark, fmt::format("question: {}\n{}", question, tables.empty() ? "" : tables + "\n")));
}

void print_rehearsal(const Printing& printing) {
  print_result(marked(printing.mark, "a short run that shows the form: it decides nothing\n"));
}

ExitCode exit_code_of(std::span<const Claim> claims) {
  return analysis::any_mismatch(claims) ? ExitCode::mismatch : ExitCode::ok;
}

ExitCode conclude(const CommonOptions& common, const std::string& question, std::span<const Claim> claims,
                  const Printing& printing) {
  write_claims(common, question, claims);
  print_result(
      marked(printing.mark, fmt::format("{}{}\n", printing.list(claims), analysis::claims_count(claims))));
  return exit_code_of(claims);
}

void train_all(const SweepPlan& plan, const CommonOptions& common, const SweepOptions& options) {
  const SweepOutcome outcome = execute_sweep(plan, common, options);
  if (outcome.interrupted)
    throw CommandError(ExitCode::interrupted,
                       "interrupted; the same command carries on with the runs that are left");
  if (!outcome.failed.empty())
    throw CommandError(ExitCode::run_failed,
                       fmt::format("{} of {} runs failed: {}; the same command tries them again",
                                   outcome.failed.size(), plan.runs.size(), fmt::join(outcome.failed, ", ")));
}

}  // namespace fp16lab::experiments
