#include "experiments/app/run/live_panel.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "analysis/range_report.hpp"
#include "experiments/app/process.hpp"
#include "experiments/app/progress.hpp"
#include "numerics/text/message.hpp"
#include "numerics/text/scale_text.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments {

using std::chrono::steady_clock;

namespace {

constexpr std::string_view hide_cursor = "\x1b[?25l";
constexpr std::string_view show_cursor = "\x1b[?25h";
constexpr int smallest_bar = 10;

struct Zone {
  char character;
  std::string_view colour;  ///< of Okabe and Ito's palette, among a terminal's 256
  std::string_view name;
};
constexpr std::array<Zone, 4> zones = {{{'.', "\x1b[38;5;166m", "lost"},
                                        {'-', "\x1b[38;5;220m", "subnormal"},
                                        {'=', "\x1b[38;5;74m", "normal"},
                                        {'!', "\x1b[38;5;175m", "overflow"}}};

/// The first `columns` characters of a line.
std::string cut(std::string_view line, int columns) {
  const auto begins = [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0u) != 0x80u; };
  std::size_t end = 0;
  for (int width = 0; end < line.size() && width + (begins(line[end]) ? 1 : 0) <= columns; ++end)
    width += begins(line[end]) ? 1 : 0;
  return std::string(line.substr(0, end));
}

/// The last `width` values, each as one of eight heights between the least and the greatest of them.
std::string sparkline(const std::vector<double>& values, int width, bool unicode) {
  constexpr std::array<std::string_view, 8> blocks = {"\u2581", "\u2582", "\u2583", "\u2584",
                                                      "\u2585", "\u2586", "\u2587", "\u2588"};
  constexpr std::array<std::string_view, 8> plain = {"_", ".", ",", "-", "~", "=", "*", "#"};
  if (width < 1 || values.empty()) return "";
  const std::size_t shown = std::min(values.size(), static_cast<std::size_t>(width));
  const auto begin = values.end() - static_cast<std::ptrdiff_t>(shown);
  double least = std::numeric_limits<double>::infinity(), greatest = -least;
  for (auto value = begin; value != values.end(); ++value) {
    if (!std::isfinite(*value)) continue;
    least = std::min(least, *value);
    greatest = std::max(greatest, *value);
  }
  std::string line;
  for (auto value = begin; value != values.end(); ++value) {
    std::size_t height = 0;
    if (std::isfinite(*value) && greatest > least)
      height = static_cast<std::size_t>(std::lround(7.0 * (*value - least) / (greatest - least)));
    line += std::isfinite(*value) ? (unicode ? blocks : plain)[height] : "?";
  }
  return line;
}

std::string bar(const RangeCounts& ranges, int width) {
  const std::vector<std::uint64_t> counts = {ranges.lost.lower, ranges.subnormal.lower, ranges.normal.lower,
                                             ranges.overflow.lower + ranges.infinite + ranges.nan};
  const std::vector<int> cells = share_cells(counts, width);
  std::string line;
  for (std::size_t i = 0; i < zones.size(); ++i)
    line += std::string(static_cast<std::size_t>(cells[i]), zones[i].character);
  line.resize(static_cast<std::size_t>(width), ' ');
  return line;
}

double lost_share(const RangeCounts& of) {
  const std::uint64_t values = of.total - of.zero - of.infinite - of.nan;
  return values == 0 ? 0 : static_cast<double>(of.lost.lower) / static_cast<double>(values);
}

PanelLine layer_line(const LiveLayer& layer, int name_width, int columns) {
  std::string name = layer.name;
  if (static_cast<int>(name.size()) > name_width)
    name = name.substr(name.size() - static_cast<std::size_t>(name_width));  // the end tells layers apart
  const bool cast = layer.casts.values > 0;
  const RangeCounts& ranges = cast ? layer.zones : layer.in_fp16;
  const std::string rate = cast ? fmt::format(" {:5.1f}% lost", 100 * layer.casts.underflow_rate())
                                : fmt::format(" {:5.1f}% would", 100 * lost_share(ranges));
  const int width = columns - name_width - 2 - static_cast<int>(rate.size());
  std::string line = fmt::format("{:<{}}  ", name, name_width);
  if (width < smallest_bar) return {line + rate};
  const std::size_t begin = line.size();
  line += bar(ranges, width);
  return {.text = line + rate, .marks_begin = begin, .marks_end = line.size()};
}

