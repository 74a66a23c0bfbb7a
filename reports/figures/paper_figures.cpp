// Three figures: updates of weights, activation gradients of two networks, what a loss scale saves.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "numerics/formats/format_range.hpp"
#include "reports/figures/figure_json.hpp"
#include "reports/figures/figure_style.hpp"
#include "reports/figures/question_figures.hpp"

namespace fp16lab::reports {
namespace {

constexpr int first_exponent = -44, last_exponent = -4;

double percent_of(std::uint64_t part, std::uint64_t whole) {
  return 100 * static_cast<double>(part) / static_cast<double>(std::max<std::uint64_t>(1, whole));
}

/// FP16's zones under magnitudes.
OrderedJson zones() {
  const auto zone = [](int from, int to, std::string_view name) {
    return OrderedJson{{"from", from},
                       {"to", to},
                       {"color", fmt::format("var(--{})", name)},
                       {"name", name == "lost" ? "rounds to zero in FP16" : name}};
  };
  return OrderedJson::array({zone(first_exponent, fp16_range.tie_to_zero, "lost"),
                             zone(fp16_range.tie_to_zero, fp16_range.smallest_normal, "subnormal"),
                             zone(fp16_range.smallest_normal, last_exponent, "normal")});
}

OrderedJson magnitudes(std::string_view title, std::string_view y, OrderedJson series) {
  return {{"kind", "plot"},
          {"zones", zones()},
          {"series", std::move(series)},
          {"height", 380},
          {"x", {{"title", title}, {"form", "power2"}, {"low", first_exponent}, {"high", last_exponent}}},
          {"y", {{"title", y}, {"low", 0}}}};
}

OrderedJson figure_of(std::string_view stem, std::string_view title, std::string_view caption,
                      OrderedJson panel) {
  return {{"stem", stem},
          {"title", title},
          {"caption", caption},
          {"width", 800},
          {"panels", OrderedJson::array({std::move(panel)})}};
}

OrderedJson updates(const PaperFigures& figures) {
  const auto bars = [](const PaperFigures::Updates& updates, std::string_view name, std::string_view color,
                       bool hatched) {
    OrderedJson list = OrderedJson::array();
    for (int e = first_exponent; e < last_exponent; ++e)
      if (const std::uint64_t count = updates.magnitudes.at(e); count > 0)
        list.push_back({e, e + 1, drawn_number(percent_of(count, updates.elements))});
    return OrderedJson{
        {"label", fmt::format("{} ({:.1f} % of weights move)", name,
                              percent_of(updates.magnitudes.finite_nonzero(), updates.elements))},
        {"color", color},
        {"width", 0},
        {"hatched", hatched},
        {"bars", std::move(list)}};
  };
  return figure_of("weight-updates",
                   "Updates of weights, SGD at 0.01: FP32 masters take them all, FP16 weights only the large",
                   "A bar is the share of all weights whose update in one step lies in (2^e, 2^(e+1)].",
                   magnitudes("magnitude of the update", "percent of all weights in a step",
                              OrderedJson::array(
                                  {bars(figures.with_masters, "with FP32 masters", "#9AA5B1", false),
                                   bars(figures.without_masters, "FP16 weights alone", lost_color, true)})));
}

OrderedJson line(std::string_view label, std::string_view color, std::string_view mark, OrderedJson points) {
  OrderedJson series = {{"label", label}, {"color", color}, {"width", 2.4}, {"points", std::move(points)}};
  if (mark.empty())
    series["dash"] = {6, 4};
  else
    series["mark"] = mark;
  return series;
}

OrderedJson activation_gradients(const PaperFigures& figures) {
  OrderedJson needs = OrderedJson::array(), does_not = OrderedJson::array(), paper = OrderedJson::array();
  for (int e = first_exponent; e < last_exponent; ++e) {
    const auto share = [e](const ExponentHistogram& h) {
      return drawn_number(percent_of(h.at(e), h.finite_nonzero()));
    };
    const auto ssd = figures.paper_percent.find(e);
    needs.push_back({e + 0.5, share(figures.needs_scaling)});
    does_not.push_back({e + 0.5, share(figures.no_scaling)});
    paper.push_back({e + 0.5, ssd == figures.paper_percent.end() ? 0.0 : ssd->second});
  }
  return figure_of(
      "activation-gradients", "Activation gradients of FP32 training, before any cast (the paper's figure 3)",
      "The share of the non-zero values in each (2^e, 2^(e+1)]. The autoencoder's loss is a mean over 25.7 "
      "million values; "
      "Multibox SSD is read off the paper.",
      magnitudes(
          "magnitude at loss scale 1", "percent of the non-zero values",
          OrderedJson::array({line("autoencoder: needs scaling", lost_color, "dot", std::move(needs)),
                              line("classifier: does not", normal_color, "square", std::move(does_not)),
                              line("Multibox SSD", "#555555", "", std::move(paper))})));
}

OrderedJson lost_against_scale(const PaperFigures& figures) {
  OrderedJson needs = OrderedJson::array(), does_not = OrderedJson::array(), paper = OrderedJson::array();
  for (std::size_t k = 0; k < figures.lost.size(); ++k) {
    needs.push_back({k, drawn_number(figures.lost[k].needs_scaling)});
    does_not.push_back({k, drawn_number(figures.lost[k].no_scaling)});
    paper.push_back({k, drawn_number(figures.lost[k].paper)});
  }
  return figure_of(
      "lost-against-scale", "Non-zero activation gradients that round to zero, against the loss scale",
      "The line of Multibox SSD is computed from the paper's bars.",
      {{"kind", "plot"},
       {"height", 380},
       {"x", {{"title", "loss scale"}, {"form", "power2"}, {"low", 0}, {"high", 16}}},
       {"y", {{"title", "percent of the non-zero values"}, {"low", 0}, {"high", 100}}},
       {"series", OrderedJson::array({line("needs scaling", lost_color, "dot", std::move(needs)),
                                      line("does not", normal_color, "square", std::move(does_not)),
                                      line("Multibox SSD", "#555555", "", std::move(paper))})}});
}

}  // namespace

std::string draw_paper_figures(const PaperFigures& figures, const std::filesystem::path& folder) {
  for (const OrderedJson& figure :
       {updates(figures), activation_gradients(figures), lost_against_scale(figures)})
    if (std::string failure = draw_figure(figure, folder); !failure.empty()) return failure;
  return {};
}

}  // namespace fp16lab::reports
