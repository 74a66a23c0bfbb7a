#include "engine/data/loader.hpp"

#include <fmt/format.h>

#include <cmath>
#include <numeric>
#include <span>
#include <stdexcept>
#include <utility>

#include "numerics/philox.hpp"

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

std::vector<std::uint32_t> identity_order(std::int64_t count) {
  std::vector<std::uint32_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0u);
  return order;
}

}  // namespace

Normalisation unit_normalisation() {
  Normalisation normalisation;
  for (std::size_t p = 0; p < 256; ++p) normalisation.value_of[p] = static_cast<float>(p) / 255.0f;
  return normalisation;
}

Normalisation standard_normalisation(const Dataset& training) {
  std::uint64_t sum = 0;
  std::uint64_t squares = 0;
  for (const std::uint64_t p : training.pixels) {
    sum += p;
    squares += p * p;
  }
  // Variance * n^2 = n * squares - sum^2: exact in 128 bits where 64 would wrap (n is 4.7e7 for
  // Fashion-MNIST).
  __extension__ using Wide = unsigned __int128;
  const Wide n = training.pixels.size();
  const Wide scaled_variance = n * squares - Wide{sum} * sum;
  if (scaled_variance == 0)
    throw std::invalid_argument("standard normalisation: all pixels are equal, the standard deviation is 0");
  Normalisation normalisation;
  const double count = static_cast<double>(training.pixels.size());
  normalisation.mean = static_cast<double>(sum) / count / 255.0;
  normalisation.deviation = std::sqrt(static_cast<double>(scaled_variance)) / count / 255.0;
  for (std::size_t p = 0; p < 256; ++p)
    normalisation.value_of[p] =
        static_cast<float>((static_cast<double>(p) / 255.0 - normalisation.mean) / normalisation.deviation);
  return normalisation;
}

std::vector<std::uint32_t> shuffled_order(std::uint64_t seed, std::uint64_t epoch, std::int64_t count) {
  std::vector<std::uint32_t> order = identity_order(count);
  PhiloxStream stream{seed, stream_id("data.shuffle")};
  stream.iteration = static_cast<std::uint32_t>(epoch);
  WordReader words(stream);
  for (std::uint32_t last = static_cast<std::uint32_t>(count); last > 1; --last)
    std::swap(order[last - 1], order[words.below(last)]);
  return order;
}

Loader::Loader(const Dataset& dataset, const Normalisation& normalisation, const LoaderOptions& options)
    : dataset_(&dataset), normalisation_(normalisation), options_(options) {
  if (options_.batch_size < 1 || options_.batch_size > dataset.count)
    throw std::invalid_argument(
        fmt::format("a batch size of {} does not fit a data set of {} images: expected 1 to {}",
                    options_.batch_size, dataset.count, dataset.count));
  order_ = options_.shuffle ? shuffled_order(options_.seed, 0, dataset.count) : identity_order(dataset.count);
}

std::uint64_t Loader::batches_per_epoch() const {
  return static_cast<std::uint64_t>(dataset_->count / options_.batch_size);
}

std::vector<std::uint32_t> Loader::indices(std::uint64_t global_micro_batch_index) {
  const std::uint64_t epoch = global_micro_batch_index / batches_per_epoch();
  const std::uint64_t first =
      global_micro_batch_index % batches_per_epoch() * static_cast<std::uint64_t>(options_.batch_size);
  if (options_.shuffle && epoch != order_epoch_) {
    order_ = shuffled_order(options_.seed, epoch, dataset_->count);
    order_epoch_ = epoch;
  }
  const auto chosen = std::span(order_).subspan(static_cast<std::size_t>(first),
                                                static_cast<std::size_t>(options_.batch_size));
  return {chosen.begin(), chosen.end()};
}

Batch Loader::batch(Backend& backend, std::uint64_t global_micro_batch_index) {
  const std::vector<std::uint32_t> chosen = indices(global_micro_batch_index);
  staging_.clear();
  for (const std::uint32_t index : chosen)
    for (const std::uint8_t p : dataset_->image(index)) staging_.push_back(normalisation_.value_of[p]);

  Batch batch;
  batch.inputs = backend.empty(Shape{options_.batch_size, dataset_->features}, DType::f32);
  backend.upload(std::as_bytes(std::span(staging_)), batch.inputs);
  if (options_.targets == Targets::inputs) {
    batch.targets = batch.inputs;  // shares memory: nothing writes to a batch
  } else {
    std::vector<std::int32_t> labels;
    labels.reserve(chosen.size());
    for (const std::uint32_t index : chosen) labels.push_back(dataset_->labels[index]);
    batch.targets = backend.empty(Shape{options_.batch_size}, DType::i32);
    backend.upload(std::as_bytes(std::span(labels)), batch.targets);
  }
  return batch;
}

}  // namespace fp16lab::engine::data
