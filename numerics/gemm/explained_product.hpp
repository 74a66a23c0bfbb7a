// A product in the order of a plan taken apart: its chains, each step by step, and the sums that join them.
#pragma once

#include <cstdint>
#include <span>

#include "numerics/gemm/library_plan.hpp"
#include "numerics/tensor_core/explained_dot.hpp"

namespace fp16lab {

/// As explained_dot, for an output of this product, which c does not enter. The steps of a chain are adjacent
/// and have its number; those between chains have Sum::addition and partial sums as terms: two to add, or one
/// to round.
/// Errors as planned_gemm's and explained_dot's.
ExplainedDot explained_product(const PlannedProduct& product, DType a_format,
                               std::span<const std::uint32_t> a, DType b_format,
                               std::span<const std::uint32_t> b);

}  // namespace fp16lab
