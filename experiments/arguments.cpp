#include "experiments/arguments.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <vector>

#include "engine/backend/cuda/device_errors.hpp"
#include "experiments/build_info.hpp"
#include "numerics/files/printable_text.hpp"
#include "numerics/nearest_name.hpp"
#include "numerics/utf8.hpp"

namespace fp16lab::experiments {
namespace {

constexpr const char* exit_codes =
    "Exit codes: 0 ok; 1 run failed (unreadable data, unwritable output, a device's failure); 2 usage or "
    "configuration; "
    "3 back end or device\nnot there; 4 diverged; 5 verification mismatch; 130 interrupted with state saved.";

/// One line, whatever the message was made of.
std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

int report_error(const std::string& program, ExitCode code, const std::string& message) {
  fmt::print(stderr, "{}: error: {}\n", program, one_line(message));
  return static_cast<int>(code);
}

}  // namespace

void add_common(CLI::App& app, CommonArguments& arguments) {
  app.add_option("-c,--config", arguments.options.config, "Configuration in TOML")->type_name("FILE");
  app.add_option("--set", arguments.options.set,
                 "Override a configuration key, such as --set scaler.policy=dynamic (repeatable)")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->take_all();
  app.add_option("-o,--out", arguments.options.out, "Output folder")->type_name("DIR");
  app.add_option("--seed", arguments.seed, "Seed of weights and shuffling, as train.seed")
      ->type_name("N")
      ->check(at_least(0));
  app.add_option("--threads", arguments.threads,
                 "Worker threads; results never depend on it (default: all processors)")
      ->type_name("N")
      ->check(at_least(1));
  app.add_flag("--quiet", arguments.options.quiet, "Nothing on stderr but errors");
  app.allow_extras();  // so that unknown options can be answered with a suggestion
}

void require_utf8(const std::vector<std::string>& arguments) {
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    if (utf8_length(arguments[i])) continue;
    std::string shown;
    for (const char c : arguments[i])
      shown += static_cast<unsigned char>(c) < 0x80 ? std::string(1, c)
                                                    : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    usage_error(fmt::format("argument {}, '{}', is not UTF-8; rename the file or folder that it names", i,
                            printable(shown)));
  }
}

CommonOptions finish(const CommonArguments& arguments) {
  CommonOptions options = arguments.options;
  if (arguments.seed >= 0) options.seed = arguments.seed;
  options.threads = arguments.threads > 0 ? arguments.threads : default_threads();
  return options;
}

CLI::Validator at_least(std::int64_t minimum) {
  return CLI::Validator(
      [minimum](const std::string& text) {
        std::int64_t value = 0;
        if (CLI::detail::lexical_cast(text, value) && value >= minimum) return std::string{};
        return fmt::format("'{}': expected an integer, {} or more", text, minimum);
      },
      "", "");
}

std::string footer(const std::string& examples) {
  return fmt::format("Examples:\n{}\n\n{}", examples, exit_codes);
}

void usage_error(const std::string& message) { throw CommandError(ExitCode::usage, message); }

void refuse_extras(const CLI::App& app, const std::string& program) {
  std::vector<std::string> extras = app.remaining();
  std::erase(extras, "--");  // the end of options is no argument
  if (extras.empty()) return;
  const std::string& extra = extras.front();
  if (!extra.starts_with("-")) usage_error(fmt::format("{}: unexpected argument '{}'", program, extra));
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  const std::string name = extra.substr(0, extra.find('='));
  usage_error(fmt::format("{}: unknown option '{}'{}", program, name, did_you_mean(name, known)));
}

int guarded(const std::string& program, const std::function<ExitCode()>& body) {
  try {
    const ExitCode code = body();
    std::cout.flush();
    if (std::fflush(stdout) != 0 || !std::cout)
      return report_error(program, ExitCode::run_failed, "cannot write to the standard output");
    return static_cast<int>(code);
  } catch (const CLI::Success&) {
    return 0;  // --help and --version have printed
  } catch (const CLI::ParseError& error) {
    return report_error(program, ExitCode::usage, error.what());
  } catch (const CommandError& error) {
    return report_error(program, error.code, error.what());
  } catch (const engine::DeviceUnavailable& error) {
    return report_error(program, ExitCode::unavailable, error.what());
  } catch (const std::exception& error) {
    return report_error(program, ExitCode::run_failed, error.what());
  }
}

}  // namespace fp16lab::experiments
