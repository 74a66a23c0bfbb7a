#include "engine/parallel/nccl_order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "engine/parallel/chunk_range.hpp"
#include "engine/parallel/tree_fold.hpp"
#include "numerics/platform/floating_point_scope.hpp"

namespace fp16lab::engine::parallel {
namespace {

/// The ranks' buffers, and the two things that a message can do at its destination. It carries the elements
/// of a message that the buffers hold.
template <class T>
class Wire {
 public:
  Wire(std::span<const std::span<T>> buffers, std::size_t first)
      : buffers_(buffers), held_{first, first + buffers.front().size()} {
    traffic_.sent_bytes.resize(buffers.size());
  }
  // Addition commutes, so the order of two operands has no bits.
  void send_and_add(int from, int to, ChunkRange range) {
    const std::span<T> sum = part(to, range);
    add_rows(std::span<const T>(sum), message(from, range), sum);
  }
  void send_and_store(int from, int to, ChunkRange range) {
    std::ranges::copy(message(from, range), part(to, range).begin());
  }
  Traffic traffic() const { return traffic_; }

 private:
  std::span<T> part(int rank, ChunkRange range) {
    const std::size_t begin = std::clamp(range.begin, held_.begin, held_.end);
    const std::size_t end = std::clamp(range.end, held_.begin, held_.end);
    return buffers_[static_cast<std::size_t>(rank)].subspan(begin - held_.begin, end - begin);
  }
  std::span<const T> message(int rank, ChunkRange range) {
    const std::span<const T> sent = part(rank, range);
    traffic_.sent_bytes[static_cast<std::size_t>(rank)] += sent.size_bytes();
    return sent;
  }

  std::span<const std::span<T>> buffers_;
  ChunkRange held_;
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

std::uint64_t Traffic::total() const {
  return std::accumulate(sent_bytes.begin(), sent_bytes.end(), std::uint64_t{0});
}
std::uint64_t Traffic::largest() const {
  return sent_bytes.empty() ? 0 : *std::max_element(sent_bytes.begin(), sent_bytes.end());
}

int tree_parent(int rank, int ranks) {
  if (rank == 0) return -1;
  const int lowest = rank & -rank;
  const int up = (rank ^ lowest) | (lowest << 1);
  return up < ranks ? up : rank ^ lowest;
}

template <class T>
Traffic all_reduce(SumOrder order, std::span<const std::span<T>> buffers, std::size_t first,
                   std::size_t elements) {
  const FloatingPointScope scope;
  if (buffers.empty()) throw std::invalid_argument("all_reduce: no ranks");
  const std::size_t held = buffers.front().size();
  for (std::size_t rank = 0; rank < buffers.size(); ++rank)
    if (buffers[rank].size() != held)
      throw std::invalid_argument(fmt::format("all_reduce: rank {} has {} elements, rank 0 has {}", rank,
                                              buffers[rank].size(), held));
  if (first > elements || held > elements - first)
    throw std::invalid_argument(fmt::format("all_reduce: {} elements from {} of {}", held, first, elements));
  Wire<T> wire(buffers, first);
  const int ranks = static_cast<int>(buffers.size());
  if (order == SumOrder::nccl_ring)
    ring(wire, ranks, elements);
  else if (order == SumOrder::nccl_tree)
    tree(wire, ranks, elements);
  else
    throw std::invalid_argument(fmt::format("all_reduce: {} is no order of NCCL", name_of(order)));
  return wire.traffic();
}

template Traffic all_reduce<float>(SumOrder, std::span<const std::span<float>>, std::size_t, std::size_t);
template Traffic all_reduce<Float16>(SumOrder, std::span<const std::span<Float16>>, std::size_t, std::size_t);
template Traffic all_reduce<BFloat16>(SumOrder, std::span<const std::span<BFloat16>>, std::size_t,
                                      std::size_t);

}  // namespace fp16lab::engine::parallel
