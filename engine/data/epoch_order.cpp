#include "engine/data/epoch_order.hpp"

#include <numeric>
#include <utility>

#include "numerics/random/philox.hpp"

namespace fp16lab::engine::data {
namespace {

/// Uniform words in order, from one Philox stream.
class WordReader {
 public:
  explicit WordReader(const PhiloxStream& stream) : stream_(stream) {}

  std::uint32_t next() {
    if (position_ % 4 == 0) block_ = stream_.block(position_ / 4);
    return block_[position_++ % 4];
  }

  /// Uniform in [0, bound): multiply-shift, rejecting the low products that would favour some results.
  std::uint32_t below(std::uint32_t bound) {
    std::uint64_t product = std::uint64_t{next()} * bound;
    const std::uint32_t threshold = (0u - bound) % bound;  // 2^32 mod bound
    while (static_cast<std::uint32_t>(product) < threshold) product = std::uint64_t{next()} * bound;
    return static_cast<std::uint32_t>(product >> 32);
  }

 private:
  PhiloxStream stream_;
  PhiloxCounter block_{};
  std::uint64_t position_ = 0;
};

void shuffle_into(std::span<std::uint32_t> order, std::uint64_t seed, std::uint64_t epoch) {
  std::iota(order.begin(), order.end(), 0u);
  PhiloxStream stream{seed, stream_id("data.shuffle")};
  stream.iteration = static_cast<std::uint32_t>(epoch);
  WordReader words(stream);
  for (std::uint32_t last = static_cast<std::uint32_t>(order.size()); last > 1; --last)
    std::swap(order[last - 1], order[words.below(last)]);
}

}  // namespace

std::vector<std::uint32_t> shuffled_order(std::uint64_t seed, std::uint64_t epoch, std::int64_t count) {
  std::vector<std::uint32_t> order(static_cast<std::size_t>(count));
  shuffle_into(order, seed, epoch);
  return order;
}

EpochOrder::EpochOrder(std::int64_t count, bool shuffle, std::uint64_t seed)
    : shuffle_(shuffle), seed_(seed), order_(static_cast<std::size_t>(count)) {
  if (shuffle_)
    shuffle_into(order_, seed_, epoch_);
  else
    std::iota(order_.begin(), order_.end(), 0u);
}

std::span<const std::uint32_t> EpochOrder::of(std::uint64_t epoch) {
  if (shuffle_ && epoch != epoch_) {
    shuffle_into(order_, seed_, epoch);
    epoch_ = epoch;
  }
  return order_;
}

std::span<const std::uint32_t> batch_of(EpochOrder& order, std::int64_t batch_size, std::uint64_t index) {
  const auto size = static_cast<std::uint64_t>(batch_size);
  const std::uint64_t batches = static_cast<std::uint64_t>(order.count()) / size;
  return order.of(index / batches)
      .subspan(static_cast<std::size_t>(index % batches * size), static_cast<std::size_t>(size));
}

}  // namespace fp16lab::engine::data
