// Nodes of the tree over shards, added as they come: a block of elements at a time, so that partial sums stay
// in the cache. Internal to engine/parallel.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "numerics/arithmetic/array_arithmetic.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/formats/dtype.hpp"

namespace fp16lab::engine::parallel {

/// sum[i] = a[i] + b[i], rounded once, NaN canonical; `sum` may be an operand.
void add_rows(std::span<const float> a, std::span<const float> b, std::span<float> sum);
template <class F>
void add_rows(std::span<const SmallFloat<F>> a, std::span<const SmallFloat<F>> b,
              std::span<SmallFloat<F>> sum) {
  add<F>(a, b, sum);
}

/// out[i] = values[i] / divisor, NaN canonical; `out` may be `values`.
void divide_row(std::span<const float> values, float divisor, std::span<float> out);

/// Takes nodes of the tree in ascending order, each beginning where the one before it ended, the first at a
/// multiple of the size of all. Two siblings become their parent as soon as both are there: an addition. T is
/// float, Float16 or BFloat16.
template <class T>
class TreeFold {
 public:
  static constexpr std::size_t block = 1024;  ///< elements at most

  /// Forgets all nodes; the next ones have `elements` <= block.
  void begin(std::size_t elements) {
    elements_ = elements;
    depth_ = 0;
  }
  /// Room for the next node, which its caller fills and then pushes.
  std::span<T> room() { return {rows_.data() + depth_ * block, elements_}; }
  /// A node of `level`. It must stay where it is until `result`.
  void push(std::span<const T> node, int level) {
    while (depth_ > 0 && waiting_[depth_ - 1].level == level) {
      --depth_;
      add_rows(waiting_[depth_].values, node, room());
      node = room();
      ++level;
    }
    waiting_[depth_++] = {node, level};
  }
  /// The sum, if the nodes made a whole subtree. Valid until the next `begin`.
  std::span<const T> result() const { return waiting_[0].values; }
  /// Nodes that have no sibling yet.
  std::size_t depth() const { return depth_; }

 private:
  struct Waiting {
    std::span<const T> values;
    int level = 0;
  };
  static constexpr std::size_t most_levels = 12;  ///< log2(most_shards) + 1, and space for one node

  std::size_t elements_ = 0, depth_ = 0;
  std::array<Waiting, most_levels> waiting_;
  std::vector<T> rows_ = std::vector<T>(most_levels * block);
};

}  // namespace fp16lab::engine::parallel
