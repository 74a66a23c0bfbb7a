// exp_generations: does the generation of your GPU change training more than flipping the last bit of your
// weights?
//
// Four networks are trained on the emulated tensor cores of six generations, with FP32 and FP16 sums and with
// products of FP8, beside FP32 and its one-ulp twin (configs/generations.toml); some of them once more side
// by side, to see how far apart their weights are after every step. Claims are judged by criteria that were
// fixed before the runs (generations/generation_claims.cpp).
#include <fmt/format.h>

#include "experiments/app/command_line.hpp"
#include "experiments/app/progress.hpp"
#include "experiments/generations/generations.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/text/message.hpp"

namespace fp16lab::experiments {
namespace {

/// 0: no distances.
std::size_t seeds_of_distances(const std::string& text, bool quick) {
  if (text.empty()) return quick ? 1 : 5;
  if (text.size() > 3 || text.find_first_not_of("0123456789") != std::string::npos)
    throw CommandError(ExitCode::usage,
                       fmt::format("--distance-seeds {}: expected a number from 0 to 999", text));
  return std::stoul(text);
}

ExitCode run_exp_generations(const CommonOptions& common, const SweepOptions& options, bool quick,
                             const std::string& distance_seeds) {
  const std::size_t seeds = seeds_of_distances(distance_seeds, quick);
  const SweepPlan plan = generations_plan(common, quick);
  Study<Generations> study{
      .question =
          "does the generation of your GPU change training more than flipping the last bit of your weights?",
      .questions = generation_questions(),
      .measure =
          [&] {
            train_all(plan, common, options);
            Generations measured = read_generations(plan);
            Progress progress(common.quiet);
            const std::filesystem::path file = common.out / "distances.csv";
            measured.curves = measure_distances(
                plan, drawn_pairs(),
                {.seeds = seeds,
                 .threads = common.threads,
                 .known = read_distances(file),
                 .keep = [&](const auto& curves) { write_file_atomically(file, distances_csv(curves)); },
                 .progress =
                     [&](const std::string& line) {
                       if (progress.due()) progress.show("exp_generations: " + line);
                     }});
            return measured;
          },
      .describe =
          [&](const Generations& measured) {
            const std::vector<JudgedPair> pairs = judged_pairs(measured);
            write_file_atomically(common.out / "exp_generations.csv", pairs_csv(pairs));
            if (const std::string problem = draw_distances(measured.curves, common.out / "figures");
                !problem.empty())
              say("exp_generations: figures: {}", problem);
            return measured.final_values + "\n" + pairs_text(pairs);
          },
      .decides = !quick};
  return run_study(common, study);
}

}  // namespace
}  // namespace fp16lab::experiments

int main(int argc, char** argv) {
  using namespace fp16lab::experiments;
  struct {
    bool quick = false;
    SweepOptions sweep;
    std::string distance_seeds;
  } given;
  return experiment_main(
      argc, argv,
      {.name = "exp_generations",
       .description =
           "Does the generation of your GPU change training more than flipping the last bit of your weights?",
       .examples = "  exp_generations -o results/exp_generations --threads 2 --jobs 2\n"
                   "  exp_generations --quick -o results/generations",
       .declare =
           [&](Options& options) {
             options
                 .add("--distance-seeds", given.distance_seeds,
                      "Of so many seeds, measure how far trainings part step by step: trains those again in "
                      "this process. 5; 0: none")
                 .type("N");
             options.flag("--quick", given.quick,
                          "twelve steps and two seeds: shows the form and decides nothing");
             options.add_sweeping(given.sweep);
             return [&](const CommonOptions& common) {
               return run_exp_generations(common, given.sweep, given.quick, given.distance_seeds);
             };
           }},
      {.out = "results/exp_generations", .config = "generations.toml"});
}
