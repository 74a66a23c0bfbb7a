// What every array function does around its inner loop: check its arguments, cut the work into pieces.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>

#include "numerics/platform/floating_point_scope.hpp"

namespace fp16lab {

struct NamedSize {
  const char* name;
  std::size_t size;
};

/// Throws std::invalid_argument unless threads >= 1 and all sizes agree.
void check_arrays(const char* function, int threads, std::initializer_list<NamedSize> arrays);

/// Elements per piece of work. Fixed, so that it never depends on the number of threads; about 1.5 MiB of
/// traffic each.
inline constexpr std::size_t array_chunk = std::size_t{1} << 18;

/// body(first, count) for pieces that cover [0, n), on `threads` threads, each in a FloatingPointScope.
template <class Body>
void for_each_chunk(std::size_t n, int threads, const Body& body) {
  if (threads == 1 ||
      n <= array_chunk) {  // not by an `if` clause: a team of one costs as much as 3000 elements
    const FloatingPointScope scope;
    if (n > 0) body(std::size_t{0}, n);
    return;
  }
  const std::size_t chunks = (n + array_chunk - 1) / array_chunk;
#pragma omp parallel num_threads(threads)
  {
    const FloatingPointScope scope;
#pragma omp for schedule(static)
    for (std::size_t i = 0; i < chunks; ++i)
      body(i * array_chunk, std::min(array_chunk, n - i * array_chunk));
  }
}

}  // namespace fp16lab
