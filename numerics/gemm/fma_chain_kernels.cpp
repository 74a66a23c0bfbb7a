// Packing and the register-tiled kernel of the FP32 fma-chain GEMM, compiled once per instruction set.
#include "numerics/gemm/fma_chain_kernels.hpp"

#include <algorithm>
#include <cstring>

#include "numerics/formats/bits.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/gemm/fma_chain_kernels.cpp"
#include "numerics/platform/highway_targets.hpp"
// clang-format off: the order is Highway's protocol
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "numerics/arithmetic/exact_fma-inl.h"
#include "numerics/gemm/emulated_gemm_gather-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace fp16lab::gemm_detail {
namespace HWY_NAMESPACE {

constexpr std::size_t fma_lanes = hn::MaxLanes(DFma());
// As many accumulators as fit in the register file beside one row of B and a broadcast element of A.
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr std::size_t tile_rows = 6;
constexpr std::size_t tile_vectors = 4;
#elif HWY_NATIVE_FMA
constexpr std::size_t tile_rows = 6;
constexpr std::size_t tile_vectors = 2;
#else
constexpr std::size_t tile_rows = 2;
constexpr std::size_t tile_vectors = 1;
#endif
constexpr std::size_t tile_columns = tile_vectors * fma_lanes;
static_assert(tile_rows * tile_columns <= max_fma_tile);

inline void pack_fma_a(MatrixView<float> a, GemmShape shape, std::int64_t row, std::size_t strips,
                       std::int64_t k, std::size_t depth, float* to) {
  const auto stride = static_cast<std::size_t>(a.leading_dimension);
  const float* from = a.data + k * a.leading_dimension + row;
  const std::size_t left = static_cast<std::size_t>(shape.m - row),
                    whole = std::min(strips, left / tile_rows);
  for (std::size_t x = 0; x < depth; ++x)  // lines of memory run across the strips
    for (std::size_t s = 0; s < whole; ++s)
      std::memcpy(to + (s * depth + x) * tile_rows, from + x * stride + s * tile_rows,
                  tile_rows * sizeof(float));
  if (whole < strips)
    gather_part<float>(operand_of(MatrixView<float>{a.data, a.leading_dimension, false}), shape.k, shape.m, k,
                       row + static_cast<std::int64_t>(whole * tile_rows), depth, tile_rows,
                       to + whole * depth * tile_rows);
}

inline void pack_fma_b(MatrixView<float> b, GemmShape shape, std::int64_t column, std::int64_t k,
                       std::size_t depth, float* to) {
  if (b.transposed || shape.n - column < static_cast<std::int64_t>(tile_columns))
    return gather_part<float>(operand_of(b), shape.k, shape.n, k, column, depth, tile_columns, to);
  const float* const from = b.data + k * b.leading_dimension + column;
  for (std::size_t x = 0; x < depth; ++x)
    std::memcpy(to + x * tile_columns, from + static_cast<std::int64_t>(x) * b.leading_dimension,
                tile_columns * sizeof(float));
}

template <std::size_t rows, std::size_t vectors>
void run_fma_rows(const FmaLines& a, const FmaLines& b, std::size_t depth, std::size_t valid_rows, bool first,
                  bool last, float* HWY_RESTRICT d, std::size_t ldd) {
  if constexpr (rows > 1)
    if (valid_rows < rows)
      return run_fma_rows<rows - 1, vectors>(a, b, depth, valid_rows, first, last, d, ldd);
  const DFma df;
  const float* row_a[rows];
  for (std::size_t r = 0; r < rows; ++r) row_a[r] = a.first + r * a.step;
  hn::Vec<DFma> chain[rows][vectors];
  HWY_UNROLL(8)
  for (std::size_t r = 0; r < rows; ++r) {
    HWY_UNROLL(8)
    for (std::size_t v = 0; v < vectors; ++v)
      chain[r][v] = first ? hn::Zero(df) : hn::LoadU(df, d + r * ldd + v * fma_lanes);
  }
  for (std::size_t k = 0, at = 0; k < depth; ++k, at += a.k_step) {
    hn::Vec<DFma> row_b[vectors];
    for (std::size_t v = 0; v < vectors; ++v)
      row_b[v] = hn::LoadU(df, b.first + k * b.k_step + v * fma_lanes);
    for (std::size_t r = 0; r < rows; ++r) {
      const auto element = hn::Set(df, row_a[r][at]);
      for (std::size_t v = 0; v < vectors; ++v) chain[r][v] = exact_fma(element, row_b[v], chain[r][v]);
    }
  }
  const auto canonical = hn::Set(df, float_from_bits(Binary32::canonical_nan));
  HWY_UNROLL(8)
  for (std::size_t r = 0; r < rows; ++r) {
    HWY_UNROLL(8)
    for (std::size_t v = 0; v < vectors; ++v) {
      const auto x = chain[r][v];
      hn::StoreU(last ? hn::IfThenElse(hn::IsNaN(x), canonical, x) : x, df, d + r * ldd + v * fma_lanes);
    }
  }
}

inline void run_fma_tile(const FmaLines& a, const FmaLines& b, std::size_t depth, std::size_t valid_rows,
                         std::size_t valid_columns, bool first, bool last, float* d, std::size_t ldd) {
  constexpr std::size_t half = (tile_vectors + 1) / 2;
  const auto run = valid_columns <= half * fma_lanes ? &run_fma_rows<tile_rows, half>
                                                     : &run_fma_rows<tile_rows, tile_vectors>;
  run(a, b, depth, valid_rows, first, last, d, ldd);
}

inline void add_scaled(float scale, const float* scales, const float* x, std::size_t count, float* d) {
  const DFma df;
  const auto canonical = hn::Set(df, float_from_bits(Binary32::canonical_nan));
  const auto add = [&](const float* to_scale, const float* from, float* to) HWY_ATTR {
    const auto both = hn::Mul(hn::Set(df, scale), hn::LoadU(df, to_scale));
    const auto sum = exact_fma(both, hn::LoadU(df, from), hn::LoadU(df, to));
    hn::StoreU(hn::IfThenElse(hn::IsNaN(sum), canonical, sum), df, to);
  };
  std::size_t i = 0;
  for (; i + fma_lanes <= count; i += fma_lanes) add(scales + i, x + i, d + i);
  if (i == count) return;
  float rest[3][fma_lanes] = {};
  std::copy(scales + i, scales + count, rest[0]);
  std::copy(x + i, x + count, rest[1]);
  std::copy(d + i, d + count, rest[2]);
  add(rest[0], rest[1], rest[2]);
  std::copy_n(rest[2], count - i, d + i);
}

const FmaKernels& fma_kernels_of_target() {
  static constexpr FmaKernels kernels = {HWY_ARCH_X86 != 0 && HWY_NATIVE_FMA != 0,
                                         tile_rows,
                                         tile_columns,
                                         &pack_fma_a,
                                         &pack_fma_b,
                                         &run_fma_tile,
                                         &add_scaled};
  return kernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace fp16lab::gemm_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp16lab::gemm_detail {
HWY_EXPORT(fma_kernels_of_target);
const FmaKernels& fma_kernels() { return HWY_DYNAMIC_DISPATCH(fma_kernels_of_target)(); }
}  // namespace fp16lab::gemm_detail
#endif
