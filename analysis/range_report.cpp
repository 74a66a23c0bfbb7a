#include "analysis/range_report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
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

namespace {

double checked(double loss_scale) {
  if (std::isfinite(loss_scale) && loss_scale > 0) return loss_scale;
  throw std::invalid_argument(
      fmt::format("a histogram with loss scale {}: it must be finite and > 0", loss_scale));
}

}  // namespace

void ScaledHistograms::add(const ExponentHistogram& values, double loss_scale) {
  histograms_[checked(loss_scale)] += values;
}

void ScaledHistograms::add(const ValueHistogram& values, double loss_scale) {
  const auto [sum, added] = values_.try_emplace(checked(loss_scale), values);
  if (!added) sum->second += values;
}

template <class Sum>
void ScaledHistograms::for_each(std::optional<double> scale, const Sum& sum) const {
  const auto add = [&](const auto& all) {
    for (const auto& [recorded, gradients] : all) sum(gradients, scale ? *scale / recorded : 1, recorded);
  };
  add(histograms_);
  add(values_);
}

RangeCounts ScaledHistograms::at_scale(const FormatRange& range, std::optional<double> scale) const {
  RangeCounts sum;
  for_each(scale, [&](const auto& gradients, double factor, double) {
    sum += count_ranges(gradients, range, factor);
  });
  return sum;
}

ZoneMass ScaledHistograms::mass_at(const FormatRange& range, std::optional<double> scale) const {
  ZoneMass sum;
  for_each(scale, [&](const auto& gradients, double factor, double recorded) {
    sum += zone_mass(gradients, range, factor).divided_by(recorded);
  });
  return sum;
}

std::optional<MassInterval> ScaledHistograms::cosine_at(const FormatRange& range,
                                                        std::optional<double> scale) const {
  DirectionSums sums;
  for_each(scale, [&](const auto& gradients, double factor, double recorded) {
    sums += direction_sums(gradients, range, factor).divided_by(recorded);
  });
  if (sums.may_overflow || sums.overflows || empty()) return std::nullopt;
  return sums.cosine();
}

FitSums ScaledHistograms::fit_at(const FormatRange& range, std::optional<double> scale) const {
  FitSums sum;
  for_each(scale, [&](const auto& gradients, double factor, double recorded) {
    sum += fit_sums(gradients, range, factor).divided_by(recorded);
  });
  return sum;
}

std::optional<std::array<ExactMass, 4>> ScaledHistograms::exact_zones(const FormatRange& range,
                                                                      std::optional<double> scale) const {
  if (values_.empty()) return std::nullopt;
  std::array<ExactMass, 4> sum;
  for (const auto& [recorded, values] : values_) {
    const auto zones = values.zones({range, scale ? *scale / recorded : 1});
    for (std::size_t zone = 0; zone < sum.size(); ++zone) sum[zone] += zones[zone];
  }
  return sum;
}

std::vector<double> ScaledHistograms::recorded_scales() const {
  std::set<double> scales;
  for_each(std::nullopt, [&](const auto&, double, double recorded) { scales.insert(recorded); });
  return {scales.begin(), scales.end()};
}

bool ScaledHistograms::empty() const {
  std::uint64_t values = 0;
  for_each(std::nullopt,
           [&](const auto& gradients, double, double) { values += gradients.finite_nonzero(); });
  return values == 0;
}

ScaledHistograms::Extent ScaledHistograms::extent() const {
  Extent extent{.smallest = std::numeric_limits<int>::max(), .largest = std::numeric_limits<int>::min()};
  const auto include = [&extent](int e, double scale) {
    // scale is in [2^k, 2^(k+1)), so x / scale with x in (2^e, 2^(e+1)] is in (2^(e-k-1), 2^(e+1-k)].
    const int k = std::ilogb(scale);
    const bool exact = std::scalbn(1.0, k) == scale;
    extent.smallest = std::min(extent.smallest, exact ? e - k : e - k - 1);
    extent.largest = std::max(extent.largest, e + 1 - k);
  };
  for (const auto& [scale, histogram] : histograms_)
    for (int e = ExponentHistogram::min_exponent; e <= ExponentHistogram::max_exponent; ++e)
      if (histogram.at(e) != 0) include(e, scale);
  for (const auto& [scale, values] : values_) {
    if (values.finite_nonzero() == 0) continue;
    include(values.smallest_exponent(), scale);
    include(values.greatest_exponent(), scale);
  }
  return extent;
}

