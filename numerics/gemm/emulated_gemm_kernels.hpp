// The seam between the driver of the emulated GEMM and its vector kernels.
//
// One table per instruction set; the run-time dispatch of Google Highway picks it. The kernels see only
// packed operands, one tile of D at a time; matrices, threads and memory formats of D are the driver's
// business.
//
// Packed A, one *row block* of `row_block` rows: [K / group][row_block][group], K ascending; values as FP32
//   (exact) and exponents as signed bytes, each repeated in the four bytes of a word, so that a plain 32-bit
//   broadcast serves 8-bit lanes.
// Packed B, one *panel* of `columns` columns: [K][columns], values as FP32 and exponents as bytes.
// K is padded to a multiple of `group` and rows and columns to whole blocks with zeros. A zero product adds
// nothing to its block and cannot raise the maximum exponent.
//
// Exponents: A stores ea, B stores eb - 1 (why: emulated_gemm_kernel-inl.h). The exponent of a subnormal is
// the emin of its format and its significand stays unnormalised; zero is the sentinel -128, below all others
// (emin >= -126). NaN and infinity store any exponent.
//
// Where a block takes every other pair of 32 elements of K (KernelRow::pairs), those come first.
//
// E2M1 with block scales on rows of exact groups is packed as PackedGroups instead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "numerics/gemm/gemm.hpp"

namespace fp16lab::gemm_detail {

inline constexpr std::size_t group =
    32;  ///< K granularity of packing; all block sizes of fast rows divide it
inline constexpr std::size_t row_block = 32;  ///< rows of a tile
inline constexpr std::size_t max_columns = 64;

/// Exponents of the non-zero elements of a packed block: emin or more. NaN and infinity count as 128. Without
/// any, `smallest` is far above and `largest` far below them.
struct ExponentRange {
  int smallest, largest;
  bool has_scales = false;  ///< its elements were multiplied by them (emulated_gemm_scales.hpp)
};

/// A row of the table as the vector kernels compute it: fused blocks that c enters; or `joined`, where two
/// blocks of group / 2 products begin at +0 and c joins by an addition.
struct KernelRow {
  int block_size;
  int fraction_bits;
  int exponent_floor;
  BlockOutput output;
  SubnormalAccumulator subnormal_accumulator;
  UnderflowZero underflow_zero;
  bool joined = false;
  bool pairs = false;    ///< the first joined block has k mod 4 in {0, 1}; else the first half
  bool as_fp16 = false;  ///< FP8 operands run as FP16
  int exact_group = 1;   ///< Stage::exact_group
  ScaleKind scales = {};

  DType accumulator() const { return format_of(output); }
  /// Products after which a block of K may end.
  std::size_t step() const { return joined ? group : static_cast<std::size_t>(block_size); }
};
/// Nothing where no kernel computes the row's stages.
std::optional<KernelRow> kernel_row(const TensorCoreModel& model);

/// The scales of a tile: those of its first row, column and block of K, and the steps to the next ones.
struct TileScales {
  const std::uint8_t *a = nullptr, *b = nullptr;
  std::int64_t a_row_step = 0, a_block_step = 0, b_block_step = 0, b_column_step = 0;
};

/// Packed E2M1 elements and scales as integers. A group's sum of (a - a_offset) * b * a_scales * b_scales is in
/// units of 2^(the least exponents of both scales - 2 * element_places - 2 * scale_places).
struct PackedGroups {
  static constexpr int a_offset = 12;                         ///< what makes twice an element positive
  static constexpr int element_places = 1, scale_places = 3;  ///< E2M1's and UE4M3's fraction bits
  std::uint8_t* a = nullptr;         ///< 2 x + a_offset: [K / group][row_block][group]
  std::int8_t* b = nullptr;          ///< 2 x: [K / 4][columns][4]
  std::int32_t *a_scales = nullptr,  ///< [K / exact group][row_block]
      *b_scales = nullptr,           ///< [K / exact group][columns]
          *b_starts = nullptr;       ///< -a_offset times the sum of b, as run_fast takes it: as b_scales
};

/// One tile of D and what it needs.
struct EmulatedTile {
  const KernelRow* row = nullptr;
  const float* a_values = nullptr;
  const std::uint32_t* a_exponents = nullptr;
  const float* b_values = nullptr;
  const std::int8_t* b_exponents = nullptr;
  std::size_t depth = 0;        ///< K, not padded
  std::size_t rows = 0;         ///< valid rows, <= row_block
  int floor = 0;                ///< fast kernel: no product or accumulator counts with a smaller exponent
  float* tile = nullptr;        ///< [row_block][columns], aligned: accumulators in, results out, all as FP32
  bool adds_exponents = false;  ///< fast kernel: no exponent of products or accumulators exceeds F
  std::size_t columns = 0;      ///< valid columns, <= width of a panel
  TileScales scales = {};       ///< of rows that have them
  bool a_has_scales = false, b_has_scales = false;  ///< ExponentRange::has_scales
  /// Fast kernel of exact groups: its operands; accumulators are multiples of 2^least_place below 2^limit.
  PackedGroups groups = {};
  int least_place = 0, limit = 0;
  bool in_integers = false;  ///< a block's groups are less than 2^31 units together
};

struct EmulatedKernels {
  const char* instruction_set;  ///< Highway's name
  std::size_t columns;          ///< panel width
  /// Packs rows [row, row + row_block) and columns [k, k + depth) of the logical m x k matrix A; depth is a
  /// multiple of `group`.
  ExponentRange (*pack_a)(const Operand& a, GemmShape shape, std::int64_t row, std::int64_t k,
                          std::size_t depth, const KernelRow& rule, float* values, std::uint32_t* exponents);
  /// Packs rows [k, k + depth) and columns [column, column + columns) of the logical k x n matrix B.
  ExponentRange (*pack_b)(const Operand& b, GemmShape shape, std::int64_t column, std::int64_t k,
                          std::size_t depth, const KernelRow& rule, float* values, std::int8_t* exponents);
  /// The same of E2M1 for exact groups, without the scales: PackedGroups::a; ::b and ::b_starts.
  void (*pack_group_a)(const Operand& a, GemmShape shape, std::int64_t row, std::int64_t k, std::size_t depth,
                       const PackedGroups& to);
  void (*pack_group_b)(const Operand& b, GemmShape shape, std::int64_t column, std::int64_t k,
                       std::size_t depth, const KernelRow& rule, const PackedGroups& to);
  /// emulated_gemm_kernel-inl.h and emulated_gemm_groups-inl.h; for tiles that FastTiles
  /// (emulated_gemm_limits.hpp) admits. False: an FP16 accumulator overflowed, or one of exact groups left its
  /// bounds, and the tile is spoilt.
  bool (*run_fast)(const EmulatedTile& tile);
  /// emulated_gemm_general-inl.h; for all tiles of rows that has_general_kernel admits.
  void (*run_general)(const EmulatedTile& tile);
};

const EmulatedKernels& emulated_kernels();

}  // namespace fp16lab::gemm_detail
