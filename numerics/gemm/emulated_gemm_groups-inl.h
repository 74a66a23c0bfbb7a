// The fast kernel of blocks whose groups of products are exact (NVFP4, MXFP4), on integers (PackedGroups): nothing
// is aligned, because nothing is cut.
//
// fused_dot_add cuts each group's sum, and c, below 2^(E-F), where E is the largest exponent of c and of the
// scales of groups, s at most. A group's sum is a multiple of u = 2^(e-8), e the least exponent of both scales in
// the tile: nothing of it is cut if E - F <= e - 8. FastTiles::of_groups (emulated_gemm_limits.hpp) asks that of s,
// and this kernel of c: |c| < 2^limit, limit = e - 8 + F + 1. Nothing of c is cut if it is a multiple of
// 2^least_place, least_place = s - F; where c itself has the largest exponent, its 24 bits are above 2^(E-F),
// F >= 23. The accumulator that enters the tile is asked; later ones are sums of such numbers, of which the
// rounding drops last bits alone.
//
// So d is the exact sum, rounded toward zero. Twice an element is an integer of at most 12, so that sums of 32
// products with a_offset are below 2^15, in each half of an int32 too, and a group's sum, below 2^13, times both
// scales, of 4 bits each, is exact in FP32. Where scales allow, a block's groups are added in int32, as multiples of
// u (EmulatedTile::in_integers), else each group in FP64, where
// accumulators stay between blocks, as multiples of u. These sums are exact: groups of a block of 2^b products are
// below 2^(s+8+b) together. If c has bits below u, it is below 2^(s-F+24), and the sum has F + 9 + b bits at most;
// else it has those from u to 2^(limit+1) or 2^(s+9+b). Dropping the low 29 bits of FP64's fraction is the rounding
// to FP32 toward zero: numbers are 0 or above 2^-126. A sum begins at +0, and so is never -0.
#include <cmath>
#include <cstring>
#include <numeric>
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

constexpr bool has_halves = HWY_ARCH_X86 && HWY_TARGET <= HWY_SSE4;

/// `sum` with the four products of bytes of each lane, unsigned ones of a with signed ones of b. With halves each half
/// of a lane has two of them; `joined` makes one sum of all.
HWY_INLINE VInt add_products(VInt sum, VInt a, VInt b) {
#if HWY_TARGET <= HWY_AVX3
  return VInt{_mm512_add_epi16(sum.raw, _mm512_maddubs_epi16(a.raw, b.raw))};
#elif HWY_TARGET == HWY_AVX2
  return VInt{_mm256_add_epi16(sum.raw, _mm256_maddubs_epi16(a.raw, b.raw))};
#elif HWY_TARGET == HWY_SSE4
  return VInt{_mm_add_epi16(sum.raw, _mm_maddubs_epi16(a.raw, b.raw))};
#else
  const auto add = [&](VInt left, VInt right)
                       HWY_ATTR { sum = hn::Add(sum, hn::Mul(left, hn::ShiftRight<24>(right))); };
  const auto byte = hn::Set(DInt(), 0xff);
  add(hn::And(a, byte), hn::ShiftLeft<24>(b));
  add(hn::And(hn::ShiftRight<8>(a), byte), hn::ShiftLeft<16>(b));
  add(hn::And(hn::ShiftRight<16>(a), byte), hn::ShiftLeft<8>(b));
  add(hn::And(hn::ShiftRight<24>(a), byte), b);
  return sum;
#endif
}
HWY_INLINE VInt joined(VInt sum) {
#if HWY_TARGET <= HWY_AVX3
  return VInt{_mm512_madd_epi16(sum.raw, _mm512_set1_epi16(1))};
#elif HWY_TARGET == HWY_AVX2
  return VInt{_mm256_madd_epi16(sum.raw, _mm256_set1_epi16(1))};
#elif HWY_TARGET == HWY_SSE4
  return VInt{_mm_madd_epi16(sum.raw, _mm_set1_epi16(1))};
#else
  return sum;
#endif
}

/// Keeps GCC from loading operands again, and from adding in another order, for which there are too few registers.
HWY_INLINE void keep_in_registers() {}
template <class... V>
HWY_INLINE void keep_in_registers([[maybe_unused]] VInt& first, V&... others) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_COMPILER_GCC_ACTUAL
  asm("" : "+x"(first.raw));
#endif
  keep_in_registers(others...);
}

