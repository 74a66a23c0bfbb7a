// The seam between the driver of the emulated GEMM and its vector kernels.
//
// One table per instruction set; the run-time dispatch of Google Highway picks it. The kernels see only
// packed operands, one tile of D at a time; matrices, threads and special values are the driver's business.
//
// Packed A, one *row block* of `row_block` rows: [K / group][row_block][group], K ascending; values as FP32
// (exact) and
//   exponents as signed bytes, each repeated in the four bytes of a word, so that a plain 32-bit broadcast
//   serves 8-bit lanes.
// Packed B, one *panel* of `columns` columns: [K][columns], values as FP32 and exponents as bytes.
// K is padded to a multiple of `group` and rows and columns to whole blocks with zeros, which are neutral: a
// zero product adds nothing and cannot raise the maximum exponent.
//
// Exponents: A stores ea, B stores eb - 1 (why: emulated_gemm_kernel-inl.h), the exponent of a subnormal is
// -14 and its significand stays unnormalised, zero is the sentinel -128. NaN and infinity are packed as zero;
// their rows and columns are the business of special_outputs.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "numerics/gemm.hpp"

namespace fp16lab::gemm_detail {

inline constexpr std::size_t group = 16;  ///< K granularity of packing; every supported block size divides it
inline constexpr std::size_t row_block = 32;  ///< rows of a tile
inline constexpr std::size_t max_columns = 64;

/// The fast kernel takes accumulators c that are zero or finite with |c| >= 2^min_hot_exponent; the careful
/// variant takes all. A chain that starts at +0 stays inside: a block with a non-zero product yields a
/// multiple of 2^(-28-25) or zero. Nor can it overflow: where |c| >= 2^65 the quantum 2^(65-25) exceeds every
/// product, so c stays as it is, and below that a block adds less than 16 * 2^32.
inline constexpr int min_hot_exponent = -64;

/// May the fast kernel take this accumulator (given as FP32 bits)?
constexpr bool is_hot_accumulator(std::uint32_t bits) {
  const std::uint32_t magnitude = bits & Binary32::magnitude_mask;
  constexpr auto first = static_cast<std::uint32_t>(min_hot_exponent + Binary32::bias)
                         << Binary32::fraction_bits;
  return magnitude == 0 || magnitude - first < Binary32::infinity - first;
}

struct EmulatedTile {
  const float* a_values = nullptr;
  const std::uint32_t* a_exponents = nullptr;
  const float* b_values = nullptr;
  const std::int8_t* b_exponents = nullptr;
  std::size_t depth = 0;  ///< padded K
  std::size_t rows = 0;   ///< valid rows, <= row_block
  int block_size = 0;     ///< L: 4, 8 or 16
  int fraction_bits = 0;  ///< F: 23, 24 or 25
  bool careful = false;   ///< some accumulator is not hot
  float* tile = nullptr;  ///< [row_block][columns], aligned: accumulators in, results out
};

struct EmulatedKernels {
  std::size_t columns;  ///< panel width
  /// Packs rows [row, row + row_block) and columns [k, k + depth) of the logical m x k matrix A.
  void (*pack_a)(MatrixView<Float16> a, GemmShape shape, std::int64_t row, std::int64_t k, std::size_t depth,
                 float* values, std::uint32_t* exponents);
  /// Packs rows [k, k + depth) and columns [column, column + columns) of the logical k x n matrix B.
  void (*pack_b)(MatrixView<Float16> b, GemmShape shape, std::int64_t column, std::int64_t k,
                 std::size_t depth, float* values, std::int8_t* exponents);
  void (*run_tile)(const EmulatedTile& tile);
  /// Is any of `count` codes NaN or infinity?
  bool (*has_special)(const Float16* codes, std::size_t count);
};

const EmulatedKernels& emulated_kernels();

}  // namespace fp16lab::gemm_detail
