// The fast kernel of the emulated GEMM: fused blocks of L products for a whole tile of D, one FP32 lane each.
//
// What fused_dot_add defines per output (tensor_core_model.hpp), a lane does like this:
//
//   p = a * b                exact: significands of at most 11 bits make 22
//   E = max(exponents)       in bytes, four FP32 vectors at a time
//   t = trunc(p * 2^(F-E))   an exact scaling by a power of two, then one truncating conversion: drops the
//                            bits below 2^(E-F) from the magnitude; |p| < 2^(E+2), so |t| < 2^(F+2) fits
//   S = sum of the t         exact in int32, 16 products at most: the largest product of significands is
//                            (2 - 2^-10)^2 = 4 - 2^-8 + 2^-20, so |S| <= 2^31 - 2^21 + 2^9 (F = 25)
//   r = S + trunc(c * 2^(F-E))   can leave int32: finish_overflowed. L = 32 has two sums; c joins the first,
//                            which stays inside: F <= 24, or FP8 (product of significands at most 1.875^2)
//   d = round(r) * 2^(E-F)   truncation of an integer to 24 or 14 bits, then an exact power of two;
//                            or to FP16: nearest_half
//
// E is kept as an FP32 exponent field (biased by 127, shifted by 23), so that the two scale factors are one
// integer subtraction each. In bytes it is ea + eb - 1: flipping the top bit of that signed byte makes the
// unsigned field ea + eb + 127.
//
// If E <= F throughout (EmulatedTile::adds_exponents), p and c are scaled by adding F - E, which is then in
// [0, 126], to their exponent fields: more execution units add than multiply. A zero or subnormal becomes
// less than 2^(F-E-126) <= 1 and truncates to zero, as it should.
//
// Conditions (FastTiles in emulated_gemm_limits.hpp checks them for each tile), with x the largest exponent
// of an operand, P the range of ea + eb over non-zero elements, K = max(-101, x - 127):
//   * P <= 100, so that products stay below 2^102, and c is finite. Then bytes do not saturate upward and
//     FP32 results do not overflow: where |c| >= 2^127 the quantum 2^(127-F) exceeds every product and c
//     stays as it is; below that a block adds less than 32 * 2^102.
//   * E >= K >= -101, so 2^(E-F) is at least 2^-126: scale factors are normal numbers, results are normal or
//     zero, and products that count are exact (their last bit is at 2^(-101-20) or above; where p or
//     p * 2^(F-E) underflows it truncates to zero anyway).
//   * A zero operand's sentinel -128 sums with x to at most the byte of K, so zeros never raise the maximum.
// The floor of the maximum is the model's own E0 where E0 >= K. Otherwise it is K, and must not show: P >= K,
// and c is zero or |c| >= 2^K, when loaded. Then a block with a non-zero product has E >= K by itself. One
// without has the exponent of c as E; a c below 2^K can only be the result of an earlier block, a multiple of
// 2^(K-F), and neither alignment takes a bit from it.
//
// FP16 accumulators: a finite c above is between 2^-24 and 65504. Results beyond are not made infinite (their
// chains would need a second kind of lane); the tile reports them and is done again by the general kernel.
//
// FP8 through FP16 (KernelRow::joined): packing has ordered each 32 products so that the first 16 make
// the first block. Two blocks run from +0 in a tile of their own, then join D's by an ordinary addition.
#include "numerics/gemm/emulated_gemm_kernels.hpp"

#if defined(FP16LAB_EMULATED_GEMM_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FP16LAB_EMULATED_GEMM_KERNEL_INL_H_
#undef FP16LAB_EMULATED_GEMM_KERNEL_INL_H_
#else
#define FP16LAB_EMULATED_GEMM_KERNEL_INL_H_
#endif