/// Two rows and two neighbouring vectors of columns at a time keep all sums in registers.
constexpr std::size_t at_once = 2 * lanes;
static_assert(panel_columns % at_once == 0);

/// Sums of two rows and two vectors of columns.
struct Dots {
  VInt of[2][2];
};

/// The sums of the integers of products [k, k + size), one group, from column x on.
template <std::size_t size>
HWY_INLINE Dots dots_of_group(const PackedGroups& from, std::size_t row, std::size_t x, std::size_t k) {
  const DInt di;
  const std::uint8_t* HWY_RESTRICT a = from.a + k / group * group * row_block + row * group + k % group;
  const auto* HWY_RESTRICT b = reinterpret_cast<const std::int32_t*>(from.b + k * panel_columns) + x;
  const auto four = [&](const std::uint8_t* elements) HWY_ATTR {
    std::int32_t word;
    std::memcpy(&word, elements, sizeof word);
    return hn::Set(di, word);
  };
  const std::int32_t* const starts = from.b_starts + k / size * panel_columns + x;
  auto upper_left = hn::Load(di, starts), upper_right = hn::Load(di, starts + lanes);
  auto lower_left = upper_left, lower_right = upper_right;
  HWY_UNROLL(8)
  for (std::size_t i = 0; i < size / 4; ++i) {
    const auto upper = four(a + 4 * i), lower = four(a + group + 4 * i);
    auto left = hn::Load(di, b + i * panel_columns), right = hn::Load(di, b + i * panel_columns + lanes);
    keep_in_registers(left, right);
    upper_left = add_products(upper_left, upper, left);
    upper_right = add_products(upper_right, upper, right);
    lower_left = add_products(lower_left, lower, left);
    lower_right = add_products(lower_right, lower, right);
    keep_in_registers(upper_left, upper_right, lower_left, lower_right);
  }
  return {{{joined(upper_left), joined(upper_right)}, {joined(lower_left), joined(lower_right)}}};
}

/// sums[i] += from[i], FP32 or int32; `last`: rounds to FP32 toward zero.
template <class T>
HWY_INLINE void add_sums(const T* HWY_RESTRICT from, bool last, double* HWY_RESTRICT sums, VWide& largest) {
  const DWide d;
  const hn::Rebind<T, DWide> dn;
  constexpr int dropped = Binary64::fraction_bits - Binary32::fraction_bits;
  const auto kept = hn::BitCast(d, hn::Set(DWideInt(), last ? -(std::int64_t{1} << dropped) : -1));
  for (std::size_t i = 0; i < at_once; i += wide_lanes) {
    const auto sum = hn::Add(hn::Load(d, sums + i), hn::PromoteTo(d, hn::Load(dn, from + i)));
    const auto cut = hn::And(sum, kept);
    hn::Store(cut, d, sums + i);
    largest = hn::Max(largest, hn::Abs(cut));
  }
}

/// Adds the groups of products [k, end), one block.
template <std::size_t size, bool in_integers>
HWY_INLINE void add_block(const PackedGroups& from, std::size_t row, std::size_t x, std::size_t k,
                          std::size_t end, double* HWY_RESTRICT sums, VWide& largest) {
  const DFloat df;
  const DInt di;
  HWY_ALIGN std::conditional_t<in_integers, std::int32_t, float> parts[2][at_once];
  VInt total[2][2] = {{hn::Zero(di), hn::Zero(di)}, {hn::Zero(di), hn::Zero(di)}};
  for (; k < end; k += size) {
    const Dots dots = dots_of_group<size>(from, row, x, k);
    const std::int32_t* const a = from.a_scales + k / size * row_block + row;
    const std::int32_t* const b = from.b_scales + k / size * panel_columns + x;
    const auto add = [&](std::size_t r, std::size_t v) HWY_ATTR {
      const auto factor = hn::Mul(hn::Set(di, a[r]), hn::Load(di, b + v * lanes));
      if constexpr (in_integers)
        total[r][v] = hn::Add(total[r][v], hn::Mul(dots.of[r][v], factor));
      else
        hn::Store(hn::Mul(hn::ConvertTo(df, dots.of[r][v]), hn::ConvertTo(df, factor)), df,
                  parts[r] + v * lanes);
    };
    add(0, 0);  // loops would leave the sums in memory
    add(0, 1);
    add(1, 0);
    add(1, 1);
    if constexpr (!in_integers)
      for (std::size_t r = 0; r < 2; ++r)
        add_sums(parts[r], k + size >= end, sums + r * panel_columns, largest);
  }
  if constexpr (in_integers)
    for (std::size_t r = 0; r < 2; ++r) {
      for (std::size_t v = 0; v < 2; ++v) hn::Store(total[r][v], di, parts[r] + v * lanes);
      add_sums(parts[r], true, sums + r * panel_columns, largest);
    }
}

