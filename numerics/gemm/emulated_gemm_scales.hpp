// Block scales of packed operands: multiplied into their elements, where that is exact.
//
// A power of two times an element of at most 5 bits is one number of FP32; so is a UE4M3 scale times an E2M1
// element, of 6 bits. A row whose products are cut one by one then sees ordinary operands with wider
// exponents (E8M0 alone: other scales would change the exponents of products). Where groups of products are
// exact, only the exponents of scales make a block's maximum, and those of elements stay as they are.
#pragma once

#include <cstddef>
#include <cstdint>

#include "numerics/gemm/emulated_gemm_kernels.hpp"

namespace fp16lab::gemm_detail {

/// Every code of a format of scales: its value, and its exponent; a zero's cannot count.
struct ScaleTable {
  static constexpr std::int16_t zero_exponent = -16384;

  double values[256];
  std::int16_t exponents[256];
};
const ScaleTable& scale_table(DType format);

/// The scales of a packed part: the first one's code, and the steps to the next row (or column) and block.
struct PartScales {
  const std::uint8_t* codes;
  std::int64_t line_step, block_step;
};

/// Multiplies a packed row block, or a panel of `width` columns, by its scales. `lines` rows (columns) are
/// valid, `depth` is K, not padded. Nothing changes, and range.has_scales stays false, where a scale is NaN, or
/// beyond 2^50 or below 2^-50 with an element that is not zero. Else `range` takes in the scales: with exact
/// groups it becomes that of the exponents of scales that are not zero.
void scale_packed_a(const KernelRow& row, const PartScales& scales, std::size_t lines, std::size_t depth,
                    float* values, std::uint32_t* exponents, ExponentRange& range);
void scale_packed_b(const KernelRow& row, const PartScales& scales, std::size_t lines, std::size_t depth,
                    std::size_t width, float* values, std::int8_t* exponents, ExponentRange& range);

/// Do products of such a row allow it?
bool takes_scales_when_packed(const KernelRow& row, DType a, DType b);

}  // namespace fp16lab::gemm_detail
