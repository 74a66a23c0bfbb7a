// Exponents of values in host memory, counted where a back end computes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/backend/backend.hpp"
#include "numerics/formats/dtype.hpp"
#include "numerics/histogram/exponent_histogram.hpp"

namespace fp16lab::engine {

/// Adds every element (float, Float16, BFloat16) to `out`: the counts of count_exponents. The values go to
/// the back end's memory in parts of `at_once` elements (at least 1), one after another, and its verb
/// histogram counts them; a GPU does that by Thrust. Throws what `empty`, `upload` and `histogram` of the
/// back end throw.
template <class T>
void count_exponents_on(Backend& backend, std::span<const T> values, ExponentHistogram& out,
                        std::size_t at_once = std::size_t{1} << 24) {
  for (std::size_t begin = 0; begin < values.size(); begin += at_once) {
    const std::span<const T> part = values.subspan(begin, std::min(at_once, values.size() - begin));
    Tensor x = backend.empty({static_cast<std::int64_t>(part.size())}, DTypeOf<T>::value);
    backend.upload(std::as_bytes(part), x);
    backend.histogram(x, out);
  }
}

}  // namespace fp16lab::engine
