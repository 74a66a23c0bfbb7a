// The orders in which NCCL sums over ranks, message by message: which rank adds what, and how many bytes it
// sends.
//
// FP addition is not associative, so the algorithm is part of the result. Two algorithms as NCCL builds them
// (NVIDIA/nccl, src/device/all_reduce.h and src/graph/trees.cc, one channel), here in one process, for
// experiments: as exp_allreduce's emulated ranks, and as orders of sums over shards (wire_options.hpp):
//   ring  reduce-scatter, then all-gather, over R chunks. Chunk c starts at rank c + 1 (mod R) and goes once
//         around; every rank adds its own part to what it received, rank c last:
//           ((x[c+1] + x[c+2]) + x[c+3]) + ... + x[c]
//   tree  a double binary tree: the first half of the elements is summed up one tree, the second half up
//         another one (the first one mirrored if R is even, shifted by a rank if it is odd); every node
//         computes
//           (own + first child's sum) + second child's sum
//         and the root's sum is handed down again.
// Every partial sum is rounded to the dtype that travels: an FP16 all-reduce rounds R - 1 times on the way.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/parallel/wire_options.hpp"
#include "numerics/formats/small_float.hpp"

namespace fp16lab::engine::parallel {

/// What every rank put on the wire.
struct Traffic {
  std::vector<std::uint64_t> sent_bytes;  ///< by rank

  std::uint64_t total() const;
  std::uint64_t largest() const;
};

/// The parent of `rank` in the tree that NCCL builds over `ranks` ranks; -1 for the root, rank 0. Odd ranks
/// are leaves: a rank whose lowest set bit is b hangs below the neighbour whose lowest set bit is 2b, or,
/// where that one does not exist, below the rank without that bit.
int tree_parent(int rank, int ranks);

/// `buffers[r]` is what rank r holds: its own elements before, the sum of all ranks' after, the same bits on
/// every rank. T is float, Float16 or BFloat16. They hold elements [first, first + size) of an all-reduce
/// over `elements`, whose chunks and halves are those of all elements; the traffic is these elements' part.
/// One rank: nothing is sent or added. A NaN that an addition makes is the canonical one.
/// std::invalid_argument for an order that is not NCCL's, without ranks, for buffers of different sizes, or
/// beyond the end.
template <class T>
Traffic all_reduce(SumOrder order, std::span<const std::span<T>> buffers, std::size_t first,
                   std::size_t elements);

extern template Traffic all_reduce<float>(SumOrder, std::span<const std::span<float>>, std::size_t,
                                          std::size_t);
extern template Traffic all_reduce<Float16>(SumOrder, std::span<const std::span<Float16>>, std::size_t,
                                            std::size_t);
extern template Traffic all_reduce<BFloat16>(SumOrder, std::span<const std::span<BFloat16>>, std::size_t,
                                             std::size_t);

/// The same over all elements.
template <class T>
Traffic all_reduce(SumOrder order, std::span<std::vector<T>> buffers) {
  const std::vector<std::span<T>> spans(buffers.begin(), buffers.end());
  return all_reduce<T>(order, spans, 0, spans.empty() ? 0 : spans.front().size());
}

}  // namespace fp16lab::engine::parallel
