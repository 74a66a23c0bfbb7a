// Batches of a data set as tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/backend/backend.hpp"
#include "engine/data/batch_source.hpp"
#include "engine/data/dataset.hpp"
#include "engine/data/epoch_order.hpp"
#include "engine/data/normalisation.hpp"
#include "numerics/random/philox.hpp"

namespace fp16lab::engine::data {

enum class Targets {
  labels,  ///< the data set's own: classes, or numbers
  inputs,  ///< an autoencoder's: the targets are the normalised inputs themselves
};

/// Random changes of training images, as torchvision's RandomHorizontalFlip(0.5) and RandomCrop(size of the
/// image, padding).
struct Augmentation {
  bool flip = false;
  std::int64_t crop_padding = 0;  ///< 0: no crops

  bool any() const { return flip || crop_padding > 0; }
};

/// What becomes of one image in one epoch: it is mirrored, and then the part `down` and `right` of it takes
/// its place.
struct ImageChange {
  bool flip = false;
  std::int64_t down = 0, right = 0;  ///< rows and columns, from -crop_padding to crop_padding
};

/// A pure function of (seed, epoch, row of the example in its arrays): the four words of that block of the
/// Philox stream "data.augmentation". An image is flipped where the highest bit of word 0 is set; word 1
/// chooses a row and word 2 a column of the 2 * crop_padding + 1 that a crop can begin at, as word * n >> 32
/// (none is preferred by more than n / 2^32).
inline ImageChange change_of(const Augmentation& augmentation, std::uint64_t seed, std::uint64_t epoch,
                             std::uint32_t row) {
  const PhiloxStream stream{
      .seed = seed, .stream = stream_id("data.augmentation"), .iteration = static_cast<std::uint32_t>(epoch)};
  const PhiloxCounter words = stream.block(row);
  const std::uint64_t places = 2 * static_cast<std::uint64_t>(augmentation.crop_padding) + 1;
  const auto place = [&](std::uint32_t word) {
    return static_cast<std::int64_t>(word * places >> 32) - augmentation.crop_padding;
  };
  return {
      .flip = augmentation.flip && (words[0] >> 31) != 0, .down = place(words[1]), .right = place(words[2])};
}

/// For LoaderOptions::padding and Augmentation::crop_padding.
inline constexpr std::int64_t most_padding = 16384;

struct LoaderOptions {
  std::int64_t batch_size = 1;
  Targets targets = Targets::labels;
  bool shuffle = true;
  std::uint64_t seed = 0;
  /// Images come in batches (B, C, H, W) or (B, H, W, C), whatever the order in the data set; without it they
  /// are flat, (B, features), in the data set's order.
  std::optional<Layout> layout = {};
  /// Rows and columns added on each side of an image, with the value that 0 has; to most_padding.
  std::int64_t padding = 0;
  Augmentation augmentation = {};   ///< for images; what a crop adds has the value of 0 as well
  std::string_view split = "test";  ///< BatchSource::split; a literal
};

/// Endless batches, epoch after epoch; an incomplete last batch of an epoch is dropped. Which examples a
/// batch holds, and how they are changed, is a pure function of (options, index), so resuming needs no state.
/// Inputs are f32, or i32 (B, ...) where they are symbols; targets i32 (B * targets of an example) where they
/// are classes, f32 (B * rows of an example, classes) where they are soft labels, else f32 (B, numbers of a
/// target). The data set must outlive the loader. Once warm, no batch allocates memory.
class Loader final : public BatchSource {
 public:
  /// std::invalid_argument unless 1 <= batch_size <= dataset.count(), for a padding, or augmentation of what
  /// are no images, for targets that the data set does not have, and for a normalisation of other channels.
  Loader(const Dataset& dataset, const Normalisation& normalisation, const LoaderOptions& options);

  std::uint64_t batches_per_epoch() const override;
  std::int64_t rows_per_batch() const override;
  std::string_view split() const override { return options_.split; }
  std::int64_t example_count() const { return dataset_->count(); }
  /// std::runtime_error where a file of the data set has become shorter.
  Batch batch(Backend& backend, std::uint64_t global_micro_batch_index) override {
    return part_of_batch(backend, global_micro_batch_index, {});
  }
  Batch part_of_batch(Backend& backend, std::uint64_t global_micro_batch_index,
                      const BatchPart& part) override;
  /// The examples of that batch, by their position in the data set. Valid until the next call.
  std::span<const std::uint32_t> indices(std::uint64_t global_micro_batch_index);

 private:
  bool symbols() const { return dataset_->vocabulary > 0; }
  void stage(std::uint32_t row, std::uint64_t epoch, std::span<float> out);
  void place(std::span<const float> image, const ImageChange& change, std::span<float> out) const;
  Tensor inputs_of(Backend& backend, std::span<const std::uint32_t> chosen, std::uint64_t epoch);
  Tensor targets_of(Backend& backend, std::span<const std::uint32_t> chosen);

  const Dataset* dataset_;
  Normaliser normaliser_;
  LoaderOptions options_;
  EpochOrder order_;
  Shape input_shape_;
  ImageSize image_;      ///< size of images
  bool placed_ = false;  ///< does an image's layout in a batch differ from that in the data set?
  std::vector<float> inputs_, numbers_, image_values_;  ///< host memory of one batch, and of one image
  std::vector<std::int32_t> symbols_, labels_;
  std::vector<std::int64_t> integers_;  ///< those of one example
  std::vector<std::byte> buffer_;       ///< for one example that is read
};

}  // namespace fp16lab::engine::data
