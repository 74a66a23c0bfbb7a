#include "experiments/app/command_line.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <sstream>
#include <stdexcept>

#include "experiments/app/arguments.hpp"
#include "experiments/app/build_info.hpp"
#include "experiments/app/commands.hpp"
#include "numerics/formats/decimal.hpp"
#include "numerics/text/nearest_name.hpp"

namespace fp16lab::experiments {
namespace {

bool takes_value(const std::string& argument) {
  for (const char* option :
       {"-c", "--config", "--set", "-o", "--out", "--seed", "--threads", "--format", "--rounding"})
    if (argument == option) return true;
  return false;
}

/// `inspect -1.5 --json`: numbers with a sign are values, not options. Moves all values behind a "--".
std::vector<std::string> separate_values(const std::vector<std::string>& arguments) {
  std::vector<std::string> options, values;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    bool value = !arguments[i].starts_with("-");
    if (!value && arguments[i] != "--") {
      try {
        parse_number(arguments[i]);
        value = true;
      } catch (const std::invalid_argument&) {
        value = false;
      }
    }
    if (arguments[i] == "--") continue;
    (value ? values : options).push_back(arguments[i]);
    if (takes_value(arguments[i]) && i + 1 < arguments.size()) options.push_back(arguments[++i]);
  }
  options.emplace_back("--");
  options.insert(options.end(), values.begin(), values.end());
  return options;
}

/// The list of commands shows a description up to its first stop.
class Formatter : public CLI::Formatter {
 public:
  std::string make_subcommand(const CLI::App* command) const override {
    const std::string& text = command->get_description();
    std::size_t stop = 0;
    while (stop < text.size() && (std::strchr(".:;", text[stop]) == nullptr ||
                                  (stop + 1 < text.size() && std::strchr(" \n", text[stop + 1]) == nullptr)))
      ++stop;
    std::stringstream line;
    CLI::detail::format_help(line, command->get_name(), text.substr(0, stop), get_column_width());
    return line.str();
  }
};

/// The fp16lab program's commands and what they were given.
class Program {
 public:
  Program()
      : app_("fp16lab: FP16 and tensor-core arithmetic, loss scaling and gradient underflow, bit by bit",
             "fp16lab") {
    app_.set_help_flag("-h,--help", "Show this help");
    app_.set_version_flag("--version", version_line("fp16lab"));
    app_.footer(
        footer("  fp16lab train -c classifier --set amp.level=O1 -o results/try\n"
               "  fp16lab sweep -c demo -o results/demo --report"));
    app_.allow_extras();
    app_.formatter(std::make_shared<Formatter>());
    for (const Command& command :
         {train_command(), sweep_command(), model_command(), hist_command(), replay_command(), compare_command(),
          report_command(), inspect_command(), softfloat_command(), mma_command(), policy_command(),
          list_command(), devices_command()})
      add(command);
  }

  ExitCode run(std::vector<std::string> arguments) {
    require_utf8(arguments);
    arguments_.options.argv = arguments;
    arguments.erase(arguments.begin());
    if (arguments.empty()) usage_error(fmt::format("expected a command: {}", fmt::join(names(), ", ")));
    if (!arguments.front().starts_with("-")) {
      const std::vector<std::string> known = names();
      if (std::find(known.begin(), known.end(), arguments.front()) == known.end())
        usage_error(
            fmt::format("unknown command '{}'{}", arguments.front(), did_you_mean(arguments.front(), known)));
    }
    if (arguments.front() == "inspect") {
      arguments = separate_values(arguments);
      // The command itself was taken for a value: the first one.
      const auto command = std::find(arguments.begin(), arguments.end(), "inspect");
      std::rotate(arguments.begin(), command, command + 1);
    }
    std::reverse(arguments.begin(), arguments.end());  // CLI11 parses from the back
    try {
      app_.parse(arguments);
    } catch (const CLI::CallForHelp&) {
      fmt::print("{}", app_.help());
      throw;
    } catch (const CLI::CallForVersion& version) {
      fmt::print("{}\n", version.what());
      throw;
    } catch (const CLI::ParseError& error) {
      refuse_all_extras();  // an unknown option is the likelier mistake behind "value missing"
      const std::vector<CLI::App*> chosen = app_.get_subcommands();
      if (chosen.empty() || dynamic_cast<const CLI::ValidationError*>(&error) != nullptr) throw;
      usage_error(
          fmt::format("{}; fp16lab {} --help says what it takes", error.what(), chosen.front()->get_name()));
    }
    refuse_all_extras();
    return run_();
  }

 private:
  std::vector<std::string> names() {
    std::vector<std::string> list;
    for (const CLI::App* command : app_.get_subcommands([](const CLI::App*) { return true; }))
      list.push_back(command->get_name());
    return list;
  }

  void refuse_all_extras() {
    refuse_extras(app_, "fp16lab");
    for (const CLI::App* command : app_.get_subcommands())
      refuse_extras(*command, "fp16lab " + command->get_name());
  }

  void add(const Command& command) {
    CLI::App* app = app_.add_subcommand(command.name, command.description);
    add_common(*app, arguments_, command.uses);
    Options options(*app);
    app->footer(footer(command.examples));
    app->callback(
        [this, run = command.declare(options)] { run_ = [this, run] { return run(finish(arguments_)); }; });
  }

  CLI::App app_;
  CommonArguments arguments_;
  std::function<ExitCode()> run_;
};

}  // namespace

int fp16lab_main(int argc, char** argv) {
  return guarded("fp16lab", [&] { return Program().run(std::vector<std::string>(argv, argv + argc)); });
}

}  // namespace fp16lab::experiments
