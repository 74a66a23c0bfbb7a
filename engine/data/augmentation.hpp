// Random changes of training images.
#pragma once

#include <cstdint>

#include "numerics/random/philox.hpp"

namespace fp16lab::engine::data {

/// As torchvision's RandomHorizontalFlip(0.5) and RandomCrop(size of the image, padding).
struct Augmentation {
  bool flip = false;
  std::int64_t crop_padding = 0;  ///< 0: no crops

  bool any() const { return flip || crop_padding > 0; }
};

/// What becomes of one image in one epoch: it is mirrored, and then what lies `down` and `right` of it takes
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

}  // namespace fp16lab::engine::data
