// The inner loop of the emulated GEMM: fused blocks of L products for a whole tile of D, one FP32 lane each.
//
// What fused_dot_add defines per output (tensor_core_model.hpp), a lane does like this:
//
//   p = a * b                exact: two 11-bit significands make 22 bits, and 2^-48 <= |p| < 2^32
//   E = max(exponents)       in bytes, four FP32 vectors at a time: |ea + eb| <= 30, only zeros saturate
//   t = trunc(p * 2^(F-E))   an exact scaling by a power of two, then one truncating conversion: drops the
//                            bits below 2^(E-F) from the magnitude; |p| < 2^(E+2), so |t| < 2^(F+2) fits
//   S = sum of the t         exact in int32: the largest product of significands is
//                            (2 - 2^-10)^2 = 4 - 2^-8 + 2^-20, so |S| <= 2^31 - 2^21 + 2^9 (L=16, F=25)
//   r = S + trunc(c * 2^(F-E))   can leave int32, only for L = 16, F = 25: finish_overflowed
//   d = RZ24(r) * 2^(E-F)    truncation of an integer to 24 bits, then an exact power of two
//
// E is kept as an FP32 exponent field (biased by 127, shifted by 23), so that the two scale factors are one
// integer subtraction each. In bytes it is ea + eb - 1: flipping the top bit of that signed byte makes the
// unsigned field ea + eb + 127. A zero operand's sentinel sums to at most -113, below the floor of the
// maximum (-64, the byte -65). The floor lies below every non-zero product (-28) and every hot accumulator,
// so no result shows it: where all products are zero, E is the exponent of c, which keeps every bit of c.
// The model's own floor E0 (<= -131) lies below all of these and cannot act on FP16 operands with FP32
// output.
//
// The careful variant also takes c that are not hot (emulated_gemm_kernels.hpp). NaN and infinity pass
// through. Tiny c counts only where all products are zero, and passes through there; elsewhere it truncates
// to nothing by itself (|c| < 2^-64, quantum >= 2^-53). A huge c needs no care: p * 2^(F-E) may underflow,
// but truncates to 0 anyway.
#include "numerics/emulated_gemm_kernels.hpp"

#if defined(FP16LAB_EMULATED_GEMM_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FP16LAB_EMULATED_GEMM_KERNEL_INL_H_
#undef FP16LAB_EMULATED_GEMM_KERNEL_INL_H_
#else
#define FP16LAB_EMULATED_GEMM_KERNEL_INL_H_
#endif

