// What each question does: its own options, and what becomes of them. Their table is
// experiments/questions/main.cpp.
#pragma once

#include "experiments/app/arguments.hpp"

namespace fp16lab::experiments {

Command::Run ask_allreduce(Options& options);
Command::Run ask_claims(Options& options);
Command::Run ask_emulated_vs_device(Options& options);
Command::Run ask_generations(Options& options);
Command::Run ask_paper_miniature(Options& options);
Command::Run ask_policy_league(Options& options);
Command::Run ask_rounding_edges(Options& options);
Command::Run ask_shapes(Options& options);
Command::Run ask_tutorials(Options& options);
Command::Run ask_underflow(Options& options);

}  // namespace fp16lab::experiments
