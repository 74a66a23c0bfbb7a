#include "experiments/app/help/completion.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "experiments/app/help/help_text.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments {
namespace {

namespace fs = std::filesystem;

/// Lines of an answer.
struct Completions {
  std::string begun;                 ///< what is there of the word
  std::string before = {};           ///< what stands before the value in that word: "--config="
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

/// How many words behind its name belong to it.
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

/// What comes behind a command: an option's value, an option, or an argument.
void add_behind(Completions& answer, const CLI::App& command, const Offers& offers,
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

}  // namespace

std::string completion_script(std::string_view shell) {
  return shell == "bash" ? bash_script : shell == "zsh" ? zsh_script : fish_script;
}

std::string completion_answer(const CLI::App& program, const Offers& offers,
                              const std::vector<std::string>& words) {
  Completions answer{.begun = words.empty() ? "" : words.back()};
  const CLI::App* const command = words.size() < 2 ? nullptr : command_called(program, words.front());
  if (command != nullptr)
    add_behind(answer, *command, offers, words);
  else if (words.size() < 2 && answer.begun.starts_with("-"))
    add_options(answer, program);
  else if (words.size() < 2)
    add_commands(answer, program);
  std::string text;
  for (const std::string& line : answer.lines) text += line + "\n";
  return text + (answer.paths ? ":paths\n" : "") + (answer.open ? ":open\n" : "");
}

}  // namespace fp16lab::experiments
