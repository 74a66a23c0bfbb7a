// Gradients shard by shard: sums over a batch that is cut into shards. Internal to engine/autograd.
//
// A value of the network has the batch's rows along its first axis, and so has its gradient; neither depends
// on how the batch is cut. What all examples share (a parameter, and what is computed from parameters alone)
// gets its gradient as a sum over the rows. If a process has several shards, a vjp gives that sum for each of
// them, stacked along a new first axis: (local shards, shape of the value...). The stacks of a parameter add
// up over its uses and over micro-batches, shard by shard, and one tree adds the shards at the end
// (engine/parallel/shard_tree.hpp). Losses are means over a shard: (local shards) instead of a scalar.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <vector>

#include "engine/autograd/tape.hpp"

namespace fp16lab::engine {

/// How many gradients such a stack has: the local shards. 1: there are no stacks.
inline std::int64_t stack_height(const Tape& tape) { return tape.context().shards.local; }

/// The shape of a stack of values of `shape`; `shape` itself where there are no stacks.
Shape stacked(const Tape& tape, const Shape& shape);

/// x (rows, ...) with the rows of each shard apart: (local shards, rows of a shard, ...); x itself where
/// there are no stacks. `steps` > 1: time-major rows, all examples of step 0, then those of step 1, ...;
/// those of a shard stay in this order. std::logic_error unless the shards divide the rows.
Variable by_shard(const Variable& x, std::int64_t steps = 1);

/// x (rows, columns) summed over its rows, those of each shard apart: (columns), or a stack of it.
Variable sum_of_rows(const Variable& x, std::int64_t steps = 1);

/// The sum of all elements of a value: a scalar; for a stack: (local shards). `x` is one where its first
/// extent says so.
Variable sum_of_elements(const Variable& x);

/// A stack of f32 values from all local shards, added up over the shards of all ranks by the tree: one value;
/// x itself where there is one shard. Waits for the other ranks.
Tensor sum_over_shards(const Tape& tape, const Tensor& x);
/// The same divided by the number of shards.
Tensor mean_over_shards(const Tape& tape, const Tensor& x);

/// Is `cotangent` the stack of a value of `shape`?
bool is_stack(const Tape& tape, const Variable& cotangent, const Shape& shape);

/// Computes without stacks: what runs inside belongs to local shard `shard`.
class OneShardGuard : StateGuard<parallel::Shards> {
 public:
  OneShardGuard(Tape& tape, std::int64_t shard)
      : StateGuard(tape.context_.shards,
                   {.total = tape.context_.shards.total, .first = tape.context_.shards.first + shard}) {}
};

/// Marks the rows that are recorded inside as time-major, with so many steps.
class RowStepsGuard : StateGuard<std::int64_t> {
 public:
  RowStepsGuard(Tape& tape, std::int64_t steps) : StateGuard(tape.row_steps_, steps) {}
};

/// Operations recorded inside are the same for all examples: only the rank of the first shard counts them.
class SharedValueGuard : StateGuard<bool> {
 public:
  explicit SharedValueGuard(Tape& tape) : StateGuard(tape.shared_values_, true) {}
};

namespace by_shard_detail {
/// std::invalid_argument in a backward pass that is recorded, with several shards.
void refuse_recording(const Tape& tape);
/// The rows of local shard `shard` of x (rows, ...).
Variable rows_of(const Variable& x, std::int64_t shard);
Variable stack(std::span<const Variable> parts);
}  // namespace by_shard_detail

/// A run of an array of the local shards, and the random numbers that it has as a part of the array of all
/// shards. A block of a stream serves several elements, so its first ones may be those of another rank.
struct DrawnPart {
  std::int64_t begin = 0, count = 0;  ///< in the local array
  std::int64_t before = 0;            ///< elements of others before it in the first block
  PhiloxStream stream;                ///< from that block on
  std::int64_t of = 0;                ///< elements of the local array

  /// Is it the local array itself?
  bool whole() const { return before == 0 && count == of; }
  /// Puts `drawn` without the elements of others to its place in `out`.
  void take(Backend& backend, const Tensor& drawn, Tensor& out) const;
};

/// body(part) for the parts of an array of `elements` that has its rows by shard, or for each of `steps`
/// steps those of the step: one part, or one a step. A block of the stream serves `per_block` elements.
/// std::logic_error unless steps and local shards divide the elements.
template <class Body>
void for_each_drawn_part(const parallel::Shards& shards, std::int64_t steps, std::int64_t elements,
                         std::int64_t per_block, const PhiloxStream& stream, const Body& body) {
  if (shards.local == shards.total)
    return body(DrawnPart{.count = elements, .stream = stream, .of = elements});
  if (elements % (steps * shards.local) != 0)
    throw std::logic_error("by_shard: an array that has no equal parts is drawn");
  const std::int64_t count = elements / steps, of_shard = count / shards.local;
  for (std::int64_t step = 0; step < steps; ++step) {
    const std::int64_t first = (step * shards.total + shards.first) * of_shard;
    DrawnPart part{step * count, count, first % per_block, stream, elements};
    part.stream.first_block += static_cast<std::uint64_t>(first / per_block);
    body(part);
  }
}

/// Fills `out`, which has the rows of the local shards, with what `fill` draws for these rows of the whole
/// batch: fill(tensor, stream) fills any tensor with `words` (1, 2 or 4) words of the stream an element. So
/// no random number depends on how many ranks hold the shards.
void fill_rows(const Tape& tape, Tensor& out, const PhiloxStream& stream, int words,
               const std::function<void(Tensor&, const PhiloxStream&)>& fill);

/// part(x, others...), a value of one shard from its rows, for every local shard, stacked; part of all rows
/// where there are no stacks. Only in backward passes that are not recorded: ranks with one shard and with
/// several would have other nodes.
template <class Part, class... Rows>
Variable stack_of(const Part& part, const Variable& x, const Rows&... others) {
  Tape& tape = x.tape();
  by_shard_detail::refuse_recording(tape);
  const std::int64_t height = stack_height(tape);
  if (height == 1) return part(x, others...);
  std::vector<Variable> parts;
  const std::uint32_t rounded = tape.roundings();
  for (std::int64_t shard = 0; shard < height; ++shard) {
    const auto compute = [&](const auto&... rows) {
      const OneShardGuard one(tape, shard);
      tape.set_roundings(rounded);
      return part(rows...);
    };
    parts.push_back(compute(by_shard_detail::rows_of(x, shard), by_shard_detail::rows_of(others, shard)...));
  }
  return by_shard_detail::stack(parts);
}

}  // namespace fp16lab::engine
