// All-reduce (sum) over R ranks, message by message: which rank adds what, in which order, and how many bytes
// it sends.
//
// FP addition is not associative, so the algorithm is part of the result. Two algorithms as NCCL builds them
// (NVIDIA/nccl, src/device/all_reduce.h and src/graph/trees.cc, one channel):
//   ring  reduce-scatter, then all-gather, over R chunks. Chunk c sets out from rank c + 1 (mod R) and goes
//         once around; every rank adds its own part to what it received, rank c last:
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
#include <string_view>
#include <vector>

#include "numerics/formats/small_float.hpp"

namespace fp16lab::experiments::allreduce {

enum class Algorithm { ring, tree };
std::string_view name_of(Algorithm algorithm);

/// What every rank put on the wire.
struct Traffic {
  std::vector<std::uint64_t> sent_bytes;  ///< by rank

  std::uint64_t total() const;
  std::uint64_t largest() const;
};

/// Elements [begin, end) of chunk `chunk` of `chunks`: as even as whole elements allow.
struct ChunkRange {
  std::size_t begin = 0, end = 0;
};
ChunkRange chunk_range(std::size_t elements, int chunk, int chunks);

/// The parent of `rank` in the tree that NCCL builds over `ranks` ranks; -1 for the root, rank 0. Odd ranks
/// are leaves: a rank whose lowest set bit is b hangs below the neighbour whose lowest set bit is 2b, or,
/// where that one does not exist, below the rank without that bit.
int tree_parent(int rank, int ranks);

/// `buffers[r]` is what rank r holds: its own elements before, the sum of all ranks' after, the same bits on
/// every rank. T is float or Float16. One rank: nothing is sent or added. A NaN that an addition makes is the
/// canonical one. std::invalid_argument without ranks or for buffers of different sizes.
template <class T>
Traffic all_reduce(Algorithm algorithm, std::span<std::vector<T>> buffers);

extern template Traffic all_reduce<float>(Algorithm, std::span<std::vector<float>>);
extern template Traffic all_reduce<Float16>(Algorithm, std::span<std::vector<Float16>>);

}  // namespace fp16lab::experiments::allreduce
