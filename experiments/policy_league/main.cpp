// exp_policy_league: which loss-scale policy skips least, loses least and trains best?
//
// Four networks are trained in FP32 and beside it as one-ulp twins, with every policy and with fixed scales,
// twenty seeds each (runs that are there are not repeated). Every policy is also replayed on the gradients of
// the FP32 runs, so that all of them see the same ones. Five claims are judged by criteria that were fixed
// before anything was measured (policy_league/league_claims.cpp).
#include <fmt/format.h>

#include <algorithm>

#include "experiments/app/command_line.hpp"
#include "experiments/app/progress.hpp"
#include "experiments/policy_league/league.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/text/message.hpp"

namespace fp16lab::experiments {
namespace {

ExitCode run_exp_policy_league(const CommonOptions& common, SweepOptions options, bool quick) {
  options.jobs = std::max(options.jobs, common.threads);  // one thread a run
  const SweepPlan plan = league_plan(common, quick);
  return run_study(
      common, Study<League>{.question = "which loss-scale policy skips least, loses least and trains best?",
                            .questions = league_questions(),
                            .measure =
                                [&] {
                                  train_all(plan, common, options);
                                  Progress progress(common.quiet);
                                  progress.show("exp_policy_league: replaying the policies on the FP32 runs");
                                  return measure_league(plan, quick);
                                },
                            .describe =
                                [&](const League& league) {
                                  write_file_atomically(common.out / "exp_policy_league.csv", league.csv);
                                  write_file_atomically(common.out / "replays.csv", replays_csv(league));
                                  write_file_atomically(common.out / "fixed_scales.csv", fixed_csv(league));
                                  if (const std::string problem = draw_league(league, common.out / "figures");
                                      !problem.empty())
                                    say("exp_policy_league: figures: {}", problem);
                                  return fmt::format("{} runs\n\n{}", plan.runs.size(), league_text(league));
                                },
                            .decides = !quick});
}

}  // namespace
}  // namespace fp16lab::experiments

int main(int argc, char** argv) {
  using namespace fp16lab::experiments;
  bool quick = false;
  SweepOptions sweep;
  return experiment_main(
      argc, argv,
      {.name = "exp_policy_league",
       .description = "Which loss-scale policy skips least, loses least and trains best?",
       .examples = "  exp_policy_league -o results/exp_policy_league --threads 2\n"
                   "  exp_policy_league --quick -o results/league",
       .declare =
           [&](Options& options) {
             options.flag("--quick", quick,
                          "twelve steps, one seed and a few policies: shows the form and decides nothing");
             options.add_sweeping(sweep);
             return [&](const CommonOptions& common) { return run_exp_policy_league(common, sweep, quick); };
           }},
      {.out = "results/exp_policy_league", .config = "policy_league.toml"});
}
