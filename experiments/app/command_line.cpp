#include "experiments/app/command_line.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/app/build_info.hpp"
#include "experiments/app/commands.hpp"
#include "experiments/app/config/shipped_configs.hpp"
#include "experiments/app/help/help_text.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/text/message.hpp"
#include "numerics/text/nearest_name.hpp"
#include "numerics/text/own_command.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments {
namespace {

// Completion in bash, zsh and fish. Each shell has a short script that asks this program, with the words
// typed so far, what could come next: so every shell offers the same, and what this build knows.

constexpr const char* completion_shells[] = {"bash", "zsh", "fish"};

namespace fs = std::filesystem;

/// Lines of an answer.
struct Completions {
  std::string begun;                 ///< what is there of the word
  std::string before = {};           ///< what comes before the value in that word: "--config="
  std::set<std::string> lines = {};  ///< without doubles
  bool paths = false, open = false;

  void add(const std::string& value, const std::string& help = {}) {
    if (!value.starts_with(begun)) return;
    lines.insert(before + value + (help.empty() ? "" : "\t" + help));
  }
};

void add_paths(Completions& answer, const Offer& offer) {
  const std::size_t slash = answer.begun.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : answer.begun.substr(0, slash + 1);
  std::string real = folder.empty() ? "." : folder;
  const char* const home = std::getenv("HOME");  // NOLINT(concurrency-mt-unsafe): one thread
  if (real.starts_with("~/") && home != nullptr) real.replace(0, 1, home);
  const bool hidden = answer.begun.substr(folder.size()).starts_with(".");
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(real, error)) {
    const std::string name = entry.path().filename().string();
    if (!is_printable(name)) continue;  // a line break would make two offers of it
    if ((name.starts_with(".") && !hidden) || !(folder + name).starts_with(answer.begun)) continue;
    const bool is_folder = entry.is_directory(error);
    const bool is_run = is_folder && offer.runs && is_run_folder(entry.path());
    const auto fits = [&name](const std::string& ending) { return name.ends_with(ending); };
    if (is_folder ? !offer.folders : std::ranges::none_of(offer.files, fits)) continue;
    answer.paths = true;
    answer.add(folder + name + (is_folder && !is_run ? "/" : ""), is_run ? "a run" : "");
    answer.open = answer.open || (is_folder && !is_run);
  }
}

void add_offer(Completions& answer, const Offer& offer) {
  if (offer.words) {
    const bool in_value = answer.begun.find('=') != std::string::npos;
    for (const std::string& word : offer.words()) {
      const std::size_t equals = word.find('=');
      const bool is_key = equals != std::string::npos && equals + 1 == word.size();
      if (equals != std::string::npos && is_key == in_value) continue;
      const bool fits = word.starts_with(answer.begun);
      answer.add(word);
      answer.open = answer.open || (is_key && fits);
    }
  }
  if (offer.folders || !offer.files.empty()) add_paths(answer, offer);
}

std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

const CLI::App* command_called(const CLI::App& program, const std::string& name) {
  for (const CLI::App* command : program.get_subcommands([](const CLI::App*) { return true; }))
    if (command->get_name() == name) return command;
  return nullptr;
}

/// The option of `app` that is called `name`; null if there is none.
const CLI::Option* called(const CLI::App& app, const std::string& name) {
  for (const CLI::Option* option : app.get_options())
    for (const std::string& known : names_of(*option))
      if (known == name) return option;
  return nullptr;
}

/// How many words after its name belong to it.
int values_of(const CLI::Option& option) {
  return option.get_items_expected_min() == 0 ? 0 : option.get_type_size();
}

void add_options(Completions& answer, const CLI::App& app) {
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : names_of(*option))
      if (name.starts_with("--") && !option->get_group().empty())
        answer.add(name, first_clause(option->get_description()));
}

void add_commands(Completions& answer, const CLI::App& program) {
  for (const CLI::App* command : program.get_subcommands([](const CLI::App*) { return true; }))
    answer.add(command->get_name(), first_clause(command->get_description()));
}

