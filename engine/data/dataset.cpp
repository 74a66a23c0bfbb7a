#include "engine/data/dataset.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "engine/backend/elementwise_functions.hpp"
#include "engine/data/idx.hpp"
#include "numerics/files/disk/sha256.hpp"
#include "numerics/random/philox.hpp"

namespace fp16lab::engine::data {
namespace {

ExampleArray bytes_in_memory(std::vector<std::int64_t> shape, std::span<const std::uint8_t> values) {
  const auto bytes = std::as_bytes(values);
  return {DType::u8, std::move(shape), std::vector<std::byte>(bytes.begin(), bytes.end())};
}

}  // namespace

ImageSize image_size(const Dataset& dataset) {
  if (!dataset.images) throw std::invalid_argument("these examples are no images");
  const std::span<const std::int64_t> shape = dataset.inputs.shape();
  if (*dataset.images == Layout::nchw) return {shape[0], shape[1], shape[2]};
  return {shape[2], shape[0], shape[1]};
}

Dataset labelled_images(const ImageSize& size, std::int64_t classes, std::span<const std::uint8_t> pixels,
                        std::span<const std::uint8_t> labels) {
  return {.inputs = bytes_in_memory({size.channels, size.height, size.width}, pixels),
          .targets = bytes_in_memory({}, labels),
          .images = Layout::nchw,
          .classes = classes};
}

void keep_first(Dataset& dataset, std::int64_t subset) {
  if (subset == 0) return;
  if (subset < 0 || subset > dataset.count())
    throw std::invalid_argument(
        fmt::format("a subset of {} {} cannot be taken from the {}{}", subset,
                    dataset.images ? "images" : "examples", dataset.count(),
                    dataset.files.empty() ? std::string() : " of " + dataset.files.front().path.string()));
  if (dataset.rows.empty()) {
    dataset.rows.resize(static_cast<std::size_t>(dataset.count()));
    std::iota(dataset.rows.begin(), dataset.rows.end(), 0u);
  }
  dataset.rows.resize(static_cast<std::size_t>(subset));
}

void check_labels(const Dataset& dataset, const std::string& name) {
  std::vector<std::int64_t> labels;
  std::int64_t seen = 0;
  dataset.targets.visit({}, [&](std::span<const std::byte> bytes) {
    labels.resize(bytes.size() / size_of(dataset.targets.type()));
    to_integers(dataset.targets.type(), bytes, labels);
    for (const std::int64_t label : labels) {
      if (label < 0 || label >= dataset.classes)
        throw std::runtime_error(fmt::format("{}: label {} at element {}: expected 0 to {}", name, label,
                                             seen, dataset.classes - 1));
      ++seen;
    }
  });
}

Dataset read_idx_dataset(const std::filesystem::path& images, const std::filesystem::path& labels,
                         std::int64_t classes, std::int64_t subset) {
  const IdxArray image_array = read_idx(images, 3);
  const IdxArray label_array = read_idx(labels, 1);
  const std::uint32_t count = image_array.extents[0];
  if (label_array.extents[0] != count)
    throw std::runtime_error(fmt::format("{}: expected {} labels, one for each image of {}, got {}",
                                         labels.string(), count, images.string(), label_array.extents[0]));
  Dataset dataset = labelled_images({1, image_array.extents[1], image_array.extents[2]}, classes,
                                    image_array.values, label_array.values);
  check_labels(dataset, labels.string());
  for (const std::filesystem::path& path : {images, labels})
    dataset.files.push_back({path, sha256_of_file(path)});
  keep_first(dataset, subset);
  return dataset;
}

Dataset random_images(std::int64_t count, std::int64_t side, std::int64_t classes, std::uint64_t seed) {
  if (count < 1 || side < 1 || classes < 1 || classes > 256)
    throw std::invalid_argument(
        fmt::format("random images: {} of {} x {} pixels in {} classes: expected at least one image of one "
                    "pixel, and 1 to 256 classes",
                    count, side, side, classes));
  const PhiloxStream images{.seed = seed, .stream = stream_id("data.images")};
  const PhiloxStream labels{.seed = seed, .stream = stream_id("data.labels")};
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(count * side * side));
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    const std::uint32_t words[] = {images.word(2 * i), images.word(2 * i + 1)};
    const float x = functions::Normal{0.0f, 32.0f}(words);
    pixels[i] = static_cast<std::uint8_t>(std::clamp(std::nearbyint(128.0f + x), 0.0f, 255.0f));
  }
  std::vector<std::uint8_t> drawn(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < drawn.size(); ++i)
    drawn[i] =
        static_cast<std::uint8_t>(std::uint64_t{labels.word(i)} * static_cast<std::uint64_t>(classes) >> 32);
  return labelled_images({1, side, side}, classes, pixels, drawn);
}

double label_entropy(const Dataset& dataset) {
  std::vector<double> counts(static_cast<std::size_t>(dataset.classes));
  std::vector<std::int64_t> labels;
  double total = 0;
  dataset.targets.visit(dataset.rows, [&](std::span<const std::byte> bytes) {
    labels.resize(bytes.size() / size_of(dataset.targets.type()));
    to_integers(dataset.targets.type(), bytes, labels);
    for (const std::int64_t label : labels) ++counts.at(static_cast<std::size_t>(label));
    total += static_cast<double>(labels.size());
  });
  double entropy = 0;
  for (const double count : counts)
    if (count > 0) entropy -= count / total * std::log(count / total);
  return entropy;
}

}  // namespace fp16lab::engine::data
