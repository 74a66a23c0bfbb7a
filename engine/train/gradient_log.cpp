#include "engine/train/gradient_log.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "numerics/range_counts.hpp"

namespace fp16lab::engine {

namespace {

/// The counts of values that are 2^exponent times as large, exponent >= 0: every bin moves. What passes the highest bin
/// stays in it; what was subnormal in FP32 comes out as the largest that it may have been.
ExponentHistogram raised(const ExponentHistogram& histogram, int exponent) {
  if (exponent == 0) return histogram;
  ExponentHistogram moved = histogram;
  moved.bins = {};
  for (std::size_t bin = 0; bin < histogram.bins.size(); ++bin)
    moved.bins[std::min(bin + static_cast<std::size_t>(exponent), moved.bins.size() - 1)] +=
        histogram.bins[bin];
  return moved;
}

}  // namespace

void GradientLog::on_scaled_gradient(std::string_view name, GradientKind kind, DType dtype,
                                     const CastProbe& probe, int exponent) {
  const auto end = entries_.begin() + static_cast<std::ptrdiff_t>(used_);
  const auto found = std::find_if(entries_.begin(), end, [name, exponent](const Entry& entry) {
    return entry.name == name && entry.exponent == exponent;
  });
  const auto position = static_cast<std::size_t>(found - entries_.begin());
  if (found == end) {
    if (used_ == entries_.size()) entries_.emplace_back();
    Entry& entry = entries_[used_++];
    entry.name = name;
    entry.kind = kind;
    entry.dtype = dtype;
    entry.exponent = exponent;
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
    sum.counted += part.probe.counted;
  }
  unsettled_.clear();
}

void GradientLog::report(TrainObserver& observer, std::uint64_t step, double loss_scale) const {
  const std::span<const Entry> entries(entries_.data(), used_);
  for (std::size_t i = 0; i < used_; ++i) {
    const Entry& entry = entries[i];
    const auto same = [&entry](const Entry& other) { return other.name == entry.name; };
    const auto before = entries.first(i), from_here = entries.subspan(i);
    if (std::any_of(before.begin(), before.end(), same)) continue;  // told already
    int exponent = entry.exponent;
    for (const Entry& use : from_here)
      if (same(use)) exponent = std::max(exponent, use.exponent);
    CastProbe sum;
    for (const Entry& use : from_here) {
      if (!same(use)) continue;
      sum.before += raised(use.probe.before, exponent - use.exponent);
      sum.after += raised(use.probe.after, exponent - use.exponent);
      sum.counted += use.probe.counted;
    }
    observer.on_gradient({.step = step,
                          .tensor = entry.name,
                          .kind = entry.kind,
                          .dtype = entry.dtype,
                          .loss_scale = std::ldexp(loss_scale, exponent),
                          .probe = sum});
  }
}

amp::GradientStatistics GradientLog::statistics() const {
  const std::span<const Entry> entries(entries_.data(), used_);
  const auto is_low = [](const Entry& entry) { return entry.dtype != DType::f32; };
  const bool only_low = std::any_of(entries.begin(), entries.end(), is_low);
  amp::GradientStatistics all;
  for (const Entry& entry : entries) {
    if (only_low && !is_low(entry)) continue;
    (entry.kind == GradientKind::weight ? all.weight : all.activation) += entry.probe.before;
  }
  return all;
}

std::optional<double> GradientLog::underflow_rate() const {
  if (used_ == 0) return std::nullopt;
  ExponentHistogram all;
  for (std::size_t i = 0; i < used_; ++i) all += entries_[i].probe.before;
  return fp16lab::underflow_rate(all, fp16_range, 1.0);
}

}  // namespace fp16lab::engine
