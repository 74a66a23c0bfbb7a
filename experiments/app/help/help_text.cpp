#include "experiments/app/help/help_text.hpp"
#include "numerics/text/text.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <sstream>
#include <vector>

namespace fp16lab::experiments {
namespace {

constexpr std::size_t least_columns = 40, usual_columns = 80;

std::size_t width_of(std::string_view text) { return utf8_length(text).value_or(text.size()); }

/// How much is said: everything; without the details of the description; what a screen has room for; that
/// without blank lines.
enum class Detail { all, summary, screen, dense, names };  // names: of options in groups of their own

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

/// The paragraph of a filter that says what it reads, which every help shows; "" where there is none.
std::string_view input_paragraph(std::string_view description) {
  const std::size_t begin = description.find("\n\nInput lines:\n");
  if (begin == std::string_view::npos) return {};
  description.remove_prefix(begin + 2);
  return description.substr(0, description.find("\n\n"));
}

/// `text` behind `begun` characters, cut to `lines` lines.
std::string in_lines(const std::string& text, std::size_t columns, std::size_t begun, std::size_t indent,
                     std::size_t lines) {
  const auto fits = [lines](const std::string& shown) {
    return static_cast<std::size_t>(std::ranges::count(shown, '\n')) < lines;
  };
  std::string shown = wrapped(text, columns, begun, indent);
  std::size_t room = std::max(columns, begun + 12) - begun + (lines - 1) * (columns - indent);
  for (; !fits(shown) && room > 8; room -= 4) shown = wrapped(cut(text, room), columns, begun, indent);
  return shown;
}

/// Lines that each entry of a list gets.
using Room = std::vector<std::size_t>;

/// The entries from `next` on, whose room is used up as they are shown.
std::string list_of(const std::vector<Entry>& entries, std::size_t columns, std::size_t width,
                    const Room& room, std::size_t& next) {
  std::string lines;
  for (const auto& [name, text] : entries) {
    const std::size_t begun = std::max(name.size() + 4, width);
    lines += fmt::format("  {:<{}}", name, begun - 2) + in_lines(text, columns, begun, width, room[next++]);
    while (lines.ends_with(' ')) lines.pop_back();
    lines += '\n';
  }
  return lines;
}

/// "0 ok; 1 run failed", broken only behind what ends one code.
std::string exit_codes(std::size_t columns, bool whole) {
  std::string text = whole ? "Exit_codes: 0_ok; 1_run_failed (unreadable data, unwritable output, a device's "
                             "failure); 2_usage or configuration; 3_back_end or device not there; "
                             "4_diverged; 5_verification mismatch; 130_interrupted with state saved."
                           : "Exit_codes: 0_ok; 1_run_failed; 2_usage; 3_back_end_not_there; 4_diverged; "
                             "5_verification_mismatch; 130_interrupted.";
  text = wrapped(text, columns, 0, 2) + "\n";
  std::ranges::replace(text, '_', ' ');
  return text;
}

/// "Heading: --first, --second".
std::string names_of(const Group& group) {
  std::string text = group.heading;
  for (const Entry& entry : group.entries)
    text += (&entry == &group.entries.front() ? ": " : ", ") + entry.name.substr(0, entry.name.find(' '));
  return text;
}

std::string text_of(const CLI::App& app, std::size_t columns, Detail detail, const std::vector<Group>& groups,
                    const Room& room) {
  constexpr std::size_t widest_name = 24;
  std::size_t width = 0, next = 0;
  for (const Group& group : groups)
    for (const Entry& entry : group.entries)
      width = std::max(width, std::min(entry.name.size(), widest_name));
  const char* const between = detail >= Detail::dense ? "" : "\n";
  std::string text = detail == Detail::all
                         ? description_of(app.get_description(), columns)
                         : wrapped(first_clause(app.get_description()) + ".", columns, 0, 0) + "\n" +
                               description_of(input_paragraph(app.get_description()), columns);
  text += wrapped(usage_of(app), columns, 0, 7) + "\n";
  for (const Group& group : groups) {
    if (detail == Detail::names && group.heading != "Arguments" && group.heading != "Options") {
      next += group.entries.size();
      text += wrapped(names_of(group), columns, 0, 2) + "\n";
    } else {
      text += between + group.heading + ":\n" + list_of(group.entries, columns, width + 4, room, next);
    }
  }
  text += between + std::string("Examples:\n");
  std::istringstream examples(app.get_footer());
  std::size_t shown = 0;
  for (std::string line; std::getline(examples, line) && (shown < 2 || detail < Detail::screen); ++shown)
    text += "  " + line.substr(std::min(line.find_first_not_of(' '), line.size())) + "\n";
  return text + between + exit_codes(columns, detail < Detail::screen);
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

std::size_t screen_columns() {
  std::size_t columns = 0;
  if (const char* const given = std::getenv("COLUMNS"))  // NOLINT(concurrency-mt-unsafe): one thread
    std::from_chars(given, given + std::string_view(given).size(), columns);
  winsize window{};
  if (columns == 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0) columns = window.ws_col;
  return columns == 0 ? usual_columns : std::max(columns, least_columns);
}

std::string wrapped(std::string_view text, std::size_t columns, std::size_t begun, std::size_t indent) {
  std::string lines;
  std::size_t at = begun;
  bool first = true;  // of its line
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    if (!first && at + 1 + width_of(word) > columns) {
      lines += "\n" + std::string(indent, ' ');
      at = indent;
      first = true;
    }
    lines += (first ? "" : " ") + std::string(word);
    at += width_of(word) + (first ? 0 : 1);
    first = false;
  }
  return lines;
}

std::string cut(std::string_view text, std::size_t columns) {
  if (width_of(text) <= columns) return std::string(text);
  while (!text.empty() && width_of(text) + 3 > columns) {
    const std::size_t blank = text.rfind(' ');
    text = text.substr(0, blank != std::string_view::npos ? blank : columns > 3 ? columns - 3 : 0);
  }
  if (const std::size_t open = text.rfind('(');
      open != std::string_view::npos && open > 12 && text.find(')', open) == std::string_view::npos)
    text = text.substr(0, open);
  while (!text.empty() && std::string_view(" .,;:(").find(text.back()) != std::string_view::npos)
    text.remove_suffix(1);
  return std::string(text) + "...";
}

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
  std::vector<Group> groups = groups_of(app);
  std::vector<Entry*> entries;
  for (Group& group : groups)
    for (Entry& entry : group.entries) {
      std::ranges::replace(entry.text, '\n', ' ');
      entries.push_back(&entry);
    }
  Room room(entries.size(), 1000);
  const auto fits = [columns](const std::string& text) {
    return lines_on_screen(text, columns) <= screen_lines;
  };
  for (const Detail detail : {Detail::all, Detail::summary, Detail::screen}) {
    const std::string text = text_of(app, columns, detail, groups, room);
    if (whole || fits(text)) return text;
  }
  // A line each, then more as long as there is room.
  room.assign(entries.size(), 1);
  const Detail least =
      fits(text_of(app, columns, Detail::dense, groups, room)) ? Detail::dense : Detail::names;
  for (std::size_t lines = 2; lines <= 4; ++lines)
    for (std::size_t& its : room) {
      const std::size_t before = its;
      its = lines;
      if (!fits(text_of(app, columns, least, groups, room))) its = before;
    }
  return text_of(app, columns, least, groups, room);
}

}  // namespace fp16lab::experiments
