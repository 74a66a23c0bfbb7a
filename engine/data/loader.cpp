#include "engine/data/loader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace fp16lab::engine::data {
namespace {

/// (B, 1, H, W), (B, H, W, 1) or (B, features), with the padding; checks that it fits the data.
Shape input_shape(const Dataset& dataset, const LoaderOptions& options) {
  const std::int64_t batch = options.batch_size;
  if (batch < 1 || batch > dataset.count)
    throw std::invalid_argument(
        fmt::format("a batch size of {} does not fit a data set of {} images: expected 1 to {}", batch,
                    dataset.count, dataset.count));
  if (!options.layout && options.padding == 0) return {batch, dataset.features};
  if (options.padding < 0 || dataset.height < 1 || dataset.height * dataset.width != dataset.features)
    throw std::invalid_argument(fmt::format(
        "images of {} x {} pixels in a data set of {} features cannot be padded by {} or laid out",
        dataset.height, dataset.width, dataset.features, options.padding));
  const std::int64_t height = dataset.height + 2 * options.padding;
  const std::int64_t width = dataset.width + 2 * options.padding;
  if (!options.layout) return {batch, height * width};
  return *options.layout == Layout::nchw ? Shape{batch, 1, height, width} : Shape{batch, height, width, 1};
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

Loader::Loader(const Dataset& dataset, const Normalisation& normalisation, const LoaderOptions& options)
    : dataset_(&dataset),
      normalisation_(normalisation),
      options_(options),
      order_(dataset.count, options.shuffle, options.seed),
      input_shape_(input_shape(dataset, options)) {
  // What padding surrounds the images never changes: it is written here, once.
  inputs_.resize(static_cast<std::size_t>(input_shape_.element_count()), normalisation_.value_of[0]);
  if (options_.targets == Targets::labels) labels_.resize(static_cast<std::size_t>(options_.batch_size));
}

std::uint64_t Loader::batches_per_epoch() const {
  return static_cast<std::uint64_t>(dataset_->count / options_.batch_size);
}

std::span<const std::uint32_t> Loader::indices(std::uint64_t global_micro_batch_index) {
  return batch_of(order_, options_.batch_size, global_micro_batch_index);
}

void Loader::stage(std::span<const std::uint8_t> image, std::span<float> out) const {
  const auto normalise = [&](std::uint8_t p) { return normalisation_.value_of[p]; };
  if (options_.padding == 0) {
    std::transform(image.begin(), image.end(), out.begin(), normalise);
    return;
  }
  const auto padding = static_cast<std::size_t>(options_.padding);
  const auto width = static_cast<std::size_t>(dataset_->width);
  for (std::size_t row = 0; row < static_cast<std::size_t>(dataset_->height); ++row) {
    const auto pixels = image.subspan(row * width, width);
    const auto place = out.subspan((padding + row) * (width + 2 * padding) + padding, width);
    std::transform(pixels.begin(), pixels.end(), place.begin(), normalise);
  }
}

Batch Loader::batch(Backend& backend, std::uint64_t global_micro_batch_index) {
  const std::span<const std::uint32_t> chosen = indices(global_micro_batch_index);
  const std::size_t size = inputs_.size() / chosen.size();
  for (std::size_t i = 0; i < chosen.size(); ++i)
    stage(dataset_->image(chosen[i]), std::span(inputs_).subspan(i * size, size));

  Batch batch;
  batch.inputs = backend.empty(input_shape_, DType::f32);
  backend.upload(std::as_bytes(std::span(inputs_)), batch.inputs);
  if (options_.targets == Targets::inputs) {
    batch.targets = batch.inputs;  // shares memory: nothing writes to a batch
  } else {
    for (std::size_t i = 0; i < chosen.size(); ++i) labels_[i] = dataset_->labels[chosen[i]];
    batch.targets = backend.empty(Shape{options_.batch_size}, DType::i32);
    backend.upload(std::as_bytes(std::span(labels_)), batch.targets);
  }
  return batch;
}

}  // namespace fp16lab::engine::data
