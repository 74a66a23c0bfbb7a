#include "analysis/histogram_distance.hpp"

#include <algorithm>
#include <cmath>

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

}  // namespace

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
  const bool inside_product = is_fp8(row.dtype);
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
