#include "numerics/convert/quantization_error.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "numerics/platform/for_each_chunk.hpp"
#include "numerics/platform/vector_clones.hpp"

namespace fp16lab {
namespace {

std::size_t index(std::int64_t n) { return static_cast<std::size_t>(n); }

/// Of one row, in eight sums.
struct RowError {
  double differences[8] = {}, wholes[8] = {};
  std::uint64_t not_finite = 0;
};

FP16LAB_VECTOR_CLONES
RowError error_of(const float* values, const float* numbers, std::size_t count) {
  RowError error;
  constexpr std::size_t at_once = 64;
  double differences[at_once], wholes[at_once];
  for (std::size_t at = 0; at < count; at += at_once) {
    const std::size_t here = std::min(at_once, count - at);
    if (here < at_once) {
      std::ranges::fill(differences, 0);
      std::ranges::fill(wholes, 0);
    }
    for (std::size_t i = 0; i < here; ++i) {
      const auto value = static_cast<double>(values[at + i]);
      const double difference = static_cast<double>(numbers[at + i]) - value;
      const bool finite = std::fabs(difference) <= std::numeric_limits<double>::max();
      differences[i] = finite ? difference * difference : 0;
      wholes[i] = finite ? value * value : 0;
      error.not_finite += finite ? 0 : 1;
    }
    FP16LAB_LOOP_OF_VECTORS
    for (std::size_t i = 0; i < 8; ++i)
      for (std::size_t part = 0; part < at_once; part += 8) {
        error.differences[i] += differences[part + i];
        error.wholes[i] += wholes[part + i];
      }
  }
  return error;
}

}  // namespace

QuantizationError quantization_error(const Quantizer& quantizer, MatrixSize size, MatrixSize part,
                                     std::span<const float> values, std::span<const std::uint8_t> codes,
                                     std::span<const float> scales, float tensor_scale, int threads) {
  const FloatingPointScope scope;
  const MatrixSize scales_size = quantizer.scales_of(size);
  std::vector<RowError> rows(index(part.rows));
  // Some rows of blocks at a time, so that their numbers stay in a cache.
  constexpr std::int64_t enough = 1 << 14;
  const std::int64_t whole = quantizer.block.rows == 0 ? size.rows : quantizer.block.rows,
                     height =
                         std::max<std::int64_t>(1, enough / std::max<std::int64_t>(1, whole * size.columns)) *
                         whole;
  share_tasks(rows.empty() ? 0 : (rows.size() - 1) / index(height) + 1, threads, [&](std::size_t task) {
    const std::int64_t first = static_cast<std::int64_t>(task) * height,
                       count = std::min(height, size.rows - first);
    const std::size_t at = index(first * size.columns), length = index(count * size.columns);
    static thread_local std::vector<float> numbers;
    numbers.resize(length);
    dequantize(quantizer, {count, size.columns}, codes.subspan(at, length),
               scales.subspan(index(first / whole * scales_size.columns),
                              index(count / whole * scales_size.columns)),
               tensor_scale, numbers);
    for (std::int64_t row = first; row < std::min(first + count, part.rows); ++row)
      rows[index(row)] = error_of(values.data() + row * size.columns,
                                  numbers.data() + (row - first) * size.columns, index(part.columns));
  });
  QuantizationError error;
  for (const RowError& row : rows) {
    for (const double square : row.differences) error.difference += square;
    for (const double square : row.wholes) error.whole += square;
    error.not_finite += row.not_finite;
  }
  return error;
}

}  // namespace fp16lab
