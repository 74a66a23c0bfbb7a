#include "engine/train/gradient_log.hpp"

#include <algorithm>

#include "numerics/range_counts.hpp"

namespace fp16lab::engine {

void GradientLog::on_gradient(std::string_view name, GradientKind kind, DType dtype, const CastProbe& probe) {
  const auto end = entries_.begin() + static_cast<std::ptrdiff_t>(used_);
  const auto found =
      std::find_if(entries_.begin(), end, [name](const Entry& entry) { return entry.name == name; });
  const auto position = static_cast<std::size_t>(found - entries_.begin());
  if (found == end) {
    if (used_ == entries_.size()) entries_.emplace_back();
    Entry& entry = entries_[used_++];
    entry.name = name;
    entry.kind = kind;
    entry.dtype = dtype;
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
  for (std::size_t i = 0; i < used_; ++i) {
    const Entry& entry = entries_[i];
    observer.on_gradient({.step = step,
                          .tensor = entry.name,
                          .kind = entry.kind,
                          .dtype = entry.dtype,
                          .loss_scale = loss_scale,
                          .probe = entry.probe});
  }
}

std::optional<double> GradientLog::underflow_rate() const {
  if (used_ == 0) return std::nullopt;
  ExponentHistogram all;
  for (std::size_t i = 0; i < used_; ++i) all += entries_[i].probe.before;
  return fp16lab::underflow_rate(all, 1.0);
}

}  // namespace fp16lab::engine
