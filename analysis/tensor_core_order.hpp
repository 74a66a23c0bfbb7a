// In which order a row of the tensor-core table, or a library's plan, adds the products of a long dot
// product.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "analysis/summation_tree.hpp"
#include "numerics/gemm/library_plan.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::analysis {

/// Revealed by calls of fused_dot_add with c = +0; a and b have this format. Errors as reveal(), and
/// std::invalid_argument for a format that the row does not multiply.
RevealedSum order_of(const TensorCoreModel& row, DType operands, std::size_t terms);
/// The same of an output of a planned product, by calls of planned_dot.
RevealedSum order_of(const PlannedProduct& product, DType operands, std::size_t terms);

/// The FP32 sum of the products of these words, from another implementation.
using DotProduct =
    std::function<float(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b)>;
/// The same of a product that can only be called; a and b are f16 or bf16, or both of a smaller format.
RevealedSum order_of(const DotProduct& dot, DType operands, std::size_t terms);

}  // namespace fp16lab::analysis