/// What comes after a command: an option's value, an option, or an argument.
void add_after(Completions& answer, const CLI::App& command, const Offers& offers,
               const std::vector<std::string>& words) {
  const CLI::Option* taking = nullptr;
  int left = 0;
  bool options_ended = false;
  for (std::size_t i = 1; i + 1 < words.size(); ++i) {
    if (left > 0) {
      --left;
      continue;
    }
    if (words[i] == "--") options_ended = true;
    if (options_ended || !words[i].starts_with("-")) continue;
    const CLI::Option* const option = called(command, words[i]);
    if (option == nullptr) continue;
    taking = option;
    left = values_of(*option);
  }
  const auto offer_of = [&](const CLI::Option* option) {
    if (const auto found = offers.find(option); found != offers.end()) add_offer(answer, found->second);
  };
  if (left > 0) return offer_of(taking);
  if (!options_ended && answer.begun.starts_with("-")) {
    const std::size_t equals = answer.begun.find('=');
    if (equals == std::string::npos) return add_options(answer, command);
    answer.before = answer.begun.substr(0, equals + 1);
    const CLI::Option* const option = called(command, answer.begun.substr(0, equals));
    answer.begun.erase(0, equals + 1);
    return offer_of(option);
  }
  for (const CLI::Option* option : command.get_options())
    if (option->get_positional()) offer_of(option);
}

constexpr const char* bash_script = R"sh(# bash completion of fp16lab; made by: fp16lab completion bash
_fp16lab() {
  # The words as they were typed: bash has split them at = and :, too.
  local words=() i word line begun=${COMP_WORDS[COMP_CWORD]} glued=
  for ((i = 1; i <= COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]//\\/}
    if [[ ${#words[@]} -gt 0 && ($word == [=:]* || $glued) ]]; then
      words[-1]+=$word
    else
      words+=("$word")
    fi
    if [[ $word == *[=:] ]]; then glued=1; else glued=; fi
  done
  if [[ $begun == [=:]* ]]; then begun=; fi
  local typed=${words[-1]}
  local before=${typed%"${begun//\\/}"}
  COMPREPLY=()
  while IFS= read -r line; do
    case $line in
      :paths) compopt -o filenames 2>/dev/null ;;
      :open) compopt -o nospace 2>/dev/null ;;
      ?*) line=${line%%$'\t'*} && COMPREPLY+=("${line#"$before"}") ;;
    esac
  done <<<"$("${COMP_WORDS[0]}" completion --answer "${words[@]}" 2>/dev/null)"
}
complete -F _fp16lab fp16lab
)sh";

