// The data sets that have names, and where they are.
#include <fmt/format.h>

#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "engine/data/cifar.hpp"
#include "engine/data/dataset.hpp"
#include "numerics/files/disk/folder.hpp"

namespace fp16lab::engine::data {
namespace {

constexpr DatasetInfo datasets[] = {
    {"fashion-mnist", DataKind::images,
     "Fashion-MNIST (Zalando, 2017): 60,000 + 10,000 grey images of clothes, 28 x 28, 10 classes",
     "dataset-fashion-mnist"},
    {"mnist", DataKind::images,
     "MNIST (LeCun et al., 1998): 60,000 + 10,000 grey images of digits, 28 x 28, 10 classes; its four IDX "
     "files in data.path, or others of that form under their names",
     ""},
    {"cifar10", DataKind::images,
     "CIFAR-10 (Krizhevsky, 2009): 50,000 + 10,000 colour images, 32 x 32, 10 classes; its six binary files "
     "in data.path",
     ""},
    {random_images_name, DataKind::images,
     "1024 images of 32 x 32 normal numbers with labels 0 to 9 drawn at random, from train.seed; evaluated "
     "on the training images",
     ""},
    {"arrays", DataKind::arrays,
     "your own .npy, .npz, .safetensors and IDX files: data.path, data.train, data.test, data.test_size", ""},
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

/// What the archive of CIFAR-10 unpacks to.
constexpr std::string_view cifar10_folder = "cifar-10-batches-bin";
constexpr std::string_view system_folder = "/usr/share/datasets";

const DatasetInfo& dataset_info(std::string_view name) {
  std::string known;
  for (const DatasetInfo& info : datasets) {
    if (info.kind != DataKind::images || info.name == random_images_name) continue;
    if (info.name == name) return info;
    known += (known.empty() ? "" : ", ") + std::string(info.name);
  }
  throw std::invalid_argument(fmt::format("unknown data set '{}'; of images there are: {}", name, known));
}

/// The files of a half, as data sets in IDX (images, then labels) and CIFAR-10 call them.
std::vector<std::string_view> file_names(const DatasetInfo& info, Split split) {
  const bool training = split == Split::train;
  if (info.name == "cifar10") {
    if (!training) return {"test_batch.bin"};
    return {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
            "data_batch_5.bin"};
  }
  if (training) return {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"};
  return {"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};
}

/// The file under its plain or its compressed name; empty if there is neither.
std::filesystem::path find_file(const std::filesystem::path& folder, std::string_view name) {
  for (const char* ending : {"", ".gz"}) {
    std::filesystem::path path = folder / (std::string(name) + ending);
    if (is_file(path)) return path;
  }
  return {};
}

std::vector<std::filesystem::path> require_files(const DatasetInfo& info, const DatasetLocation& location,
                                                 Split split) {
  std::vector<std::filesystem::path> paths;
  for (const std::string_view name : file_names(info, split)) {
    paths.push_back(find_file(location.folder, name));
    if (!paths.back().empty()) continue;
    const bool idx = !name.ends_with(".bin");
    throw std::runtime_error(
        fmt::format("{}: {}{} is not in {} (chosen by {}); {}point data.path or ${} at a folder with the {}",
                    info.name, name, idx ? ".gz" : "", location.folder.string(), location.chosen_by,
                    info.package.empty() ? std::string()
                                         : fmt::format("install the Debian package {}, or ", info.package),
                    data_variable, idx ? "four IDX files" : "six files of the binary version"));
  }
  return paths;
}

}  // namespace

std::span<const DatasetInfo> known_datasets() { return datasets; }

DatasetLocation find_dataset(std::string_view name, const std::filesystem::path& path) {
  const DatasetInfo& info = dataset_info(name);
  DatasetLocation location;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing in fp16lab changes the environment
  const char* const set = std::getenv(std::string(data_variable).c_str());
  if (!path.empty()) {
    location = {path, "data.path"};
  } else if (set != nullptr && *set != '\0') {
    location = {set, fmt::format("${}", data_variable)};
    if (is_folder(location.folder / info.name)) location.folder /= info.name;
  } else {
    location = {std::filesystem::path(system_folder) / info.name,
                "default; data.path or $FP16LAB_DATA say otherwise"};
  }
  if (const auto unpacked = location.folder / cifar10_folder; info.name == "cifar10" && is_folder(unpacked))
    location.folder = unpacked;
  for (const Split split : {Split::train, Split::test}) require_files(info, location, split);
  return location;
}

Dataset load_dataset(std::string_view name, const DatasetLocation& location, Split split,
                     std::int64_t subset) {
  constexpr std::int64_t classes = 10, side = 28;
  const DatasetInfo& info = dataset_info(name);
  const std::vector<std::filesystem::path> files = require_files(info, location, split);
  if (name == "cifar10") return read_cifar10(files, subset);
  Dataset dataset = read_idx_dataset(files[0], files[1], classes, subset);
  if (dataset.inputs.elements() != side * side)
    throw std::runtime_error(fmt::format("{}: expected {} pixels an image for {}, got {}", files[0].string(),
                                         side * side, info.name, dataset.inputs.elements()));
  return dataset;
}

}  // namespace fp16lab::engine::data
