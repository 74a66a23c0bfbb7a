// What the fp16lab program and the experiment binaries do alike with argv: the common options, the end of every help
// text, errors and exit codes. CLI11 compiles slowly: only arguments.cpp, command_line.cpp, experiment_main.cpp
// and the *_options.cpp include it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "experiments/app/commands.hpp"

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace fp16lab::experiments {

/// Where CLI11 writes the common options; -1 and 0 are "not given".
struct CommonArguments {
  CommonOptions options;
  std::int64_t seed = -1;
  int threads = 0;
};

/// Which of the common options a program has, and what help says of them; empty: it has no such option. --threads and
/// --quiet change no result, so every program takes them.
struct CommonUse {
  std::string config = {};
  std::string set = {};
  std::string set_type = "KEY=VALUE";
  std::string out = {};
  std::string seed = {};
  bool threads = false;  ///< does it work in several?
};

/// Adds them to `app`, which keeps pointers into `arguments`, and lets `app` keep what it does not know: call
/// refuse_extras after parsing.
void add_common(CLI::App& app, CommonArguments& arguments, const CommonUse& use);

/// --force, --mix-builds and --jobs of everything that sweeps.
void add_sweeping(CLI::App& app, SweepOptions& options);

/// A usage error for the first argument that is not UTF-8: what runs are told goes into JSON, which is.
void require_utf8(const std::vector<std::string>& arguments);

/// The options as given, or their defaults.
CommonOptions finish(const CommonArguments& arguments);

/// A check for an option whose values are integers from `minimum` to `maximum` (largest_count: "or more").
inline constexpr std::int64_t largest_count = 9007199254740991;  ///< doubles hold every integer up to it
CLI::Validator at_least(std::int64_t minimum, std::int64_t maximum = largest_count);
/// A check for an option whose values are finite numbers, 0 or more.
CLI::Validator not_negative();
/// A check that an option was given something: "expected a file".
CLI::Validator not_empty(const std::string& what);

/// What stands below a help text: examples, then the exit codes.
std::string footer(const std::string& examples);

[[noreturn]] void usage_error(const std::string& message);

/// The first argument that `app` does not know becomes a usage error, with a suggestion where it looks like an option.
void refuse_extras(const CLI::App& app, const std::string& program);

/// Runs `body`, turning every way to fail into one line on stderr and an exit code.
int guarded(const std::string& program, const std::function<ExitCode()>& body);

}  // namespace fp16lab::experiments
