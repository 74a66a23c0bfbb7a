#include "engine/data/dataset.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <stdexcept>

#include "engine/backend/elementwise_functions.hpp"
#include "engine/data/idx.hpp"
#include "numerics/files/disk/sha256.hpp"
#include "numerics/random/philox.hpp"

namespace fp16lab::engine::data {
namespace {

constexpr DatasetInfo datasets[] = {
    {"fashion-mnist", DataKind::images,
     "Fashion-MNIST (Zalando, 2017): 60,000 + 10,000 grey images of clothes, 28 x 28, 10 classes",
     "dataset-fashion-mnist", 784, 10},
    {random_images_name, DataKind::images,
     "1024 images of 32 x 32 normal numbers with labels 0 to 9 drawn at random, from train.seed; evaluated "
     "on "
     "the "
     "training images",
     "", 1024, 10},
    {"bible-kjv", DataKind::text,
     "King James Bible: 4,404,412 characters, 73 different ones; the last tenth is the test set",
     "bible-kjv"},
    {"text", DataKind::text, "a text file of yours: data.path; the last tenth is the test set", ""},
    {"uniform", DataKind::synthetic,
     "inputs and targets uniform on [0, 1), drawn from train.seed; evaluated on the training batches", ""},
    {"normal", DataKind::synthetic,
     "inputs and targets normal (mean 0, deviation 1), drawn from train.seed; evaluated on the training "
     "batches",
     ""},
};

constexpr std::string_view system_folder = "/usr/share/datasets";
constexpr std::string_view variable = "FP16LAB_DATA";

const DatasetInfo& dataset_info(std::string_view name) {
  std::string known;
  for (const DatasetInfo& info : datasets) {
    if (info.kind != DataKind::images || info.name == random_images_name) continue;
    if (info.name == name) return info;
    known += (known.empty() ? "" : ", ") + std::string(info.name);
  }
  throw std::invalid_argument(fmt::format("unknown data set '{}'; of images there are: {}", name, known));
}

struct FilePair {
  std::string_view images;
  std::string_view labels;
};
FilePair file_names(Split split) {
  return split == Split::train ? FilePair{"train-images-idx3-ubyte", "train-labels-idx1-ubyte"}
                               : FilePair{"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};
}

/// The file under its plain or its compressed name; empty if there is neither.
std::filesystem::path find_file(const std::filesystem::path& folder, std::string_view name) {
  for (const char* ending : {"", ".gz"}) {
    std::filesystem::path path = folder / (std::string(name) + ending);
    if (std::filesystem::is_regular_file(path)) return path;
  }
  return {};
}

std::filesystem::path require_file(const DatasetInfo& info, const DatasetLocation& location,
                                   std::string_view name) {
  std::filesystem::path path = find_file(location.folder, name);
  if (path.empty())
    throw std::runtime_error(
        fmt::format("{}: {}.gz is not in {} (chosen by {}); install the Debian package {}, or point "
                    "data.path or ${} at a folder with "
                    "the four IDX files",
                    info.name, name, location.folder.string(), location.chosen_by, info.package, variable));
  return path;
}

}  // namespace

Dataset read_idx_dataset(const std::filesystem::path& images, const std::filesystem::path& labels,
                         std::int64_t classes, std::int64_t subset) {
  IdxArray image_array = read_idx(images, 3);
  IdxArray label_array = read_idx(labels, 1);
  const std::uint32_t count = image_array.extents[0];
  if (label_array.extents[0] != count)
    throw std::runtime_error(fmt::format("{}: expected {} labels, one for each image of {}, got {}",
                                         labels.string(), count, images.string(), label_array.extents[0]));
  const auto wrong = std::find_if(label_array.values.begin(), label_array.values.end(),
                                  [classes](std::uint8_t label) { return label >= classes; });
  if (wrong != label_array.values.end())
    throw std::runtime_error(fmt::format("{}: label {} at element {}: expected 0 to {}", labels.string(),
                                         *wrong, wrong - label_array.values.begin(), classes - 1));
  if (subset < 0 || subset > std::int64_t{count})
    throw std::invalid_argument(fmt::format("a subset of {} images cannot be taken from the {} of {}", subset,
                                            count, images.string()));

  Dataset dataset;
  dataset.count = subset == 0 ? std::int64_t{count} : subset;
  dataset.height = image_array.extents[1];
  dataset.width = image_array.extents[2];
  dataset.features = dataset.height * dataset.width;
  dataset.classes = classes;
  dataset.pixels = std::move(image_array.values);
  dataset.pixels.resize(static_cast<std::size_t>(dataset.count * dataset.features));
  dataset.labels = std::move(label_array.values);
  dataset.labels.resize(static_cast<std::size_t>(dataset.count));
  for (const std::filesystem::path& path : {images, labels})
    dataset.files.push_back({path, sha256_of_file(path)});
  return dataset;
}

Dataset random_images(std::int64_t count, std::int64_t side, std::int64_t classes, std::uint64_t seed) {
  if (count < 1 || side < 1 || classes < 1 || classes > 256)
    throw std::invalid_argument(
        fmt::format("random images: {} of {} x {} pixels in {} classes: expected at least one image of one "
                    "pixel, and 1 to 256 classes",
                    count, side, side, classes));
  Dataset dataset;
  dataset.count = count;
  dataset.features = side * side;
  dataset.height = dataset.width = side;
  dataset.classes = classes;
  const PhiloxStream images{.seed = seed, .stream = stream_id("data.images")};
  const PhiloxStream labels{.seed = seed, .stream = stream_id("data.labels")};
  dataset.pixels.resize(static_cast<std::size_t>(count * dataset.features));
  for (std::size_t i = 0; i < dataset.pixels.size(); ++i) {
    const float x = functions::normal_from(0.0f, 32.0f, images.word(2 * i), images.word(2 * i + 1));
    dataset.pixels[i] = static_cast<std::uint8_t>(std::clamp(std::nearbyint(128.0f + x), 0.0f, 255.0f));
  }
  dataset.labels.resize(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < dataset.labels.size(); ++i)
    dataset.labels[i] =
        static_cast<std::uint8_t>(std::uint64_t{labels.word(i)} * static_cast<std::uint64_t>(classes) >> 32);
  return dataset;
}

double label_entropy(const Dataset& dataset) {
  std::array<double, 256> counts{};
  for (const std::uint8_t label : dataset.labels) ++counts[label];
  const auto total = static_cast<double>(dataset.labels.size());
  double entropy = 0;
  for (const double count : counts)
    if (count > 0) entropy -= count / total * std::log(count / total);
  return entropy;
}

std::string_view name_of(DataKind kind) {
  switch (kind) {
    case DataKind::images:
      return "images";
    case DataKind::text:
      return "text";
    case DataKind::synthetic:
      return "synthetic";
  }
  throw std::logic_error("unknown kind of data");
}

std::span<const DatasetInfo> known_datasets() { return datasets; }

DatasetLocation find_dataset(std::string_view name, const std::filesystem::path& path) {
  const DatasetInfo& info = dataset_info(name);
  DatasetLocation location;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing in fp16lab changes the environment
  const char* const set = std::getenv(std::string(variable).c_str());
  if (!path.empty()) {
    location = {path, "data.path"};
  } else if (set != nullptr && *set != '\0') {
    location = {set, fmt::format("${}", variable)};
    if (std::filesystem::is_directory(location.folder / info.name)) location.folder /= info.name;
  } else {
    location = {std::filesystem::path(system_folder) / info.name,
                "default; data.path or $FP16LAB_DATA say otherwise"};
  }
  for (const Split split : {Split::train, Split::test}) {
    require_file(info, location, file_names(split).images);
    require_file(info, location, file_names(split).labels);
  }
  return location;
}

Dataset load_dataset(std::string_view name, const DatasetLocation& location, Split split,
                     std::int64_t subset) {
  const DatasetInfo& info = dataset_info(name);
  const FilePair names = file_names(split);
  const std::filesystem::path images = require_file(info, location, names.images);
  Dataset dataset =
      read_idx_dataset(images, require_file(info, location, names.labels), info.classes, subset);
  if (dataset.features != info.features)
    throw std::runtime_error(fmt::format("{}: expected {} pixels an image for {}, got {}", images.string(),
                                         info.features, info.name, dataset.features));
  return dataset;
}

}  // namespace fp16lab::engine::data