#include "hwy/highway.h"
#include "numerics/gemm/emulated_gemm_pack-inl.h"
#include "numerics/gemm/gemm_support.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp16lab::gemm_detail {
namespace HWY_NAMESPACE {

constexpr int exponent_field_mask = 0x7f800000;
constexpr int fp32_field(int exponent) {
  return (exponent + Binary32::bias) * (1 << Binary32::fraction_bits);
}

/// Truncating conversion of lanes known to be inside int32; ConvertTo would add repairs for the others.
HWY_INLINE VInt truncate(VFloat x) {
#if HWY_TARGET <= HWY_AVX3
  return VInt{_mm512_cvttps_epi32(x.raw)};
#elif HWY_TARGET == HWY_AVX2
  return VInt{_mm256_cvttps_epi32(x.raw)};
#elif HWY_TARGET == HWY_SSE4
  return VInt{_mm_cvttps_epi32(x.raw)};
#else
  return hn::ConvertTo(DInt(), x);
#endif
}

/// x to FP32, rounded toward zero.
HWY_INLINE VFloat to_float_toward_zero(VInt x) {
#if HWY_TARGET <= HWY_AVX3
  return VFloat{_mm512_cvt_roundepi32_ps(x.raw, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)};
#else
  // Round-to-nearest truncates once the guard bit is clear. If the leading one of m = |x| is bit t >= 24, the
  // guard bit is t - 24, which is where m >> 24 has its own leading one; its other bits are below, among
  // those dropped anyway. x = -2^31 is its own m and converts as it is.
  const DInt di;
  const DFloat df;
  const DWord dw;
  const auto m = hn::BitCast(dw, hn::Abs(x));
  const auto cleared = hn::BitCast(di, hn::AndNot(hn::ShiftRight<24>(m), m));
  const auto sign = hn::And(x, hn::Set(di, static_cast<std::int32_t>(Binary32::sign_mask)));
  return hn::Or(hn::ConvertTo(df, cleared), hn::BitCast(df, sign));
#endif
}

/// x to FP32, rounded to odd: toward zero, and the last bit set where that was inexact.
HWY_INLINE VFloat to_float_to_odd(VInt x) {
  const DFloat df;
  const DInt di;
  const auto cut = to_float_toward_zero(x);
  const auto exact = hn::Eq(truncate(cut), x);
  return hn::Or(cut, hn::BitCast(df, hn::IfThenZeroElse(exact, hn::Set(di, 1))));
}

/// Sign bit set where r = x + y left int32: both terms have the other sign than r.
HWY_INLINE VInt overflow_sign(VInt x, VInt y, VInt r) {
#if HWY_TARGET <= HWY_AVX3
  return VInt{_mm512_ternarylogic_epi32(x.raw, y.raw, r.raw, 0x42)};
#else
  return hn::And(hn::Xor(x, r), hn::Xor(y, r));
#endif
}

/// What the lanes need of a row of the table.
struct Rule {
  HWY_INLINE Rule(const KernelRow& model, bool adds)
      : up_bias(hn::Set(DInt(),
                        static_cast<std::int32_t>(
                            static_cast<std::uint32_t>(model.fraction_bits + (adds ? 1 : 2) * Binary32::bias)
                            << Binary32::fraction_bits))),
        down_bias(hn::Set(DInt(), model.fraction_bits << Binary32::fraction_bits)),
        subnormal_field(hn::Set(DInt(), model.subnormal_accumulator == SubnormalAccumulator::emin
                                            ? fp32_field(Binary16::emin)
                                            : fp32_field(Binary16::exponent_of_min_subnormal))),
        zero_sign(hn::Set(DInt(), model.underflow_zero == UnderflowZero::keeps_sign
                                      ? static_cast<std::int32_t>(Binary32::sign_mask)
                                      : 0)) {}
  VInt up_bias, down_bias;
  VInt subnormal_field;  ///< an FP16 accumulator's
  VInt zero_sign;        ///< sign bits that an FP16 zero made by rounding keeps
};

/// |x| with E >= K, to an FP16 number in FP32 without upper bound, ties to even. 1.5 * 2^(e+13) has the last
/// place of an FP16 number with exponent e, and the sum stays in its binade, so that one addition rounds.
HWY_INLINE VFloat nearest_half(VFloat x, VInt zero_sign) {
  const DFloat df;
  const DInt di;
  const auto field = hn::Max(hn::And(hn::BitCast(di, x), hn::Set(di, exponent_field_mask)),
                             hn::Set(di, fp32_field(Binary16::emin)));
  constexpr int binades = Binary32::precision - Binary16::precision;
  constexpr int half = 1 << (Binary32::fraction_bits - 1);
  const auto big =
      hn::BitCast(df, hn::Add(field, hn::Set(di, binades * (1 << Binary32::fraction_bits) + half)));
  const auto rounded = hn::Sub(hn::Add(x, big), big);
  return hn::Or(rounded, hn::BitCast(df, hn::And(hn::BitCast(di, x), zero_sign)));
}

/// An integer to FP32 so that finish() can complete the block's output: 24 >= 11 + 2 bits to odd and then 11
/// to nearest are one rounding (Boldo & Melquiond, IEEE Trans. Computers 57(4), 2008).
template <BlockOutput output>
HWY_INLINE VFloat converted(VInt total) {
  const DFloat df;
  const DInt di;
  if constexpr (output == BlockOutput::fp16_nearest_even) {
    return to_float_to_odd(total);
  } else {
    const auto cut = to_float_toward_zero(total);
    if constexpr (output == BlockOutput::fp32_toward_zero) return cut;
    constexpr int dropped = Binary32::precision - 14;
    return hn::BitCast(df, hn::And(hn::BitCast(di, cut), hn::Set(di, -(1 << dropped))));
  }
}

template <BlockOutput output>
HWY_INLINE VFloat finish(VFloat scaled, const Rule& rule) {
  if constexpr (output == BlockOutput::fp16_nearest_even) return nearest_half(scaled, rule.zero_sign);
  return scaled;
}

/// The output where x + y left int32: then both have one sign, and |x| + |y| < 2^32 is halved before the
/// conversion; the dropped bit, far below the last one kept, stays as a sticky one.
template <BlockOutput output>
HWY_INLINE VFloat finish_overflowed(VInt x, VInt y, VInt scale_bits, const Rule& rule) {
  const DFloat df;
  const DInt di;
  const DWord dw;
  const auto magnitude = hn::BitCast(dw, hn::Add(hn::Abs(x), hn::Abs(y)));
  const auto halved = hn::Or(hn::ShiftRight<1>(magnitude), hn::And(magnitude, hn::Set(dw, 1)));
  const auto doubled_scale = hn::BitCast(df, hn::Add(scale_bits, hn::Set(di, 1 << Binary32::fraction_bits)));
  const auto scaled = hn::Mul(converted<output>(hn::BitCast(di, halved)), doubled_scale);
  return finish<output>(hn::CopySignToAbs(scaled, hn::BitCast(df, x)), rule);
}

/// Maximum exponents of one block for all rows of a tile, as FP32 exponent fields, one byte an output.
template <std::size_t L>
HWY_INLINE void block_exponents(const std::uint32_t* HWY_RESTRICT a, const std::int8_t* HWY_RESTRICT b,
                                std::size_t rows, int floor_exponent, std::uint8_t* HWY_RESTRICT fields) {
  const hn::ScalableTag<std::int8_t> db;
  const hn::Repartition<std::uint32_t, decltype(db)> dw;
  const hn::Repartition<std::uint8_t, decltype(db)> du;
  constexpr std::size_t at_once = 8;
  static_assert(row_block % at_once == 0);
  const auto floor = hn::Set(db, static_cast<std::int8_t>(floor_exponent + b_exponent_offset));
  const auto flip = hn::Set(db, -128);
  for (std::size_t row = 0; row < rows; row += at_once) {
    for (std::size_t x = 0; x < panel_columns; x += hn::Lanes(db)) {
      hn::Vec<decltype(db)> maximum[at_once];
      for (std::size_t r = 0; r < at_once; ++r) maximum[r] = floor;
      HWY_UNROLL(4)
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
template <std::size_t L, BlockOutput output, bool adds>
HWY_INLINE void block_row(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                          const std::uint8_t* HWY_RESTRICT fields, const Rule& rule,
                          float* HWY_RESTRICT accumulator, VFloat& largest) {
  const DFloat df;
  const DInt di;
  const hn::Rebind<std::uint8_t, DFloat> dbyte;
  constexpr std::size_t vectors = panel_columns / lanes;
  constexpr std::size_t exact_sum = L < 16 ? L : 16;
  const auto field_mask = hn::Set(di, exponent_field_mask);

  VInt up[vectors];    // 2^(F-E), as bits, or F-E to be added to exponents
  VInt down[vectors];  // 2^(E-F), as bits
  VInt addend[vectors];
  VInt sum[vectors];
  const auto scaled_up = [&](VFloat x, std::size_t v) HWY_ATTR {
    if constexpr (adds) return hn::BitCast(df, hn::Add(hn::BitCast(di, x), up[v]));
    return hn::Mul(x, hn::BitCast(df, up[v]));
  };
  for (std::size_t v = 0; v < vectors; ++v) {
    const auto c = hn::Load(df, accumulator + v * lanes);
    const auto products =
        hn::ShiftLeft<Binary32::fraction_bits>(hn::PromoteTo(di, hn::Load(dbyte, fields + v * lanes)));
    auto field = hn::And(hn::BitCast(di, c), field_mask);
    if constexpr (output == BlockOutput::fp16_nearest_even)
      field = hn::IfThenZeroElse(hn::RebindMask(di, hn::Eq(c, hn::Zero(df))),
                                 hn::Max(field, rule.subnormal_field));
    const auto exponent = hn::Max(products, field);
    up[v] = hn::Sub(rule.up_bias, exponent);
    down[v] = hn::Sub(exponent, rule.down_bias);
    addend[v] = truncate(scaled_up(c, v));
    sum[v] = hn::Zero(di);
  }
  for (std::size_t first = 0; first < L; first += exact_sum) {
    if (first > 0) {
      for (std::size_t v = 0; v < vectors; ++v) {
        addend[v] = hn::Add(addend[v], sum[v]);
        sum[v] = hn::Zero(di);
      }
    }
    // What is scaled in one turn is converted and added in the next: multiplications and conversions, which
    // have execution units of their own, then overlap.
    const auto scale = [&](std::size_t k, std::size_t v, VFloat element) HWY_ATTR {
      return scaled_up(hn::Mul(element, hn::Load(df, b + k * panel_columns + v * lanes)), v);
    };
    VFloat scaled[vectors];
    const auto element_0 = hn::Set(df, a[first]);
    for (std::size_t v = 0; v < vectors; ++v) scaled[v] = scale(first, v, element_0);
    HWY_UNROLL(5)
    for (std::size_t k = first + 1; k < first + exact_sum; ++k) {
      const auto element = hn::Set(df, a[k]);
      for (std::size_t v = 0; v < vectors; ++v) {
        const auto term = truncate(scaled[v]);
        scaled[v] = scale(k, v, element);
        sum[v] = hn::Add(sum[v], term);
      }
    }
    for (std::size_t v = 0; v < vectors; ++v) sum[v] = hn::Add(sum[v], truncate(scaled[v]));
  }
  const auto store = [&](std::size_t v, VFloat d) HWY_ATTR {
    hn::Store(d, df, accumulator + v * lanes);
    if constexpr (output == BlockOutput::fp16_nearest_even) largest = hn::Max(largest, hn::Abs(d));
  };
  VInt overflowed = hn::Zero(di);
  for (std::size_t v = 0; v < vectors; ++v) {
    const auto total = hn::Add(sum[v], addend[v]);
    if constexpr (L >= 16) overflowed = hn::Or(overflowed, overflow_sign(sum[v], addend[v], total));
    store(v, finish<output>(hn::Mul(converted<output>(total), hn::BitCast(df, down[v])), rule));
    if constexpr (L >= 16) up[v] = total;
  }
  if constexpr (L >= 16) {
    if (HWY_UNLIKELY(!hn::AllFalse(di, hn::Lt(overflowed, hn::Zero(di))))) {
      for (std::size_t v = 0; v < vectors; ++v) {
        const auto sign = overflow_sign(sum[v], addend[v], up[v]);
        const auto mask = hn::RebindMask(df, hn::Lt(sign, hn::Zero(di)));
        const auto d = finish_overflowed<output>(sum[v], addend[v], down[v], rule);
        store(v, hn::IfThenElse(mask, d, hn::Load(df, accumulator + v * lanes)));
      }
    }
  }
}

/// One block, products [k, k + L), for all rows of a tile.
template <std::size_t L, BlockOutput output, bool adds>
HWY_INLINE void run_block(const EmulatedTile& t, std::size_t k, const Rule& rule, float* accumulators,
                          VFloat& largest) {
  HWY_ALIGN std::uint8_t fields[row_block * panel_columns];
  const std::size_t a_offset = (k / group) * group * row_block + k % group;
  const float* b = t.b_values + k * panel_columns;
  block_exponents<L>(t.a_exponents + a_offset, t.b_exponents + k * panel_columns, t.rows, t.floor, fields);
  for (std::size_t row = 0; row < t.rows; ++row)
    block_row<L, output, adds>(t.a_values + a_offset + row * group, b, fields + row * panel_columns, rule,
                               accumulators + row * panel_columns, largest);
}

/// The ordinary addition that ends an instruction of FP8 through FP16. The sum of two FP16 numbers rounds as
/// if once through FP32: 24 >= 2 * 11 + 2 (Figueroa 1995).
template <BlockOutput output>
HWY_INLINE void join(const float* HWY_RESTRICT partial, std::size_t count, const Rule& rule,
                     float* HWY_RESTRICT accumulators, VFloat& largest) {
  const DFloat df;
  for (std::size_t i = 0; i < count; i += lanes) {
    auto d = hn::Add(hn::Load(df, partial + i), hn::Load(df, accumulators + i));
    if constexpr (output == BlockOutput::fp16_nearest_even) {
      d = nearest_half(d, rule.zero_sign);
      largest = hn::Max(largest, hn::Abs(d));
    }
    hn::Store(d, df, accumulators + i);
  }
}

template <std::size_t L, BlockOutput output, bool adds = false>
bool run_blocks(const EmulatedTile& t) {
  const DFloat df;
  const Rule rule(*t.row, adds);
  auto largest = hn::Zero(df);  // magnitude of an FP16 accumulator
  const bool joined = t.row->joined;
  HWY_ALIGN float partial[row_block * panel_columns];
  const std::size_t depth = joined ? round_up(t.depth, 2 * L) : t.depth;
  for (std::size_t k = 0; k < depth; k += L) {  // one call: run_block is inlined, and is most of what is compiled
    const bool second = k % (2 * L) != 0;
    if (joined && !second) std::fill_n(partial, t.rows * panel_columns, 0.0f);
    run_block<L, output, adds>(t, k, rule, joined ? partial : t.tile, largest);
    if (joined && second) join<output>(partial, t.rows * panel_columns, rule, t.tile, largest);
  }
  constexpr float beyond_half = 2.0f * static_cast<float>(1 << Binary16::emax);
  return hn::AllTrue(df, hn::Lt(largest, hn::Set(df, beyond_half)));
}

template <std::size_t L>
bool run_output(const EmulatedTile& tile) {
  switch (tile.row->output) {
    case BlockOutput::fp32_toward_zero:
      if (tile.adds_exponents) return run_blocks<L, BlockOutput::fp32_toward_zero, true>(tile);
      return run_blocks<L, BlockOutput::fp32_toward_zero>(tile);
    case BlockOutput::fp32_toward_zero_14_bits:
      return run_blocks<L, BlockOutput::fp32_toward_zero_14_bits>(tile);
    case BlockOutput::fp16_nearest_even:
      return run_blocks<L, BlockOutput::fp16_nearest_even>(tile);
    default:  // kernel_row rejects all others
      return false;
  }
}

inline bool run_fast(const EmulatedTile& tile) {
  if (tile.row->joined) return run_output<group / 2>(tile);
  switch (tile.row->block_size) {
    case 4:
      return run_output<4>(tile);
    case 8:
      return run_output<8>(tile);
    case 16:
      return run_output<16>(tile);
    case 32:
      return run_output<32>(tile);
    default:
      HWY_ASSERT(false);
      return false;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp16lab::gemm_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard
