// exp_paper_miniature: do the claims of "Mixed Precision Training" (Micikevicius et al., ICLR 2018) hold in
// miniature?
//
// The grid of configs/paper_miniature.toml is trained with FP32's one-ulp twins (and not repeated where its
// runs are there), two of its runs are repeated in this process to see every update of a weight, and six
// claims are judged by criteria that were fixed before anything was measured
// (paper_miniature/miniature_claims.cpp).
#include <fmt/format.h>

#include <filesystem>

#include "experiments/app/command_line.hpp"
#include "experiments/app/progress.hpp"
#include "experiments/paper_miniature/miniature.hpp"
#include "experiments/study/study.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/text/message.hpp"

namespace fp16lab::experiments {
namespace {

ExitCode run_exp_paper_miniature(const CommonOptions& common, const SweepOptions& options) {
  const SweepPlan plan = miniature_plan(common);
  return run_study(
      common, Study<Miniature>{
                  .question = "do the claims of \"Mixed Precision Training\" (ICLR 2018) hold in miniature?",
                  .questions = miniature_questions(),
                  .measure =
                      [&] {
                        train_all(plan, common, options);
                        Progress progress(common.quiet);
                        progress.show("exp_paper_miniature: every update of the small-updates runs");
                        return measure_miniature(plan, common.threads);
                      },
                  .describe =
                      [&](const Miniature& miniature) {
                        write_file_atomically(common.out / "exp_paper_miniature.csv", miniature.csv);
                        write_file_atomically(common.out / "lost_gradients.csv",
                                              lost_gradients_csv(miniature));
                        const std::string failure = draw_figures(miniature, common.out / "figures");
                        if (!failure.empty()) say("exp_paper_miniature: figures: {}", failure);
                        return miniature.table;
                      }});
}

}  // namespace
}  // namespace fp16lab::experiments

int main(int argc, char** argv) {
  using namespace fp16lab::experiments;
  SweepOptions sweep;
  return experiment_main(
      argc, argv,
      {.name = "exp_paper_miniature",
       .description = "Do the claims of \"Mixed Precision Training\" (ICLR 2018) hold in miniature?",
       .examples = "  exp_paper_miniature -o results/exp_paper_miniature\n"
                   "  exp_paper_miniature --set train.steps=20 --set data.subset=4096 -o results/small",
       .declare =
           [&](Options& options) {
             options.add_sweeping(sweep);
             return [&](const CommonOptions& common) { return run_exp_paper_miniature(common, sweep); };
           }},
      {.out = "results/exp_paper_miniature", .config = "paper_miniature.toml"});
}
