// The main function that the experiment binaries share.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>

#include "engine/parallel/communicator.hpp"
#include "experiments/app/arguments.hpp"
#include "experiments/app/build_info.hpp"
#include "experiments/app/command_line.hpp"
#include "experiments/app/config/shipped_configs.hpp"
#include "experiments/app/help/help_text.hpp"
#include "numerics/text/message.hpp"

namespace fp16lab::experiments {
namespace {

CommonUse common_use(const ExperimentUses& uses) {
  const bool settings = uses.settings || !uses.config.empty();
  CommonUse common{.threads = true};
  common.out = uses.out.empty() ? "Folder for the results as CSV (default: none is written)"
                                : fmt::format("Folder for the results (default: {})", uses.out);
  if (settings) {
    common.config = uses.config.empty() ? std::string("Configuration in TOML")
                                        : fmt::format("Configuration in TOML (default: {})",
                                                      shipped_config(uses.config).string());
    common.set = "Override a configuration key, such as --set train.steps=20 (repeatable)";
  }
  if (settings || uses.seed) common.seed = "Seed of everything random, as train.seed";
  return common;
}

}  // namespace

int experiment_main(int argc, char** argv, const Command& command, const ExperimentUses& uses) {
  return guarded(command.name, [&] {
    CLI::App app(command.description, command.name);
    CommonArguments arguments;
    arguments.options.argv = std::vector<std::string>(argv, argv + argc);
    require_utf8(arguments.options.argv);
    app.set_version_flag("--version", version_line(command.name));
    add_common(app, arguments, common_use(uses));
    Options options(app, arguments.offers);
    const Command::Run run = command.declare(options);
    app.footer(command.examples);
    if (std::find(argv + 1, argv + argc, std::string_view("--help-all")) != argv + argc) {
      fmt::print("{}", help_text(app, screen_columns(), true));
      return ExitCode::ok;
    }
    std::vector<std::string> given = with_values_last(app, {argv + 1, argv + argc});
    std::reverse(given.begin(), given.end());  // CLI11 parses from the back
    try {
      app.parse(given);
    } catch (const CLI::CallForHelp&) {
      fmt::print("{}", help_text(app, screen_columns(), false));
      throw;
    } catch (const CLI::CallForVersion& version) {
      fmt::print("{}\n", version.what());
      throw;
    }
    refuse_extras(app, command.name);
    CommonOptions common = finish(arguments);
    if (common.config.empty() && !uses.config.empty()) common.config = shipped_config(uses.config);
    if (common.out.empty()) common.out = uses.out;
    if (!common.out.empty() && !common.quiet && engine::parallel::launch_of_environment().rank == 0)
      say("{}: writes into {}", command.name, common.out.string());
    return run(common);
  });
}

}  // namespace fp16lab::experiments
