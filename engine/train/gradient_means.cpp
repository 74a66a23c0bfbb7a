#include "engine/train/gradient_means.hpp"

#include <ranges>
#include <utility>

namespace fp16lab::engine {

void GradientMeans::add_group(std::span<Parameter* const> parameters) {
  Group& group = groups_.emplace_back();
  std::size_t bytes = bucket_bytes;
  for (Parameter* const parameter : std::views::reverse(parameters)) {
    if (bytes >= bucket_bytes) {
      group.buckets.emplace_back();
      bytes = 0;
    }
    bytes += static_cast<std::size_t>(parameter->value.element_count()) * sizeof(float);
    Bucket& bucket = group.buckets.back();
    bucket.members.push_back({.parameter = parameter, .mean = {}, .staged = {}});
    bucket.waiting_for = bucket.members.size();
    places_[parameter] = {groups_.size() - 1, group.buckets.size() - 1};
  }
}

void GradientMeans::on_final(Parameter& parameter) {
  const auto place = places_.find(&parameter);
  if (place == places_.end()) return;
  Group& group = groups_[place->second.group];
  --group.buckets[place->second.bucket].waiting_for;
  for (; group.started < group.buckets.size() && group.buckets[group.started].waiting_for == 0;
       ++group.started)
    start(group.buckets[group.started]);
}

void GradientMeans::finish(std::size_t number, ExponentHistogram* counts) {
  Group& group = groups_[number];
  for (; group.started < group.buckets.size(); ++group.started) start(group.buckets[group.started]);
  tree_->finish();
  for (Bucket& bucket : group.buckets) {
    for (Member& member : bucket.members)
      if (member.mean.defined()) store(member, counts);
    bucket.waiting_for = bucket.members.size();
  }
  group.started = 0;
}

void GradientMeans::start(Bucket& bucket) {
  stacks_.clear();
  std::size_t downloads = 0;
  for (Member& member : bucket.members) {
    Parameter& parameter = *member.parameter;
    if (!parameter.gradient_by_shard) continue;
    member.mean = backend_->empty(parameter.value.shape(), DType::f32);
    Tensor stack = std::exchange(parameter.gradient, {});
    if (stack.on_host()) {
      stacks_.emplace_back(stack, member.mean.host<float>());
      taken_.push_back(std::move(stack));
      continue;
    }
    stack = widened(*backend_, stack);
    if (downloads == downloaded_.size()) downloaded_.emplace_back();
    std::vector<float>& rows = downloaded_[downloads++];
    rows.resize(static_cast<std::size_t>(stack.element_count()));
    member.staged.resize(static_cast<std::size_t>(member.mean.element_count()));
    backend_->download(stack, std::as_writable_bytes(std::span(rows)));
    stacks_.emplace_back(rows, member.staged);
  }
  if (!stacks_.empty()) tree_->start_mean(stacks_);
  taken_.clear();
}

void GradientMeans::store(Member& member, ExponentHistogram* counts) {
  Tensor mean = std::exchange(member.mean, {});
  if (!mean.on_host()) backend_->upload(std::as_bytes(std::span(member.staged)), mean);
  if (counts != nullptr) backend_->histogram(mean, *counts);
  if (const DType dtype = member.parameter->dtypes.gradient; dtype != DType::f32) {
    Tensor narrow = backend_->empty(mean.shape(), dtype);
    backend_->cast(mean, narrow);
    mean = std::move(narrow);
  }
  member.parameter->gradient = std::move(mean);
  member.parameter->gradient_by_shard = false;
}

}  // namespace fp16lab::engine
