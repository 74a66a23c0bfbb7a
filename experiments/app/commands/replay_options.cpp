#include "experiments/app/commands/replay_options.hpp"

#include <CLI/CLI.hpp>

namespace fp16lab::experiments {

void add_replay_options(CLI::App& app, ReplayCommand& command) {
  app.add_option("RUN", command.run, "Run folder")->required()->expected(1)->check(not_empty("a folder"));
  app.add_option("--policy", command.policies,
                 "Only this policy (repeatable; fp16lab policy --list shows them; default: all)")
      ->type_name("NAME")
      ->expected(1)
      ->take_all();
  app.add_option(
         "--interval", command.interval,
         "Growth intervals that are longer become N good steps, so that a short run shows what policies do")
      ->type_name("N")
      ->check(at_least(1));
  app.add_option_function<std::string>(
         "--steps",
         [&command](const std::string& steps) {
           if (steps != "all" && steps != "recorded")
             usage_error("--steps: '" + steps + "': expected all or recorded");
           command.recorded_only = steps == "recorded";
         },
         "all (default): steps without histograms hold the last recorded ones; recorded: they are left out")
      ->type_name("WHICH");
  app.add_flag("--json", command.json, "The content of replay.json instead of a table");
}

}  // namespace fp16lab::experiments
