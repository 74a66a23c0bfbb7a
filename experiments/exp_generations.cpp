// exp_generations: does the generation of your GPU change training more than flipping the last bit of your weights?
//
// Four networks are trained on the emulated tensor cores of six generations, with FP32 and FP16 sums and with products
// of FP8, beside FP32 and its one-ulp twin (configs/generations.toml). Claims are judged by criteria that were fixed
// before the runs (generations/generation_claims.cpp).
#include <fmt/format.h>

#include "experiments/command_line.hpp"
#include "experiments/generations/generations.hpp"
#include "experiments/openmp_waiting.hpp"
#include "numerics/files/atomic_file.hpp"

namespace fp16lab::experiments {
namespace {

ExitCode run_exp_generations(const CommonOptions& common, const SweepOptions& options, bool quick) {
  const SweepPlan plan = generations_plan(common, quick);
  Study<Generations> study{
      .question =
          "does the generation of your GPU change training more than flipping the last bit of your weights?",
      .questions = generation_questions(),
      .measure =
          [&] {
            train_all(plan, common, options);
            return read_generations(plan);
          },
      .describe =
          [&](const Generations& measured) {
            const std::vector<JudgedPair> pairs = judged_pairs(measured);
            write_file_atomically(common.out / "exp_generations.csv", pairs_csv(pairs));
            return pairs_text(pairs);
          },
      .decides = !quick};
  return run_study(common, study);
}

}  // namespace
}  // namespace fp16lab::experiments

int main(int argc, char** argv) {
  using namespace fp16lab::experiments;
  limit_openmp_spinning(argv);
  bool quick = false;
  SweepOptions options;
  std::vector<ExperimentFlag> flags = {
      {"--quick", "twelve steps and two seeds: shows the form and decides nothing", &quick}};
  return experiment_main(
      argc, argv,
      {"exp_generations",
       "Does the generation of your GPU change training more than flipping the last bit of your weights?",
       "  exp_generations -o results/exp_generations --threads 2 --jobs 2\n"
       "  exp_generations --quick -o results/generations",
       {},
       flags,
       &options},
      {.out = "results/exp_generations", .config = "generations.toml"},
      [&](const CommonOptions& common) { return run_exp_generations(common, options, quick); });
}