PanelLine legend(const LiveView& view) {
  std::string line = fmt::format("gradients of step {}:", view.observed_step);
  for (const Zone& zone : zones) line += fmt::format("  {} {}", zone.character, zone.name);
  const std::size_t end = line.size();
  const bool uncast = std::any_of(view.layers.begin(), view.layers.end(),
                                  [](const LiveLayer& layer) { return layer.casts.values == 0; });
  return {.text = uncast ? line + "  would: FP16" : line, .marks_end = end};
}

}  // namespace

std::string painted(const PanelLine& line) {
  std::string text;
  const Zone* on = nullptr;
  for (std::size_t i = 0; i < line.text.size(); ++i) {
    const auto zone = std::ranges::find(zones, line.text[i], &Zone::character);
    const bool marks = i >= line.marks_begin && i < line.marks_end && zone != zones.end();
    const Zone* const wanted = marks ? &*zone : nullptr;
    if (wanted != on) text += wanted != nullptr ? wanted->colour : "\x1b[0m";
    on = wanted;
    text += line.text[i];
  }
  return on != nullptr ? text + "\x1b[0m" : text;
}

std::vector<int> share_cells(const std::vector<std::uint64_t>& counts, int cells) {
  std::vector<int> shares(counts.size(), 0);
  const double total = std::accumulate(counts.begin(), counts.end(), 0.0, [](double sum, std::uint64_t n) {
    return sum + static_cast<double>(n);
  });
  if (total == 0 || cells < 1) return shares;
  // One cell for each that is there, greatest first where there are too few; the rest in proportion.
  std::vector<std::size_t> order(counts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return counts[a] > counts[b]; });
  int left = cells;
  for (const std::size_t i : order)
    if (counts[i] > 0 && left > 0) {
      shares[i] = 1;
      --left;
    }
  std::vector<double> wanted(counts.size());
  for (std::size_t i = 0; i < counts.size(); ++i)
    wanted[i] = static_cast<double>(counts[i]) / total * cells - shares[i];
  for (; left > 0; --left) {
    const auto most =
        static_cast<std::size_t>(std::max_element(wanted.begin(), wanted.end()) - wanted.begin());
    ++shares[most];
    wanted[most] -= 1;
  }
  return shares;
}

std::vector<PanelLine> render(const LiveView& view, PanelSize size, PanelStyle style) {
  const int columns = std::max(size.columns, 1);
  const auto most_lines = static_cast<std::size_t>(std::max(size.rows - 1, 1));
  std::vector<PanelLine> lines;
  lines.push_back({fmt::format("{}   step {}/{}   loss {:.5g}   {:.3g} steps/s, {} left", view.title,
                               view.step, view.total_steps, view.loss, view.steps_per_second, view.left)});
  std::string scale = fmt::format("scale {}   skipped {}   ", scale_text(view.loss_scale), view.skipped);
  scale += sparkline(view.log2_scales, columns - static_cast<int>(scale.size()), style.unicode);
  lines.push_back({std::move(scale)});
  if (view.observed_step > 0) {
    lines.push_back(legend(view));
    int name_width = 0;
    for (const LiveLayer& layer : view.layers)
      name_width = std::max(name_width, static_cast<int>(layer.name.size()));
    name_width = std::min(name_width, std::max(columns / 3, 4));
    // All layers, or as many as fit and a line that says how many do not.
    const std::size_t room = most_lines > lines.size() ? most_lines - lines.size() : 0;
    const std::size_t shown = view.layers.size() <= room ? view.layers.size() : (room > 0 ? room - 1 : 0);
    for (std::size_t i = 0; i < shown; ++i) lines.push_back(layer_line(view.layers[i], name_width, columns));
    if (shown < view.layers.size())
      lines.push_back({fmt::format("and {} more layers", view.layers.size() - shown)});
  }
  if (lines.size() > most_lines) lines.resize(most_lines);
  for (PanelLine& line : lines) line.text = cut(line.text, columns);
  return lines;
}

LivePanel::LivePanel(PanelStyle style) : style_(style), last_(steady_clock::now() - std::chrono::hours(1)) {
  write_on_interrupt(show_cursor);
  if (!interrupted()) show_text(hide_cursor);
}

