#include "experiments/app/arguments.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "engine/backend/cuda/runtime/device_errors.hpp"
#include "experiments/app/build_info.hpp"
#include "experiments/app/config/shipped_configs.hpp"
#include "experiments/app/process.hpp"
#include "experiments/app/run/ranks.hpp"
#include "numerics/formats/decimal.hpp"
#include "numerics/text/message.hpp"
#include "numerics/text/nearest_name.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments {
namespace {

/// As many as a process's set of processors can have (cpu_set_t): default_threads() never exceeds it.
constexpr std::int64_t most_threads = CPU_SETSIZE;

int report_error(const std::string& program, ExitCode code, const std::string& message) {
  if (!message.empty()) say("{}: error: {}", program, message);
  return static_cast<int>(code);
}

/// For data that cannot be written; `error` is an errno, or 0 where it is not known. Without a message where the
/// reader has left ("fp16lab list | head"): other programs are silent there too.
CommandError lost_output(int error) {
  pollfd output{.fd = STDOUT_FILENO, .events = 0, .revents = 0};
  if (poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0) return {ExitCode::run_failed, ""};
  return {ExitCode::run_failed, "cannot write to the standard output" +
                                    (error == 0 ? "" : ": " + std::generic_category().message(error))};
}

CLI::Validator integer_between(std::int64_t minimum, std::int64_t maximum) {
  return CLI::Validator(
      [minimum, maximum](const std::string& text) {
        std::int64_t value = 0;
        const bool number = CLI::detail::lexical_cast(text, value);
        if (number && value >= minimum && value <= maximum) return std::string{};
        const bool unbounded = maximum == largest_count && (!number || value < minimum);
        return unbounded ? fmt::format("'{}': expected an integer, {} or more", text, minimum)
                         : fmt::format("'{}': expected an integer from {} to {}", text, minimum, maximum);
      },
      "", "");
}

CLI::Validator finite_and_not_negative() {
  return CLI::Validator(
      [](const std::string& text) {
        double value = 0;
        if (CLI::detail::lexical_cast(text, value) && std::isfinite(value) && value >= 0)
          return std::string{};
        return fmt::format("'{}': expected a finite number, 0 or more", text);
      },
      "", "");
}

CLI::Validator printable_text() {
  return CLI::Validator(
      [](const std::string& text) {
        return is_printable(text)
                   ? std::string{}
                   : fmt::format("'{}': expected text without control characters", printable(text));
      },
      "", "");
}

bool is_signed_number(const std::string& argument) {
  if (!argument.starts_with("-")) return false;
  try {
    parse_number(argument);
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

CLI::Validator something(const std::string& what) {
  return CLI::Validator(
      [what](const std::string& text) { return text.empty() ? "'': expected " + what : std::string{}; }, "",
      "");
}

}  // namespace

Option& Option::type(const std::string& name) {
  option_->type_name(name);
  return *this;
}
Option& Option::group(const std::string& heading) {
  option_->group(heading);
  return *this;
}
Option& Option::required() {
  option_->required();
  return *this;
}
Option& Option::repeatable() {
  option_->expected(1)->take_all()->allow_extra_args(false);
  return *this;
}
Option& Option::separated(char delimiter) {
  option_->delimiter(delimiter)->expected(1, -1);
  return *this;
}
Option& Option::values(int count) {
  option_->type_size(count)->expected(1)->allow_extra_args(false);
  return *this;
}
Option& Option::one_of(std::initializer_list<const char*> values) {
  option_->check(CLI::Validator(
      [known = std::vector<std::string>(values.begin(), values.end())](std::string& given) {
        if (std::ranges::find(known, given) != known.end()) return std::string();
        return fmt::format("'{}': {}", shown(given),
                           known_are(given, std::vector<std::string_view>(known.begin(), known.end())));
      },
      values.size() == 1 ? "" : fmt::format("{{{}}}", fmt::join(values, ","))));
  return offers(offer_words({values.begin(), values.end()}));
}
Option& Option::at_least(std::int64_t minimum, std::int64_t maximum) {
  option_->check(integer_between(minimum, maximum));
  return *this;
}
Option& Option::not_negative() {
  option_->check(finite_and_not_negative());
  return *this;
}
Option& Option::not_empty(const std::string& what) {
  option_->check(something(what));
  return *this;
}
Option& Option::name() {
  option_->type_name("NAME")->check(printable_text());
  return *this;
}
Option& Option::offers(Offer offer) {
  (*offers_)[option_] = std::move(offer);
  return *this;
}

template <class T>
Option Options::add(const std::string& name, T& value, const std::string& help) {
  return Option(app_->add_option(name, value, help), *offers_);
}
template <class T>
Option Options::flag(const std::string& name, T& value, const std::string& help) {
  CLI::Option* const flag = app_->add_flag(name, value, help);
  if (std::is_same_v<T, bool>) flag->disable_flag_override();  // no --flag=false
  return Option(flag, *offers_);
}
#define FP16LAB_OPTION_TYPE(...) \
  template Option Options::add(const std::string&, __VA_ARGS__&, const std::string&)
FP16LAB_OPTION_TYPE(std::string);
FP16LAB_OPTION_TYPE(std::filesystem::path);
FP16LAB_OPTION_TYPE(std::vector<std::string>);
FP16LAB_OPTION_TYPE(std::vector<std::filesystem::path>);
FP16LAB_OPTION_TYPE(double);
FP16LAB_OPTION_TYPE(int);
FP16LAB_OPTION_TYPE(std::optional<int>);
FP16LAB_OPTION_TYPE(std::optional<std::int64_t>);
FP16LAB_OPTION_TYPE(std::optional<std::uint64_t>);
#undef FP16LAB_OPTION_TYPE
template Option Options::flag(const std::string&, bool&, const std::string&);
template Option Options::flag(const std::string&, std::string&, const std::string&);

void Options::add_sweeping(SweepOptions& options) {
  flag("--force", options.force,
       "Replace runs in the output folder that have another configuration, come from another build or are "
       "damaged, and forget planned runs of earlier sweeps that were never made; complete runs stay");
  flag("--mix-builds", options.mix_builds,
       "Also compare complete runs of other builds (commit, compiler, flags)");
  add("--jobs", options.jobs, "Number of concurrent runs, which share --threads (bits do not depend on it)")
      .type("N")
      .at_least(1, 1024);
}

void add_common(CLI::App& app, CommonArguments& arguments, const CommonUse& use) {
  app.set_help_flag("-h,--help", "Show this help; --help-all shows it in full");
  const auto offer = [&arguments](CLI::Option* option, Offer what) {
    arguments.offers[option] = std::move(what);
  };
  if (!use.config.empty()) {
    CLI::Option* const config = app.add_option(use.bare_config ? "-c,--config,FILE" : "-c,--config",
                                               arguments.options.config, use.config)
                                    ->type_name("FILE")
                                    ->check(something("a file"));
    offer(config, offer_configs(use.sweeps, !use.sweeps));
  }
  if (!use.set.empty())
    offer(app.add_option("--set", arguments.options.set, use.set)
              ->type_name(use.set_type)
              ->expected(1)
              ->take_all()
              ->allow_extra_args(false),
          use.set_offer());
  if (!use.out.empty())
    offer(app.add_option("-o,--out", arguments.options.out, use.out)
              ->type_name("DIR")
              ->check(something("a folder")),
          offer_folders());
  if (!use.seed.empty())
    app.add_option("--seed", arguments.seed, use.seed)
        ->type_name("N")
        ->check(integer_between(0, largest_count));
  app.add_option("--threads", arguments.threads,
                 use.threads ? "Worker threads; results do not depend on it (default: all processors)"
                             : "No effect: this command uses one thread")
      ->type_name("N")
      ->check(integer_between(1, most_threads));
  app.add_flag("--quiet", arguments.options.quiet,
               "Suppress progress and notes; print results and errors only")
      ->disable_flag_override();
  app.allow_extras();  // so that unknown options can be answered with a suggestion
}

std::string usage_text(const CLI::ParseError& error) {
  constexpr std::string_view of_flag = " was given a disallowed flag override";
  const std::string text = error.what();
  return text.ends_with(of_flag)
             ? fmt::format("--{} takes no value", text.substr(0, text.size() - of_flag.size()))
             : text;
}

std::vector<std::string> with_values_last(const CLI::App& app, std::vector<std::string> arguments) {
  if (std::ranges::none_of(arguments, is_signed_number)) return arguments;
  std::vector<std::string> options, values;
  bool open = false;  // would the last option take further values, and an "--" as their end?
  const std::size_t count = arguments.size();
  for (std::size_t i = 0; i < count; ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      values.insert(values.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1, arguments.end());
      break;
    }
    if (!argument.starts_with("-") || is_signed_number(argument)) {
      values.push_back(argument);
      continue;
    }
    options.push_back(argument);
    const std::size_t equals = argument.find('=');
    const CLI::Option* const option = app.get_option_no_throw(argument.substr(0, equals));
    open = option != nullptr && option->get_items_expected_max() > option->get_items_expected_min();
    int wanted = option == nullptr ? 0 : option->get_items_expected_min();
    if (equals != std::string::npos) --wanted;
    while (i + 1 < count && (wanted-- > 0 || (open && !arguments[i + 1].starts_with("-"))))
      options.push_back(arguments[++i]);
  }
  if (open) options.emplace_back("--");
  options.emplace_back("--");
  options.insert(options.end(), values.begin(), values.end());
  return options;
}

void require_utf8(const std::vector<std::string>& arguments) {
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    if (utf8_length(arguments[i])) continue;
    std::string shown;
    for (const char c : arguments[i])
      shown += static_cast<unsigned char>(c) < 0x80 ? std::string(1, c)
                                                    : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    usage_error(fmt::format(
        "argument {}, '{}', is not UTF-8: expected UTF-8; a file or folder with such a name must be renamed",
        i, printable(shown)));
  }
}

