#include "experiments/app/command_line.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>

#include "experiments/app/arguments.hpp"
#include "experiments/app/build_info.hpp"
#include "experiments/app/commands.hpp"
#include "experiments/app/help/completion.hpp"
#include "experiments/app/help/help_text.hpp"
#include "experiments/app/help/terminal.hpp"
#include "numerics/text/nearest_name.hpp"

namespace fp16lab::experiments {
namespace {

void print_help(const CLI::App& app, bool whole) {
  fmt::print("{}", help_text(app, screen_columns(), whole));
}

/// The fp16lab program's commands and what they were given.
class Program {
 public:
  Program()
      : app_("fp16lab: FP16 and tensor-core arithmetic, loss scaling and gradient underflow, bit by bit",
             "fp16lab") {
    app_.set_help_flag("-h,--help", "Show this help; of a command: COMMAND --help");
    app_.set_version_flag("--version", version_line("fp16lab"));
    app_.footer(
        "fp16lab train -c classifier --set amp.level=O1 -o results/try\n"
        "fp16lab sweep -c demo -o results/demo --report\n"
        "fp16lab help train");
    app_.allow_extras();
    app_.require_subcommand(0, 1);  // after a command its name is an argument: list config_keys train
    for (const Command& command :
         {train_command(), sweep_command(), model_command(), hist_command(), replay_command(),
          compare_command(), sensitivity_command(), report_command(), inspect_command(), softfloat_command(),
          mma_command(), reveal_command(), policy_command(), list_command(), devices_command(),
          self_check_command(), help_command(), completion_command()})
      add(command);
  }

  ExitCode run(std::vector<std::string> arguments) {
    require_utf8(arguments);
    arguments_.options.argv = arguments;
    arguments.erase(arguments.begin());
    if (arguments.empty()) usage_error(fmt::format("expected a command: {}", fmt::join(names(), ", ")));
    if (arguments.size() > 1 && arguments[0] == "completion" && arguments[1] == "--answer") {
      arguments.erase(arguments.begin(), arguments.begin() + 2);
      fmt::print("{}", completion_answer(app_, arguments_.offers, arguments));
      return ExitCode::ok;
    }
    if (!arguments.front().starts_with("-")) {
      const std::vector<std::string> known = names();
      if (std::find(known.begin(), known.end(), arguments.front()) == known.end())
        usage_error(
            fmt::format("unknown command '{}'{}", arguments.front(), did_you_mean(arguments.front(), known)));
    }
    if (std::ranges::find(arguments, "--help-all") != arguments.end()) {
      print_help(called(arguments.front()), true);
      return ExitCode::ok;
    }
    std::vector<std::string> after(arguments.begin() + 1, arguments.end());
    arguments.resize(1);
    std::ranges::move(with_values_last(called(arguments.front()), std::move(after)),
                      std::back_inserter(arguments));
    std::reverse(arguments.begin(), arguments.end());  // CLI11 parses from the back
    try {
      app_.parse(arguments);
    } catch (const CLI::CallForHelp&) {
      print_help(app_.get_subcommands().empty() ? app_ : *app_.get_subcommands().front(), false);
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

  /// The command of this name, or the program.
  const CLI::App& called(const std::string& name) {
    for (const CLI::App* command : app_.get_subcommands([](const CLI::App*) { return true; }))
      if (command->get_name() == name) return *command;
    return app_;
  }

  Command help_command() {
    return {
        .name = "help",
        .description = "What a command does and takes, on one screen; without one, what commands there are",
        .examples = "fp16lab help\nfp16lab help sweep",
        .declare = [this](Options& options) -> Command::Run {
          auto command = std::make_shared<std::string>();
          options.add("COMMAND", *command, "Whose help to show").offers({.words = [this] {
            return names();
          }});
          return [this, command](const CommonOptions&) {
            const std::vector<std::string> known = names();
            if (!command->empty() && std::ranges::find(known, *command) == known.end())
              usage_error(fmt::format("unknown command '{}'{}", *command, did_you_mean(*command, known)));
            print_help(called(*command), false);
            return ExitCode::ok;
          };
        }};
  }

  Command completion_command() {
    return {.name = "completion",
            .description = "A script that completes commands, options, keys and runs in a shell",
            .examples =
                "eval \"$(fp16lab completion bash)\"     in ~/.bashrc; zsh in ~/.zshrc, after compinit\n"
                "fp16lab completion fish > ~/.config/fish/completions/fp16lab.fish",
            .declare = [](Options& options) -> Command::Run {
              auto shell = std::make_shared<std::string>();
              options.add("SHELL", *shell, "The shell").required().one_of({"bash", "zsh", "fish"});
              return [shell](const CommonOptions&) {
                fmt::print("{}", completion_script(*shell));
                return ExitCode::ok;
              };
            }};
  }

  void refuse_all_extras() {
    refuse_extras(app_, "fp16lab");
    for (const CLI::App* command : app_.get_subcommands())
      refuse_extras(*command, "fp16lab " + command->get_name());
  }

  void add(const Command& command) {
    CLI::App* app = app_.add_subcommand(command.name, command.description);
    add_common(*app, arguments_, command.uses);
    Options options(*app, arguments_.offers);
    app->footer(command.examples);
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
