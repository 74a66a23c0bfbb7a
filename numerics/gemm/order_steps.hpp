// The order of a planned product as a list of steps: its chains, and which partial sums are added.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "numerics/gemm/library_plan.hpp"

namespace fp16lab {

/// Elements of K that follow each other in a chain: `count` of them, every `step`-th from `begin` on.
struct ChainRun {
  std::int64_t begin, count, step;
};

/// A step works on a stack of partial sums; the last one that remains is the product.
struct OrderStep {
  enum class Kind : std::uint8_t {
    chain,     ///< pushes the sum of the elements of `runs` in one chain from +0; without any +0
    rounding,  ///< rounds the top to `format`, to nearest even
    addition,  ///< puts the sum of the two on top in their place: in FP32, to nearest even
  };
  Kind kind = Kind::addition;
  std::vector<ChainRun> runs = {};
  int range = 0, part = 0;    ///< for a chain: where its elements are, from 0
  DType format = DType::f32;  ///< for a rounding
};

/// The steps of a product over `k` elements. std::invalid_argument for an order with negative numbers, in
/// parts without tiles, or that begins a chain inside an instruction of the row; and for a row with other
/// sums than FP32.
std::vector<OrderStep> steps_of(const PlannedProduct& product, std::int64_t k);

/// The elements of a chain, in its order.
std::vector<std::size_t> elements_of(const OrderStep& chain);

/// One output of planned_gemm: the scalar reference. Words as fused_dot_add's, with its errors; the result is
/// a word of FP32.
std::uint32_t planned_dot(const PlannedProduct& product, DType a_format, std::span<const std::uint32_t> a,
                          DType b_format, std::span<const std::uint32_t> b);

}  // namespace fp16lab
