// Inside the emulated back end: element types, and passes over 16-bit elements in FP32.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "numerics/convert/convert.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/formats/dtype.hpp"

namespace fp16lab::engine {

/// f of the verbs, but f32: storage only, every operation widens first.
template <class T>
inline constexpr bool is_half = is_tensor_half(DTypeOf<T>::value);

/// x, a NaN as the canonical one.
inline float canonical(float x) { return canonicalize(x); }
template <class F>
inline SmallFloat<F> canonical(SmallFloat<F> x) {
  return x.is_nan() ? SmallFloat<F>::from_bits(F::canonical_nan) : x;
}

// Passes over 16-bit elements go through FP32 in strips that stay in the first-level cache.
inline constexpr std::int64_t strip_elements = 1024;
using Strip = std::array<float, strip_elements>;

template <class Half>
void widen_strip(const Half* from, std::int64_t n, float* to) {
  const auto count = static_cast<std::size_t>(n);
  widen(std::span(from, count), std::span(to, count));
}
template <class Half>
void narrow_strip(const float* from, std::int64_t n, Half* to) {
  const auto count = static_cast<std::size_t>(n);
  narrow(std::span(from, count), std::span(to, count));
}

/// Calls body(first, count) for the strips of n elements.
template <class Body>
void for_each_strip_of(std::int64_t n, const Body& body) {
  for (std::int64_t first = 0; first < n; first += strip_elements)
    body(first, std::min(strip_elements, n - first));
}

}  // namespace fp16lab::engine
