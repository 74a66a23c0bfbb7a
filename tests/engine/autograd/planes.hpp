// What the tests of convolution and pooling share: images in either layout, by index, and counted windows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/engine/autograd/twin.hpp"

namespace fp16lab::engine::test {

/// Row-major index of (n, c, h, w) in either layout, from the extents of the tensor's shape.
struct Plane {
  std::int64_t n, c, h, w;
  Layout layout;
  Plane(const Shape& shape, Layout at) : layout(at) {
    const bool nchw = at == Layout::nchw;
    n = shape[0], c = shape[nchw ? 1 : 3], h = shape[nchw ? 2 : 1], w = shape[nchw ? 3 : 2];
  }
  std::size_t at(std::int64_t in, std::int64_t ic, std::int64_t ih, std::int64_t iw) const {
    return static_cast<std::size_t>(layout == Layout::nchw ? ((in * c + ic) * h + ih) * w + iw
                                                           : ((in * h + ih) * w + iw) * c + ic);
  }
};

/// The shape of a batch of images in `layout`.
inline Shape activation(Layout layout, std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
  return layout == Layout::nchw ? Shape{n, c, h, w} : Shape{n, h, w, c};
}

inline std::int64_t extent_after(std::int64_t extent, std::int64_t kernel, std::int64_t stride,
                                 std::int64_t padding, std::int64_t dilation) {
  std::int64_t count = 0;  // counted, not computed: windows that start inside and end inside
  for (std::int64_t start = -padding; start + dilation * (kernel - 1) < extent + padding; start += stride)
    ++count;
  return count;
}

}  // namespace fp16lab::engine::test
