#include "engine/train/tensor_log.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <utility>

#include "engine/autograd/parameter.hpp"
#include "engine/train/sharding.hpp"
#include "numerics/formats/format_range.hpp"

namespace fp16lab::engine {

void TensorLog::begin(std::uint64_t step, ObservedSet wanted, Tap& tap) {
  step_ = step;
  wanted_ = wanted;
  tap_ = &tap;
  used_ = 0;
  places_.clear();
  unsettled_.clear();
}

std::uint64_t TensorLog::key_of(Observed observed, std::string_view name) {
  return std::hash<std::string_view>()(name) + static_cast<std::uint64_t>(observed);
}

bool TensorLog::wants(Observed observed, std::string_view name) const {
  return wanted_.contains(observed) && tap_->wants({.what = what_of(observed), .step = step_, .name = name});
}

template <class Predicate>
void TensorLog::forget(const Predicate& forgotten) {
  std::vector<std::size_t> place(used_, PositionTable::nowhere);
  std::size_t kept = 0;
  places_.clear();
  for (std::size_t i = 0; i < used_; ++i) {
    if (forgotten(entries_[i].which)) continue;
    if (kept != i) std::swap(entries_[kept], entries_[i]);
    places_.put(key_of(entries_[kept].which.observed, entries_[kept].name), kept);
    place[i] = kept++;
  }
  used_ = kept;
  std::erase_if(unsettled_,
                [&](const Unsettled& part) { return place[part.entry] == PositionTable::nowhere; });
  for (Unsettled& part : unsettled_) part.entry = place[part.entry];
}

void TensorLog::forget_gradients() {
  forget([](const Which& which) { return which.observed == Observed::gradients; });
}

void TensorLog::forget_updates(int optimizer) {
  forget([optimizer](const Which& which) {
    return which.observed == Observed::updates && which.optimizer == optimizer;
  });
}

const TensorLog::Entry* TensorLog::find(const Which& which, std::string_view name) const {
  const std::size_t place = places_.find(key_of(which.observed, name), [&](std::size_t position) {
    return entries_[position].which == which && entries_[position].name == name;
  });
  return place == PositionTable::nowhere ? nullptr : &entries_[place];
}

void TensorLog::add(const Which& which, std::string_view name, const CastProbe& probe) {
  const Entry* const known = find(which, name);
  const std::size_t position = known != nullptr ? static_cast<std::size_t>(known - entries_.data()) : used_;
  if (known == nullptr) {
    if (used_ == entries_.size()) entries_.emplace_back();
    places_.put(key_of(which.observed, name), used_);
    Entry& entry = entries_[used_++];
    entry.which = which;
    entry.name = name;
    entry.sum = {};
    entry.of_all_ranks = false;
  }
  if (probe.pending.defined()) {
    unsettled_.push_back({probe, position});
    return;
  }
  CastProbe& sum = entries_[position].sum;
  sum.before += probe.before;
  sum.after += probe.after;
}

void TensorLog::see(const Event& event) {
  const auto* const counted = event.as<CountedTensor>();
  if (counted == nullptr) return;
  const bool of_weight = counted->observed == Observed::weights;
  const Which which{.observed = counted->observed,
                    .kind = of_weight ? GradientKind::weight : counted->kind,
                    .dtype = counted->dtype,
                    .exponent = counted->exponent,
                    .intermediate = counted->intermediate};
  if (of_weight && (!wants(Observed::weights, counted->name) || find(which, counted->name) != nullptr))
    return;
  add(which, counted->name, counted->probe);
}

bool TensorLog::has_weight(std::string_view name) const {
  return places_.find(key_of(Observed::weights, name), [&](std::size_t position) {
    return entries_[position].which.observed == Observed::weights && entries_[position].name == name;
  }) != PositionTable::nowhere;
}

void TensorLog::on_weight(const Parameter& parameter, const CastProbe& probe) {
  add({.observed = Observed::weights, .dtype = parameter.value.dtype()}, parameter.name, probe);
}

void TensorLog::on_optimizer_state(std::string_view name, DType dtype, const CastProbe& probe) {
  add({.observed = Observed::optimizer_state, .dtype = dtype}, name, probe);
}

void TensorLog::on_update(std::string_view name, DType dtype, int optimizer, const UpdateProbes& probes) {
  Which which{.observed = Observed::updates, .dtype = dtype, .optimizer = optimizer};
  add(which, name, probes.relative);
  which.part = Part::change;
  add(which, name, probes.change);
  which.part = Part::quiet;
  add(which, name, probes.quiet);
}

bool TensorLog::seen() const {
  return std::any_of(entries().begin(), entries().end(),
                     [](const Entry& entry) { return entry.which.observed == Observed::gradients; });
}

void TensorLog::settle(Backend& backend, Sharding* sharding) {
  probes_.clear();
  for (Unsettled& part : unsettled_) probes_.push_back(&part.probe);
  backend.settle(probes_);
  for (const Unsettled& part : unsettled_) {
    CastProbe& sum = entries_[part.entry].sum;
    sum.before += part.probe.before;
    sum.after += part.probe.after;
  }
  unsettled_.clear();
  if (sharding == nullptr || !sharding->has_other_ranks()) return;
  std::vector<ExponentHistogram*> counts;  // weights, updates and states are the same everywhere
  for (Entry& entry : std::span(entries_).first(used_)) {
    const Observed observed = entry.which.observed;
    if (entry.of_all_ranks || (observed != Observed::gradients && observed != Observed::activations))
      continue;
    entry.of_all_ranks = true;
    counts.insert(counts.end(), {&entry.sum.before, &entry.sum.after});
  }
  sharding->add_counts(counts);
}

std::vector<std::size_t> TensorLog::uses_of_gradients() const {
  std::vector<std::size_t> next(used_, PositionTable::nowhere);
  std::vector<std::size_t> last(used_);  // last use, by first use
  PositionTable first_uses;
  for (std::size_t i = 0; i < used_; ++i) {
    const Entry& entry = entries_[i];
    if (entry.which.observed != Observed::gradients) continue;
    const std::uint64_t key = key_of(entry.which.observed, entry.name);
    const std::size_t first = first_uses.find(key, [&](std::size_t position) {
      const Entry& other = entries_[position];
      return other.name == entry.name && other.which.dtype == entry.which.dtype &&
             other.which.intermediate == entry.which.intermediate;
    });
    if (first == PositionTable::nowhere) {
      first_uses.put(key, i);
      last[i] = i;
    } else {
      next[std::exchange(last[first], i)] = i;
    }
  }
  return next;
}

void TensorLog::report_gradient(HistogramRow& row, std::span<const std::size_t> next, std::size_t first,
                                double loss_scale) const {
  int exponent = entries_[first].which.exponent;
  for (std::size_t use = first; use != PositionTable::nowhere; use = next[use])
    exponent = std::max(exponent, entries_[use].which.exponent);
  row.loss_scale = std::ldexp(loss_scale, exponent);
  row.before = row.after = {};
  for (std::size_t use = first; use != PositionTable::nowhere; use = next[use]) {
    const auto& [which, name, sum, of_all_ranks] = entries_[use];
    row.before += times_power_of_two(sum.before, exponent - which.exponent);
    row.after += times_power_of_two(sum.after, exponent - which.exponent);
  }
  tap_->see(Event(row));
}

void TensorLog::report(double loss_scale) const {
  const std::vector<std::size_t> next = uses_of_gradients();
  std::vector<bool> told(used_);  // with an earlier use
  for (std::size_t i = 0; i < used_; ++i) {
    if (next[i] != PositionTable::nowhere) told[next[i]] = true;
    if (told[i]) continue;
    const auto& [which, name, sum, of_all_ranks] = entries_[i];
    if (which.part != Part::values || !wants(which.observed, name)) continue;
    HistogramRow row{.step = step_,
                     .tensor = name,
                     .observed = which.observed,
                     .kind = which.kind == GradientKind::weight ? "weight" : "activation",
                     .dtype = which.dtype,
                     .intermediate = which.intermediate,
                     .before = sum.before,
                     .after = sum.after};
    if (which.observed == Observed::gradients) {
      report_gradient(row, next, i, loss_scale);
      continue;
    }
    if (which.observed == Observed::updates) {
      Which other = which;
      other.part = Part::change;
      const ExponentHistogram& change = find(other, name)->sum.before;
      other.part = Part::quiet;
      row.unmoved = change.zero - find(other, name)->sum.before.zero;
      // 0 / 0 is a weight of zero that stays.
      row.before.zero += row.before.nan - change.nan;
      row.before.nan = change.nan;
      row.after = row.before;
    }
    tap_->see(Event(row));
  }
}

amp::GradientStatistics TensorLog::statistics() const {
  const auto counts = [](const Entry& entry) {
    return entry.which.observed == Observed::gradients && !entry.which.intermediate;
  };
  const auto low = std::find_if(entries().begin(), entries().end(), [&](const Entry& entry) {
    return counts(entry) && is_tensor_half(entry.which.dtype);
  });
  const bool any_low = low != entries().end();
  amp::GradientStatistics all;
  if (any_low) all.range = range_of(low->which.dtype);
  for (const Entry& entry : entries()) {
    if (!counts(entry) || (any_low && !is_tensor_half(entry.which.dtype))) continue;
    (entry.which.kind == GradientKind::weight ? all.weight : all.activation) += entry.sum.before;
  }
  return all;
}

std::optional<CastCounts> TensorLog::cast_counts() const {
  std::optional<CastCounts> all;
  for (const Entry& entry : entries()) {
    if (entry.which.observed != Observed::gradients) continue;
    if (const auto counts = fp16lab::cast_counts(entry.which.dtype, entry.sum.before, entry.sum.after))
      all = all.value_or(CastCounts{}) += *counts;
  }
  return all;
}

}  // namespace fp16lab::engine
