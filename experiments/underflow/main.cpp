// exp_underflow: do gradients that round to zero in FP16 hurt this regression, and does loss scaling bring it
// back?
//
// FP32 and its one-ulp twin, no scaling and two fixed scales, five seeds each; two claims, judged by criteria
// that were fixed before anything was measured (underflow/underflow_questions.cpp). Beside them, as the
// reason: the share of the non-zero loss gradients (dL/dy) that round to zero.
#include "experiments/app/command_line.hpp"
#include "experiments/study/study.hpp"
#include "experiments/underflow/underflow.hpp"
#include "numerics/files/disk/atomic_file.hpp"

namespace fp16lab::experiments {
namespace {

ExitCode run_exp_underflow(const CommonOptions& common, const SweepOptions& options) {
  const SweepPlan plan = underflow_plan(common);
  return run_study(common, Study<Underflow>{.question = "do gradients that round to zero in FP16 hurt this "
                                                        "regression, and does loss scaling bring it back?",
                                            .questions = underflow_questions(),
                                            .measure =
                                                [&] {
                                                  train_all(plan, common, options);
                                                  return measure_underflow(plan);
                                                },
                                            .describe =
                                                [&](const Underflow& underflow) {
                                                  write_file_atomically(common.out / "exp_underflow.csv",
                                                                        underflow.csv);
                                                  write_file_atomically(common.out / "loss_gradients.csv",
                                                                        loss_gradients_csv(underflow));
                                                  return underflow_text(underflow);
                                                }});
}

}  // namespace
}  // namespace fp16lab::experiments

int main(int argc, char** argv) {
  using namespace fp16lab::experiments;
  SweepOptions sweep;
  return experiment_main(argc, argv,
                         {.name = "exp_underflow",
                          .description = "Do gradients that round to zero in FP16 hurt this regression, and "
                                         "does loss scaling bring it back?",
                          .examples = "  exp_underflow -o results/exp_underflow\n"
                                      "  exp_underflow -o results/demo --quiet",
                          .declare =
                              [&](Options& options) {
                                options.add_sweeping(sweep);
                                return [&](const CommonOptions& common) {
                                  return run_exp_underflow(common, sweep);
                                };
                              }},
                         {.out = "results/exp_underflow", .config = "autoencoder.toml"});
}
