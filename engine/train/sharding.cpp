#include "engine/train/sharding.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <ranges>
#include <stdexcept>
#include <utility>

namespace fp16lab::engine {

void check(const ParallelOptions& options, std::int64_t batch_size) {
  parallel::check_shard_count(options.shards);
  if (batch_size % options.shards != 0)
    throw std::invalid_argument(fmt::format(
        "parallel.shards = {}: shards are equal parts of a batch, and train.batch_size = {} has no "
        "{} equal parts",
        options.shards, batch_size, options.shards));
}

Sharding::Sharding(Backend& backend, const ParallelOptions& options, parallel::Communicator* communicator)
    : backend_(&backend),
      own_(communicator == nullptr ? parallel::make_single_process() : nullptr),
      communicator_(communicator == nullptr ? own_.get() : communicator),
      tree_(*communicator_,
            parallel::placed_shards(options.shards, communicator_->size(), communicator_->rank()),
            options.wire, backend.host_threads()),
      means_(backend, tree_),
      sync_batch_norm_(options.sync_batch_norm) {
  communicator_->set_time_limit(options.time_limit);
}

void Sharding::set_place(std::string_view what) {
  if (has_other_ranks()) communicator_->set_place(fmt::format("step {}, {}", step_, what));
}

void Sharding::enter(StepContext& context, std::uint64_t step) {
  step_ = step;
  set_place("forward and backward pass");
  context.shards = shards();
  context.shard_tree = &tree_;
  context.sync_batch_norm = sync_batch_norm_;
  context.final_gradients = cut() ? &means_ : nullptr;
}

void Sharding::reduce(std::size_t group, ExponentHistogram* counts) {
  if (!cut()) return;
  set_place("gradients");
  means_.finish(group, counts);
}

float Sharding::mean(const Tensor& values) {
  losses_.resize(static_cast<std::size_t>(values.element_count()));
  backend_->download(values, std::as_writable_bytes(std::span(losses_)));
  if (!cut()) return losses_.front();
  float sum = 0;
  tree_.sum(losses_, std::span(&sum, 1));
  return sum / static_cast<float>(shards().total);
}

void Sharding::add_counts(std::span<ExponentHistogram* const> counts) {
  if (!has_other_ranks()) return;
  constexpr std::size_t width = ExponentHistogram::bin_count + 3;
  std::vector<std::uint64_t> sums, extremes;
  for (const ExponentHistogram* histogram : counts) {
    sums.insert(sums.end(), histogram->bins.begin(), histogram->bins.end());
    sums.insert(sums.end(), {histogram->zero, histogram->infinite, histogram->nan});
    // The smallest value, through a maximum of inverted ones; 0: there is none.
    extremes.insert(extremes.end(), {histogram->smallest == 0 ? 0 : ~histogram->smallest, histogram->greatest,
                                     histogram->extremes_known() ? 0U : 1U});
  }
  communicator_->sum(sums);
  communicator_->max(extremes);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    ExponentHistogram& histogram = *counts[i];
    const std::uint64_t* const sum = sums.data() + i * width;
    const std::uint64_t* const extreme = extremes.data() + i * 3;
    std::copy_n(sum, ExponentHistogram::bin_count, histogram.bins.begin());
    histogram.zero = sum[width - 3];
    histogram.infinite = sum[width - 2];
    histogram.nan = sum[width - 1];
    histogram.forget_extremes();
    if (extreme[2] == 0 && extreme[1] != 0)
      histogram.include(~static_cast<std::uint32_t>(extreme[0]), static_cast<std::uint32_t>(extreme[1]));
  }
}

double Sharding::sum_of_batches(std::span<double> losses, std::uint64_t& correct) {
  if (has_other_ranks()) {
    std::vector<std::uint64_t> words{correct};  // for each batch one rank's bits, and zeros from the others
    for (std::size_t batch = 0; batch < losses.size(); ++batch)
      words.push_back(evaluates(batch) ? std::bit_cast<std::uint64_t>(losses[batch]) : 0);
    set_place("evaluation");
    communicator_->sum(words);
    correct = words.front();
    for (std::size_t batch = 0; batch < losses.size(); ++batch)
      losses[batch] = std::bit_cast<double>(words[batch + 1]);
  }
  if (!cut()) return std::accumulate(losses.begin(), losses.end(), 0.0);
  std::size_t count = losses.size();
  for (; count > 1; count = (count + 1) / 2) {
    for (std::size_t i = 0; 2 * i < count; ++i)
      losses[i] = 2 * i + 1 < count ? losses[2 * i] + losses[2 * i + 1] : losses[2 * i];
  }
  return count == 0 ? 0.0 : losses.front();
}

void Sharding::compare(std::uint64_t digest, std::uint64_t step,
                       const std::function<std::vector<NamedDigest>()>& parts) {
  if (!has_other_ranks()) return;
  const auto ranks = static_cast<std::size_t>(communicator_->size());
  std::vector<std::uint64_t> digests(ranks);
  digests[static_cast<std::size_t>(communicator_->rank())] = digest;
  set_place("digests");
  communicator_->sum(digests);
  const auto same_as = [&](std::uint64_t one) { return std::ranges::count(digests, one); };
  const auto usual = std::ranges::max_element(digests, {}, same_as);
  if (same_as(*usual) == communicator_->size()) return;

  const std::vector<NamedDigest> own = parts();
  std::string words;
  for (const NamedDigest& part : own) words += fmt::format("{:016x}", part.digest);
  const std::vector<std::string> all = communicator_->all_gather(words);
  const std::string& expected = all[static_cast<std::size_t>(usual - digests.begin())];
  const auto parts_of = [&](std::size_t rank) {
    constexpr std::size_t most = 4, width = 16;
    std::vector<std::string_view> names;
    for (std::size_t i = 0; i < own.size(); ++i)
      if (all[rank].compare(i * width, width, expected, i * width, width) != 0) names.push_back(own[i].name);
    const std::size_t told = std::min(most, names.size());
    return fmt::format("{}{}",
                       fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(told), ", "),
                       names.size() > told ? fmt::format(" and {} more", names.size() - told) : "");
  };
  std::vector<std::string> others;
  std::vector<int> telling{static_cast<int>(usual - digests.begin())};
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (digests[rank] == *usual) continue;
    others.push_back(fmt::format("rank {} on {} in {}", rank, communicator_->hosts()[rank], parts_of(rank)));
    telling.push_back(static_cast<int>(rank));
  }
  std::ranges::sort(telling);
  throw RanksDiffer(
      fmt::format("step {}: {} of {} ranks have the same state, but not {}. Some machine or build computes "
                  "other bits, or memory or network is faulty",
                  step, same_as(*usual), ranks, fmt::join(others, ", ")),
      std::move(telling));
}

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

void GradientMeans::see(const Event& event) {
  if (const auto* const final = event.as<GradientFinal>()) note_final(final->parameter);
  if (event.as<NodeDone>() != nullptr) tree_->poll();
}

void GradientMeans::note_final(const Parameter& parameter) {
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
