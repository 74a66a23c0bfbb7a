// ShardTree: the sum over shards, the same bits on any number of ranks.
//
// Three steps. A rank adds its aligned subtrees (shards.hpp); every rank sends each other one the slice that
// is its own, and adds the V shards of its slice in tree order; the slices go back to all. An addition is one
// FP32 operation, and a NaN that it makes is the canonical one, as in TREE. One shard is copied.
//
// Traffic of a rank for n elements and R ranks, in elements that it sends:
//   n (R - 1) / R (k + 1)
// where k is its number of aligned subtrees. If R is a power of two k = 1: 2 n (R - 1) / R, as a ring
// all-reduce, the least that there is. Otherwise runs are cut where no subtree ends, and k <= 2 log2(ceil(V /
// R)) + 1: V = 8 on 3 ranks has k = 1, 2, 2. Choose R a power of two, or V a few times R at most. Orders of
// NCCL (WireOptions) send every shard apart: k is the number of local shards. One rank sends nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "engine/parallel/communicator.hpp"
#include "engine/parallel/shards.hpp"
#include "engine/parallel/wire_options.hpp"
#include "engine/tensor/tensor.hpp"

namespace fp16lab::engine::parallel {

class ShardTree {
 public:
  /// `communicator` must outlive it. `shards` is what placed_shards gives this rank, and a sum is collective
  /// on all ranks or on none (std::invalid_argument otherwise). `wire` is how `mean` works. `threads` >= 1
  /// share additions.
  ShardTree(Communicator& communicator, const Shards& shards, const WireOptions& wire = {}, int threads = 1);
  ~ShardTree();
  ShardTree(const ShardTree&) = delete;
  ShardTree& operator=(const ShardTree&) = delete;

  const Shards& shards() const { return shards_; }
  const WireOptions& wire() const { return wire_; }

  /// `rows` holds shards.local rows of out.size() values, row i that of shard first + i; `out` becomes the
  /// result, the same on every rank; all ranks request as many elements. They do not overlap.
  /// std::invalid_argument for another size of `rows`.
  class Stack {
   public:
    Stack(std::span<const float> rows, std::span<float> out)
        : rows_(std::as_bytes(rows)), dtype_(DType::f32), out_(out) {}
    /// `rows` f32, f16 or bf16 (std::invalid_argument), in the host's memory. It must live while it is read.
    Stack(const Tensor& rows, std::span<float> out);

    std::span<float> out() const { return out_; }

   private:
    friend class ShardTree;
    std::span<const std::byte> rows_;
    DType dtype_;
    std::span<float> out_;
  };

  /// The tree's root, always in FP32: losses, statistics, norms.
  void sum(std::span<const float> rows, std::span<float> out);

  /// The mean over all shards as `wire` says: gradients. With one shard it is a copy. Orders of NCCL cut
  /// `out` into chunks and halves, so there the bits depend on how values are divided into calls.
  void mean(std::span<const float> rows, std::span<float> out);

  /// Means that travel while others work on. Stacks of one call follow each other: the bits are those of
  /// `mean` of them as one stack. When it returns their rows have been read; their `out` is written until
  /// `finish`. Ranks start the same means in the same order; `sum` and `mean` may come between. What has
  /// arrived moves on with every call, also with `poll`, which never waits.
  void start_mean(std::span<const Stack> stacks);
  void poll();
  /// Waits for all that was started.
  void finish();

 private:
  struct Transfer;
  class Work;
  WireOptions wire_of_mean() const;
  Divisors divisors_of_mean() const;

  Shards shards_;
  WireOptions wire_;
  std::unique_ptr<Work> work_;
};

}  // namespace fp16lab::engine::parallel
