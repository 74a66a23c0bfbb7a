#include "numerics/gemm/gemm_support.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "numerics/gemm/emulated_gemm_kernels.hpp"

namespace fp16lab {
namespace gemm_detail {

void check_shape(const char* function, GemmShape shape, std::int64_t ldd, int threads) {
  if (shape.m < 0 || shape.n < 0 || shape.k < 0)
    throw std::invalid_argument(
        fmt::format("{}: sizes m={} n={} k={} must not be negative", function, shape.m, shape.n, shape.k));
  if (shape.m > 1 && ldd < shape.n)
    throw std::invalid_argument(
        fmt::format("{}: ldd={} must be at least n={}, the columns of D", function, ldd, shape.n));
  if (threads < 1)
    throw std::invalid_argument(fmt::format("{}: threads={} must be at least 1", function, threads));
}

void check_leading_dimension(const char* function, const char* name, std::int64_t rows, std::int64_t columns,
                             std::int64_t leading_dimension, bool transposed) {
  const std::int64_t memory_rows = transposed ? columns : rows;
  const std::int64_t memory_columns = transposed ? rows : columns;
  if (memory_rows > 1 && leading_dimension < memory_columns)
    throw std::invalid_argument(
        fmt::format("{}: leading dimension {} of {} must be at least {}, its columns in memory", function,
                    leading_dimension, name, memory_columns));
}

void throw_null(const char* function, const char* name) {
  throw std::invalid_argument(fmt::format("{}: {} is null but not empty", function, name));
}

int useful_threads(GemmShape shape, int threads, std::int64_t multiply_adds_per_thread) {
  const double work =
      static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
  return std::max(
      1, static_cast<int>(std::min<double>(threads, work / static_cast<double>(multiply_adds_per_thread))));
}

}  // namespace gemm_detail

// Not by asking Highway for the supported targets: that call would undo its DisableTargets.
const char* gemm_target_name() { return gemm_detail::emulated_kernels().instruction_set; }

}  // namespace fp16lab
