#include "numerics/special_outputs.hpp"

#include <algorithm>
#include <span>

#include "numerics/bits.hpp"
#include "numerics/convert.hpp"
#include "numerics/emulated_gemm_kernels.hpp"
#include "numerics/gemm_support.hpp"

namespace fp16lab::gemm_detail {
namespace {

/// Flags the vectors along the free dimension (rows of A, columns of B) that hold a NaN or an infinity.
/// Vector v lies in one row of memory if `free_is_memory_row`, else in one column.
std::vector<std::uint8_t> flag_specials(const Float16* data, std::int64_t stride, std::int64_t free_size,
                                        std::int64_t k_size, bool free_is_memory_row, int threads) {
  const auto& kernels = emulated_kernels();
  const std::int64_t memory_rows = free_is_memory_row ? free_size : k_size;
  const std::int64_t memory_columns = free_is_memory_row ? k_size : free_size;
  std::vector<std::uint8_t> hit(to_size(memory_rows));
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (std::int64_t r = 0; r < memory_rows; ++r)
    hit[to_size(r)] = kernels.has_special(data + r * stride, to_size(memory_columns)) ? 1 : 0;
  if (free_is_memory_row) return hit;

  std::vector<std::uint8_t> flags(to_size(free_size));
  for (std::int64_t r = 0; r < memory_rows; ++r) {
    if (hit[to_size(r)] == 0) continue;
    for (std::int64_t column = 0; column < memory_columns; ++column)
      if (!data[r * stride + column].is_finite()) flags[to_size(column)] = 1;
  }
  return flags;
}

std::vector<std::int64_t> indices_where(const std::vector<std::uint8_t>& flags, std::uint8_t value) {
  std::vector<std::int64_t> indices;
  for (std::size_t i = 0; i < flags.size(); ++i)
    if (flags[i] == value) indices.push_back(to_index(i));
  return indices;
}

/// The vectors `chosen` of an operand as FP32, laid out as the operand is: [chosen][k] if
/// `free_is_memory_row`, else [k][chosen].
std::vector<float> widened(const Float16* data, std::int64_t stride, std::int64_t free_size,
                           std::int64_t k_size, bool free_is_memory_row,
                           const std::vector<std::int64_t>& chosen) {
  const std::size_t depth = to_size(k_size);
  std::vector<float> to(chosen.size() * depth);
  if (free_is_memory_row) {
    for (std::size_t i = 0; i < chosen.size(); ++i)
      widen(std::span(data + chosen[i] * stride, depth), std::span(to).subspan(i * depth, depth));
    return to;
  }
  std::vector<float> line(to_size(free_size));
  for (std::size_t k = 0; k < depth; ++k) {
    widen(std::span(data + to_index(k) * stride, line.size()), line);
    for (std::size_t i = 0; i < chosen.size(); ++i) to[k * chosen.size() + i] = line[to_size(chosen[i])];
  }
  return to;
}

std::vector<std::int64_t> all_indices(std::int64_t count) {
  std::vector<std::int64_t> indices(to_size(count));
  for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = to_index(i);
  return indices;
}

float canonical(float x) { return x != x ? float_from_bits(Binary32::canonical_nan) : x; }

}  // namespace

SpecialOutputs::SpecialOutputs(GemmShape shape, MatrixView<Float16> a, MatrixView<Float16> b, int threads)
    : shape_(shape),
      threads_(threads),
      row_flags_(flag_specials(a.data, a.leading_dimension, shape.m, shape.k, !a.transposed, threads)),
      column_flags_(flag_specials(b.data, b.leading_dimension, shape.n, shape.k, b.transposed, threads)),
      rows_(indices_where(row_flags_, 1)),
      columns_(indices_where(column_flags_, 1)) {}

bool SpecialOutputs::cover(std::int64_t row, std::int64_t row_end, std::int64_t column,
                           std::int64_t column_end) const {
  const auto all = [](const std::vector<std::uint8_t>& flags, std::int64_t first, std::int64_t last) {
    return std::all_of(flags.begin() + first, flags.begin() + last,
                       [](std::uint8_t flag) { return flag != 0; });
  };
  return !none() && (all(row_flags_, row, row_end) || all(column_flags_, column, column_end));
}

void SpecialOutputs::compute(MatrixView<Float16> a, MatrixView<Float16> b, const float* c, std::int64_t ldc) {
  const std::int64_t k = shape_.k;
  // The plain FP32 product of chosen rows and columns, then the initial accumulator.
  const auto product = [&](const std::vector<std::int64_t>& rows, const std::vector<std::int64_t>& columns) {
    const auto width = to_index(columns.size());
    std::vector<float> result(rows.size() * columns.size());
    if (result.empty()) return result;
    const auto wide_a = widened(a.data, a.leading_dimension, shape_.m, k, !a.transposed, rows);
    const auto wide_b = widened(b.data, b.leading_dimension, shape_.n, k, b.transposed, columns);
    const auto height = to_index(rows.size());
    fma_chain_gemm({height, width, k}, {wide_a.data(), a.transposed ? height : k, a.transposed},
                   {wide_b.data(), b.transposed ? k : width, b.transposed}, result.data(), width, threads_);
    if (c == nullptr) return result;
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (std::size_t j = 0; j < columns.size(); ++j) {
        float& output = result[i * columns.size() + j];
        output = canonical(output + c[rows[i] * ldc + columns[j]]);
      }
    return result;
  };
  in_rows_ = product(rows_, all_indices(shape_.n));
  if (columns_.empty()) return;
  plain_rows_ = indices_where(row_flags_, 0);
  in_columns_ = product(plain_rows_, columns_);
}

void SpecialOutputs::store(float* d, std::int64_t ldd) const {
  for (std::size_t i = 0; i < rows_.size(); ++i)
    std::copy_n(in_rows_.data() + i * to_size(shape_.n), shape_.n, d + rows_[i] * ldd);
  for (std::size_t i = 0; i < plain_rows_.size(); ++i)
    for (std::size_t j = 0; j < columns_.size(); ++j)
      d[plain_rows_[i] * ldd + columns_[j]] = in_columns_[i * columns_.size() + j];
}

}  // namespace fp16lab::gemm_detail
