// Threads of the emulated back end: fixed chunks, so that no result can depend on how many threads share
// them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "numerics/platform/floating_point_scope.hpp"
#include "numerics/platform/worker_pool.hpp"

namespace fp16lab::engine {

class Workers {
 public:
  /// std::invalid_argument unless threads >= 1.
  explicit Workers(int threads);

  int threads() const { return threads_; }

  /// Calls body(begin, end) for [0, chunk), [chunk, 2 chunk), ... up to `count`, in any order, on any thread.
  /// `body` must not throw. Pieces small enough not to pay for sharing should be one chunk. Every thread has
  /// a FloatingPointScope, whatever the environment of the caller.
  template <class Body>
  void for_each_chunk(std::int64_t count, std::int64_t chunk, const Body& body) const {
    const FloatingPointScope scope;
    const std::int64_t chunks = (count + chunk - 1) / chunk;
    share_tasks(static_cast<std::size_t>(chunks), threads_, [&](std::size_t task) {
      const auto i = static_cast<std::int64_t>(task);
      body(i * chunk, std::min(count, (i + 1) * chunk));
    });
  }

  /// body(i, seat) for every i in [0, count): a seat in [0, threads()) has one task at a time, so it chooses
  /// scratch memory.
  template <class Body>
  void for_each_task(std::int64_t count, const Body& body) const {
    const FloatingPointScope scope;
    share_tasks(static_cast<std::size_t>(count), threads_, [&](std::size_t task, std::size_t seat) {
      body(static_cast<std::int64_t>(task), static_cast<std::int64_t>(seat));
    });
  }

  /// The same for a pass over `count` elements: chunks of elementwise_chunk, or one chunk where sharing would
  /// not pay.
  template <class Body>
  void for_each_element_chunk(std::int64_t count, const Body& body) const;

 private:
  int threads_;
};

/// Elements of an elementwise pass per chunk: some ten microseconds of one thread.
inline constexpr std::int64_t elementwise_chunk = std::int64_t{1} << 15;
/// Sharing costs a microsecond or two, and data that the other thread's cache has not.
inline constexpr std::int64_t elements_worth_sharing = 4 * elementwise_chunk;

template <class Body>
void Workers::for_each_element_chunk(std::int64_t count, const Body& body) const {
  for_each_chunk(count, count < elements_worth_sharing ? elements_worth_sharing : elementwise_chunk, body);
}

}  // namespace fp16lab::engine
