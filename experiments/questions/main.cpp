// The program fp16lab: its commands, and these questions.
#include "experiments/app/command_line.hpp"
#include "experiments/questions/questions.hpp"

namespace fp16lab::experiments {
namespace {

const Experiment experiments[] = {
    {.name = "exp_allreduce",
     .question = "What does averaging a gradient over R ranks in FP16 instead of FP32 cost?",
     .more = "\nRanks are emulated; under mpirun they are real, and are measured.",
     .time = "half a minute",
     .examples = "{}\n"
                 "{} --ranks 2,8 --scale 2^15 --steps 2 --set data.subset=2000 -o results/allreduce\n"
                 "mpirun -np 2 {} --ranks 2,8 -o results/real_ranks",
     .out = "results/exp_allreduce",
     .settings = true,
     .declare = ask_allreduce},
    {.name = "exp_claims",
     .question = "Which numbers in mixed-precision tutorials are right?",
     .more = " Prints claim, computed value, verdict and command.",
     .time = "10 seconds",
     .examples = "{}\n{} --json -o results/exp_claims",
     .declare = ask_claims},
    {.name = "exp_emulated_vs_device",
     .question = "Does the emulated run have the same bits as the run on the GPU?",
     .more = " Compares every step: exit 5 at the first difference, 3 without a GPU.",
     .time = "needs a GPU",
     .examples = "{} -c classifier --set train.steps=200 --set amp.level=O2\n"
                 "{} -c lenet5 --set train.steps=3",
     .out = "results/exp_emulated_vs_device",
     .settings = true,
     .device = true,
     .declare = ask_emulated_vs_device},
    {.name = "exp_generations",
     .question = "Does the GPU generation change training more than flipping the last bit of every weight?",
     .time = "an hour",
     .examples = "{} -o results/exp_generations --threads 2 --jobs 2\n"
                 "{} --quick -o results/generations",
     .out = "results/exp_generations",
     .config = "generations.toml",
     .sweeps = true,
     .declare = ask_generations},
    {.name = "exp_paper_miniature",
     .question = "Do the claims of \"Mixed Precision Training\" (ICLR 2018) hold in miniature?",
     .time = "half an hour",
     .examples = "{} -o results/exp_paper_miniature\n"
                 "{} --set train.steps=20 --set data.subset=4096 -o results/small",
     .out = "results/exp_paper_miniature",
     .config = "paper_miniature.toml",
     .sweeps = true,
     .declare = ask_paper_miniature},
    {.name = "exp_policy_league",
     .question = "Which loss-scale policy skips least, loses least and trains best?",
     .time = "an hour",
     .examples = "{} -o results/exp_policy_league --threads 2\n"
                 "{} --quick -o results/league",
     .out = "results/exp_policy_league",
     .config = "policy_league.toml",
     .sweeps = true,
     .declare = ask_policy_league},
    {.name = "exp_rounding_edges",
     .question = "What happens at every edge of FP16 rounding?",
     .more = " Prints one claim and its verdict a line.",
     .time = "a second",
     .examples = "{}\n{} -o results/exp_rounding_edges",
     .declare = ask_rounding_edges},
    {.name = "exp_shapes",
     .question = "What do the extents and layouts of products and convolutions cost on this GPU?",
     .more = " Exit 0 once measured, whatever the verdicts; 3 without a GPU.",
     .time = "needs a GPU",
     .examples = "{}\n{} -o results/shapes_h200 --quiet",
     .out = "results/exp_shapes",
     .device = true,
     .declare = ask_shapes},
    {.name = "exp_tutorials",
     .question = "Do the networks of the AMP tutorials behave as the tutorials say, and why?",
     .time = "a minute",
     .examples = "{} -o results/exp_tutorials\n{} --seed 2 --threads 2",
     .out = "results/exp_tutorials",
     .config = "tutorials.toml",
     .sweeps = true,
     .declare = ask_tutorials},
    {.name = "exp_underflow",
     .question =
         "Do gradients that round to zero in FP16 hurt this regression, and does loss scaling fix it?",
     .time = "10 minutes",
     .examples = "{} -o results/exp_underflow\n{} -o results/demo --quiet",
     .out = "results/exp_underflow",
     .config = "autoencoder.toml",
     .declare = ask_underflow},
};

}  // namespace
}  // namespace fp16lab::experiments

int main(int argc, char** argv) {
  return fp16lab::experiments::fp16lab_main(argc, argv, fp16lab::experiments::experiments);
}
