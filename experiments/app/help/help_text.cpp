#include "experiments/app/help/help_text.hpp"
#include "numerics/text/text.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

namespace fp16lab::experiments {
namespace {

constexpr std::size_t least_columns = 40, usual_columns = 80;

std::size_t width_of(std::string_view text) { return utf8_length(text).value_or(text.size()); }

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

constexpr std::size_t text_begins = 28;

/// The beginnings of a text that say something whole, the longest first: up to a clause or parentheses.
std::vector<std::string> whole_beginnings(std::string_view text) {
  constexpr std::size_t least = 24, least_before_comma = 50;
  std::vector<std::string> beginnings;
  for (std::size_t end = text.size(); end-- > least;) {
    const std::string_view rest = text.substr(end), begin = text.substr(0, end);
    const bool ends = rest.starts_with("; ") || rest.starts_with(": ") || rest.starts_with(" (") ||
                      (rest.starts_with(", ") && end >= least_before_comma &&
                       begin.find(": ") == std::string_view::npos);  // no list
    if (ends && std::ranges::count(begin, '(') == std::ranges::count(begin, ')'))
      beginnings.emplace_back(begin);
  }
  return beginnings;
}

/// `text` in the right column, cut to `lines` lines: at the end of a clause, else inside of one.
std::string in_lines(std::string text, std::size_t columns, std::size_t lines) {
  std::ranges::replace(text, '\n', ' ');
  const auto fits = [lines](const std::string& shown) {
    return static_cast<std::size_t>(std::ranges::count(shown, '\n')) < lines;
  };
  const std::size_t width = columns - text_begins;
  std::string shown = wrapped(text, width, 0, 0);
  if (!fits(shown))
    for (const std::string& beginning : whole_beginnings(text))
      if (std::string begun = wrapped(beginning, width, 0, 0); fits(begun)) return begun;
  for (std::size_t room = lines * width; !fits(shown) && room > 8; room -= 4)
    shown = wrapped(cut(text, room), width, 0, 0);
  return shown;
}

/// CLI11's layout with the texts wrapped. Dense: those of options are cut to some lines, and details left
/// out.
class ScreenFormatter : public CLI::Formatter {
 public:
  ScreenFormatter(std::size_t columns, bool dense) : columns_(columns), dense_(dense) {
    column_width(text_begins);
    label("Positionals", "Arguments");
  }

  std::map<const CLI::Option*, std::size_t>
      lines_of;  ///< of a dense help; an option that is not there has one
  bool is_dense() const { return dense_; }

  std::string make_description(const CLI::App* app) const override {
    const std::string text = app->get_description();
    if (!dense_) return description_of(text, columns_);
    return wrapped(first_clause(text) + ".", columns_, 0, 0) + "\n" +
           description_of(input_paragraph(text), columns_);
  }
  /// In a dense help only the names of options in groups of their own.
  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override {
    if (is_positional)  // "-c,--config,FILE" is one of the options
      std::erase_if(options, [](const CLI::Option* option) { return option->nonpositional(); });
    if (options.empty()) return "";
    if (!dense_ || group == "Options" || is_positional)
      return Formatter::make_group(std::move(group), is_positional, std::move(options));
    std::string names;
    for (const CLI::Option* option : options) names += (names.empty() ? "" : ", ") + option->get_name();
    return wrapped(group + ": " + names, columns_, 0, 2) + "\n";
  }
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    std::string name = Formatter::make_option_name(option, is_positional);
    return name.substr(0, name.find('{'));  // the value of a flag that is given without one
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string type = option->get_type_name().substr(0, option->get_type_name().find(":{"));
    if (type.starts_with("[")) return type;
    if (option->get_items_expected_min() == 0 || !option->nonpositional()) return "";
    return type == "TEXT" ? " NAME" : " " + type;
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text = option->get_description();
    const std::string type = option->get_type_name();
    if (const std::size_t values = type.find(":{"); values != std::string::npos)
      if (text.find(type.substr(values + 2, type.find(',', values) - values - 2)) == std::string::npos)
        text += ": " + type.substr(values + 2, type.size() - values - 3);
    const auto room = lines_of.find(option);
    return in_lines(std::move(text), columns_, !dense_ ? 1000 : room == lines_of.end() ? 1 : room->second);
  }
  std::string make_subcommand(const CLI::App* app) const override {
    std::ostringstream out;
    CLI::detail::format_help(out, app->get_name(),
                             in_lines(first_clause(app->get_description()), columns_, dense_ ? 1 : 1000),
                             text_begins);
    return out.str();
  }
  std::string make_footer(const CLI::App* app) const override {
    std::string text = "Examples:\n";
    std::istringstream examples(app->get_footer());
    std::size_t shown = 0;
    for (std::string line; std::getline(examples, line) && (shown < 2 || !dense_); ++shown)
      text += "  " + line.substr(std::min(line.find_first_not_of(' '), line.size())) + "\n";
    return text + (dense_ ? exit_codes : every_exit_code);
  }

 private:
  static constexpr const char* exit_codes =
      "\nExit codes: 0 ok; 1 run failed; 2 usage; 3 back end unavailable; 4 diverged;\n"
      "  5 verification mismatch; 130 interrupted.\n";
  static constexpr const char* every_exit_code =
      "\nExit codes: 0 ok; 1 run failed (unreadable data, unwritable output, a\n"
      "  device's failure); 2 usage or configuration; 3 back end or device unavailable;\n"
      "  4 diverged; 5 verification mismatch; 130 interrupted with state saved.\n";

  std::size_t columns_;
  bool dense_;
};

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
  const std::string name =
      (app.get_parent() == nullptr ? "" : app.get_parent()->get_name() + " ") + app.get_name();
  const auto text_of = [&](const ScreenFormatter& formatter) {
    std::string text = formatter.make_help(&app, name, CLI::AppFormatMode::Normal);
    const std::string_view gap = formatter.is_dense() ? "\n\n" : "\n\n\n";
    for (std::size_t at = 0; (at = text.find(gap, at)) != std::string::npos;) text.erase(at, 1);
    return text;
  };
  const auto fits = [columns](const std::string& text) {
    return lines_on_screen(text, columns) <= screen_lines;
  };
  if (const std::string text = text_of(ScreenFormatter(columns, false)); whole || fits(text)) return text;
  // Each gets a line, then more as long as there is room.
  ScreenFormatter dense(columns, true);
  for (std::size_t lines = 2; lines <= 4; ++lines)
    for (const CLI::Option* option : app.get_options()) {
      std::size_t& its = dense.lines_of.try_emplace(option, 1).first->second;
      const std::size_t before = std::exchange(its, lines);
      if (!fits(text_of(dense))) its = before;
    }
  return text_of(dense);
}

}  // namespace fp16lab::experiments
