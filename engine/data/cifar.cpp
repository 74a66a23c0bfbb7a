#include "engine/data/cifar.hpp"

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

#include "numerics/files/disk/sha256.hpp"

namespace fp16lab::engine::data {
namespace {

constexpr std::int64_t classes = 10, channels = 3, side = 32;
constexpr std::uint64_t record = 1 + channels * side * side;

void check_labels(const InputFile& file, std::int64_t count) {
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(count); ++i) {
    std::byte label{};
    file.read(i * record, {&label, 1});
    if (std::to_integer<int>(label) >= classes)
      file.fail_at(i * record, fmt::format("the label of image {} is {}: expected 0 to {}", i,
                                           std::to_integer<int>(label), classes - 1));
  }
}

}  // namespace

Dataset read_cifar10(std::span<const std::filesystem::path> files, std::int64_t subset) {
  std::vector<FilePiece> labels, pixels;
  Dataset dataset{.inputs = {}, .targets = {}, .images = Layout::nchw, .classes = classes};
  for (const std::filesystem::path& path : files) {
    const auto file = std::make_shared<const InputFile>(path);
    const std::uint64_t count = file->size() / record;
    if (count == 0 || file->size() % record != 0)
      file->fail_at(count * record,
                    fmt::format("expected records of {} bytes (a label and 3 x 32 x 32 pixels), one or more; "
                                "the last has {} of them",
                                record, file->size() % record));
    check_labels(*file, static_cast<std::int64_t>(count));
    labels.push_back({file, 0, record, static_cast<std::int64_t>(count)});
    pixels.push_back({file, 1, record, static_cast<std::int64_t>(count)});
    dataset.files.push_back({path, sha256_of_file(path)});
  }
  dataset.inputs = ExampleArray(DType::u8, {channels, side, side}, std::move(pixels));
  dataset.targets = ExampleArray(DType::u8, {}, std::move(labels));
  keep_first(dataset, subset);
  return dataset;
}

}  // namespace fp16lab::engine::data
