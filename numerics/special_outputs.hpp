// Outputs of a matrix product that meet a NaN or an infinity in an operand.
//
// The fast kernel packs NaN and infinity as zero. Every output in a row of A or a column of B that holds one
// is never finite: it is NaN or an infinity whatever the finite terms are. Which one, a plain FP32 product
// tells: products of finite FP16 numbers stay below 2^32 and their sums below 2^80, so nothing overflows on
// the way, 0 * infinity and infinities of both signs give NaN, and otherwise the infinity wins, in any order
// of additions (tensor-core rules for specials: MMA-Sim, arXiv 2511.10909). The initial accumulator joins
// last for the same reason: adding finite products to it does not overflow in fused blocks
// (emulated_gemm_kernels.hpp, min_hot_exponent).
#pragma once

#include <cstdint>
#include <vector>

#include "numerics/gemm.hpp"

namespace fp16lab::gemm_detail {

class SpecialOutputs {
 public:
  /// Looks for NaN and infinity in both operands.
  SpecialOutputs(GemmShape shape, MatrixView<Float16> a, MatrixView<Float16> b, int threads);

  bool none() const { return rows_.empty() && columns_.empty(); }
  /// Are all outputs of [row, row_end) x [column, column_end) special?
  bool cover(std::int64_t row, std::int64_t row_end, std::int64_t column, std::int64_t column_end) const;

  /// Computes the special outputs; `c` as in emulated_gemm. Must run before D, which may be C, is written.
  void compute(MatrixView<Float16> a, MatrixView<Float16> b, const float* c, std::int64_t ldc);
  /// Writes them into D.
  void store(float* d, std::int64_t ldd) const;

 private:
  GemmShape shape_;
  int threads_;
  std::vector<std::uint8_t> row_flags_, column_flags_;
  std::vector<std::int64_t> rows_, columns_;  // indices of flagged rows and columns
  std::vector<std::int64_t> plain_rows_;      // the other rows
  std::vector<float> in_rows_, in_columns_;   // rows_ x n, plain_rows_ x columns_
};

}  // namespace fp16lab::gemm_detail
