#include "reports/figures/figure_style.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "numerics/random/philox.hpp"

namespace fp16lab::reports {
namespace {

/// Width and dashes of line `index` of `count` that are drawn over one another. Within a row all lines have
/// the same period and ever shorter dashes, so each shows where those above it pause; a second row is
/// narrower, so the first shows at its sides.
LineStyle stacked_style(std::size_t index, std::size_t count) {
  static constexpr int period = 18;
  const bool two_rows = count > 3;
  const std::size_t in_first = two_rows ? (count + 1) / 2 : count;
  const bool first = index < in_first;
  const std::size_t place = first ? index : index - in_first, row = first ? in_first : count - in_first;
  LineStyle style;
  style.width = !two_rows ? 2.4 : first ? 4.0 : 1.6;
  // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): index < count, so the line's own row is not empty
  style.dash = static_cast<int>(period * (row - place) / row);
  style.gap = period - style.dash;
  return style;
}

/// A limit on the lines that may overlap: beyond it the page shows only some together, and each round of the
/// colours has a dash.
constexpr std::size_t most_stacked = 8;
LineStyle round_style(std::size_t round) {
  static constexpr std::array<std::array<int, 2>, 5> dashes{{{0, 0}, {8, 4}, {2, 3}, {14, 4}, {5, 9}}};
  const auto [dash, gap] = dashes[round % dashes.size()];
  return {"", 2.2, dash, gap};
}

}  // namespace

std::vector<LineStyle> styles_of(const Workload& workload) {
  static constexpr std::array<std::string_view, 5> blues{"#7DB5EA", "#4F93DA", "#2F6DB3", "#1F4E86",
                                                         "#12315A"};
  static constexpr std::array<std::string_view, 5> others{"#009E73", "#CC79A7", "#E69F00", "#444444",
                                                          "#56B4E9"};
  std::size_t fixed = 0, dashed = 0;
  for (const Configuration& configuration : workload.configurations) {
    if (configuration.id.scaling == Scaling::fixed) ++fixed;
    if (!configuration.id.fp32) ++dashed;
  }

  std::vector<LineStyle> styles;
  std::size_t fixed_seen = 0, adaptive_seen = 0, dashed_seen = 0, unscaled_seen = 0;
  for (const Configuration& configuration : workload.configurations) {
    if (configuration.id.fp32) {
      const bool perturbed = configuration.id.perturb_ulps != 0;
      styles.push_back(perturbed ? LineStyle{"#7A7A7A", 6} : LineStyle{"#B4B4B4", 8});
      continue;
    }
    LineStyle style = dashed > most_stacked ? round_style(adaptive_seen / others.size())
                                            : stacked_style(dashed_seen++, dashed);
    if (configuration.id.scaling == Scaling::none && unscaled_seen++ == 0) {
      style.color = lost_color;
    } else if (configuration.id.scaling == Scaling::fixed) {
      const std::size_t shade = fixed <= 1 ? 2 : fixed_seen * (blues.size() - 1) / (fixed - 1);
      style.color = blues[std::min(shade, blues.size() - 1)];
      ++fixed_seen;
    } else {
      style.color = others[adaptive_seen++ % others.size()];
    }
    styles.push_back(std::move(style));
  }
  return styles;
}

std::string slug(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '-' && i > 0 && text[i - 1] == '^') {  // 2^-3 is not 2^3
      out += "minus";
      continue;
    }
    const bool upper = c >= 'A' && c <= 'Z';
    if (upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
      out += upper ? static_cast<char>(c - 'A' + 'a') : c;
    else if (!out.empty() && out.back() != '-')
      out += '-';
  }
  while (!out.empty() && out.back() == '-') out.pop_back();
  if (out.size() > longest_slug)
    out = fmt::format("{}-{:016x}", out.substr(0, longest_slug - 17), stream_id(out));
  return out.empty() ? "unnamed" : out;
}

}  // namespace fp16lab::reports
