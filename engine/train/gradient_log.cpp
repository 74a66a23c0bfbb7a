#include "engine/train/gradient_log.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "numerics/formats/format_range.hpp"

namespace fp16lab::engine {

void GradientLog::add(std::string_view name, GradientKind kind, DType dtype, const CastProbe& probe,
                      int exponent, bool intermediate) {
  const auto end = entries_.begin() + static_cast<std::ptrdiff_t>(used_);
  const auto found = std::find_if(entries_.begin(), end, [&](const Entry& entry) {
    return entry.name == name && entry.dtype == dtype && entry.exponent == exponent &&
           entry.intermediate == intermediate;
  });
  const auto position = static_cast<std::size_t>(found - entries_.begin());
  if (found == end) {
    if (used_ == entries_.size()) entries_.emplace_back();
    Entry& entry = entries_[used_++];
    entry.name = name;
    entry.kind = kind;
    entry.dtype = dtype;
    entry.exponent = exponent;
    entry.intermediate = intermediate;
    entry.probe = {};
  }
  unsettled_.push_back({probe, position});
}

void GradientLog::settle(Backend& backend) {
  probes_.clear();
  for (Unsettled& part : unsettled_) probes_.push_back(&part.probe);
  backend.settle(probes_);
  for (const Unsettled& part : unsettled_) {
    CastProbe& sum = entries_[part.entry].probe;
    sum.before += part.probe.before;
    sum.after += part.probe.after;
  }
  unsettled_.clear();
}

void GradientLog::report(TrainObserver& observer, std::uint64_t step, double loss_scale) const {
  const std::span<const Entry> entries(entries_.data(), used_);
  HistogramRow row;
  row.step = step;
  for (std::size_t i = 0; i < used_; ++i) {
    const Entry& entry = entries[i];
    const auto same = [&entry](const Entry& other) {
      return other.name == entry.name && other.dtype == entry.dtype &&
             other.intermediate == entry.intermediate;
    };
    const auto before = entries.first(i), from_here = entries.subspan(i);
    if (std::any_of(before.begin(), before.end(), same)) continue;  // told already
    int exponent = entry.exponent;
    for (const Entry& use : from_here)
      if (same(use)) exponent = std::max(exponent, use.exponent);
    row.tensor = entry.name;
    row.kind = entry.kind == GradientKind::weight ? "weight" : "activation";
    row.dtype = entry.dtype;
    row.intermediate = entry.intermediate;
    row.loss_scale = std::ldexp(loss_scale, exponent);
    row.before = row.after = {};
    for (const Entry& use : from_here) {
      if (!same(use)) continue;
      row.before += times_power_of_two(use.probe.before, exponent - use.exponent);
      row.after += times_power_of_two(use.probe.after, exponent - use.exponent);
    }
    observer.on_gradient(row);
  }
}

amp::GradientStatistics GradientLog::statistics() const {
  const std::span<const Entry> entries(entries_.data(), used_);
  const auto low = std::find_if(entries.begin(), entries.end(), [](const Entry& entry) {
    return !entry.intermediate && is_tensor_half(entry.dtype);
  });
  amp::GradientStatistics all;
  if (low != entries.end()) all.range = range_of(low->dtype);
  for (const Entry& entry : entries) {
    if (entry.intermediate || (low != entries.end() && !is_tensor_half(entry.dtype))) continue;
    (entry.kind == GradientKind::weight ? all.weight : all.activation) += entry.probe.before;
  }
  return all;
}

std::optional<CastCounts> GradientLog::cast_counts() const {
  std::optional<CastCounts> all;
  for (const Entry& entry : std::span(entries_.data(), used_))
    if (const auto counts = fp16lab::cast_counts(entry.dtype, entry.probe.before, entry.probe.after))
      all = all.value_or(CastCounts{}) += *counts;
  return all;
}

}  // namespace fp16lab::engine
