#include "analysis/observed_output.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "analysis/interval_json.hpp"
#include "analysis/percent_text.hpp"
#include "numerics/histogram/cast_counts.hpp"
#include "numerics/histogram/zones.hpp"

namespace fp16lab::analysis {
namespace {

constexpr std::string_view all_tensors = "all tensors";
constexpr const char* zone_row = " {:>11} {:>11} {:>11} {:>11}";

/// One line of a table.
struct Line {
  std::string tensor;
  std::string dtype{};
  RangeCounts counts{};
  std::uint64_t unmoved = 0;
};

std::vector<Line> lines_of(Observed observed, std::span<const HistogramRow> rows, DType format) {
  std::vector<Line> lines;
  Line all{.tensor = std::string(all_tensors)};
  for (const HistogramRow& row : rows) {
    lines.push_back({.tensor = row.tensor,
                     .dtype = fp16lab::title_of(row.dtype),
                     .counts = count_ranges(row.before, judged_range(observed, format), 1.0),
                     .unmoved = row.unmoved.value_or(0)});
    all.counts += lines.back().counts;
    all.unmoved += lines.back().unmoved;
  }
  lines.push_back(std::move(all));
  return lines;
}

std::string zones_text(const RangeCounts& counts) {
  const ZoneRates rates = rates_of(counts);
  if (counts.total == counts.zero + counts.infinite + counts.nan)
    return fmt::format(fmt::runtime(zone_row), "-", "-", "-", "-");
  return fmt::format(fmt::runtime(zone_row), percent(rates.lost), percent(rates.subnormal),
                     percent(rates.normal), percent(rates.overflow));
}

std::string share_text(std::uint64_t part, std::uint64_t of) {
  return of == 0 ? "-" : percent(static_cast<double>(part) / static_cast<double>(of));
}

void print_values(std::ostream& out, Observed observed, std::span<const Line> lines, DType format,
                  std::size_t width) {
  out << fmt::format("{} in {}, percent of the finite non-zero values\n", title_of(observed),
                     fp16lab::title_of(format));
  out << fmt::format("{:<{}}  {:<6} {:>13} {:>7} {:>11} {:>11} {:>11} {:>11}\n", "tensor", width, "stored",
                     "values", "zero %", "rounds to 0", "subnormal", "normal", "overflow");
  for (const Line& line : lines) {
    out << fmt::format("{:<{}}  {:<6} {:>13} {:>7}{}", line.tensor, width, line.dtype, line.counts.total,
                       share_text(line.counts.zero, line.counts.total), zones_text(line.counts));
    if (line.counts.infinite + line.counts.nan > 0)
      out << fmt::format("  ({} Inf, {} NaN)", line.counts.infinite, line.counts.nan);
    out << '\n';
  }
}

void print_updates(std::ostream& out, std::span<const Line> lines, DType format, std::size_t width) {
  const FormatRange range = judged_range(Observed::updates, format);
  out << fmt::format(
      "Updates against weights. Unmoved: percent of the weights that did not change although their gradient "
      "was\nnot zero. Then percent of the weights that moved: by at most 2^{} of themselves, which {} "
      "weights without a master\ncopy would have lost; by at most 2^{}, where that depends on the weight; by "
      "more, which would move them too\n",
      range.tie_to_zero, fp16lab::title_of(format), range.smallest_normal);
  out << fmt::format("{:<{}}  {:<6} {:>13} {:>9} {:>9} {:>11} {:>11} {:>11}\n", "tensor", width, "stored",
                     "weights", "still %", "unmoved %", "lost", "depends", "moves");
  for (const Line& line : lines) {
    const ZoneRates rates = rates_of(line.counts);
    const bool any = line.counts.total > line.counts.zero + line.counts.infinite + line.counts.nan;
    out << fmt::format("{:<{}}  {:<6} {:>13} {:>9} {:>9} {:>11} {:>11} {:>11}", line.tensor, width,
                       line.dtype, line.counts.total, share_text(line.counts.zero, line.counts.total),
                       share_text(line.unmoved, line.counts.total), any ? percent(rates.lost) : "-",
                       any ? percent(rates.subnormal) : "-", any ? percent(rates.normal) : "-");
    if (line.counts.infinite > 0) out << fmt::format("  ({} left 0)", line.counts.infinite);
    if (line.counts.nan > 0) out << fmt::format("  ({} NaN)", line.counts.nan);
    out << '\n';
  }
}

Json cast_json(const HistogramRow& row, bool watched) {
  const std::optional<CastCounts> counts = cast_counts(row.dtype, row.before, row.after, watched);
  if (!counts || row.observed == Observed::updates) return nullptr;
  return {{"values", counts->values}, {"underflow", counts->underflow}, {"overflow", counts->overflow}};
}

}  // namespace

std::string_view title_of(Observed observed) {
  static constexpr std::array<std::string_view, every<Observed>.size()> titles{
      "Gradients", "Activations", "Weights", "Updates against weights", "Optimizer state"};
  return titles.at(static_cast<std::size_t>(observed));
}

FormatRange judged_range(Observed observed, DType format) {
  if (observed != Observed::updates) return range_of(format);
  FormatRange range = range_of(DType::f32);  // no quotient is too large
  const int precision = range_of(format).precision;
  range.tie_to_zero = -(precision + 1);
  range.smallest_normal = -precision;
  return range;
}

void print_observed(std::ostream& out, Observed observed, std::span<const HistogramRow> rows,
                    std::span<const DType> formats) {
  std::size_t width = all_tensors.size();
  for (const HistogramRow& row : rows) width = std::max(width, row.tensor.size());
  for (std::size_t i = 0; i < formats.size(); ++i) {
    if (i > 0) out << '\n';
    const std::vector<Line> lines = lines_of(observed, rows, formats[i]);
    if (observed == Observed::updates)
      print_updates(out, lines, formats[i], width);
    else
      print_values(out, observed, lines, formats[i], width);
  }
}

void write_observed_json(std::ostream& out, Observed observed, std::span<const HistogramRow> rows,
                         std::span<const DType> formats, bool watched) {
  Json tensors = Json::array();
  for (const HistogramRow& row : rows) {
    Json json = {{"tensor", row.tensor},        {"kind", row.kind},        {"dtype", name_of(row.dtype)},
                 {"total", row.before.total()}, {"zero", row.before.zero}, {"infinite", row.before.infinite},
                 {"nan", row.before.nan}};
    if (row.unmoved) json["unmoved"] = *row.unmoved;
    json["cast"] = cast_json(row, watched);
    for (const DType format : formats) {
      const RangeCounts counts = count_ranges(row.before, judged_range(observed, format), 1.0);
      json["zones"][std::string(name_of(format))] = {{"lost", interval(counts.lost)},
                                                     {"subnormal", interval(counts.subnormal)},
                                                     {"normal", interval(counts.normal)},
                                                     {"overflow", interval(counts.overflow)}};
    }
    tensors.push_back(std::move(json));
  }
  const Json json = {{"observed", name_of(observed)},
                     {"step", rows.empty() ? Json(nullptr) : Json(rows.front().step)},
                     {"tensors", std::move(tensors)}};
  out << json.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
}

void UpdateCounts::add(const HistogramRow& row) {
  values += row.before.total();
  unmoved += row.unmoved.value_or(0);
}

std::string words_of(const UpdateCounts& counts) {
  return fmt::format(
      "of {} updates of a weight {} ({} %) did not change it, although its gradient was not zero",
      counts.values, counts.unmoved, share_text(counts.unmoved, counts.values));
}

}  // namespace fp16lab::analysis
