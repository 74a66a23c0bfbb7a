#include "analysis/range_report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace fp16lab::analysis {
namespace {

RateInterval fraction(const CountInterval& count, std::uint64_t of) {
  if (of == 0) return {};
  return {static_cast<double>(count.lower) / static_cast<double>(of),
          static_cast<double>(count.upper) / static_cast<double>(of)};
}

double fraction(std::uint64_t count, std::uint64_t of) {
  return of == 0 ? 0.0 : static_cast<double>(count) / static_cast<double>(of);
}

void add_interval(CountInterval& sum, const CountInterval& other) {
  sum.lower += other.lower;
  sum.upper += other.upper;
}

double factor(const std::optional<double>& scale, double recorded) { return scale ? *scale / recorded : 1; }

}  // namespace

ZoneRates rates_of(const RangeCounts& counts) {
  const std::uint64_t finite_nonzero = counts.total - counts.zero - counts.infinite - counts.nan;
  return {.zero = fraction(counts.zero, counts.total),
          .infinite = fraction(counts.infinite, counts.total),
          .nan = fraction(counts.nan, counts.total),
          .lost = fraction(counts.lost, finite_nonzero),
          .subnormal = fraction(counts.subnormal, finite_nonzero),
          .normal = fraction(counts.normal, finite_nonzero),
          .overflow = fraction(counts.overflow, finite_nonzero)};
}

RangeCounts& operator+=(RangeCounts& sum, const RangeCounts& other) {
  sum.zero += other.zero;
  sum.infinite += other.infinite;
  sum.nan += other.nan;
  sum.total += other.total;
  add_interval(sum.lost, other.lost);
  add_interval(sum.subnormal, other.subnormal);
  add_interval(sum.normal, other.normal);
  add_interval(sum.overflow, other.overflow);
  return sum;
}

void ScaledHistograms::add(const ExponentHistogram& values, double loss_scale) {
  if (!std::isfinite(loss_scale) || loss_scale <= 0)
    throw std::invalid_argument(
        fmt::format("a histogram with loss scale {}: it must be finite and > 0", loss_scale));
  by_scale_[loss_scale] += values;
}

void ScaledHistograms::add(const ExponentHistogram& before, const ExponentHistogram& after,
                           double loss_scale) {
  add(before, loss_scale);
  if (!cast_zeros_) cast_zeros_.emplace();
  cast_zeros_->before += before.zero;
  cast_zeros_->after += after.zero;
}

RangeCounts ScaledHistograms::at_scale(std::optional<double> scale) const {
  RangeCounts sum;
  for (const auto& [recorded, histogram] : by_scale_)
    sum += count_ranges(histogram, fp16_range, factor(scale, recorded));
  return sum;
}

ZoneMass ScaledHistograms::mass_at(std::optional<double> scale) const {
  ZoneMass sum;
  for (const auto& [recorded, histogram] : by_scale_)
    sum += zone_mass(histogram, fp16_range, factor(scale, recorded)).divided_by(recorded);
  return sum;
}

MassInterval ScaledHistograms::cosine_at(std::optional<double> scale) const {
  DirectionSums sums;
  for (const auto& [recorded, histogram] : by_scale_)
    sums += direction_sums(histogram, fp16_range, factor(scale, recorded)).divided_by(recorded);
  return sums.cosine();
}

std::vector<double> ScaledHistograms::recorded_scales() const {
  std::vector<double> scales;
  for (const auto& [recorded, histogram] : by_scale_) scales.push_back(recorded);
  return scales;
}

bool ScaledHistograms::empty() const {
  return std::all_of(by_scale_.begin(), by_scale_.end(),
                     [](const auto& entry) { return entry.second.finite_nonzero() == 0; });
}

ScaledHistograms::Extent ScaledHistograms::extent() const {
  Extent extent{.smallest = std::numeric_limits<int>::max(), .largest = std::numeric_limits<int>::min()};
  for (const auto& [scale, histogram] : by_scale_) {
    // scale is in [2^k, 2^(k+1)), so x / scale with x in (2^e, 2^(e+1)] lies in (2^(e-k-1), 2^(e+1-k)].
    const int k = std::ilogb(scale);
    const bool exact = std::scalbn(1.0, k) == scale;
    for (int e = ExponentHistogram::min_exponent; e <= ExponentHistogram::max_exponent; ++e) {
      if (histogram.at(e) == 0) continue;
      extent.smallest = std::min(extent.smallest, exact ? e - k : e - k - 1);
      extent.largest = std::max(extent.largest, e + 1 - k);
    }
  }
  return extent;
}

ScaledHistograms& RangeReport::named(std::string_view tensor) {
  const auto found = tensors_.find(tensor);
  if (found != tensors_.end()) return found->second;
  names_.emplace_back(tensor);
  return tensors_.emplace(std::string(tensor), ScaledHistograms{}).first->second;
}

void RangeReport::add(std::string_view tensor, const ExponentHistogram& values, double loss_scale) {
  merged_.add(values, loss_scale);  // first: it refuses a bad scale
  named(tensor).add(values, loss_scale);
}

void RangeReport::add(const HistogramRow& row) {
  if (row.dtype == DType::f32) return add(row.tensor, row.before, row.loss_scale);  // stored as it was
  merged_.add(row.before, row.after, row.loss_scale);
  named(row.tensor).add(row.before, row.after, row.loss_scale);
}

const ScaledHistograms& RangeReport::tensor(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    throw std::invalid_argument(
        fmt::format("no tensor '{}' among the {} of this report", name, names_.size()));
  return found->second;
}

std::vector<WhatIf> what_if(const ScaledHistograms& gradients) {
  std::vector<WhatIf> points;
  for (int k = min_log2_scale; k <= max_log2_scale; ++k)
    points.push_back({k, gradients.at_scale(std::scalbn(1.0, k))});
  return points;
}

}  // namespace fp16lab::analysis