std::optional<ScaledHistograms::Magnitudes> ScaledHistograms::magnitudes() const {
  Magnitudes all;
  const auto include = [&all](double smallest, double greatest) {
    if (smallest == 0) return;
    all.smallest = all.smallest == 0 ? smallest : std::min(all.smallest, smallest);
    all.greatest = std::max(all.greatest, greatest);
  };
  for (const auto& [recorded, histogram] : histograms_) {
    if (!histogram.extremes_known()) return std::nullopt;
    include(float_from_bits(histogram.smallest) / recorded, float_from_bits(histogram.greatest) / recorded);
  }
  for (const auto& [recorded, values] : values_)
    include(values.smallest() / recorded, values.greatest() / recorded);
  return all;
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

void RangeReport::add(std::string_view tensor, const ValueHistogram& values, double loss_scale) {
  merged_.add(values, loss_scale);
  named(tensor).add(values, loss_scale);
}

void RangeReport::add(const HistogramRow& row, bool watched) {
  steps_.insert(row.step);
  if (!is_byte_format(row.dtype)) add(row.tensor, row.before, row.loss_scale);
  const std::optional<CastCounts> counts = cast_counts(row.dtype, row.before, row.after, watched);
  if (!counts) return;
  cast_scales_.insert(row.loss_scale);
  const auto found = std::find_if(casts_.begin(), casts_.end(), [&row](const RecordedCast& cast) {
    return cast.tensor == row.tensor && cast.dtype == row.dtype;
  });
  if (found == casts_.end())
    casts_.push_back({row.tensor, row.dtype, *counts});
  else
    found->counts += *counts;
}

void RangeReport::is_step(std::string_view name, std::string_view tensor, std::uint64_t step) {
  this->tensor(name);  // refuses an unknown one
  of_steps_.insert_or_assign(std::string(name), std::pair(std::string(tensor), step));
}

std::string RangeReport::tensor_of(const std::string& name) const {
  const auto found = of_steps_.find(name);
  return found == of_steps_.end() ? name : found->second.first;
}

std::optional<std::uint64_t> RangeReport::step_of(const std::string& name) const {
  const auto found = of_steps_.find(name);
  return found == of_steps_.end() ? std::nullopt : std::optional(found->second.second);
}

const ScaledHistograms& RangeReport::tensor(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    throw std::invalid_argument(
        fmt::format("no tensor '{}' among the {} of this report", name, names_.size()));
  return found->second;
}

std::vector<WhatIf> what_if(const ScaledHistograms& gradients, const FormatRange& range) {
  std::vector<WhatIf> points;
  for (int k = min_log2_scale; k <= max_log2_scale; ++k)
    points.push_back({k, gradients.at_scale(range, std::scalbn(1.0, k))});
  return points;
}

std::shared_ptr<const ValueBins> value_bins(std::span<const FormatRange> ranges,
                                            std::span<const double> recorded_scales,
                                            std::optional<double> scale) {
  std::vector<ScaledFormat> formats;
  for (const FormatRange& range : ranges)
    for (const double recorded : recorded_scales) {
      for (int k = least_log2_scale; k <= greatest_log2_scale; ++k)
        formats.push_back({range, std::scalbn(1.0, k) / recorded});
      formats.push_back({range, scale ? *scale / recorded : 1});
    }
  return std::make_shared<const ValueBins>(formats);
}

}  // namespace fp16lab::analysis
