#include "experiments/app/commands/hist_options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "numerics/formats/dtype.hpp"

namespace fp16lab::experiments {

void add_hist_options(CLI::App& app, HistCommand& command) {
  app.add_option("FILE", command.inputs, "Run folders, dumps, and quoted patterns of them")->required();
  app.add_option(
         "--format", command.formats,
         fmt::format("Format to judge in: {}, or several (default: in which a run stored\nits gradients, f16 "
                     "for dumps)",
                     fmt::join(dtype_names<is_file_low_precision>, ", ")))
      ->type_name("NAME,...")
      ->expected(1)
      ->take_all();
  app.add_option("--include", command.include,
                 "Only tensors of this name; '*' and '?' match, \"fc1\" is all inside fc1 (repeatable)")
      ->type_name("PATTERN")
      ->expected(1)
      ->take_all();
  app.add_option("--exclude", command.exclude, "Not tensors of this name (repeatable)")
      ->type_name("PATTERN")
      ->expected(1)
      ->take_all();
  app.add_option("--recorded-scale", command.recorded_scale,
                 "Loss scale that the values of the dumps carry (default: what a dump of ours says, else 1)")
      ->type_name("SCALE");
  app.add_option("--scale", command.scale, "Loss scale to judge at, 2^K or a number (default: as recorded)")
      ->type_name("SCALE");
  app.add_option("--step", command.step, "Recorded step (default: the last one)")
      ->type_name("N")
      ->check(at_least(0));
  app.add_flag("--exact-mass", command.exact_mass,
               "Of dumps: also L1, L2 and what is lost and overflows, exactly (--json: every zone)");
  app.add_flag("--json", command.json, "JSON instead of a table");
}

}  // namespace fp16lab::experiments
