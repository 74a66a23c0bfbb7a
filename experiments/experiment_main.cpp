// The main function that the experiment binaries share.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "experiments/arguments.hpp"
#include "experiments/command_line.hpp"

namespace fp16lab::experiments {

int experiment_main(int argc, char** argv, const ExperimentInfo& info,
                    const std::function<ExitCode(const CommonOptions& common)>& run) {
  return guarded(info.name, [&] {
    CLI::App app(info.description, info.name);
    CommonArguments arguments;
    arguments.options.argv = std::vector<std::string>(argv, argv + argc);
    require_utf8(arguments.options.argv);
    app.set_help_flag("-h,--help", "Show this help");
    add_common(app, arguments);
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
    app.footer(footer(info.examples));
    try {
      app.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
      fmt::print("{}", app.help());
      throw;
    }
    refuse_extras(app, info.name);
    return run(finish(arguments));
  });
}

}  // namespace fp16lab::experiments
