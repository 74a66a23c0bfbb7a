#include "experiments/hist_options.hpp"

#include <CLI/CLI.hpp>

namespace fp16lab::experiments {

void add_hist_options(CLI::App& app, HistCommand& command) {
  app.add_option("FILE", command.inputs, "Run folders, dumps, and quoted patterns of them")->required();
  app.add_option("--recorded-scale", command.recorded_scale,
                 "Loss scale that the values of the dumps carry (default: 1)")
      ->type_name("SCALE");
  app.add_option("--scale", command.scale, "Loss scale to judge at, 2^K or a number (default: as recorded)")
      ->type_name("SCALE");
  app.add_option("--step", command.step, "Recorded step (default: the last one)")
      ->type_name("N")
      ->check(at_least(0));
  app.add_flag("--exact-mass", command.exact_mass,
               "Of dumps: L1 and L2 of every zone exactly, value by value (reads them once more)");
  app.add_flag("--json", command.json, "JSON instead of a table");
}

}  // namespace fp16lab::experiments
