// Block scales of packed operands.
//
// A row whose products are cut one by one takes E8M0 scales multiplied into the elements: a power of two times an
// element of at most 5 bits is one number of FP32, and the row sees ordinary operands with wider exponents. Where
// groups of products are exact, a group has one factor (PackedGroups), and only the exponents of scales make a
// block's maximum.
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

/// Codes of a part, of scales or elements: the first one, and the steps to the next row (or column), and to the
/// next one along K.
struct PartCodes {
  const std::uint8_t* codes;
  std::int64_t line_step, step;
};

/// Multiplies a packed row block, or a panel of `width` columns, by its scales. `lines` rows (columns) are
/// valid, `depth` is K, not padded. Nothing changes, and range.has_scales stays false, where a scale is NaN, or
/// beyond 2^50 or below 2^-50 with an element that is not zero. Else `range` takes in the scales.
void scale_packed_a(const KernelRow& row, const PartCodes& scales, std::size_t lines, std::size_t depth,
                    float* values, std::uint32_t* exponents, ExponentRange& range);
void scale_packed_b(const KernelRow& row, const PartCodes& scales, std::size_t lines, std::size_t depth,
                    std::size_t width, float* values, std::int8_t* exponents, ExponentRange& range);

/// `integers`, [K / exact group][width], become the scales of E2M1 elements under the same limits, as PackedGroups has
/// them; without a line, and of zeros, 0. The range is that of the exponents of scales that are not zero.
ExponentRange scale_groups(const KernelRow& row, const PartCodes& scales, const PartCodes& elements,
                           std::size_t lines, std::size_t depth, std::size_t width, std::int32_t* integers);

/// Is the row one of products that are cut one by one, with E8M0 scales?
bool takes_scales_when_packed(const KernelRow& row);
/// Is it one of exact groups, for E2M1?
bool takes_groups(const KernelRow& row, DType a, DType b);

}  // namespace fp16lab::gemm_detail
