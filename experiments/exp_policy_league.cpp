// exp_policy_league: which loss-scale policy skips least, loses least and trains best?
//
// Four networks are trained in FP32, with every policy and with fixed scales, three seeds each (runs that are there are
// not repeated). Every policy is also replayed on the gradients of the FP32 runs, so that all of them see the same ones.
// Four claims are judged by criteria that were fixed before anything was measured (policy_league/league_claims.cpp).
#include <fmt/format.h>

#include "experiments/command_line.hpp"
#include "experiments/openmp_waiting.hpp"
#include "experiments/policy_league/league.hpp"
#include "experiments/progress.hpp"
#include "numerics/files/atomic_file.hpp"

namespace fp16lab::experiments {
namespace {

ExitCode run_exp_policy_league(const CommonOptions& common, SweepOptions options, bool quick) {
  options.jobs = common.threads;  // one thread a run
  const SweepPlan plan = league_plan(common, quick);
  const SweepOutcome sweep = execute_sweep(plan, common, options);
  if (sweep.interrupted)
    throw CommandError(ExitCode::interrupted,
                       "interrupted; the same command carries on with the runs that are left");

  Progress progress(common.quiet);
  progress.show("exp_policy_league: replaying the policies on the FP32 runs");
  const League league = measure(plan, quick);
  write_file_atomically(common.out / "exp_policy_league.csv", league_csv(league));
  write_file_atomically(common.out / "fixed_scales.csv", fixed_csv(league));
  if (const std::string problem = draw_league(league, common.out / "figures"); !problem.empty())
    fmt::print(stderr, "exp_policy_league: figures: {}\n", problem);

  fmt::print("question: which loss-scale policy skips least, loses least and trains best?\n{} runs\n\n{}\n",
             plan.runs.size(), league_text(league));
  bool failed = false;
  int number = 0;
  for (const LeagueClaim& claim : quick ? judge_quick(league) : judge(league)) {
    fmt::print("claim {}: {}\n  criterion: {}\n  measured: {}\n  verdict: {}\n", ++number, claim.claim,
               claim.criterion, claim.measured, name_of(claim.verdict));
    failed = failed || claim.verdict == ClaimVerdict::fails;
  }
  if (!sweep.failed.empty()) {
    fmt::print(stderr, "exp_policy_league: {} runs failed: {}\n", sweep.failed.size(),
               fmt::join(sweep.failed, ", "));
    return ExitCode::run_failed;
  }
  return failed ? ExitCode::mismatch : ExitCode::ok;
}

}  // namespace
}  // namespace fp16lab::experiments

int main(int argc, char** argv) {
  using namespace fp16lab::experiments;
  limit_openmp_spinning(argv);
  bool quick = false;
  SweepOptions options;
  std::vector<ExperimentFlag> flags = {
      {"--quick", "twelve steps, one seed and a few policies: shows the form and decides nothing", &quick}};
  return experiment_main(
      argc, argv,
      {"exp_policy_league",
       "Which loss-scale policy skips least, loses least and trains best?",
       "  exp_policy_league -o results/exp_policy_league --threads 2\n"
       "  exp_policy_league --quick -o results/league",
       {},
       flags,
       &options},
      {.out = "results/exp_policy_league", .config = "policy_league.toml"},
      [&](const CommonOptions& common) { return run_exp_policy_league(common, options, quick); });
}