/// All blocks of a tile. The largest sum.
template <std::size_t size, bool in_integers>
VWide add_blocks(const EmulatedTile& t, double* sums) {
  const auto block = static_cast<std::size_t>(t.row->block_size);
  auto largest = hn::Zero(DWide());
  for (std::size_t k = 0; k < t.depth; k += block)
    for (std::size_t row = 0; row < t.rows; row += 2)
      for (std::size_t x = 0; x < panel_columns; x += at_once)
        add_block<size, in_integers>(t.groups, row, x, k, std::min(k + block, t.depth),
                                     sums + row * panel_columns + x, largest);
  return largest;
}

/// Twice the elements of `count` codes, each plus `offset`, as bytes.
HWY_INLINE void store_doubled(const std::uint16_t* HWY_RESTRICT codes, std::size_t count, int offset,
                              std::int8_t* HWY_RESTRICT to) {
  const DFloat df;
  for (std::size_t i = 0; i < count; i += lanes) {
    const auto twice = truncate(hn::Mul(load_values<Fp4E2M1>(codes + i), hn::Set(df, 2.0F)));
    hn::Store(hn::DemoteTo(DByte(), hn::Add(twice, hn::Set(DInt(), offset))), DByte(), to + i);
  }
}

/// What the sums of a group start at: without PackedGroups::a_offset times the sum of b.
inline std::int32_t start_of(const std::int8_t* b, std::size_t size) {
  const std::int32_t start = -PackedGroups::a_offset * std::accumulate(b, b + size, std::int32_t{0});
  return has_halves ? start & 0xffff : start;
}

inline void pack_group_a(const Operand& a, GemmShape shape, std::int64_t row, std::int64_t k,
                         std::size_t depth, const PackedGroups& to) {
  HWY_ALIGN std::uint16_t codes[row_block * group];
  for (std::size_t offset = 0; offset < depth; offset += group) {
    gather_part<std::uint8_t>(a, shape.m, shape.k, row, k + static_cast<std::int64_t>(offset), row_block,
                              group, codes);
    store_doubled(codes, row_block * group, PackedGroups::a_offset,
                  reinterpret_cast<std::int8_t*>(to.a) + offset * row_block);
  }
}

inline void pack_group_b(const Operand& b, GemmShape shape, std::int64_t column, std::int64_t k,
                         std::size_t depth, const KernelRow& rule, const PackedGroups& to) {
  HWY_ALIGN std::uint16_t codes[panel_columns * group];
  HWY_ALIGN std::int8_t doubled[panel_columns * group];
  Operand columns = b;
  columns.transposed = !b.transposed;
  const auto size = static_cast<std::size_t>(rule.exact_group);
  for (std::size_t offset = 0; offset < depth; offset += group) {
    gather_part<std::uint8_t>(columns, shape.n, shape.k, column, k + static_cast<std::int64_t>(offset),
                              panel_columns, group, codes);
    store_doubled(codes, panel_columns * group, 0, doubled);
    for (std::size_t x = 0; x < panel_columns; ++x) {
      const std::int8_t* const from = doubled + x * group;
      for (std::size_t i = 0; i < group; i += 4)
        std::memcpy(to.b + ((offset + i) * panel_columns + 4 * x), from + i, 4);
      for (std::size_t i = 0; i < group; i += size)
        to.b_starts[(offset + i) / size * panel_columns + x] = start_of(from + i, size);
    }
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
  const auto add = t.row->exact_group == 16
                       ? (t.in_integers ? &add_blocks<16, true> : &add_blocks<16, false>)
                       : (t.in_integers ? &add_blocks<32, true> : &add_blocks<32, false>);
  const auto largest = add(t, sums);
  for (std::size_t i = 0; i < rows * panel_columns; i += wide_lanes)
    store_narrow(hn::Mul(hn::Load(d, sums + i), wide_power(unit)), t.tile + i);
  return hn::AllTrue(d, hn::Lt(largest, limit));
}

}  // namespace HWY_NAMESPACE
}  // namespace fp16lab::gemm_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard
