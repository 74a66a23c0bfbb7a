// exp_paper_miniature: do the claims of "Mixed Precision Training" (Micikevicius et al., ICLR 2018) hold in miniature?
//
// The grid of configs/paper_miniature.toml is trained (and not repeated where its runs are there), two of its runs are
// repeated in this process to see every update of a weight, and six claims are judged by criteria that were fixed before
// anything was measured (paper_miniature/miniature_claims.cpp).
#include <fmt/format.h>

#include <filesystem>

#include "experiments/command_line.hpp"
#include "experiments/interrupt.hpp"
#include "experiments/openmp_waiting.hpp"
#include "experiments/paper_miniature/miniature.hpp"
#include "experiments/progress.hpp"
#include "experiments/sweep.hpp"
#include "numerics/files/atomic_file.hpp"

namespace fp16lab::experiments {
namespace {

constexpr std::uint64_t observed_every = 20;

const char* name_of(ClaimState state) {
  return state == ClaimState::holds ? "PASS" : state == ClaimState::fails ? "FAIL" : "UNDECIDED";
}

const RunConfig& config_of(const SweepPlan& plan, const std::string& variant) {
  for (const PlannedRun& run : plan.runs)
    if (run.workload == small_updates && run.variant == variant) return run.config;
  throw CommandError(ExitCode::usage,
                     fmt::format("the sweep has no variant '{}' of a workload '{}'", variant, small_updates));
}

ExitCode run_exp_paper_miniature(const CommonOptions& common, const SweepOptions& options) {
  const SweepPlan plan = load_sweep(common);
  const SweepOutcome sweep = execute_sweep(plan, common, options);
  if (sweep.interrupted)
    throw CommandError(ExitCode::interrupted, "interrupted; the same command carries on");

  Progress progress(common.quiet);
  progress.show("exp_paper_miniature: every update of the small-updates runs");
  Miniature miniature{
      .runs = measure(plan),
      .with_masters = study_updates(config_of(plan, "masters"), observed_every, common.threads),
      .without_masters = study_updates(config_of(plan, "no-masters"), observed_every, common.threads)};
  write_file_atomically(common.out / "exp_paper_miniature.csv", csv(miniature));
  if (const auto failure = write_figures(miniature, common.out / "figures"))
    fmt::print(stderr, "exp_paper_miniature: figures: {}\n", *failure);

  fmt::print("question: do the claims of \"Mixed Precision Training\" (ICLR 2018) hold in miniature?\n");
  bool failed = false;
  int number = 0;
  for (const MiniatureClaim& claim : judge(miniature)) {
    fmt::print("claim {}: {}\n  criterion: {}\n  measured: {}\n  verdict: {}\n", ++number, claim.claim,
               claim.criterion, claim.measured, name_of(claim.state));
    failed = failed || claim.state == ClaimState::fails;
  }
  if (!sweep.failed.empty()) return ExitCode::run_failed;
  return failed ? ExitCode::mismatch : ExitCode::ok;
}

}  // namespace
}  // namespace fp16lab::experiments

int main(int argc, char** argv) {
  using namespace fp16lab::experiments;
  limit_openmp_spinning(argv);
  SweepOptions options;
  return experiment_main(
      argc, argv,
      {"exp_paper_miniature",
       "Do the claims of \"Mixed Precision Training\" (ICLR 2018) hold in miniature?",
       "  exp_paper_miniature -o results/exp_paper_miniature\n"
       "  exp_paper_miniature --set train.steps=20 --set data.subset=4096 -o results/small",
       {},
       {},
       &options},
      {.out = "results/exp_paper_miniature", .config = "paper_miniature.toml"},
      [&options](const CommonOptions& common) { return run_exp_paper_miniature(common, options); });
}