CommonOptions finish(const CommonArguments& arguments) {
  CommonOptions options = arguments.options;
  options.config = config_called(options.config);
  if (arguments.seed >= 0) options.seed = arguments.seed;
  options.threads = arguments.threads > 0 ? arguments.threads : default_threads();
  return options;
}

void usage_error(const std::string& message) { throw CommandError(ExitCode::usage, message); }

void refuse_extras(const CLI::App& app, const std::string& subject) {
  std::vector<std::string> extras = app.remaining();
  std::erase(extras, "--");  // the end of options is no argument
  if (extras.empty()) return;
  const std::string& extra = extras.front();
  if (!extra.starts_with("-")) usage_error(fmt::format("{}unexpected argument '{}'", subject, extra));
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  const std::string name = extra.substr(0, extra.find('='));
  usage_error(fmt::format("{}unknown option '{}'{}", subject, name, did_you_mean(name, known)));
}

namespace {
/// An error of the command line, before ranks are joined: they are joined for it, so that the first one says
/// it and no other waits.
int report_usage(const std::string& program, const std::string& what) {
  std::optional<Ranks> ranks;
  try {
    if (Ranks::are_launched()) ranks.emplace();
  } catch (const CommandError&) {
    ranks.reset();  // no ranks can be joined: each says what it sees
  }
  try {
    if (!ranks) throw CommandError(ExitCode::usage, what);
    return static_cast<int>(ranks->run([&]() -> ExitCode { throw CommandError(ExitCode::usage, what); }));
  } catch (const CommandError& error) {
    return report_error(program, error.code, error.what());
  }
}

/// CommandError(run_failed) where data are lost.
void flush_output() {
  if (result_error() != 0) throw lost_output(result_error());
  if (std::fflush(stdout) != 0) throw lost_output(errno);
  std::cout.flush();
  if (!std::cout || std::ferror(stdout) != 0) throw lost_output(0);
}

int run_and_report(const std::string& program, const std::function<ExitCode()>& body) {
  try {
    ExitCode code = ExitCode::ok;
    try {
      code = body();
    } catch (const CLI::Success&) {
      // --help and --version have printed
    }
    // An interrupted run has saved its state, whoever reads its output.
    if (code != ExitCode::interrupted) flush_output();
    return static_cast<int>(code);
  } catch (const CLI::ParseError& error) {
    return report_usage(program, usage_text(error));
  } catch (const CommandError& error) {
    return error.code == ExitCode::usage ? report_usage(program, error.what())
                                         : report_error(program, error.code, error.what());
  } catch (const engine::DeviceUnavailable& error) {
    return report_error(program, ExitCode::unavailable, error.what());
  } catch (const std::filesystem::filesystem_error& error) {
    return report_error(program, ExitCode::run_failed,
                        fmt::format("cannot use {}: {}", error.path1().string(), error.code().message()));
  } catch (const std::system_error& error) {
    if (interrupted() && error.code() == std::errc::interrupted)
      return report_error(program, ExitCode::interrupted, error.what());
    // What fmt::print throws does not say which file it was.
    return report_error(program, ExitCode::run_failed,
                        std::ferror(stdout) != 0 ? lost_output(error.code().value()).what() : error.what());
  } catch (const std::exception& error) {
    return report_error(program, ExitCode::run_failed, reason_of(error));
  }
}

}  // namespace

int guarded(const std::string& program, const std::function<ExitCode()>& body) {
  prepare_process();
  try {
    return run_and_report(program, body);
  } catch (...) {  // also of what reports errors
    say("{}: error: an unknown error ended the program", program);
    return static_cast<int>(ExitCode::run_failed);
  }
}

}  // namespace fp16lab::experiments