LivePanel::~LivePanel() {
  write_on_interrupt({});
  show_text(show_cursor);
}

bool LivePanel::due() const { return steady_clock::now() - last_ >= std::chrono::milliseconds(100); }

std::string LivePanel::erased() const {
  if (drawn_.empty()) return "";
  // On a terminal that became narrower, lines were broken and take more rows than they did.
  const int columns = std::max(terminal_size().columns, 1);
  int rows = 0;
  for (const PanelLine& line : drawn_)
    rows += std::max((static_cast<int>(utf8_length(line.text).value_or(0)) + columns - 1) / columns, 1);
  return fmt::format("\x1b[{}A\r\x1b[J", rows);
}

std::string LivePanel::drawn() const {
  std::string text;
  for (const PanelLine& line : drawn_) text += (style_.colour ? painted(line) : line.text) + "\n";
  return text;
}

void LivePanel::draw(const LiveView& view) {
  last_ = steady_clock::now();
  const std::string before = erased();
  drawn_ = render(view, terminal_size(), style_);
  show_text(before + drawn());  // in one piece, so that nothing flickers
}

void LivePanel::message(const std::string& line) {
  show_text(erased() + message_line(line) + "\n" + drawn());
}

PanelSize terminal_size() {
  winsize window{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_col == 0) return {};
  return {.columns = window.ws_col, .rows = window.ws_row > 0 ? window.ws_row : 24};
}

PanelStyle terminal_style() {
  PanelStyle style;
  const char* const no_colour = std::getenv("NO_COLOR");
  style.colour = no_colour == nullptr || *no_colour == '\0';
  style.unicode = false;
  for (const char* const name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* const value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::string encoding(value);
    std::transform(encoding.begin(), encoding.end(), encoding.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    style.unicode = encoding.find("utf-8") != std::string::npos || encoding.find("utf8") != std::string::npos;
    break;  // the first that is set decides (POSIX.1-2017, 8.2)
  }
  return style;
}

bool wants_panel(LiveMode mode) {
  return mode == LiveMode::always || (mode == LiveMode::automatic && isatty(STDERR_FILENO) == 1);
}

LiveFeed::LiveFeed(std::string title, std::uint64_t first_step, std::uint64_t total_steps, PanelStyle style)
    : panel_(style), first_step_(first_step), start_(std::chrono::steady_clock::now()) {
  view_.title = std::move(title);
  view_.total_steps = total_steps;
}

void LiveFeed::on_gradient(const HistogramRow& row) {
  if (view_.observed_step != row.step) {
    view_.observed_step = row.step;
    view_.layers.clear();
  }
  // "fc1.weight" and "fc1.input" are the layer fc1. Backward passes show the last layer first; the panel does
  // not.
  const std::string_view layer = std::string_view(row.tensor).substr(0, row.tensor.rfind('.'));
  auto known = std::find_if(view_.layers.begin(), view_.layers.end(),
                            [layer](const LiveLayer& entry) { return entry.name == layer; });
  if (known == view_.layers.end())
    known = view_.layers.insert(view_.layers.begin(), {.name = std::string(layer)});
  const ExponentHistogram &before = row.before, &after = row.after;
  if (const std::optional<CastCounts> casts = cast_counts(row.dtype, before, after)) {
    known->casts += *casts;
    known->zones += count_ranges(before, range_of(row.dtype), 1.0);
  } else {
    known->in_fp16 += count_ranges(before, fp16_range, 1.0);
  }
}

void LiveFeed::on_step(const StepRow& row) {
  view_.step = row.step;
  view_.loss = row.loss;
  view_.loss_scale = row.loss_scale;
  if (row.skipped) ++view_.skipped;
  if (view_.log2_scales.size() == recent_steps) view_.log2_scales.erase(view_.log2_scales.begin());
  view_.log2_scales.push_back(std::log2(row.loss_scale));
  if (!panel_.due() && row.step != view_.total_steps) return;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  view_.steps_per_second = static_cast<double>(row.step - first_step_ + 1) / elapsed.count();
  view_.left = duration_text(static_cast<double>(view_.total_steps - row.step) / view_.steps_per_second);
  panel_.draw(view_);
}

}  // namespace fp16lab::experiments
