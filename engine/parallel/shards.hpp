// Shards: contiguous segments of one batch, whose sums over the batch are made apart and then added by one
// binary tree.
//
// The number of shards V belongs to what a run computes; the number of ranks (processes) that hold them does
// not. A rank holds a contiguous run of shards, and runs differ in length by one at most. node(0, i) is shard
// i's part, node(level + 1, i) = node(level, 2 i) + node(level, 2 i + 1) in FP32, and the sum is node(log2 V,
// 0). A run of shards is a few whole nodes, its aligned subtrees, which the rank that holds them can add
// alone: so the tree, and every bit, is the same for any number of ranks.
#pragma once

#include <cstdint>
#include <vector>

namespace fp16lab::engine::parallel {

inline constexpr std::int64_t most_shards = 1024;

/// The shards of a run, and which of them are here: [first, first + local). A run with one shard, held here,
/// ignores shards.
struct Shards {
  std::int64_t total = 1;  ///< V: a power of two up to most_shards
  std::int64_t first = 0;
  std::int64_t local = 1;

  friend bool operator==(const Shards&, const Shards&) = default;
};

/// std::invalid_argument naming the value unless `total` is a power of two in [1, most_shards].
void check_shard_count(std::int64_t total);

/// The run of `rank` among `ranks`: shards [total rank / ranks, total (rank + 1) / ranks), at least one.
/// std::invalid_argument for a number of shards as above, ranks outside [1, total] or rank outside [0,
/// ranks).
Shards placed_shards(std::int64_t total, int ranks, int rank);

/// Node (level, index) of the tree: shards [index 2^level, (index + 1) 2^level).
struct Subtree {
  int level = 0;
  std::int64_t index = 0;

  std::int64_t first() const { return index << level; }
  std::int64_t count() const { return std::int64_t{1} << level; }
  friend bool operator==(const Subtree&, const Subtree&) = default;
};

/// The fewest whole subtrees that are the shards [first, first + count), ascending. One where runs are
/// equally long (the number of ranks is a power of two, too); fewer than 2 log2(count) + 1 always. `first` >=
/// 0, `count` >= 1 (std::invalid_argument).
std::vector<Subtree> aligned_subtrees(std::int64_t first, std::int64_t count);

}  // namespace fp16lab::engine::parallel
