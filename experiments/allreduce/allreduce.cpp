#include "experiments/allreduce/allreduce.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "numerics/arithmetic/array_arithmetic.hpp"
#include "numerics/formats/bits.hpp"

namespace fp16lab::experiments::allreduce {
namespace {

/// into = into + from, one rounding an element. Addition commutes, so the order of two operands has no bits.
void add_to(std::span<const float> from, std::span<float> into) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = canonicalize(into[i] + from[i]);
}
void add_to(std::span<const Float16> from, std::span<Float16> into) {
  add<Binary16>(std::span<const Float16>(into), from, into);
}

/// The ranks' buffers, and the two things that a message can do at its destination.
template <class T>
class Wire {
 public:
  explicit Wire(std::span<std::vector<T>> buffers) : buffers_(buffers) {
    traffic_.sent_bytes.resize(buffers.size());
  }
  void send_and_add(int from, int to, ChunkRange range) { add_to(message(from, range), part(to, range)); }
  void send_and_store(int from, int to, ChunkRange range) {
    std::ranges::copy(message(from, range), part(to, range).begin());
  }
  Traffic traffic() const { return traffic_; }

 private:
  std::span<T> part(int rank, ChunkRange range) {
    return std::span(buffers_[static_cast<std::size_t>(rank)]).subspan(range.begin, range.end - range.begin);
  }
  std::span<const T> message(int rank, ChunkRange range) {
    traffic_.sent_bytes[static_cast<std::size_t>(rank)] += (range.end - range.begin) * sizeof(T);
    return part(rank, range);
  }

  std::span<std::vector<T>> buffers_;
  Traffic traffic_;
};

/// Within a step every rank sends one chunk and receives another one, so the order of ranks does not matter.
template <class T>
void ring(Wire<T>& wire, int ranks, std::size_t elements) {
  const auto chunk = [&](int number) {
    return chunk_range(elements, (number % ranks + ranks) % ranks, ranks);
  };
  for (int step = 0; step + 1 < ranks; ++step)  // reduce-scatter: afterwards rank r has the sum of chunk r
    for (int rank = 0; rank < ranks; ++rank)
      wire.send_and_add(rank, (rank + 1) % ranks, chunk(rank - 1 - step));
  for (int step = 0; step + 1 < ranks; ++step)  // all-gather
    for (int rank = 0; rank < ranks; ++rank)
      wire.send_and_store(rank, (rank + 1) % ranks, chunk(rank - step));
}

/// A position in the tree, as a rank: the second tree has every rank in another place.
int placed(int position, int ranks, bool second) {
  if (!second) return position;
  return ranks % 2 == 0 ? ranks - 1 - position : (position + 1) % ranks;
}

template <class T>
void sum_up(Wire<T>& wire, int position, int ranks, bool second, ChunkRange range) {
  for (int child = 1; child < ranks; ++child) {  // ascending: the first child is the lower one
    if (tree_parent(child, ranks) != position) continue;
    sum_up(wire, child, ranks, second, range);
    wire.send_and_add(placed(child, ranks, second), placed(position, ranks, second), range);
  }
}
template <class T>
void hand_down(Wire<T>& wire, int position, int ranks, bool second, ChunkRange range) {
  for (int child = 1; child < ranks; ++child) {
    if (tree_parent(child, ranks) != position) continue;
    wire.send_and_store(placed(position, ranks, second), placed(child, ranks, second), range);
    hand_down(wire, child, ranks, second, range);
  }
}

template <class T>
void tree(Wire<T>& wire, int ranks, std::size_t elements) {
  for (const bool second : {false, true}) {
    const ChunkRange half = chunk_range(elements, second ? 1 : 0, 2);
    sum_up(wire, 0, ranks, second, half);
    hand_down(wire, 0, ranks, second, half);
  }
}

}  // namespace

std::string_view name_of(Algorithm algorithm) { return algorithm == Algorithm::ring ? "ring" : "tree"; }

std::uint64_t Traffic::total() const {
  return std::accumulate(sent_bytes.begin(), sent_bytes.end(), std::uint64_t{0});
}
std::uint64_t Traffic::largest() const {
  return sent_bytes.empty() ? 0 : *std::max_element(sent_bytes.begin(), sent_bytes.end());
}

ChunkRange chunk_range(std::size_t elements, int chunk, int chunks) {
  const auto bound = [&](int number) {
    return elements * static_cast<std::size_t>(number) / static_cast<std::size_t>(chunks);
  };
  return {bound(chunk), bound(chunk + 1)};
}

int tree_parent(int rank, int ranks) {
  if (rank == 0) return -1;
  const int lowest = rank & -rank;
  const int up = (rank ^ lowest) | (lowest << 1);
  return up < ranks ? up : rank ^ lowest;
}

template <class T>
Traffic all_reduce(Algorithm algorithm, std::span<std::vector<T>> buffers) {
  if (buffers.empty()) throw std::invalid_argument("all_reduce: no ranks");
  const std::size_t elements = buffers.front().size();
  for (std::size_t rank = 0; rank < buffers.size(); ++rank)
    if (buffers[rank].size() != elements)
      throw std::invalid_argument(fmt::format("all_reduce: rank {} has {} elements, rank 0 has {}", rank,
                                              buffers[rank].size(), elements));
  Wire<T> wire(buffers);
  const int ranks = static_cast<int>(buffers.size());
  if (algorithm == Algorithm::ring)
    ring(wire, ranks, elements);
  else
    tree(wire, ranks, elements);
  return wire.traffic();
}

template Traffic all_reduce<float>(Algorithm, std::span<std::vector<float>>);
template Traffic all_reduce<Float16>(Algorithm, std::span<std::vector<Float16>>);

}  // namespace fp16lab::experiments::allreduce
