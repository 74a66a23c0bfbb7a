#include "numerics/gemm/strided_gemm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace fp16lab {
namespace {

/// The matrix itself where its rows or columns have no gaps, else a copy.
gemm_detail::Operand operand_of(const StridedMatrix& matrix, std::int64_t rows, std::int64_t columns,
                                std::vector<std::byte>& copy) {
  const auto [format, data, row_stride, column_stride] = matrix;
  const bool some = data != nullptr && rows > 0 && columns > 0;
  if (!some || ((column_stride == 1 || columns == 1) && (row_stride >= columns || rows == 1)))
    return {data, std::max(row_stride, columns), false, format};
  if ((row_stride == 1 || rows == 1) && (column_stride >= rows || columns == 1))
    return {data, std::max(column_stride, rows), true, format};
  const std::size_t size = size_of(format);
  copy.resize(static_cast<std::size_t>(rows * columns) * size);
  std::byte* to = copy.data();
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j, to += size)
      std::memcpy(to,
                  static_cast<const std::byte*>(data) +
                      (i * row_stride + j * column_stride) * static_cast<std::int64_t>(size),
                  size);
  return {copy.data(), columns, false, format};
}

}  // namespace

void emulated_gemm(const TensorCoreModel& model, GemmShape shape, const StridedMatrix& a,
                   const StridedMatrix& b, const void* c, void* d, std::int64_t ldd, int threads,
                   const StridedScales& scales) {
  std::vector<std::byte> a_copy, b_copy, a_scales, b_scales;
  gemm_detail::Scales of;
  if (scales.block > 0) {
    if (scales.a.format != scales.b.format)
      throw std::invalid_argument(
          fmt::format("emulated_gemm: scales of a are {} and those of b {}; one format "
                      "is possible",
                      name_of(scales.a.format), name_of(scales.b.format)));
    const std::int64_t blocks = shape.k / scales.block;
    of = {{scales.a.format, scales.block},
          operand_of(scales.a, shape.m, blocks, a_scales),
          operand_of(scales.b, blocks, shape.n, b_scales)};
  }
  gemm_detail::emulated_gemm(model, shape, operand_of(a, shape.m, shape.k, a_copy),
                             operand_of(b, shape.k, shape.n, b_copy), model.accumulator(), c, d, ldd, threads,
                             nullptr, of);
}

}  // namespace fp16lab
