// A data set that a small network learns in a few steps.
#pragma once

#include <cstdint>

#include "engine/data/dataset.hpp"

namespace fp16lab::engine::test {

/// 96 images of 6 pixels in 3 classes: the class brightens two of the pixels.
inline data::Dataset synthetic() {
  data::Dataset set;
  set.count = 96;
  set.features = 6;
  set.classes = 3;
  for (std::int64_t i = 0; i < set.count; ++i) {
    const auto label = static_cast<std::uint8_t>((i * 7) % 3);
    set.labels.push_back(label);
    for (std::int64_t pixel = 0; pixel < set.features; ++pixel) {
      const auto noise = static_cast<int>((i * 31 + pixel * 17 + i * pixel) % 80);
      set.pixels.push_back(static_cast<std::uint8_t>(noise + (pixel / 2 == label ? 150 : 0)));
    }
  }
  return set;
}

}  // namespace fp16lab::engine::test
