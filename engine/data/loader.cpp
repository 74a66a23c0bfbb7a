#include "engine/data/loader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>

namespace fp16lab::engine::data {
namespace {

/// (B, C, H, W), (B, H, W, C), (B, features) or (B, ...), with the padding; checks that it fits the data.
Shape input_shape(const Dataset& dataset, const LoaderOptions& options) {
  const std::int64_t batch = options.batch_size;
  if (batch < 1 || batch > dataset.count())
    throw std::invalid_argument(
        fmt::format("a batch size of {} does not fit a data set of {} {}: expected 1 to {}", batch,
                    dataset.count(), dataset.images ? "images" : "examples", dataset.count()));
  if (options.targets == Targets::labels && dataset.targets.count() == 0)
    throw std::invalid_argument("this data set has no targets; only its inputs can be learnt");
  if (!dataset.images) {
    if (options.padding != 0 || options.augmentation.any())
      throw std::invalid_argument("examples that are no images cannot be padded, flipped or cropped");
    std::vector<std::int64_t> extents{batch};
    const std::span<const std::int64_t> shape = dataset.inputs.shape();
    extents.insert(extents.end(), shape.begin(), shape.end());
    if (extents.size() == 1) extents.push_back(1);
    return Shape(extents);
  }
  const auto possible = [](std::int64_t padding) { return padding >= 0 && padding <= most_padding; };
  if (!possible(options.padding) || !possible(options.augmentation.crop_padding))
    throw std::invalid_argument(
        fmt::format("images cannot be padded by {} or cropped with {}: expected 0 to {}", options.padding,
                    options.augmentation.crop_padding, most_padding));
  const ImageSize image = image_size(dataset);
  const Extent added = Extent(2) * options.padding;
  const std::int64_t height = (added + image.height).value(), width = (added + image.width).value();
  if (!options.layout) return {batch, (Extent(image.channels) * height * width).value()};
  return *options.layout == Layout::nchw ? Shape{batch, image.channels, height, width}
                                         : Shape{batch, height, width, image.channels};
}

}  // namespace

Loader::Loader(const Dataset& dataset, const Normalisation& normalisation, const LoaderOptions& options)
    : dataset_(&dataset),
      normaliser_(dataset, normalisation),
      options_(options),
      order_(dataset.count(), options.shuffle, options.seed),
      input_shape_(input_shape(dataset, options)) {
  if (dataset.images) {
    image_ = image_size(dataset);
    const bool other_order = image_.channels > 1 && options_.layout && *options_.layout != *dataset.images;
    placed_ = other_order || options_.padding > 0 || options_.augmentation.any();
    if (placed_) image_values_.resize(static_cast<std::size_t>(dataset.inputs.elements()));
  }
  integers_.resize(static_cast<std::size_t>(std::max(dataset.inputs.elements(), dataset.targets.elements())));
}

std::uint64_t Loader::batches_per_epoch() const {
  return static_cast<std::uint64_t>(dataset_->count() / options_.batch_size);
}

std::int64_t Loader::rows_per_batch() const {
  return options_.batch_size * (options_.targets == Targets::labels ? dataset_->answers() : 1);
}

std::span<const std::uint32_t> Loader::indices(std::uint64_t global_micro_batch_index) {
  return batch_of(order_, options_.batch_size, global_micro_batch_index);
}

void Loader::place(std::span<const float> image, const ImageChange& change, std::span<float> out) const {
  const Layout from = *dataset_->images, to = options_.layout.value_or(from);
  const std::int64_t height = image_.height, width = image_.width, channels = image_.channels;
  const std::int64_t padding = options_.padding, wide = width + 2 * padding, high = height + 2 * padding;
  const auto at = [channels](Layout layout, std::int64_t c, std::int64_t y, std::int64_t x, std::int64_t h,
                             std::int64_t w) {
    return static_cast<std::size_t>(layout == Layout::nchw ? (c * h + y) * w + x
                                                           : (y * w + x) * channels + c);
  };
  const std::int64_t from_step = from == Layout::nchw ? 1 : channels,
                     to_step = to == Layout::nchw ? 1 : channels;
  // Columns of the output that are on the image: x with 0 <= x - padding + right < width.
  const std::int64_t begin = padding + std::clamp<std::int64_t>(-change.right, 0, width),
                     end = padding + std::clamp<std::int64_t>(width - change.right, 0, width);
  for (std::int64_t c = 0; c < channels; ++c) {
    const float zero = normaliser_.zero(static_cast<std::size_t>(c));
    for (std::int64_t y = 0; y < high; ++y) {
      float* const row = out.data() + at(to, c, y, 0, high, wide);
      const std::int64_t source = y - padding + change.down;
      const bool inside = y >= padding && y < padding + height && source >= 0 && source < height;
      const std::int64_t first = inside ? begin : wide, last = inside ? end : wide;
      for (std::int64_t x = 0; x < first; ++x) row[x * to_step] = zero;
      for (std::int64_t x = last; x < wide; ++x) row[x * to_step] = zero;
      if (!inside) continue;
      const std::int64_t column = first - padding + change.right;
      const std::int64_t step = change.flip ? -from_step : from_step;
      const float* pixel =
          image.data() + at(from, c, source, change.flip ? width - 1 - column : column, height, width);
      for (std::int64_t x = first; x < last; ++x, pixel += step) row[x * to_step] = *pixel;
    }
  }
}

void Loader::stage(std::uint32_t row, std::uint64_t epoch, std::span<float> out) {
  const std::span<const std::byte> example = dataset_->inputs.example(row, buffer_);
  if (!placed_) return normaliser_.apply(example, out);
  normaliser_.apply(example, image_values_);
  const Augmentation& augmentation = options_.augmentation;
  place(image_values_,
        augmentation.any() ? change_of(augmentation, options_.seed, epoch, row) : ImageChange(), out);
}

namespace {

Shape with_rows(const Shape& shape, std::size_t rows) {
  std::array<std::int64_t, Shape::max_rank> extents{};
  std::ranges::copy(shape.extents(), extents.begin());
  extents[0] = static_cast<std::int64_t>(rows);
  return Shape(std::span<const std::int64_t>(extents.data(), static_cast<std::size_t>(shape.rank())));
}

}  // namespace

Tensor Loader::inputs_of(Backend& backend, std::span<const std::uint32_t> chosen, std::uint64_t epoch) {
  const Shape shape = with_rows(input_shape_, chosen.size());
  Tensor inputs = backend.empty(shape, symbols() ? DType::i32 : DType::f32);
  const auto elements = static_cast<std::size_t>(shape.element_count()), size = elements / chosen.size();
  if (!backend.keeps_uploads()) return inputs;
  if (!symbols()) {
    inputs_.resize(static_cast<std::size_t>(input_shape_.element_count()));
    for (std::size_t i = 0; i < chosen.size(); ++i)
      stage(dataset_->row(chosen[i]), epoch, std::span(inputs_).subspan(i * size, size));
    backend.upload(std::as_bytes(std::span(inputs_).first(elements)), inputs);
    return inputs;
  }
  symbols_.resize(static_cast<std::size_t>(input_shape_.element_count()));
  const std::span<std::int64_t> ids = std::span(integers_).first(size);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    to_integers(dataset_->inputs.type(), dataset_->inputs.example(dataset_->row(chosen[i]), buffer_), ids);
    std::transform(ids.begin(), ids.end(), symbols_.begin() + static_cast<std::ptrdiff_t>(i * size),
                   [](std::int64_t id) { return static_cast<std::int32_t>(id); });
  }
  backend.upload(std::as_bytes(std::span(symbols_).first(elements)), inputs);
  return inputs;
}

