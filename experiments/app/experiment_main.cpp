// The main function that the experiment binaries share.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "experiments/app/arguments.hpp"
#include "experiments/app/build_info.hpp"
#include "experiments/app/command_line.hpp"
#include "experiments/app/config/shipped_configs.hpp"

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

int experiment_main(int argc, char** argv, const ExperimentInfo& info, const ExperimentUses& uses,
                    const std::function<ExitCode(const CommonOptions& common)>& run) {
  return guarded(info.name, [&] {
    CLI::App app(info.description, info.name);
    CommonArguments arguments;
    arguments.options.argv = std::vector<std::string>(argv, argv + argc);
    require_utf8(arguments.options.argv);
    app.set_help_flag("-h,--help", "Show this help");
    app.set_version_flag("--version", version_line(info.name));
    add_common(app, arguments, common_use(uses));
    for (const ExperimentOption& option : info.options) {
      if (option.flag != nullptr)
        app.add_flag(option.name, *option.flag, option.description);
      else if (option.list != nullptr)
        app.add_option(option.name, *option.list, option.description)
            ->type_name(option.type)
            ->expected(1)
            ->take_all();
      else
        app.add_option(option.name, *option.value, option.description)->type_name(option.type);
    }
    for (const ExperimentFlag& flag : info.flags) app.add_flag(flag.name, *flag.value, flag.description);
    if (info.sweep != nullptr) add_sweeping(app, *info.sweep);
    app.footer(footer(info.examples));
    try {
      app.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
      fmt::print("{}", app.help());
      throw;
    } catch (const CLI::CallForVersion& version) {
      fmt::print("{}\n", version.what());
      throw;
    }
    refuse_extras(app, info.name);
    CommonOptions common = finish(arguments);
    if (common.config.empty() && !uses.config.empty()) common.config = shipped_config(uses.config);
    if (common.out.empty()) common.out = uses.out;
    if (!common.out.empty() && !common.quiet)
      fmt::print(stderr, "{}: writes into {}\n", info.name, common.out.string());
    return run(common);
  });
}

}  // namespace fp16lab::experiments
