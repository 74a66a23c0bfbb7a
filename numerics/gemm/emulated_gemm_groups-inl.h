// The fast kernel of blocks whose groups of products are exact (NVFP4, MXFP4), for operands that were packed
// with their scales: nothing is aligned, because nothing is cut.
//
// fused_dot_add cuts each group's sum, and c, below 2^(E-F), where E is the largest exponent of c and of the
// scales of groups, s at most. A group's sum is a multiple of u = 2^(e-8), e the least exponent of both scales in
// the tile: nothing of it is cut if E - F <= e - 8. FastTiles::of_groups (emulated_gemm_limits.hpp) asks that of s,
// and this kernel of c: |c| < 2^limit, limit = e - 8 + F + 1. Nothing of c is cut if it is a multiple of
// 2^least_place, least_place = s - F; where c itself has the largest exponent, its 24 bits are above 2^(E-F),
// F >= 23. The accumulator that enters the tile is asked; later ones are sums of such numbers, of which the
// rounding drops last bits alone.
//
// So d is the exact sum, rounded toward zero. A group's sum is exact in FP32: 32 products at most, each of two
// numbers of 12 * 15 units, make less than 2^20 of them, and every fma is exact. Where scales allow, a block's
// groups are added in int32, as multiples of u (EmulatedTile::in_integers), else each group in FP64, where
// accumulators stay between blocks, as multiples of u. These sums are exact: groups of a block of 2^b products are
// below 2^(s+8+b) together. If c has bits below u, it is below 2^(s-F+24), and the sum has F + 9 + b bits at most;
// else it has those from u to 2^(limit+1) or 2^(s+9+b). Dropping the low 29 bits of FP64's fraction is the rounding
// to FP32 toward zero: numbers are 0 or above 2^-126. A sum begins at +0, and so is never -0.
#include <cmath>
#include <type_traits>

#include "numerics/gemm/emulated_gemm_kernels.hpp"

#if defined(FP16LAB_EMULATED_GEMM_GROUPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FP16LAB_EMULATED_GEMM_GROUPS_INL_H_
#undef FP16LAB_EMULATED_GEMM_GROUPS_INL_H_
#else
#define FP16LAB_EMULATED_GEMM_GROUPS_INL_H_
#endif

