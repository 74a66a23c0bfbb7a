// What commands and questions do alike with argv: the common options, their own options, the end of every
// help text, errors and exit codes. CLI11 compiles slowly, so only arguments.cpp and command_line.cpp include
// it.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/app/common_options.hpp"

namespace CLI {
class App;
class ParseError;
class Option;
}  // namespace CLI

namespace fp16lab::experiments {

inline constexpr std::int64_t largest_count = 9007199254740991;  ///< doubles hold every integer up to it

/// What completion offers where a value is wanted.
struct Offer {
  std::function<std::vector<std::string>()> words = {};  ///< "KEY=" among them needs a value after it
  bool folders = false, runs = false;                    ///< folders; of them, run folders as a whole
  std::vector<std::string> files = {};                   ///< by the ends of their names; "": any
};
/// The offers of options and arguments; one without an entry offers nothing.
using Offers = std::map<const CLI::Option*, Offer>;

Offer offer_words(std::vector<std::string> words);
Offer offer_names(std::span<const std::string_view> names);
Offer offer_files(std::vector<std::string> endings = {""});
Offer offer_folders();
Offer offer_runs(std::vector<std::string> dumps = {});  ///< and files of these endings
Offer offer_configs(bool sweeps, bool trainings);       ///< those that come with the program, and files
Offer offer_settings();                                 ///< KEY=VALUE of every configuration key
Offer offer_policy_settings();                          ///< NAME=VALUE of every parameter of a policy

/// One option while it is declared. A value that breaks a rule is a usage error that names option, value and
/// rule.
class Option {
 public:
  Option(CLI::Option* option, Offers& offers) : option_(option), offers_(&offers) {}
  Option& type(const std::string& name);  ///< what --help shows for the value
  Option& group(const std::string& heading);
  Option& required();
  Option& repeatable();               ///< one value each time, all are kept
  Option& separated(char delimiter);  ///< one or more values, also in one argument
  Option& values(int count);          ///< exactly so many, as arguments of their own
  Option& one_of(std::initializer_list<const char*> values);
  /// Integers from `minimum` to `maximum` (largest_count: "or more").
  Option& at_least(std::int64_t minimum, std::int64_t maximum = largest_count);
  Option& not_negative();                      ///< finite, 0 or more
  Option& not_empty(const std::string& what);  ///< "expected a file"
  Option& name();                              ///< NAME: text without control characters
  Option& offers(Offer offer);                 ///< what completion knows of it

 private:
  CLI::Option* option_;
  Offers* offers_;
};

/// Where a command declares its own options. Values are written into the targets, which must live as long as
/// the command.
class Options {
 public:
  Options(CLI::App& app, Offers& offers) : app_(&app), offers_(&offers) {}
  /// `name`: "--scale", or "RUN" for an argument. T: std::string, std::filesystem::path, std::vector of
  /// these, double, int, std::optional of int, std::int64_t or std::uint64_t.
  template <class T>
  Option add(const std::string& name, T& value, const std::string& help);
  /// T: bool; or std::string, which takes "auto" of "--live{auto}" where the flag has no value.
  template <class T>
  Option flag(const std::string& name, T& value, const std::string& help);
  /// --force, --mix-builds and --jobs of everything that sweeps.
  void add_sweeping(SweepOptions& options);

 private:
  CLI::App* app_;
  Offers* offers_;
};

/// Which of the common options a program has, and what help says of them; empty: it has no such option.
/// --threads and --quiet change no result, so every program takes them.
struct CommonUse {
  std::string config = {};
  bool bare_config = false;  ///< may the file also come without --config?
  std::string set = {};
  std::string set_type = "KEY=VALUE";
  std::function<Offer()> set_offer = offer_settings;
  bool sweeps = false;  ///< is the file a sweep's?
  std::string out = {};
  std::string seed = {};
  bool threads = false;  ///< does it work in several?
};

/// A command of fp16lab.
struct Command {
  using Run = std::function<ExitCode(const CommonOptions& common)>;
  std::string name;  ///< "hist"
  std::string description;
  std::string examples;  ///< two lines
  CommonUse uses = {};
  /// Declares the command's own options. What it returns carries the command out, and owns what the options
  /// were written into.
  std::function<Run(Options& options)> declare;
};

/// Where CLI11 writes the common options; -1 and 0 are "not given".
struct CommonArguments {
  CommonOptions options;
  std::int64_t seed = -1;
  int threads = 0;
  Offers offers;
};

/// Adds them to `app`, which keeps pointers into `arguments`, and lets `app` keep what it does not know: call
/// refuse_extras after parsing.
void add_common(CLI::App& app, CommonArguments& arguments, const CommonUse& use);

/// `arguments`, with what is no option of `app` after "--" where there is a number with a sign among it:
/// "-inf" and "-.5" are values and no options.
std::vector<std::string> with_values_last(const CLI::App& app, std::vector<std::string> arguments);

/// A usage error for the first argument that is not UTF-8: what runs are given goes into JSON, which is.
void require_utf8(const std::vector<std::string>& arguments);

/// The options as given, or their defaults.
CommonOptions finish(const CommonArguments& arguments);

/// What is wrong with the arguments, in this program's words.
std::string usage_text(const CLI::ParseError& error);
[[noreturn]] void usage_error(const std::string& message);

/// The first argument that `app` does not know becomes a usage error that begins with `subject`, with a
/// suggestion where it looks like an option.
void refuse_extras(const CLI::App& app, const std::string& subject = {});

/// Runs `body`, turning every way to fail into one line on stderr and an exit code.
int guarded(const std::string& program, const std::function<ExitCode()>& body);

}  // namespace fp16lab::experiments
