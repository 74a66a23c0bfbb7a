#include "experiments/study/study.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>

#include "experiments/app/process.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/text/message.hpp"

namespace fp16lab::experiments {

void write_claims(const CommonOptions& common, const std::string& question, std::span<const Claim> claims) {
  if (common.out.empty()) return;
  make_folders(common.out);
  write_file_atomically(common.out / claims_file, analysis::claims_json(question, claims));
}

namespace {

void write_files(const CommonOptions& common, const Described& described) {
  if (common.out.empty()) return;
  make_folders(common.out);
  for (const auto& [name, text] : described.files) write_file_atomically(common.out / name, text);
}

void print_marked(std::string_view mark, std::string_view text) {
  std::string result;
  bool begins = true;
  for (const char c : text) {
    if (begins) result += mark;
    result += c;
    begins = c == '\n';
  }
  print_result(result);
}

}  // namespace

void show(const CommonOptions& common, const std::string& question, const Described& described,
          const std::string& mark) {
  write_files(common, described);
  if (!described.undrawn.empty()) say("{}: figures: {}", common.program, described.undrawn);
  print_marked(
      mark, fmt::format("question: {}\n{}", question, described.text.empty() ? "" : described.text + "\n"));
}

ExitCode conclude(const CommonOptions& common, const std::string& question, std::span<const Claim> claims,
                  const std::string& mark, std::string (*list)(std::span<const Claim>)) {
  write_claims(common, question, claims);
  print_marked(mark, fmt::format("{}{}\n", list(claims), analysis::claims_count(claims)));
  return analysis::any_mismatch(claims) ? ExitCode::mismatch : ExitCode::ok;
}

ExitCode show_claims(const CommonOptions& common, std::span<const Claim> claims, const Described& described,
                     bool json) {
  if (json) {
    write_files(common, described);
    write_claims(common, common.question, claims);
    fmt::print("{}", analysis::claims_json(common.question, claims));
    return analysis::any_mismatch(claims) ? ExitCode::mismatch : ExitCode::ok;
  }
  show(common, common.question, described);
  return conclude(common, common.question, claims, {}, analysis::claims_lines);
}

void print_rehearsal() {
  print_result("a short run that shows the form of the answer and decides nothing\n");
}

Command::Run ask_with_sweep(Options& options,
                            std::function<ExitCode(const CommonOptions&, const SweepOptions&)> run) {
  auto sweep = std::make_shared<SweepOptions>();
  options.add_sweeping(*sweep);
  return [sweep, run = std::move(run)](const CommonOptions& common) { return run(common, *sweep); };
}

void train_all(const SweepPlan& plan, const CommonOptions& common, const SweepOptions& options) {
  const SweepOutcome outcome = execute_sweep(plan, common, options);
  if (outcome.interrupted)
    throw CommandError(ExitCode::interrupted,
                       "interrupted; the same command continues with the remaining runs");
  if (!outcome.failed.empty())
    throw CommandError(ExitCode::run_failed,
                       fmt::format("{} of {} runs failed: {}; the same command retries them",
                                   outcome.failed.size(), plan.runs.size(), fmt::join(outcome.failed, ", ")));
}

}  // namespace fp16lab::experiments
