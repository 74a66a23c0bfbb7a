// A data set that a small network learns in a few steps.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/data/dataset.hpp"

namespace fp16lab::engine::test {

/// 96 labels of 3 classes, for images of `height` x `width` pixels that `pixel(image, position, label)`
/// makes.
template <class Pixel>
data::Dataset labelled(std::int64_t height, std::int64_t width, const Pixel& pixel) {
  constexpr std::int64_t count = 96, classes = 3;
  std::vector<std::uint8_t> pixels, labels;
  for (std::int64_t i = 0; i < count; ++i) {
    labels.push_back(static_cast<std::uint8_t>((i * 7) % classes));
    for (std::int64_t position = 0; position < height * width; ++position)
      pixels.push_back(static_cast<std::uint8_t>(pixel(i, position, labels.back())));
  }
  return data::labelled_images({1, height, width}, classes, pixels, labels);
}

/// Images of 6 pixels: the class brightens two of them.
inline data::Dataset synthetic() {
  return labelled(1, 6, [](std::int64_t i, std::int64_t position, std::int64_t label) {
    return (i * 31 + position * 17 + i * position) % 80 + (position / 2 == label ? 150 : 0);
  });
}

/// Pixels that do not depend on the label.
inline data::Dataset meaningless(std::int64_t height, std::int64_t width) {
  return labelled(height, width, [](std::int64_t i, std::int64_t position, std::int64_t /*label*/) {
    return (i * 37 + position * 53 + i * position) % 251;
  });
}

}  // namespace fp16lab::engine::test
