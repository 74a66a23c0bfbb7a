#include "experiments/app/help/help_text.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>
#include <vector>

#include "experiments/app/help/terminal.hpp"

namespace fp16lab::experiments {
namespace {

/// How much is said, from everything to what must be.
enum class Detail { all, summary, clauses, lines };

/// One line of a list: names on the left, what they are on the right.
struct Entry {
  std::string name, text;
};

struct Group {
  std::string heading;
  std::vector<Entry> entries;
};

/// "--format NAME,..." and, behind the text, the values that are known.
Entry entry_of(const CLI::Option& option) {
  std::string name;
  for (const std::string& each : option.get_snames()) name += (name.empty() ? "-" : ",-") + each;
  for (const std::string& each : option.get_lnames()) name += (name.empty() ? "--" : ",--") + each;
  std::string type = option.get_type_name(), text = option.get_description();
  if (const std::size_t values = type.find(":{"); values != std::string::npos) {
    if (text.find(type.substr(values + 2, type.find(',', values) - values - 2)) == std::string::npos)
      text += ": " + type.substr(values + 2, type.size() - values - 3);
    type.resize(values);
  }
  if (name.empty()) return {option.get_name(), text};
  if (option.get_items_expected_min() > 0 || type.starts_with("[")) {
    if (type == "TEXT") type = "NAME";
    name += (type.starts_with("[") ? "" : " ") + type;
  }
  return {name, text};
}

std::vector<Group> groups_of(const CLI::App& app) {
  std::vector<Group> groups;
  const auto add = [&groups](const std::string& heading, Entry entry) {
    auto group = std::ranges::find(groups, heading, &Group::heading);
    if (group == groups.end()) group = groups.insert(group, {heading, {}});
    group->entries.push_back(std::move(entry));
  };
  for (const CLI::Option* option : app.get_options())
    if (option->get_positional() && option->get_lnames().empty()) add("Arguments", entry_of(*option));
  for (const CLI::Option* option : app.get_options())
    if (!option->get_group().empty() && !(option->get_positional() && option->get_lnames().empty()))
      add(option->get_group(), entry_of(*option));
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    add("Commands", {command->get_name(), first_clause(command->get_description())});
  return groups;
}

std::string usage_of(const CLI::App& app) {
  std::string usage = "Usage: ";
  if (app.get_parent() != nullptr) usage += app.get_parent()->get_name() + " ";
  usage += app.get_name() + " [OPTIONS]";
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) continue;
    const std::string name = option->get_name(true, false) + (option->get_expected_max() > 1 ? "..." : "");
    usage += option->get_required() ? " " + name : " [" + name + "]";
  }
  if (!app.get_subcommands([](const CLI::App*) { return true; }).empty()) usage += " COMMAND";
  return usage;
}

/// Paragraphs; a line that begins with blanks is a row of a list and stays one, its second column aligned.
std::string description_of(std::string_view text, std::size_t columns) {
  std::string lines, paragraph;
  const auto flush = [&] {
    if (!paragraph.empty()) lines += wrapped(paragraph, columns, 0, 0) + "\n";
    paragraph.clear();
  };
  std::istringstream input{std::string(text)};
  for (std::string line; std::getline(input, line);) {
    if (line.empty() || line.starts_with(" ")) flush();
    if (line.empty()) {
      lines += "\n";
    } else if (line.starts_with(" ")) {
      const std::size_t begin = line.find_first_not_of(' '), gap = line.find("  ", begin);
      const std::size_t second = gap == std::string::npos ? begin : line.find_first_not_of(' ', gap);
      lines += line.substr(0, second) + wrapped(line.substr(second), columns, second, second) + "\n";
    } else {
      paragraph += (paragraph.empty() ? "" : " ") + line;
    }
  }
  flush();
  return lines;
}

std::string list_of(const std::vector<Entry>& entries, std::size_t columns, std::size_t width,
                    Detail detail) {
  std::string lines;
  for (const auto& [name, text] : entries) {
    const std::size_t begun = std::max(name.size() + 4, width);
    std::string shown = detail >= Detail::clauses ? first_clause(text) : text;
    std::ranges::replace(shown, '\n', ' ');
    if (detail == Detail::lines) shown = columns > begun + 12 ? cut(shown, columns - begun) : "";
    lines += fmt::format("  {:<{}}", name, begun - 2);
    lines += wrapped(shown, columns, begun, width);
    while (lines.ends_with(' ')) lines.pop_back();
    lines += '\n';
  }
  return lines;
}

std::string text_of(const CLI::App& app, std::size_t columns, Detail detail) {
  const std::vector<Group> groups = groups_of(app);
  constexpr std::size_t widest_name = 24;
  std::size_t width = 0;
  for (const Group& group : groups)
    for (const Entry& entry : group.entries)
      width = std::max(width, std::min(entry.name.size(), widest_name));
  const char* const between = detail == Detail::lines ? "" : "\n";
  std::string text = detail == Detail::all
                         ? description_of(app.get_description(), columns)
                         : wrapped(first_clause(app.get_description()), columns, 0, 0) + "\n";
  if (detail != Detail::all && text.find('.') == std::string::npos) text.insert(text.size() - 1, ".");
  text += wrapped(usage_of(app), columns, 0, 7) + "\n";
  for (const Group& group : groups)
    text += between + group.heading + ":\n" + list_of(group.entries, columns, width + 4, detail);
  text += between + std::string("Examples:\n");
  std::istringstream examples(app.get_footer());
  std::size_t shown = 0;
  for (std::string line; std::getline(examples, line) && (shown < 2 || detail < Detail::clauses); ++shown)
    text += "  " + line.substr(std::min(line.find_first_not_of(' '), line.size())) + "\n";
  text += between;
  text += wrapped(detail < Detail::clauses
                      ? "Exit codes: 0 ok; 1 run failed (unreadable data, unwritable output, a device's "
                        "failure); 2 usage or configuration; 3 back end or device not there; 4 diverged; 5 "
                        "verification mismatch; 130 interrupted with state saved."
                      : "Exit codes: 0 ok; 1 run failed; 2 usage; 3 back end not there; 4 diverged; 5 "
                        "verification mismatch; 130 interrupted.",
                  columns, 0, 2) +
          "\n";
  return text;
}

/// Examples are commands that are copied, so they are never broken: the terminal does that.
std::size_t lines_on_screen(std::string_view text, std::size_t columns) {
  std::size_t lines = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines += std::max<std::size_t>((end + columns - 1) / columns, 1);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

std::string first_clause(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool stops = std::string_view(".:;").find(text[i]) != std::string_view::npos;
    const bool ends = i + 1 == text.size() || text[i + 1] == ' ' || text[i + 1] == '\n';
    if (stops && ends) {
      text = text.substr(0, i);
      break;
    }
  }
  std::string clause(text);
  std::ranges::replace(clause, '\n', ' ');
  return clause;
}

std::string help_text(const CLI::App& app, std::size_t columns, bool whole) {
  std::string text;
  for (const Detail detail : {Detail::all, Detail::summary, Detail::clauses, Detail::lines}) {
    text = text_of(app, columns, detail);
    if (whole || lines_on_screen(text, columns) <= screen_lines) break;
  }
  return text;
}

}  // namespace fp16lab::experiments