constexpr const char* zsh_script = R"sh(#compdef fp16lab
# zsh completion of fp16lab; made by: fp16lab completion zsh
_fp16lab() {
  local line texts values paths open
  local -a values texts paths open
  for line in "${(@f)$("${(Q)words[1]}" completion --answer "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}"; do
    case $line in
      :paths) paths=(-f) ;;
      :open) open=(-S '') ;;
      ?*) values+=("${line%%$'\t'*}") && texts+=("${line/$'\t'/  -- }") ;;
    esac
  done
  (( ${#values} )) || return 1
  if (( ${#paths} )); then
    compadd $open -f -- $values
  else
    compadd $open -l -d texts -- $values
  fi
}
if [[ ${funcstack[1]} == _fp16lab ]]; then _fp16lab "$@"; else compdef _fp16lab fp16lab; fi
)sh";

constexpr const char* fish_script = R"sh(# fish completion of fp16lab; made by: fp16lab completion fish
function __fp16lab_answer
    set -l words (commandline -opc)
    $words[1] completion --answer $words[2..-1] (commandline -ct) 2>/dev/null | string match -v -r '^:'
end
complete -c fp16lab -f -k -a '(__fp16lab_answer)'
)sh";

/// The script of a shell, which is one of completion_shells.
std::string completion_script(std::string_view shell) {
  return shell == "bash" ? bash_script : shell == "zsh" ? zsh_script : fish_script;
}

void print_help(const CLI::App& app, bool whole) {
  fmt::print("{}", help_text(app, screen_columns(), whole));
}

/// --help and --version print what they ask for and throw CLI::Success.
void parse_arguments(CLI::App& app, std::vector<std::string> arguments) {
  std::ranges::reverse(arguments);  // CLI11 parses from the back
  try {
    app.parse(arguments);
  } catch (const CLI::CallForHelp&) {
    print_help(app.get_subcommands().empty() ? app : *app.get_subcommands().front(), false);
    throw;
  } catch (const CLI::CallForVersion& version) {
    fmt::print("{}\n", version.what());
    throw;
  }
}

/// An experiment's options, and what becomes of them. It stays where it was made: options are written into it.
class ExperimentProgram {
 public:
  ExperimentProgram(const Experiment& experiment, const std::string& program)
      : experiment_(&experiment), app_(experiment.question + experiment.more, program) {
    app_.set_version_flag("--version", version_line(program));
    add_common(app_, arguments_, common_use());
    Options options(app_, arguments_.offers);
    run_ = experiment.declare(options);
    std::string examples = experiment.examples;
    for (std::size_t at = 0; (at = examples.find("{}", at)) != std::string::npos;)
      examples.replace(at, 2, program);
    app_.footer(examples);
  }
  ExperimentProgram(const ExperimentProgram&) = delete;
  ExperimentProgram& operator=(const ExperimentProgram&) = delete;

  const CLI::App& app() const { return app_; }
  const Offers& offers() const { return arguments_.offers; }

  /// `given`: those of `argv` that are its own.
  ExitCode run(const std::vector<std::string>& argv, std::vector<std::string> given) {
    require_utf8(argv);
    arguments_.options.argv = argv;
    if (std::ranges::find(given, "--help-all") != given.end()) {
      print_help(app_, true);
      return ExitCode::ok;
    }
    parse_arguments(app_, with_values_last(app_, std::move(given)));
    refuse_extras(app_);
    CommonOptions common = finish(arguments_);
    common.program = app_.get_name();
    common.question = first_lowered(experiment_->question);
    if (common.config.empty() && !experiment_->config.empty())
      common.config = shipped_config(experiment_->config);
    if (common.out.empty()) common.out = experiment_->out;
    if (!experiment_->device) announce_output(common);
    return run_(common);
  }

 private:
  CommonUse common_use() const {
    const bool settings = experiment_->settings || !experiment_->config.empty();
    CommonUse common{.sweeps = experiment_->sweeps, .threads = true};
    common.out = experiment_->out.empty()
                     ? "Folder for the results as CSV (default: no files)"
                     : fmt::format("Folder for the results (default: {})", experiment_->out);
    if (settings) {
      common.config = experiment_->config.empty() ? std::string("Configuration in TOML")
                                                  : fmt::format("Configuration in TOML (default: {})",
                                                                shipped_config(experiment_->config).string());
      common.set = "Override a configuration key, such as --set train.steps=20 (repeatable)";
    }
    if (settings || experiment_->seed) common.seed = "Seed of everything random, same as train.seed";
    return common;
  }
  static std::string first_lowered(std::string text) {
    if (!text.empty() && text[0] >= 'A' && text[0] <= 'Z') text[0] = static_cast<char>(text[0] - 'A' + 'a');
    return text;
  }

  const Experiment* experiment_;
  CLI::App app_;
  CommonArguments arguments_;
  Command::Run run_;
};

constexpr std::string_view experiment_prefix = "exp_";

std::string short_name(const Experiment& experiment) {
  return experiment.name.substr(experiment_prefix.size());
}

/// The one that is called so in `fp16lab ask`; null where there is none.
const Experiment* experiment_called(std::span<const Experiment> experiments, std::string_view name) {
  const auto found = std::ranges::find(experiments, name, short_name);
  return found == experiments.end() ? nullptr : &*found;
}

/// A question, and the words that are its own.
struct Asked {
  const Experiment* question = nullptr;  ///< null where the words ask none
  std::vector<std::string> words = {};
};

/// `words` after the program's name. Options of `ask` itself may come before the question, and are the
/// question's then; `help ask QUESTION` is `ask QUESTION --help`.
Asked asked_by(std::span<const Experiment> experiments, std::vector<std::string> words) {
  if (words.size() > 2 && words[0] == "help" && words[1] == "ask") words = {"ask", words[2], "--help"};
  if (words.empty() || words[0] != "ask") return {};
  const std::set<std::string_view> own{"--quiet", "--json", "-h", "--help", "--help-all"};
  std::size_t at = 1;
  while (at < words.size() && (own.contains(words[at]) || words[at].starts_with("--threads")))
    at += words[at] == "--threads" ? 2 : 1;
  if (at >= words.size()) return {};
  const Experiment* const question = experiment_called(experiments, words[at]);
  words.erase(words.begin() + static_cast<std::ptrdiff_t>(at));
  words.erase(words.begin());
  return {question, std::move(words)};
}

/// What could take the place of the last of `words` (after the program's name; the last may be empty):
///   CANDIDATE [TAB what it is]     as a whole word, beginning with what is there of it
///   :paths                         the candidates are paths: shells quote them and add a slash to folders
///   :open                          no blank after the candidates, because there is more to come
std::string completion_answer(const CLI::App& program, const Offers& offers,
                              std::span<const Experiment> experiments,
                              const std::vector<std::string>& words) {
  Completions answer{.begun = words.empty() ? "" : words.back()};
  const CLI::App* const command = words.size() < 2 ? nullptr : command_called(program, words.front());
  Asked asked = words.empty() ? Asked{} : asked_by(experiments, {words.begin(), words.end() - 1});
  if (asked.question != nullptr) {
    const ExperimentProgram of_question(*asked.question, asked.question->name);
    asked.words.insert(asked.words.begin(), "ask");
    asked.words.push_back(words.back());
    add_after(answer, of_question.app(), of_question.offers(), asked.words);
  } else if (command != nullptr)
    add_after(answer, *command, offers, words);
  else if (words.size() < 2 && answer.begun.starts_with("-"))
    add_options(answer, program);
  else if (words.size() < 2)
    add_commands(answer, program);
  std::string text;
  for (const std::string& line : answer.lines) text += line + "\n";
  return text + (answer.paths ? ":paths\n" : "") + (answer.open ? ":open\n" : "");
}

/// The fp16lab program's commands and what they were given.
class Program {
 public:
  explicit Program(std::span<const Experiment> experiments)
      : experiments_(experiments),
        app_("FP16 and tensor-core arithmetic, loss scaling and gradient underflow, bit by bit", "fp16lab") {
    app_.set_help_flag("-h,--help", "Show this help; for a command: COMMAND --help");
    app_.set_version_flag("--version", version_line("fp16lab"));
    app_.footer(
        "fp16lab train -c classifier --set amp.level=O1 -o results/try\n"
        "fp16lab sweep -c demo -o results/demo --report\n"
        "fp16lab help train");
    app_.allow_extras();
    app_.require_subcommand(0, 1);  // after a command its name is an argument: list config_keys train
    for (const Command& command :
         {train_command(),      sweep_command(),   model_command(),     hist_command(),
          replay_command(),     compare_command(), mismatch_command(),  sensitivity_command(),
          report_command(),     inspect_command(), softfloat_command(), mma_command(),
          reveal_command(),     policy_command(),  list_command(),      devices_command(),
          self_check_command(), ask_command(),     help_command(),      completion_command()})
      add(command);
  }

  ExitCode run(std::vector<std::string> arguments) {
    require_utf8(arguments);
    arguments_.options.argv = arguments;
    arguments.erase(arguments.begin());
    if (arguments.empty()) usage_error(fmt::format("expected a command: {}", fmt::join(names(), ", ")));
    if (arguments.size() > 1 && arguments[0] == "completion" && arguments[1] == "--answer") {
      arguments.erase(arguments.begin(), arguments.begin() + 2);
      fmt::print("{}", completion_answer(app_, arguments_.offers, experiments_, arguments));
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
    try {
      parse_arguments(app_, arguments);
    } catch (const CLI::Success&) {
      throw;
    } catch (const CLI::ParseError& error) {
      refuse_all_extras();  // an unknown option is the likelier cause of "value missing"
      const std::vector<CLI::App*> chosen = app_.get_subcommands();
      if (chosen.empty() || dynamic_cast<const CLI::ValidationError*>(&error) != nullptr) throw;
      usage_error(usage_text(error) + "; see " + own_command({chosen.front()->get_name(), "--help"}));
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
    return {.name = "help",
            .description = "Show the help of a command on one screen; without one, list the commands",
            .examples = "fp16lab help\nfp16lab help sweep",
            .declare = [this](Options& options) -> Command::Run {
              auto command = std::make_shared<std::string>(), question = std::make_shared<std::string>();
              options.add("COMMAND", *command, "The command to describe").offers({.words = [this] {
                return names();
              }});
              options.add("QUESTION", *question, "After ask: the question to describe");
              return [this, command, question](const CommonOptions&) {
                const std::vector<std::string> known = names();
                if (!command->empty() && std::ranges::find(known, *command) == known.end())
                  usage_error(fmt::format("unknown command '{}'{}", *command, did_you_mean(*command, known)));
                if (*command == "ask") require_question(*question);
                if (!question->empty()) usage_error(fmt::format("help: unexpected argument '{}'", *question));
                print_help(called(*command), false);
                return ExitCode::ok;
              };
            }};
  }

  /// What `ask` does without a question; with one, fp16lab_main runs that experiment.
  Command ask_command() {
    return {
        .name = "ask",
        .description =
            "Answer a question by measurements and training runs; without a question, list them all",
        .examples = "fp16lab ask\nfp16lab ask underflow -o results/underflow\nfp16lab ask underflow --help",
        .declare = [this](Options& options) -> Command::Run {
          auto name = std::make_shared<std::string>();
          auto json = std::make_shared<bool>(false);
          options.add("QUESTION", *name, "The question to answer; its own options follow it")
              .offers(offer_words(asked()));
          options.flag("--json", *json,
                       "Print the list as JSON (after a QUESTION: an option of that question)");
          return [this, name, json](const CommonOptions& common) {
            if (experiment_called(experiments_, *name) != nullptr)
              usage_error("ask: expected the question before options: " + own_command({"ask", *name}));
            require_question(*name);
            print_questions(*json, common.quiet);
            return ExitCode::ok;
          };
        }};
  }

  std::vector<std::string> asked() const {
    std::vector<std::string> list;
    for (const Experiment& experiment : experiments_) list.push_back(short_name(experiment));
    return list;
  }

  /// A usage error where `name` is neither empty nor a question's.
  void require_question(const std::string& name) const {
    if (!name.empty() && experiment_called(experiments_, name) == nullptr)
      usage_error(fmt::format("ask: unknown question '{}'{}; {} lists them", name,
                              did_you_mean(name, asked()), own_command({"ask"})));
  }

  void print_questions(bool json, bool quiet) const {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Experiment& experiment : experiments_) {
      const std::string name = short_name(experiment);
      if (json)
        list.push_back({{"name", name}, {"question", experiment.question}, {"time", experiment.time}});
      else
        fmt::print("{:<19} {:<16} {}\n", name, experiment.time, experiment.question);
    }
    if (json) fmt::print("{}\n", list.dump(2));
    if (!json && !quiet)
      say("times are for two cores; {0} NAME answers a question, {0} NAME --help lists its options",
          own_command({"ask"}));
  }

  Command completion_command() {
    return {.name = "completion",
            .description = "Print a shell's completion script: for commands, options, keys and runs",
            .examples =
                "eval \"$(fp16lab completion bash)\"     in ~/.bashrc; zsh in ~/.zshrc, after compinit\n"
                "fp16lab completion fish > ~/.config/fish/completions/fp16lab.fish",
            .declare = [](Options& options) -> Command::Run {
              auto shell = std::make_shared<std::string>();
              options.add("SHELL", *shell, "The shell to print the script for")
                  .required()
                  .one_of({"bash", "zsh", "fish"});
              return [shell](const CommonOptions&) {
                fmt::print("{}", completion_script(*shell));
                return ExitCode::ok;
              };
            }};
  }

  void refuse_all_extras() {
    refuse_extras(app_);
    for (const CLI::App* command : app_.get_subcommands())
      refuse_extras(*command, command->get_name() + ": ");
  }

  void add(const Command& command) {
    CLI::App* app = app_.add_subcommand(command.name, command.description)->group("Commands");
    add_common(*app, arguments_, command.uses);
    Options options(*app, arguments_.offers);
    app->footer(command.examples);
    app->callback(
        [this, run = command.declare(options)] { run_ = [this, run] { return run(finish(arguments_)); }; });
  }

  std::span<const Experiment> experiments_;
  CLI::App app_;
  CommonArguments arguments_;
  std::function<ExitCode()> run_;
};

}  // namespace

int experiment_main(int argc, char** argv, const Experiment& experiment) {
  return guarded(experiment.name, [&] {
    return ExperimentProgram(experiment, experiment.name)
        .run({argv, argv + argc}, {argv + std::min(argc, 1), argv + argc});
  });
}

int fp16lab_main(int argc, char** argv, std::span<const Experiment> experiments) {
  const std::vector<std::string> words(argv, argv + argc);
  const fs::path path = words.empty() ? "" : words[0];
  const std::string called = path.filename().string();
  const bool is_link = called.starts_with(experiment_prefix);
  set_own_program((is_link ? path.parent_path() / "fp16lab" : path).string());
  if (is_link)
    if (const Experiment* const asked =
            experiment_called(experiments, called.substr(experiment_prefix.size())))
      return experiment_main(argc, argv, *asked);
  const Asked asked = words.empty() ? Asked{} : asked_by(experiments, {words.begin() + 1, words.end()});
  if (asked.question != nullptr) {
    const std::string program = "fp16lab ask " + short_name(*asked.question);
    return guarded(program,
                   [&] { return ExperimentProgram(*asked.question, program).run(words, asked.words); });
  }
  return guarded("fp16lab", [&] { return Program(experiments).run(words); });
}

}  // namespace fp16lab::experiments
