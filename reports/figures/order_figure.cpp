#include "reports/figures/order_figure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "reports/figures/figure.hpp"
#include "reports/figures/figure_json.hpp"
#include "reports/figures/figure_style.hpp"

namespace fp16lab::reports {
namespace {

constexpr std::size_t most_points = 200;  ///< terms that are drawn as points
constexpr std::size_t longest_note =
    600;  ///< bytes of the order as text; what is longer is no text for readers

struct Place {
  double x = 0, y = 0;
};

std::string caption_of(const analysis::SummationTree& tree) {
  const std::string order = tree.short_text();
  std::string note = "Order: " + tree.in_words().value_or("none with a name");
  if (order.size() <= longest_note) note += ", " + order;
  return note + ". A term is below the sum that it enters; a sum is as high as the longest path to it.";
}

}  // namespace

std::string draw_order(const analysis::SummationTree& tree, std::string_view title, const std::string& stem,
                       const std::filesystem::path& folder, const DrawingOptions& options) {
  const std::size_t terms = tree.terms();
  std::vector<Place> place(terms + tree.joins().size());
  for (std::size_t i = 0; i < tree.joins().size(); ++i) {
    Place& join = place[terms + i];
    const auto& children = tree.joins()[i];
    for (const std::size_t child : children) {
      if (child < terms) place[child].x = static_cast<double>(child);
      join.x += place[child].x / static_cast<double>(children.size());
      join.y = std::max(join.y, place[child].y + 1);  // a term has 0 until here
    }
    for (const std::size_t child : children)
      if (child < terms) place[child].y = join.y - 0.5;
  }
  OrderedJson points = OrderedJson::array(), terms_up = OrderedJson::array(), sums_up = OrderedJson::array(),
              pairs = OrderedJson::array(), blocks = OrderedJson::array();
  for (std::size_t term = 0; term < terms; ++term) points.push_back({term, place[term].y});
  for (std::size_t i = 0; i < tree.joins().size(); ++i) {
    const auto& children = tree.joins()[i];
    const double y = place[terms + i].y;
    double left = place[children.front()].x, right = left;
    for (const std::size_t child : children) {
      left = std::min(left, place[child].x);
      right = std::max(right, place[child].x);
      (child < terms ? terms_up : sums_up).push_back({place[child].x, place[child].y, place[child].x, y});
    }
    (children.size() == 2 ? pairs : blocks).push_back({left, y, right, y});
  }
  const Place top = place.back();
  sums_up.push_back({top.x, top.y, top.x, top.y + 0.5});
  const double thin = terms <= most_points ? 1.4 : 0.7;
  const auto lines = [](std::string_view label, std::string_view color, double thick, OrderedJson segments) {
    return OrderedJson{{"label", label},
                       {"color", color},
                       {"thick", thick},
                       {"width", 0},
                       {"segments", std::move(segments)}};
  };
  OrderedJson series = OrderedJson::array({lines("", "#A0A0A0", thin, std::move(terms_up)),
                                           lines("", "#333333", 1.5 * thin, std::move(sums_up))});
  if (!pairs.empty()) series.push_back(lines("sum of two", normal_color, 1.8 * thin, std::move(pairs)));
  if (!blocks.empty())
    series.push_back(lines("sum of more, rounded once", lost_color, 2.2 * thin, std::move(blocks)));
  if (terms <= most_points)
    series.push_back({{"label", "term"},
                      {"color", "#222222"},
                      {"width", 0},
                      {"mark", "point"},
                      {"points", std::move(points)}});
  const double count = static_cast<double>(terms), high = top.y + 1;
  return draw_figure({{"stem", stem},
                      {"title", title},
                      {"caption", caption_of(tree)},
                      {"width", 860},
                      {"panels",
                       {{{"kind", "plot"},
                         {"height", 420},
                         {"series", std::move(series)},
                         {"x",
                          {{"title", "term"},
                           {"form", "count"},
                           {"low", -0.02 * count - 0.5},
                           {"high", 1.02 * count - 0.5}}},
                         {"y",
                          {{"title", "sums on the longest path"},
                           {"form", "count"},
                           {"low", 0.5 - 0.05 * high},
                           {"high", 1.02 * high}}}}}}},
                     folder, options);
}

}  // namespace fp16lab::reports
