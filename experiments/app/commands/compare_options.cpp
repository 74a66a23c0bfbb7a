#include "experiments/app/commands/compare_options.hpp"

#include <CLI/CLI.hpp>

namespace fp16lab::experiments {

void add_compare_options(CLI::App& app, CompareCommand& command) {
  app.add_option("A", command.a, "Run folder")->required()->check(not_empty("a folder"));
  app.add_option("B", command.b, "Run folder")->required()->check(not_empty("a folder"));
  app.add_option("--threshold", command.threshold,
                 "Relative difference of a step's loss, grad_norm, loss_scale or lr from which it is counted "
                 "as large "
                 "(default: 0.01)")
      ->type_name("X")
      ->check(not_negative());
  app.add_flag(
      "--strict", command.strict,
      "Exit code 5 if anything that either run recorded has another bit in the other, or is missing");
  app.add_flag("--json", command.json, "JSON instead of a table");
}

}  // namespace fp16lab::experiments