#include "hwy/highway.h"
#include "numerics/emulated_gemm_pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp16lab::gemm_detail {
namespace HWY_NAMESPACE {

using DInt = hn::Rebind<std::int32_t, DFloat>;
using VFloat = hn::Vec<DFloat>;
using VInt = hn::Vec<DInt>;

constexpr int exponent_field_mask = 0x7f800000;
constexpr int floor_field = min_hot_exponent + Binary32::bias;
constexpr int floor_byte = floor_field - 128;  // the field as the signed byte before its top bit is flipped

/// Truncating conversion of lanes known to be inside int32; ConvertTo would add repairs for the others.
HWY_INLINE VInt truncate(VFloat x) {
#if HWY_TARGET <= HWY_AVX3
  return VInt{_mm512_cvttps_epi32(x.raw)};
#elif HWY_TARGET == HWY_AVX2
  return VInt{_mm256_cvttps_epi32(x.raw)};
#elif HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3
  return VInt{_mm_cvttps_epi32(x.raw)};
#else
  return hn::ConvertTo(DInt(), x);
#endif
}

/// x to FP32, rounded toward zero. |x| < 2^31.
HWY_INLINE VFloat to_float_toward_zero(VInt x) {
#if HWY_TARGET <= HWY_AVX3
  return VFloat{_mm512_cvt_roundepi32_ps(x.raw, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)};
#else
  // Round-to-nearest truncates once the guard bit is clear. If the leading one of m = |x| is bit t >= 24, the
  // guard bit is t - 24, which is where m >> 24 has its own leading one; its other bits lie below, among
  // those dropped anyway.
  const DInt di;
  const DFloat df;
  const auto m = hn::Abs(x);
  const auto nearest = hn::ConvertTo(df, hn::AndNot(hn::ShiftRight<24>(m), m));
  return hn::Or(nearest, hn::BitCast(df, hn::And(x, hn::Set(di, static_cast<std::int32_t>(0x80000000u)))));
#endif
}

/// Sign bit set where r = x + y left int32: both terms have the other sign than r.
HWY_INLINE VInt overflow_sign(VInt x, VInt y, VInt r) {
#if HWY_TARGET <= HWY_AVX3
  return VInt{_mm512_ternarylogic_epi32(x.raw, y.raw, r.raw, 0x42)};
#else
  return hn::And(hn::Xor(x, r), hn::Xor(y, r));
#endif
}

/// d = RZ24(x + y) * scale where x + y left int32: then both have one sign, and |x| + |y| < 2^32 is halved
/// before the conversion; the dropped bit lies 8 places below the last one kept.
HWY_INLINE VFloat finish_overflowed(VInt x, VInt y, VInt scale_bits) {
  const DFloat df;
  const DInt di;
  const DWord dw;
  const auto magnitude = hn::BitCast(dw, hn::Add(hn::Abs(x), hn::Abs(y)));
  const auto halved = to_float_toward_zero(hn::BitCast(di, hn::ShiftRight<1>(magnitude)));
  const auto doubled_scale = hn::BitCast(df, hn::Add(scale_bits, hn::Set(di, 1 << Binary32::fraction_bits)));
  return hn::CopySignToAbs(hn::Mul(halved, doubled_scale), hn::BitCast(df, x));
}

/// Maximum exponents of one block for all rows of a tile, as FP32 exponent fields, one byte an output.
template <std::size_t L>
HWY_INLINE void block_exponents(const std::uint32_t* HWY_RESTRICT a, const std::int8_t* HWY_RESTRICT b,
                                std::size_t rows, std::uint8_t* HWY_RESTRICT fields) {
  const hn::ScalableTag<std::int8_t> db;
  const hn::Repartition<std::uint32_t, decltype(db)> dw;
  const hn::Repartition<std::uint8_t, decltype(db)> du;
  constexpr std::size_t at_once = 4;
  static_assert(row_block % at_once == 0);
  const auto floor = hn::Set(db, static_cast<std::int8_t>(floor_byte));
  const auto flip = hn::Set(db, -128);
  for (std::size_t row = 0; row < rows; row += at_once) {
    for (std::size_t x = 0; x < panel_columns; x += hn::Lanes(db)) {
      hn::Vec<decltype(db)> maximum[at_once];
      for (std::size_t r = 0; r < at_once; ++r) maximum[r] = floor;
      for (std::size_t k = 0; k < L; ++k) {
        const auto exponent_b = hn::Load(db, b + k * panel_columns + x);
        for (std::size_t r = 0; r < at_once; ++r) {
#if HWY_TARGET == HWY_SCALAR
          const auto exponent_a = hn::Set(db, static_cast<std::int8_t>(a[(row + r) * group + k] & 0xff));
          (void)dw;
#else
          const auto exponent_a = hn::BitCast(db, hn::Set(dw, a[(row + r) * group + k]));
#endif
          maximum[r] = hn::Max(maximum[r], hn::SaturatedAdd(exponent_a, exponent_b));
        }
      }
      for (std::size_t r = 0; r < at_once; ++r)
        hn::Store(hn::BitCast(du, hn::Xor(maximum[r], flip)), du, fields + (row + r) * panel_columns + x);
    }
  }
}

/// One block for one row of a tile: `accumulator` is c in, d out.
template <std::size_t L, bool careful>
HWY_INLINE void block_row(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                          const std::uint8_t* HWY_RESTRICT fields, VInt up_bias, VInt down_bias,
                          float* HWY_RESTRICT accumulator) {
  const DFloat df;
  const DInt di;
  const hn::Rebind<std::uint8_t, DFloat> dbyte;
  constexpr std::size_t vectors = panel_columns / lanes;
  const auto field_mask = hn::Set(di, exponent_field_mask);

  VFloat up[vectors];  // 2^(F-E)
  VInt down[vectors];  // 2^(E-F), as bits
  VInt addend[vectors];
  VInt sum[vectors];
  for (std::size_t v = 0; v < vectors; ++v) {
    auto c = hn::Load(df, accumulator + v * lanes);
    if constexpr (careful) {
      const auto nonfinite = hn::Eq(hn::And(hn::BitCast(di, c), field_mask), field_mask);
      c = hn::IfThenZeroElse(hn::RebindMask(df, nonfinite), c);
    }
    const auto products =
        hn::ShiftLeft<Binary32::fraction_bits>(hn::PromoteTo(di, hn::Load(dbyte, fields + v * lanes)));
    const auto exponent = hn::Max(products, hn::And(hn::BitCast(di, c), field_mask));
    up[v] = hn::BitCast(df, hn::Sub(up_bias, exponent));
    down[v] = hn::Sub(exponent, down_bias);
    addend[v] = truncate(hn::Mul(c, up[v]));
    sum[v] = hn::Zero(di);
  }
  HWY_UNROLL(4)  // saves the register copies of the rolled loop; unrolled further, gcc spills
  for (std::size_t k = 0; k < L; ++k) {
    const auto element = hn::Set(df, a[k]);
    for (std::size_t v = 0; v < vectors; ++v) {
      const auto product = hn::Mul(element, hn::Load(df, b + k * panel_columns + v * lanes));
      sum[v] = hn::Add(sum[v], truncate(hn::Mul(product, up[v])));
    }
  }
  VInt overflowed = hn::Zero(di);
  for (std::size_t v = 0; v < vectors; ++v) {
    const auto total = hn::Add(sum[v], addend[v]);
    if constexpr (L == 16) overflowed = hn::Or(overflowed, overflow_sign(sum[v], addend[v], total));
    auto d = hn::Mul(to_float_toward_zero(total), hn::BitCast(df, down[v]));
    if constexpr (careful) {
      const auto c = hn::Load(df, accumulator + v * lanes);
      const auto nonfinite = hn::Eq(hn::And(hn::BitCast(di, c), field_mask), field_mask);
      const auto products = hn::PromoteTo(di, hn::Load(dbyte, fields + v * lanes));
      const auto all_zero = hn::Eq(products, hn::Set(di, floor_field));
      d = hn::IfThenElse(hn::RebindMask(df, all_zero), hn::Add(c, hn::Zero(df)), d);  // -0 becomes +0
      d = hn::IfThenElse(hn::RebindMask(df, nonfinite), c, d);
    }
    hn::Store(d, df, accumulator + v * lanes);
    if constexpr (L == 16) up[v] = hn::BitCast(df, total);
  }
  if constexpr (L == 16) {
    if (HWY_UNLIKELY(!hn::AllFalse(di, hn::Lt(overflowed, hn::Zero(di))))) {
      for (std::size_t v = 0; v < vectors; ++v) {
        const auto sign = overflow_sign(sum[v], addend[v], hn::BitCast(di, up[v]));
        const auto mask = hn::RebindMask(df, hn::Lt(sign, hn::Zero(di)));
        const auto d = finish_overflowed(sum[v], addend[v], down[v]);
        hn::Store(hn::IfThenElse(mask, d, hn::Load(df, accumulator + v * lanes)), df,
                  accumulator + v * lanes);
      }
    }
  }
}

template <std::size_t L, bool careful>
void run_blocks(const EmulatedTile& t) {
  HWY_ALIGN std::uint8_t fields[row_block * panel_columns];
  const DInt di;
  constexpr int shift = Binary32::fraction_bits;
  const auto up_bias = hn::Set(
      di,
      static_cast<std::int32_t>(static_cast<std::uint32_t>(t.fraction_bits + 2 * Binary32::bias) << shift));
  const auto down_bias = hn::Set(di, t.fraction_bits << shift);
  for (std::size_t k = 0; k < t.depth; k += L) {
    const std::size_t a_offset = (k / group) * group * row_block + k % group;
    const float* b = t.b_values + k * panel_columns;
    block_exponents<L>(t.a_exponents + a_offset, t.b_exponents + k * panel_columns, t.rows, fields);
    for (std::size_t row = 0; row < t.rows; ++row)
      block_row<L, careful>(t.a_values + a_offset + row * group, b, fields + row * panel_columns, up_bias,
                            down_bias, t.tile + row * panel_columns);
  }
}

inline void run_tile(const EmulatedTile& tile) {
  switch (tile.block_size) {
    case 4:
      return tile.careful ? run_blocks<4, true>(tile) : run_blocks<4, false>(tile);
    case 8:
      return tile.careful ? run_blocks<8, true>(tile) : run_blocks<8, false>(tile);
    case 16:
      return tile.careful ? run_blocks<16, true>(tile) : run_blocks<16, false>(tile);
    default:
      HWY_ASSERT(false);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp16lab::gemm_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard
