// Threads of the emulated back end: fixed chunks, so that no result can depend on how many threads share
// them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "numerics/platform/floating_point_scope.hpp"

namespace fp16lab::engine {

class Workers {
 public:
  /// std::invalid_argument unless threads >= 1.
  explicit Workers(int threads);

  int threads() const { return threads_; }

  /// Calls body(begin, end) for [0, chunk), [chunk, 2 chunk), ... up to `count`, in any order, on any thread.
  /// `body` must not throw. Pieces small enough not to pay for waking a thread should be one chunk. Every
  /// worker has a FloatingPointScope, whatever the environment of the caller or of the thread.
  template <class Body>
  void for_each_chunk(std::int64_t count, std::int64_t chunk, const Body& body) const {
    const std::int64_t chunks = (count + chunk - 1) / chunk;
    if (threads_ == 1 || chunks <= 1) {
      const FloatingPointScope scope;
      for (std::int64_t i = 0; i < chunks; ++i) body(i * chunk, std::min(count, (i + 1) * chunk));
      return;
    }
#pragma omp parallel num_threads(threads_)
    {
      const FloatingPointScope scope;
#pragma omp for schedule(static)
      for (std::int64_t i = 0; i < chunks; ++i) body(i * chunk, std::min(count, (i + 1) * chunk));
    }
  }

  /// The same for a pass over `count` elements: chunks of elementwise_chunk, or one chunk where sharing would
  /// not pay.
  template <class Body>
  void for_each_element_chunk(std::int64_t count, const Body& body) const;

 private:
  int threads_;
};

/// Elements of an elementwise pass per chunk.
inline constexpr std::int64_t elementwise_chunk = std::int64_t{1} << 15;
/// Waking a thread takes tens of microseconds, in which one thread alone adds 10^5 pairs of numbers.
inline constexpr std::int64_t elements_worth_sharing = 4 * elementwise_chunk;

template <class Body>
void Workers::for_each_element_chunk(std::int64_t count, const Body& body) const {
  for_each_chunk(count, count < elements_worth_sharing ? elements_worth_sharing : elementwise_chunk, body);
}

}  // namespace fp16lab::engine
