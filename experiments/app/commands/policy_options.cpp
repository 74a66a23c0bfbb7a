#include "experiments/app/commands/policy_options.hpp"

#include <CLI/CLI.hpp>

namespace fp16lab::experiments {

void add_policy_options(CLI::App& app, PolicyCommand& command) {
  app.add_option("--policy", command.policy,
                 "Name (fp16lab policy --list shows all); default: the configuration's")
      ->type_name("NAME");
  app.add_option(
         "--trace", command.trace,
         "A letter for each step: F, all gradients finite; O, an overflow. '-' reads the standard input, "
         "where blanks\nand line ends are ignored")
      ->type_name("FFOFF...");
  app.add_option(
         "--amax", command.amax,
         "Instead: for each step its largest unscaled gradient, with commas or blanks between them; it "
         "overflows\nwhere amax times the scale is beyond FP16. Policies that decide by statistics see a "
         "single gradient of this\nmagnitude. '-' reads the standard input")
      ->type_name("LIST");
  app.add_flag("--list", command.list,
               "Show the policy (without --policy: all) with parameters, defaults, sources");
  app.add_flag("--json", command.json, "With --list: JSON");
}

}  // namespace fp16lab::experiments
