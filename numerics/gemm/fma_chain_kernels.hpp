// The seam between the driver of the FP32 fma-chain GEMM and its vector kernels (one table per instruction
// set).
//
// Packed A strip: [depth][rows], of an A that is transposed in memory; else the kernels read A where it is.
// Packed B panel: [depth][columns], padded with +0; a few rows of A read a B that is not transposed where it
// is, but for a panel that is not full.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "numerics/gemm/gemm.hpp"

namespace fp16lab::gemm_detail {

inline constexpr std::size_t max_fma_tile = 8 * 64;  ///< rows * columns of a tile never exceed this

/// Rows of A, or columns of B: element k of line i is first[i * step + k * k_step].
struct FmaLines {
  const float* first;
  std::size_t step, k_step;
};

struct FmaKernels {
  bool flushes;         ///< the instruction set has an fma of its own that heeds FlushingScope
  std::size_t rows;     ///< a register tile's
  std::size_t columns;  ///< a register tile's
  /// Packs rows [row, row + strips * rows), as far as there are, and columns [k, k + depth) of the logical
  /// m x k matrix A, which is transposed, strip after strip; k + depth <= K.
  void (*pack_a)(MatrixView<float> a, GemmShape shape, std::int64_t row, std::size_t strips, std::int64_t k,
                 std::size_t depth, float* to);
  /// Packs rows [k, k + depth) and columns [column, column + columns) of the logical k x n matrix B; k +
  /// depth <= K.
  void (*pack_b)(MatrixView<float> b, GemmShape shape, std::int64_t column, std::int64_t k, std::size_t depth,
                 float* to);
  /// For the first `valid_rows` rows and `valid_columns` columns: d[r * ldd + c] continues its chain over
  /// `depth` steps, from +0 if `first`; if `last`, NaNs are made canonical. Other columns may be written.
  /// b.step is 1.
  void (*run_tile)(const FmaLines& a, const FmaLines& b, std::size_t depth, std::size_t valid_rows,
                   std::size_t valid_columns, bool first, bool last, float* d, std::size_t ldd);
  /// d[i] = fma(scale * scales[i], x[i], d[i]), the product of scales rounded; NaNs are made canonical.
  void (*add_scaled)(float scale, const float* scales, const float* x, std::size_t count, float* d);
};

const FmaKernels& fma_kernels();

/// fma_chain_gemm; `flushes`: in a FlushingScope, which only kernels have that say so.
void fma_chain(GemmShape shape, MatrixView<float> a, MatrixView<float> b, const float* c, float* d,
               std::int64_t ldd, int threads, bool flushes, const float* packed_b = nullptr);

/// A row of the table whose instruction is one fma after the other.
struct FmaOrder {
  std::vector<int> products;  ///< in the order in which they are taken
  bool flushes = false;       ///< subnormals
};
/// Nothing where another stage is among them.
std::optional<FmaOrder> fma_order(const TensorCoreModel& model);
/// d = c (+) a b as emulated_gemm, c and d in FP32. If it flushes, fma_kernels() must.
void fma_row_gemm(const FmaOrder& order, GemmShape shape, const Operand& a, const Operand& b, const float* c,
                  float* d, std::int64_t ldd, int threads);

}  // namespace fp16lab::gemm_detail
