// What every array function does around its inner loop: check its arguments, cut the work into pieces.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>

#include "numerics/platform/floating_point_scope.hpp"
#include "numerics/platform/worker_pool.hpp"

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
  const FloatingPointScope scope;
  share_tasks((n + array_chunk - 1) / array_chunk, threads,
              [&](std::size_t i) { body(i * array_chunk, std::min(array_chunk, n - i * array_chunk)); });
}

}  // namespace fp16lab
