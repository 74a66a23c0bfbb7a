#include "experiments/app/commands/train_options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>

namespace fp16lab::experiments {
namespace {

std::uint64_t step_number(const std::string& option, const std::string& text) {
  std::uint64_t step = 0;
  if (!CLI::detail::lexical_cast(text, step) || text.starts_with("-") || step == 0)
    usage_error(fmt::format("{}: '{}': expected a step, 1 or more", option, text));
  return step;
}

}  // namespace

void add_train_options(CLI::App& app, TrainArguments& arguments) {
  app.add_flag("--force", arguments.command.force, "Replace the run in the output folder");
  app.add_flag("--resume", arguments.command.resume,
               "Continue the run in the output folder from its newest checkpoint (see checkpoint.every), "
               "with its own configuration and the same bits");
  app.add_option(
         "--name", arguments.command.name,
         "What tables and figures call this configuration, before what its settings say; a sweep gives "
         "its variants' names")
      ->type_name("NAME");
  app.add_flag(
      "--graph", arguments.graph,
      "Capture a step once as a CUDA graph and replay it, as train.graph; needs backend.device=cuda");
  app.add_flag("--explain-overflow", arguments.explain_overflow,
               "For every overflow the operation that made the first Inf or NaN, and the greatest lower loss "
               "scale at which the whole step is finite, found by doing its backward passes again: on stderr "
               "and in culprits.jsonl, as observe.explain_overflow");
  app.add_flag(
         "--live{auto}", arguments.live,
         "Show a panel that is redrawn in place of the progress line: scale, skips, underflow by layer. "
         "--live=always: also where stderr is no terminal")
      ->check(CLI::IsMember({"auto", "always"}))
      ->type_name("[=auto|always]");
  app.add_option(
         "--tensorboard", arguments.command.tensorboard,
         "Write an event file for TensorBoard: scalars of every step, exponents of observed gradients")
      ->type_name("DIR")
      ->check(not_empty("a folder"));
  app.add_flag("--op-stats", arguments.command.op_statistics,
               "Count the ops of the first step by dtype and layer: a table with advice on stderr, "
               "op_stats.csv in the folder");
  app.add_option("--dump-initial", arguments.command.dump_initial,
                 "Write the initial parameters and buffers as safetensors, then train")
      ->type_name("FILE")
      ->check(not_empty("a file"));
  app.add_option("--dump-gradients", arguments.dump_gradients,
                 "Write step STEP's batches, weights and unscaled gradients as safetensors")
      ->type_name("STEP FILE")
      ->type_size(2)
      ->expected(1)
      ->allow_extra_args(false);
}

TrainCommand finish(const TrainArguments& arguments, const CommonOptions& common) {
  TrainCommand command = arguments.command;
  command.common = common;
  if (arguments.graph) command.common.set.emplace_back("train.graph=true");
  if (!arguments.live.empty())
    command.live = arguments.live == "always" ? LiveMode::always : LiveMode::automatic;
  if (arguments.explain_overflow) command.common.set.emplace_back("observe.explain_overflow=true");
  if (!arguments.dump_gradients.empty()) {
    command.dump_step = step_number("--dump-gradients", arguments.dump_gradients.at(0));
    command.dump_gradients = arguments.dump_gradients.at(1);
    if (command.dump_gradients.empty()) usage_error("--dump-gradients: '': expected a file");
  }
  return command;
}

}  // namespace fp16lab::experiments
