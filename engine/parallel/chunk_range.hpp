// Elements cut into chunks, as even as whole elements allow: slices of owners, chunks of a ring.
#pragma once

#include <cstddef>

namespace fp16lab::engine::parallel {

struct ChunkRange {
  std::size_t begin = 0, end = 0;

  std::size_t size() const { return end - begin; }
};

/// Elements [begin, end) of chunk `chunk` of `chunks`.
constexpr ChunkRange chunk_range(std::size_t elements, int chunk, int chunks) {
  const auto at = [&](int number) {
    return elements * static_cast<std::size_t>(number) / static_cast<std::size_t>(chunks);
  };
  return {at(chunk), at(chunk + 1)};
}

}  // namespace fp16lab::engine::parallel
