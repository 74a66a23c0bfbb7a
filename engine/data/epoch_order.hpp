// The order in which an epoch visits its examples.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fp16lab::engine::data {

/// The permutation of 0 .. count-1 that epoch `epoch` uses: a Fisher-Yates shuffle by Philox stream
/// (seed, "data.shuffle", epoch), with unbiased bounded integers (Lemire, ACM TOMACS 29, 2019). count < 2^32.
std::vector<std::uint32_t> shuffled_order(std::uint64_t seed, std::uint64_t epoch, std::int64_t count);

/// Keeps the order of one epoch, because consecutive batches use the same one.
class EpochOrder {
 public:
  /// Without `shuffle`, 0 .. count-1 in every epoch. 0 <= count < 2^32.
  EpochOrder(std::int64_t count, bool shuffle, std::uint64_t seed);
  std::int64_t count() const { return static_cast<std::int64_t>(order_.size()); }
  /// shuffled_order(seed, epoch, count). Valid until the next call with another epoch; allocates nothing.
  std::span<const std::uint32_t> of(std::uint64_t epoch);

 private:
  bool shuffle_;
  std::uint64_t seed_;
  std::uint64_t epoch_ = 0;
  std::vector<std::uint32_t> order_;
};

/// The examples of batch `index` of an endless sequence of epochs with `batch_size` examples a batch, an
/// incomplete last batch of an epoch left out: `batch_size` entries of order.of(epoch).
std::span<const std::uint32_t> batch_of(EpochOrder& order, std::int64_t batch_size, std::uint64_t index);

}  // namespace fp16lab::engine::data