Tensor Loader::targets_of(Backend& backend, std::span<const std::uint32_t> chosen) {
  const ExampleArray& targets = dataset_->targets;
  const auto size = static_cast<std::size_t>(targets.elements());
  const bool classes = dataset_->classes > 0 && !dataset_->soft;
  const auto rows = static_cast<std::int64_t>(chosen.size()) * dataset_->answers();
  const Shape shape =
      classes ? Shape{rows} : Shape{rows, dataset_->soft ? dataset_->classes : targets.elements()};
  Tensor tensor = backend.empty(shape, classes ? DType::i32 : DType::f32);
  if (!backend.keeps_uploads()) return tensor;
  const auto whole = static_cast<std::size_t>(options_.batch_size) * size;
  if (classes)
    labels_.resize(whole);
  else
    numbers_.resize(whole);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const std::span<const std::byte> target = targets.example(dataset_->row(chosen[i]), buffer_);
    if (!classes) {
      to_floats(targets.type(), target, std::span(numbers_).subspan(i * size, size));
      continue;
    }
    to_integers(targets.type(), target, std::span(integers_).first(size));
    std::transform(integers_.begin(), integers_.begin() + static_cast<std::ptrdiff_t>(size),
                   labels_.begin() + static_cast<std::ptrdiff_t>(i * size),
                   [](std::int64_t label) { return static_cast<std::int32_t>(label); });
  }
  const std::size_t elements = chosen.size() * size;
  backend.upload(classes ? std::as_bytes(std::span(labels_).first(elements))
                         : std::as_bytes(std::span(numbers_).first(elements)),
                 tensor);
  return tensor;
}

Batch Loader::part_of_batch(Backend& backend, std::uint64_t global_micro_batch_index, const BatchPart& part) {
  const std::span<const std::uint32_t> chosen =
      indices(global_micro_batch_index)
          .subspan(static_cast<std::size_t>(part.begin(options_.batch_size)),
                   static_cast<std::size_t>(part.size(options_.batch_size)));
  Batch batch;
  batch.inputs = inputs_of(backend, chosen, global_micro_batch_index / batches_per_epoch());
  // An autoencoder's share memory: nothing writes to a batch.
  batch.targets = options_.targets == Targets::inputs ? batch.inputs : targets_of(backend, chosen);
  return batch;
}

}  // namespace fp16lab::engine::data
