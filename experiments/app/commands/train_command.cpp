// fp16lab train: one run into one run folder.
#include <fmt/format.h>

#include <charconv>
#include <memory>
#include <system_error>
#include <utility>

#include "experiments/app/commands.hpp"
#include "experiments/app/run/live_panel.hpp"
#include "experiments/app/run/train_run.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments {
namespace {

struct TrainCommand {
  TrainRequest request;
  // As given; finish() reads them.
  std::vector<std::string> dump_arguments;  ///< STEP, FILE; empty: not given
  bool graph = false;
  std::filesystem::path load_initial;  ///< --load-initial; empty: not given
  bool explain_overflow = false;
  std::string live_text;  ///< "auto", "always"; empty: not given
};

std::uint64_t step_number(const std::string& option, const std::string& text) {
  std::uint64_t step = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  if (error != std::errc() || end != text.data() + text.size() || step == 0)
    usage_error(fmt::format("{}: '{}': expected a step, 1 or more", option, text));
  return step;
}

/// Flags that set a configuration key come after the settings of `common`. A bad step is a usage error.
void finish(TrainCommand& command) {
  TrainRequest& request = command.request;
  if (command.graph) request.common.set.emplace_back("train.graph=true");
  if (!command.live_text.empty())
    request.live = command.live_text == "always" ? LiveMode::always : LiveMode::automatic;
  if (!command.load_initial.empty())
    request.common.set.push_back("train.initial=" + toml_string(command.load_initial.string()));
  if (command.explain_overflow) request.common.set.emplace_back("observe.explain_overflow=true");
  if (command.dump_arguments.empty()) return;
  request.dump_step = step_number("--dump-gradients", command.dump_arguments.at(0));
  request.dump_gradients = command.dump_arguments.at(1);
  if (request.dump_gradients.empty()) usage_error("--dump-gradients: '': expected a file");
}

}  // namespace

Command train_command() {
  return {
      .name = "train",
      .description = "Train a network into a run folder; prints a JSON summary",
      .examples =
          "  fp16lab train -c classifier -o results/classifier\n"
          "  fp16lab train -c autoencoder --set amp.level=O1 --seed 2\n"
          "  fp16lab train -c lenet5 --set amp.dialect=paddle --set amp.level=O2 --op-stats\n"
          "  fp16lab train -c classifier --set backend.device=cuda --graph\n"
          "  fp16lab train --resume -o results/classifier",
      .uses = {.config = "Configuration in TOML: a file, or the name of one that fp16lab list shows "
                         "(default: the classifier, with every key at its default)",
               .bare_config = true,
               .set = "Override a configuration key (fp16lab list shows them all), such as --set "
                      "scaler.policy=dynamic; repeatable",
               .out = "Run folder (default: results/CONFIG-seedN; without options: results/classifier-seed1)",
               .seed = "Seed of weights and shuffling, same as train.seed",
               .threads = true},
      .declare = [](Options& options) -> Command::Run {
        auto command = std::make_shared<TrainCommand>();
        options.flag("--force", command->request.force, "Replace the run in the output folder");
        options.flag("--resume", command->request.resume,
                     "Continue the run in the output folder from its newest checkpoint (see "
                     "checkpoint.every), with its own configuration and the same bits; --set may change keys "
                     "of the machine and of observation, and the number of steps");
        options
            .add("--name", command->request.name,
                 "Name of this configuration in tables and figures, before its settings; a sweep uses its "
                 "variants' names")
            .name();
        options.flag(
            "--graph", command->graph,
            "Record a step once and replay it, same as train.graph: a static graph; on cuda, a CUDA graph");
        options.flag("--explain-overflow", command->explain_overflow,
                     "For every overflow, name the operation that made the first Inf or NaN, and the "
                     "greatest lower loss scale at which the whole step is finite, found by repeating its "
                     "backward passes: on stderr and in culprits.jsonl, same as observe.explain_overflow");
        options
            .flag("--live{auto}", command->live_text,
                  "Show a panel that is redrawn in place of the progress line: scale, skips, underflow by "
                  "layer. --live=always: even if stderr is not a terminal")
            .one_of({"auto", "always"})
            .type("[=auto|always]");
        options
            .add(
                "--tensorboard", command->request.tensorboard,
                "Write an event file for TensorBoard: scalars of every step, exponents of observed gradients")
            .type("DIR")
            .not_empty("a folder")
            .offers(offer_folders());
        options.flag("--op-stats", command->request.op_statistics,
                     "Count the ops of the first step by dtype and layer: a table with advice on stderr, "
                     "op_stats.csv in the folder");
        options
            .add("--load-initial", command->load_initial,
                 "Start from the parameters and buffers of a safetensors file, by PyTorch's names, same as "
                 "train.initial")
            .type("FILE")
            .not_empty("a file")
            .offers(offer_files({".safetensors"}));
        options
            .add("--dump-initial", command->request.dump_initial,
                 "Write initial parameters and buffers as safetensors, then train")
            .type("FILE")
            .not_empty("a file");
        options
            .add("--dump-gradients", command->dump_arguments,
                 "Write a step's weights, batches and gradients: unscaled, as safetensors")
            .type("STEP FILE")
            .values(2);
        return [command](const CommonOptions& common) {
          command->request.common = common;
          finish(*command);
          return train(command->request);
        };
      }};
}

}  // namespace fp16lab::experiments
