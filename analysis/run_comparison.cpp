#include "analysis/run_comparison.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <type_traits>
#include <utility>

#include "numerics/files/run/row_numbers.hpp"
#include "numerics/formats/bits.hpp"

namespace fp16lab::analysis {
namespace {

struct Point {
  double position;  ///< log2 of the bin's lower end, without the loss scale
  std::uint64_t count_a, count_b;
};

void add_points(const ExponentHistogram& histogram, double scale, bool is_a, std::vector<Point>& points) {
  // A power of two takes whole bins out; log2 of one is exact.
  const int k = std::ilogb(scale);
  const double shift = std::scalbn(1.0, k) == scale ? k : std::log2(scale);
  for (int e = ExponentHistogram::min_exponent; e <= ExponentHistogram::max_exponent; ++e)
    if (const std::uint64_t count = histogram.at(e); count > 0)
      points.push_back({e - shift, is_a ? count : 0, is_a ? 0 : count});
}

/// A folder of an older version does not know its extremes: that alone is no difference.
bool same_counts(ExponentHistogram a, ExponentHistogram b) {
  if (!a.extremes_known() || !b.extremes_known()) {
    a.forget_extremes();
    b.forget_extremes();
  }
  return a == b;
}

/// The same value, NaN included. -0 is not 0: bits are compared.
bool same(double a, double b) { return bits_of(a) == bits_of(b) || (std::isnan(a) && std::isnan(b)); }
bool same(const std::optional<double>& a, const std::optional<double>& b) {
  return a.has_value() == b.has_value() && (!a || same(*a, *b));
}
template <class Value>
bool same(const Value& a, const Value& b) {
  return a == b;
}

/// The same, or in a column that the folder of an older build lacks.
template <class Field, class Row>
bool same_field(const Field& field, const Row& a, const Row& b) {
  const auto &of_a = a.*field.member, &of_b = b.*field.member;
  if constexpr (record_detail::is_optional<std::remove_cvref_t<decltype(of_a)>>)
    if (field.traits.since > Row::record_since && !(of_a && of_b)) return true;
  return same(of_a, of_b);
}

template <DescribedRecord Row>
bool same_row(const Row& a, const Row& b) {
  bool all = true;
  for_each_field<Row>([&](const auto& field) {
    if constexpr (!std::remove_cvref_t<decltype(field)>::computed) all = all && same_field(field, a, b);
  });
  return all;
}

void note(ColumnDifference& column, std::uint64_t step, std::optional<double> a, std::optional<double> b,
          double threshold) {
  ++column.differing;
  if (!column.first) column.first = step;
  if (!a || !b) {
    ++column.in_one;
    return;
  }
  const double relative = relative_difference(*a, *b);
  if (relative > column.largest) {
    column.largest = relative;
    column.largest_step = step;
  }
  if (relative > threshold) {
    ++column.above;
    if (!column.first_above) column.first_above = step;
  }
}

std::optional<ErrorGrowth> fit_growth(std::span<const StepPair> steps) {
  constexpr double grown = 0.1;
  struct LogError {
    std::uint64_t step;
    double log10;
  };
  std::vector<LogError> points;
  for (const auto& [a, b] : steps) {
    if (!std::isfinite(a.loss) || !std::isfinite(b.loss) || a.loss == b.loss) continue;
    if (relative_difference(a.loss, b.loss) >= grown) break;
    points.push_back({a.step, std::log10(std::fabs(a.loss - b.loss))});
  }
  if (points.size() < fewest_points) return std::nullopt;
  ErrorGrowth growth{
      .first_step = points.front().step, .last_step = points.back().step, .points = points.size()};
  const double n = static_cast<double>(points.size());
  double mean_x = 0, mean_y = 0;
  const auto x_of = [&](const LogError& point) {
    return static_cast<double>(point.step - growth.first_step);
  };
  for (const LogError& point : points) {
    mean_x += x_of(point) / n;
    mean_y += point.log10 / n;
  }
  double xx = 0, xy = 0, yy = 0;
  for (const LogError& point : points) {
    const double x = x_of(point) - mean_x, y = point.log10 - mean_y;
    xx += x * x;
    xy += x * y;
    yy += y * y;
  }
  growth.log10_per_step = xy / xx;  // five different steps at least: xx > 0
  growth.log10_at_first = mean_y - growth.log10_per_step * mean_x;
  growth.r_squared = yy == 0 ? 1 : xy * xy / (xx * yy);
  return growth;
}

template <class Row>
std::map<std::uint64_t, const Row*> by_step(std::span<const Row> rows) {
  std::map<std::uint64_t, const Row*> found;
  for (const Row& row : rows) found[row.step] = &row;
  return found;
}

}  // namespace

std::vector<SettingDifference> differing_settings(const Settings& a, const Settings& b) {
  std::vector<SettingDifference> differences;
  for (const auto& [key, value] : a) {
    const auto other = b.find(key);
    if (other == b.end())
      differences.push_back({key, value, std::nullopt});
    else if (other->second != value)
      differences.push_back({key, value, other->second});
  }
  for (const auto& [key, value] : b)
    if (!a.contains(key)) differences.push_back({key, std::nullopt, value});
  std::sort(differences.begin(), differences.end(),
            [](const SettingDifference& x, const SettingDifference& y) { return x.key < y.key; });
  return differences;
}

double relative_difference(double a, double b) {
  if (same(a, b) || a == b) return 0;
  if (!std::isfinite(a) || !std::isfinite(b)) return std::numeric_limits<double>::infinity();
  const double larger = std::max(std::fabs(a), std::fabs(b));
  return std::fabs(a / larger - b / larger);  // a - b could overflow
}

std::optional<double> ErrorGrowth::doubling_steps() const {
  if (!(log10_per_step > 0)) return std::nullopt;
  return std::log10(2.0) / log10_per_step;
}

ColumnDifference StepsComparison::column(std::string_view name) const {
  const auto found = std::ranges::find(columns, name, &ColumnDifference::name);
  return found == columns.end() ? ColumnDifference{.name = name} : *found;
}

StepsOfTwoVersions steps_of_two_versions(const Manifest& a, const Manifest& b) {
  const auto last_of_first = [](const Manifest& run) {
    return run.state_hash_version < 2 ? std::numeric_limits<std::uint64_t>::max()
                                      : run.first_state_hash_until;
  };
  const std::uint64_t of_a = last_of_first(a), of_b = last_of_first(b);
  return {.after = std::min(of_a, of_b), .up_to = std::max(of_a, of_b)};
}

StepsComparison compare_steps(std::span<const StepRow> a, std::span<const StepRow> b, double threshold,
                              StepsOfTwoVersions other_hashes) {
  StepsComparison result;
  const auto rows_a = by_step(a), rows_b = by_step(b);
  for (const auto& [step, row] : rows_a) {
    const auto partner = rows_b.find(step);
    if (partner == rows_b.end())
      ++result.only_a;
    else
      result.common.push_back({*row, *partner->second});
  }
  result.only_b = rows_b.size() - result.common.size();
  result.equal = result.only_a == 0 && result.only_b == 0;
  for (const auto& [row_a, row_b] : result.common) {
    const std::uint64_t step = row_a.step;
    if (row_a.state_hash != row_b.state_hash && step > other_hashes.after && step <= other_hashes.up_to) {
      ++result.states_of_two_versions;
    } else if (row_a.state_hash != row_b.state_hash) {
      ++result.state_differences;
      if (!result.first_state_difference) result.first_state_difference = step;
    }
    result.skips_a += row_a.skipped;
    result.skips_b += row_b.skipped;
    result.skip_differences += row_a.skipped != row_b.skipped || row_a.found_inf != row_b.found_inf;
  }
  result.equal = result.equal && result.state_differences + result.skip_differences == 0;
  for_each_number<StepRow>([&](const auto& field) {
    if (field.name == "seconds") return;
    ColumnDifference& column = result.columns.emplace_back(ColumnDifference{.name = field.name});
    for (const auto& [row_a, row_b] : result.common)
      if (!same_field(field, row_a, row_b))
        note(column, row_a.step, row_a.*field.member, row_b.*field.member, threshold);
    result.equal = result.equal && column.differing == 0;
  });
  result.growth = fit_growth(result.common);
  return result;
}

EvaluationsComparison compare_evaluations(std::span<const EvaluationRow> a,
                                          std::span<const EvaluationRow> b) {
  using Key = std::pair<std::uint64_t, std::string>;
  std::map<Key, const EvaluationRow*> rows_b;
  for (const EvaluationRow& row : b) rows_b[{row.step, row.split}] = &row;
  std::map<Key, const EvaluationRow*> rows_a;
  for (const EvaluationRow& row : a) rows_a[{row.step, row.split}] = &row;
  EvaluationsComparison result;
  std::map<std::string, EvaluationPair> last;
  for (const auto& [key, row] : rows_a) {
    const auto partner = rows_b.find(key);
    if (partner == rows_b.end()) {
      ++result.only_a;
      continue;
    }
    ++result.common;
    const EvaluationRow& other = *partner->second;
    if (!same_row(*row, other)) {
      result.equal = false;
      if (!result.first_difference) result.first_difference = key.first;
    }
    last.insert_or_assign(key.second, EvaluationPair{*row, other});
  }
  result.only_b = rows_b.size() - result.common;
  result.equal = result.equal && result.only_a == 0 && result.only_b == 0;
  for (auto& [split, pair] : last) result.last.push_back(std::move(pair));
  return result;
}

namespace {

template <class Row>
EventsComparison compare_events(std::span<const Row> a, std::span<const Row> b) {
  EventsComparison result{.rows_a = a.size(), .rows_b = b.size()};
  std::size_t i = 0;
  while (i < a.size() && i < b.size() && same_row(a[i], b[i])) ++i;
  if (i < a.size() || i < b.size())
    result.first_difference = i == a.size()   ? b[i].step
                              : i == b.size() ? a[i].step
                                              : std::min(a[i].step, b[i].step);
  return result;
}

}  // namespace

EventsComparison compare_overflows(std::span<const OverflowRow> a, std::span<const OverflowRow> b) {
  return compare_events(a, b);
}

EventsComparison compare_culprits(std::span<const CulpritRow> a, std::span<const CulpritRow> b) {
  return compare_events(a, b);
}

OperandsComparison compare_operands(std::span<const RecipeRow> a, std::span<const RecipeRow> b) {
  std::map<std::pair<std::string, std::string>, std::array<RecipeRow, 2>> sums;
  for (const RecipeRow& row : a) sums[{row.tensor, row.product}][0] += row;
  for (const RecipeRow& row : b) sums[{row.tensor, row.product}][1] += row;
  OperandsComparison result{compare_events(a, b)};
  const auto share = [](const RecipeRow& sum) {
    return static_cast<double>(sum.made_zero) / static_cast<double>(sum.values);
  };
  double largest = 0;
  for (const auto& [name, of] : sums) {
    if (of[0].values == 0 || of[1].values == 0) continue;  // only one of the runs has it
    const double own = share(of[0]), other = share(of[1]);
    if (std::abs(own - other) <= largest) continue;
    largest = std::abs(own - other);
    result.most = {name.first, name.second, own, other};
  }
  return result;
}

std::optional<double> earth_movers_distance(const ExponentHistogram& a, double scale_a,
                                            const ExponentHistogram& b, double scale_b) {
  const std::uint64_t total_a = a.finite_nonzero(), total_b = b.finite_nonzero();
  if (total_a == 0 || total_b == 0) return std::nullopt;
  std::vector<Point> points;
  add_points(a, scale_a, true, points);
  add_points(b, scale_b, false, points);
  std::sort(points.begin(), points.end(),
            [](const Point& x, const Point& y) { return x.position < y.position; });
  // On a line it is the area between the two cumulative distributions. Counts are summed as integers, so that
  // equal distributions are at a distance of exactly 0.
  std::uint64_t below_a = 0, below_b = 0;
  double area = 0;
  for (std::size_t i = 0; i + 1 < points.size(); ++i) {
    below_a += points[i].count_a;
    below_b += points[i].count_b;
    const double gap = points[i + 1].position - points[i].position;
    area += gap * std::fabs(static_cast<double>(below_a) / static_cast<double>(total_a) -
                            static_cast<double>(below_b) / static_cast<double>(total_b));
  }
  return area;
}

bool HistogramsComparison::equal() const {
  return rows_a == rows_b && only_a.empty() && only_b.empty() && unmatched_rows == 0 &&
         std::all_of(tensors.begin(), tensors.end(), [](const TensorComparison& one) { return one.equal; });
}

HistogramComparer::Short::Short(const ExponentHistogram& histogram)
    : zero(histogram.zero),
      infinite(histogram.infinite),
      nan(histogram.nan),
      smallest(histogram.smallest),
      greatest(histogram.greatest) {
  const auto used = [](std::uint64_t count) { return count != 0; };
  const auto begin = std::find_if(histogram.bins.begin(), histogram.bins.end(), used);
  const auto end = std::find_if(histogram.bins.rbegin(), histogram.bins.rend(), used).base();
  if (begin == histogram.bins.end()) return;
  first = static_cast<std::size_t>(begin - histogram.bins.begin());
  counts.assign(begin, end);
}

ExponentHistogram HistogramComparer::Short::whole() const {
  ExponentHistogram histogram;
  std::copy(counts.begin(), counts.end(), histogram.bins.begin() + static_cast<std::ptrdiff_t>(first));
  histogram.zero = zero;
  histogram.infinite = infinite;
  histogram.nan = nan;
  histogram.smallest = smallest;
  histogram.greatest = greatest;
  return histogram;
}

HistogramComparer::Of& HistogramComparer::of(const HistogramRow& row) {
  // A tensor's own dtype may differ between the runs; a cast inside a product is another row of the same
  // tensor.
  const bool inside_product = is_byte_format(row.dtype);
  const Name name{inside_product ? row.tensor + " (" + std::string(name_of(row.dtype)) + ")" : row.tensor,
                  row.kind};
  const auto [found, made] = tensors_.try_emplace(name);
  if (made) {
    order_.push_back(name);
    found->second.comparison.tensor = name.first;
    found->second.comparison.kind = row.kind;
  }
  return found->second;
}

void HistogramComparer::add_a(const HistogramRow& row) {
  ++rows_a_;
  Of& its = of(row);
  its.in_a = true;
  its.rows.insert_or_assign(row.step, ShortRow{row.loss_scale, Short(row.before), Short(row.after)});
}

void HistogramComparer::add_b(const HistogramRow& row) {
  ++rows_b_;
  Of& its = of(row);
  its.in_b = true;
  if (!its.in_a) return;
  const auto found = its.rows.find(row.step);
  if (found == its.rows.end()) {
    ++unmatched_b_;
    return;
  }
  const ExponentHistogram before = found->second.before.whole(), after = found->second.after.whole();
  TensorComparison& comparison = its.comparison;
  ++comparison.steps;
  comparison.zeros_a.before += before.zero;
  comparison.zeros_a.after += after.zero;
  comparison.zeros_b.before += row.before.zero;
  comparison.zeros_b.after += row.after.zero;
  const bool equal = same_counts(before, row.before) && same_counts(after, row.after) &&
                     found->second.loss_scale == row.loss_scale;
  if (!equal) {
    comparison.equal = false;
    comparison.first_difference = std::min(comparison.first_difference.value_or(row.step), row.step);
  }
  if (const auto distance =
          earth_movers_distance(before, found->second.loss_scale, row.before, row.loss_scale)) {
    ++comparison.with_distance;
    its.sum_of_distances += *distance;
    if (*distance > comparison.largest_distance || comparison.with_distance == 1) {
      comparison.largest_distance = *distance;
      comparison.largest_step = row.step;
    }
  }
  its.rows.erase(found);  // what stays has no partner
}

HistogramsComparison HistogramComparer::result() const {
  HistogramsComparison result;
  result.rows_a = rows_a_;
  result.rows_b = rows_b_;
  result.unmatched_rows = unmatched_b_;
  for (const Name& name : order_) {
    const Of& its = tensors_.at(name);
    if (!its.in_a || !its.in_b) {
      (its.in_a ? result.only_a : result.only_b).push_back(name.first);
      continue;
    }
    result.unmatched_rows += its.rows.size();
    if (its.comparison.steps == 0) continue;
    result.tensors.push_back(its.comparison);
    TensorComparison& comparison = result.tensors.back();
    if (comparison.with_distance > 0)
      comparison.mean_distance = its.sum_of_distances / static_cast<double>(comparison.with_distance);
  }
  return result;
}

}  // namespace fp16lab::analysis
