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

RangeCounts ScaledHistograms::at_scale(double scale) const {
  RangeCounts sum;
  for (const auto& [recorded, histogram] : by_scale_) sum += count_ranges(histogram, scale / recorded);
  return sum;
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

void RangeReport::add(std::string_view tensor, const ExponentHistogram& values, double loss_scale) {
  auto found = tensors_.find(tensor);
  if (found == tensors_.end()) {
    found = tensors_.emplace(std::string(tensor), ScaledHistograms{}).first;
    names_.emplace_back(tensor);
  }
  found->second.add(values, loss_scale);
  merged_.add(values, loss_scale);
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