#include "hwy/highway.h"
#include "numerics/gemm/emulated_gemm_general-inl.h"
#include "numerics/gemm/emulated_gemm_kernel-inl.h"
#include "numerics/gemm/emulated_gemm_pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp16lab::gemm_detail {
namespace HWY_NAMESPACE {

constexpr std::size_t row_vectors = panel_columns / lanes;

/// The sums of products [k, k + count), one group, for two neighbouring rows.
HWY_INLINE void dots_of_group(const EmulatedTile& t, std::size_t row, std::size_t k, std::size_t count,
                              VFloat dot[2][row_vectors]) {
  const DFloat df;
  for (std::size_t v = 0; v < row_vectors; ++v) dot[0][v] = dot[1][v] = hn::Zero(df);
  const float* HWY_RESTRICT a = t.a_values + k / group * group * row_block + row * group + k % group;
  const float* HWY_RESTRICT b = t.b_values + k * panel_columns;
  HWY_UNROLL(4)
  for (std::size_t i = 0; i < count; ++i) {
    const auto first = hn::Set(df, a[i]), second = hn::Set(df, a[group + i]);
    for (std::size_t v = 0; v < row_vectors; ++v) {
      const auto element = hn::Load(df, b + i * panel_columns + v * lanes);
      dot[0][v] = hn::MulAdd(first, element, dot[0][v]);
      dot[1][v] = hn::MulAdd(second, element, dot[1][v]);
    }
  }
}

/// sums[x] += from[x], FP32 or int32, for two rows; `last`: rounds to FP32 toward zero.
template <class T>
HWY_INLINE void add_rows(const T* HWY_RESTRICT from, bool last, double* HWY_RESTRICT sums, VWide& largest) {
  const DWide d;
  const hn::Rebind<T, DWide> dn;
  constexpr int dropped = Binary64::fraction_bits - Binary32::fraction_bits;
  const auto kept = hn::BitCast(d, hn::Set(DWideInt(), last ? -(std::int64_t{1} << dropped) : -1));
  for (std::size_t x = 0; x < 2 * panel_columns; x += wide_lanes) {
    const auto sum = hn::Add(hn::Load(d, sums + x), hn::PromoteTo(d, hn::Load(dn, from + x)));
    const auto cut = hn::And(sum, kept);
    hn::Store(cut, d, sums + x);
    largest = hn::Max(largest, hn::Abs(cut));
  }
}

/// Adds the groups of products [k, end), one block, of two neighbouring rows, as multiples of 1 / per_unit.
template <bool in_integers>
HWY_INLINE void add_block(const EmulatedTile& t, std::size_t row, std::size_t k, std::size_t end,
                          float per_unit, double* HWY_RESTRICT sums, VWide& largest) {
  const DFloat df;
  const DInt di;
  const auto size = static_cast<std::size_t>(t.row->exact_group);
  HWY_ALIGN std::conditional_t<in_integers, std::int32_t, float> parts[2 * panel_columns];
  VInt total[2][row_vectors];
  for (std::size_t v = 0; v < row_vectors; ++v) total[0][v] = total[1][v] = hn::Zero(di);
  const auto scale = hn::Set(df, per_unit);
  for (; k < end; k += size) {
    VFloat dot[2][row_vectors];
    dots_of_group(t, row, k, std::min(size, end - k), dot);
    for (std::size_t r = 0; r < 2; ++r)
      for (std::size_t v = 0; v < row_vectors; ++v) {
        const auto units = hn::Mul(dot[r][v], scale);
        if constexpr (in_integers)
          total[r][v] = hn::Add(total[r][v], truncate(units));
        else
          hn::Store(units, df, parts + r * panel_columns + v * lanes);
      }
    if constexpr (!in_integers) add_rows(parts, k + size >= end, sums, largest);
  }
  if constexpr (in_integers) {
    for (std::size_t r = 0; r < 2; ++r)
      for (std::size_t v = 0; v < row_vectors; ++v)
        hn::Store(total[r][v], di, parts + r * panel_columns + v * lanes);
    add_rows(parts, true, sums, largest);
  }
}

/// False: an accumulator is not as the proof above needs it.
inline bool run_groups(const EmulatedTile& t) {
  const DWide d;
  const int unit = t.limit - t.row->fraction_bits - 1;
  const auto per_unit = wide_power(-unit), limit = wide_power(t.limit - unit);
  const auto places_per_unit = wide_power(unit - t.least_place);
  const std::size_t rows = (t.rows + 1) / 2 * 2;
  HWY_ALIGN double sums[row_block * panel_columns];
  auto within = hn::Eq(limit, limit);
  for (std::size_t i = 0; i < rows * panel_columns; i += wide_lanes) {
    const auto c = hn::Mul(hn::PromoteTo(d, hn::Load(DNarrow(), t.tile + i)), per_unit);
    const auto places = hn::Mul(c, places_per_unit);
    within = hn::And(within, hn::And(hn::Eq(hn::Trunc(places), places), hn::Lt(hn::Abs(c), limit)));
    hn::Store(hn::Add(hn::Zero(d), c), d, sums + i);
  }
  if (!hn::AllTrue(d, within)) return false;
  const auto add = t.in_integers ? &add_block<true> : &add_block<false>;
  const auto block = static_cast<std::size_t>(t.row->block_size);
  auto largest = hn::Zero(d);
  for (std::size_t k = 0; k < t.depth; k += block)
    for (std::size_t row = 0; row < rows; row += 2)
      add(t, row, k, std::min(k + block, t.depth), std::ldexp(1.0F, -unit), sums + row * panel_columns,
          largest);
  for (std::size_t i = 0; i < rows * panel_columns; i += wide_lanes)
    store_narrow(hn::Mul(hn::Load(d, sums + i), wide_power(unit)), t.tile + i);
  return hn::AllTrue(d, hn::Lt(largest, limit));
}

}  // namespace HWY_NAMESPACE
}  // namespace fp16lab::gemm_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard
