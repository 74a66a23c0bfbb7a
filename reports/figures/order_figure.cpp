#include "reports/figures/order_figure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "numerics/files/disk/folder.hpp"
#include "reports/figures/figure_style.hpp"
#include "reports/figures/gnuplot.hpp"

namespace fp16lab::reports {
namespace {

constexpr std::size_t most_points = 200;  ///< terms that are drawn as points
constexpr std::size_t longest_note =
    600;  ///< bytes of the order as text; what is longer is no text for readers

struct Place {
  double x = 0, y = 0;
};

/// "x y dx dy": what gnuplot calls a vector.
std::string line(double x, double y, double dx, double dy) {
  return fmt::format("{:.4f}\t{:.4f}\t{:.4f}\t{:.4f}\n", x, y, dx, dy);
}

std::string note_of(const analysis::SummationTree& tree) {
  const std::string order = tree.short_text();
  std::string note = "Order: " + tree.in_words().value_or("none with a name");
  if (order.size() <= longest_note) note += ", " + order;
  return note +
         ". A term stands below the sum that it enters; a sum stands as high as the longest way to it.";
}

}  // namespace

std::string draw_order(const analysis::SummationTree& tree, std::string_view title, const std::string& stem,
                       const std::filesystem::path& folder) {
  const std::size_t terms = tree.terms();
  std::vector<Place> place(terms + tree.joins().size());
  for (std::size_t i = 0; i < tree.joins().size(); ++i) {
    Place& join = place[terms + i];
    const auto& children = tree.joins()[i];
    for (const std::size_t child : children) {
      if (child < terms) place[child].x = static_cast<double>(child);
      join.x += place[child].x / static_cast<double>(children.size());
      join.y = std::max(join.y, place[child].y + 1);  // of a term 0 until here
    }
    for (const std::size_t child : children)
      if (child < terms) place[child].y = join.y - 0.5;
  }
  std::string points, terms_up, sums_up, pairs, blocks;
  for (std::size_t term = 0; term < terms; ++term) points += fmt::format("{}\t{:.4f}\n", term, place[term].y);
  for (std::size_t i = 0; i < tree.joins().size(); ++i) {
    const auto& children = tree.joins()[i];
    const double y = place[terms + i].y;
    double left = place[children.front()].x, right = left;
    for (const std::size_t child : children) {
      left = std::min(left, place[child].x);
      right = std::max(right, place[child].x);
      (child < terms ? terms_up : sums_up) += line(place[child].x, place[child].y, 0, y - place[child].y);
    }
    (children.size() == 2 ? pairs : blocks) += line(left, y, right - left, 0);
  }
  const Place top = place.back();
  sums_up += line(top.x, top.y, 0, 0.5);
  std::string data =
      "# term, height; x, y, dx, dy of: terms' ways up, sums' ways up, sums of two, sums of more\n";
  data += points;
  for (const std::string& lines :
       {terms_up, sums_up, pairs, blocks})  // no block is empty: gnuplot counts them
    data += std::string(block_end) + (lines.empty() ? line(top.x, top.y, 0, 0) : lines);

  const int width = 900;
  const FigureTitle heading = figure_title(title, width);
  const FigureNote note(note_of(tree), width);
  const int height = 470 + heading.extra_height + note.height();
  const std::string file = gnuplot_string(stem) + ".\".dat\"";
  const auto lines = [&](int block, std::string_view color, double line_width, std::string_view name) {
    return fmt::format("{} index {} using 1:2:3:4 with vectors nohead lw {} lc rgb \"{}\" {}", file, block,
                       line_width, color, name.empty() ? "notitle" : "title " + gnuplot_string(name));
  };
  const double thin = terms <= most_points ? 1.4 : 0.7, high = top.y + 1;
  std::string body = heading.commands(height) + note.commands(height);
  body += fmt::format(
      "  set bmargin at screen {:.4f}\n  set tmargin at screen {:.4f}\n"
      "  set key at screen 0.985, screen {:.4f} right top horizontal maxrows 1 samplen 2\n"
      "  set xlabel \"term\"\n  set ylabel \"sums on the longest way\"\n"
      "  set xrange [{}:{}]\n  set yrange [{}:{}]\n",
      static_cast<double>(62 + note.height()) / height,
      1 - static_cast<double>(70 + heading.extra_height) / height,
      1 - static_cast<double>(40 + heading.extra_height) / height, -0.02 * static_cast<double>(terms) - 0.5,
      1.02 * static_cast<double>(terms) - 0.5, 0.5 - 0.05 * high, high * 1.02);
  if (top.y <= 12) body += "  set ytics 1\n";
  body += "  plot " + lines(1, "#A0A0A0", thin, "") + ", \\\n    " + lines(2, "#333333", 1.5 * thin, "");
  if (!pairs.empty()) body += ", \\\n    " + lines(3, normal_color, 1.8 * thin, "sum of two");
  if (!blocks.empty()) body += ", \\\n    " + lines(4, lost_color, 2.2 * thin, "sum of more, rounded once");
  if (terms <= most_points)
    body += fmt::format(
        ", \\\n    {} index 0 using 1:2 with points pt 7 ps 0.4 lc rgb \"#222222\" title \"term\"", file);
  body += "\n";
  make_folders(folder);
  return draw_pair(folder, stem, data, gnuplot_script(stem, title, width, height, body));
}

}  // namespace fp16lab::reports
