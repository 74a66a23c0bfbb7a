// Packing of operands: decode once, so that the kernels' inner loops only multiply. Layout:
// emulated_gemm_kernels.hpp. Include guard and namespaces follow Highway's per-target protocol.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "numerics/formats/bits.hpp"
#include "numerics/gemm/emulated_gemm_kernels.hpp"

#if defined(FP16LAB_EMULATED_GEMM_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FP16LAB_EMULATED_GEMM_PACK_INL_H_
#undef FP16LAB_EMULATED_GEMM_PACK_INL_H_
#else
#define FP16LAB_EMULATED_GEMM_PACK_INL_H_
#endif

#include "hwy/highway.h"
#include "numerics/gemm/emulated_gemm_gather-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp16lab::gemm_detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DFloat = hn::ScalableTag<float>;
using DInt = hn::Rebind<std::int32_t, DFloat>;
using DWord = hn::Rebind<std::uint32_t, DFloat>;
using DByte = hn::Rebind<std::int8_t, DFloat>;
using VFloat = hn::Vec<DFloat>;
using VInt = hn::Vec<DInt>;
using VWord = hn::Vec<DWord>;

constexpr std::size_t lanes = hn::MaxLanes(DFloat());
/// Four FP32 vectors wide: their exponents fill exactly one vector of bytes.
constexpr std::size_t panel_columns = 4 * lanes;
static_assert(panel_columns <= max_columns);

constexpr int zero_sentinel = -128;
constexpr int a_exponent_offset = 0;
constexpr int b_exponent_offset = -1;

/// Codes while they are packed: bytes are widened to 16 bits.
template <class F>
using WordOf = std::conditional_t<sizeof(typename F::Bits) == 4, std::uint32_t, std::uint16_t>;

/// The next codes of format F, one in each 32-bit lane.
template <class F>
HWY_INLINE VWord load_codes(const WordOf<F>* words) {
  if constexpr (sizeof(WordOf<F>) == 4)
    return hn::LoadU(DWord(), words);
  else
    return hn::PromoteTo(DWord(), hn::LoadU(hn::Rebind<std::uint16_t, DFloat>(), words));
}

/// Exact FP32 values. The code's magnitude, moved to the top of FP32's fraction and exponent fields, is the
/// value times 2^(bias - 127), subnormals included.
template <class F>
HWY_INLINE VFloat values_of(VWord codes) {
  const DFloat df;
  const DWord dw;
  const DInt di;
  if constexpr (std::is_same_v<F, TensorFloat32>) {  // an FP32 register, whose low bits are ignored
    constexpr std::uint32_t ignored = (1U << (Binary32::width - F::width)) - 1;
    return hn::BitCast(df, hn::And(codes, hn::Set(dw, ~ignored)));
  } else {
    const auto magnitude = hn::And(codes, hn::Set(dw, F::magnitude_mask));
    const auto sign = hn::ShiftLeft<Binary32::width - F::width>(hn::And(codes, hn::Set(dw, F::sign_mask)));
    auto value = hn::ShiftLeft<Binary32::fraction_bits - F::fraction_bits>(magnitude);
    if constexpr (F::bias != Binary32::bias) {
      constexpr std::uint32_t scale = static_cast<std::uint32_t>(2 * Binary32::bias - F::bias)
                                      << Binary32::fraction_bits;
      value = hn::BitCast(dw, hn::Mul(hn::BitCast(df, value), hn::Set(df, float_from_bits(scale))));
      const auto special =
          hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, static_cast<std::int32_t>(F::max_finite)));
      value = hn::Or(value, hn::IfThenElseZero(hn::RebindMask(dw, special), hn::Set(dw, Binary32::infinity)));
    }
    return hn::BitCast(df, hn::Or(value, sign));
  }
}

/// The values of the next codes.
template <class F>
HWY_INLINE VFloat load_values(const WordOf<F>* words) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2  // FP16 has an instruction, which heeds neither FTZ nor DAZ
  if constexpr (std::is_same_v<F, Binary16>)
    return hn::PromoteTo(DFloat(), hn::BitCast(hn::Rebind<hwy::float16_t, DFloat>(),
                                               hn::LoadU(hn::Rebind<std::uint16_t, DFloat>(), words)));
  else
#endif
    return values_of<F>(load_codes<F>(words));
}

/// Exponents as packed, and their range.
class Exponents {
 public:
  Exponents(int emin, int offset)
      : emin_(emin),
        least_field_(hn::Set(DInt(), emin + Binary32::bias)),
        offset_(hn::Set(DInt(), offset - Binary32::bias)),
        smallest_(hn::Set(DWord(), ~std::uint32_t{0})),
        largest_(hn::Zero(DInt())) {}

  HWY_INLINE VInt of(VFloat values) {
    const DInt di;
    const DWord dw;
    const auto magnitude =
        hn::And(hn::BitCast(di, values), hn::Set(di, static_cast<std::int32_t>(Binary32::magnitude_mask)));
    smallest_ = hn::Min(smallest_, hn::Sub(hn::BitCast(dw, magnitude), hn::Set(dw, 1)));
    largest_ = hn::Max(largest_, magnitude);
    const auto field = hn::Max(hn::ShiftRight<Binary32::fraction_bits>(magnitude), least_field_);
    const auto zero = hn::Eq(magnitude, hn::Zero(di));
    return hn::IfThenElse(zero, hn::Set(di, zero_sentinel), hn::Add(field, offset_));
  }

  static constexpr int nowhere = 1000;

  ExponentRange range() const {
    const auto largest = static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(DInt(), largest_)));
    if (largest == 0) return {nowhere, -nowhere};
    return {exponent_of(hn::GetLane(hn::MinOfLanes(DWord(), smallest_)) + 1), exponent_of(largest)};
  }

 private:
  int exponent_of(std::uint32_t magnitude) const {
    return std::max(static_cast<int>(magnitude >> Binary32::fraction_bits) - Binary32::bias, emin_);
  }

  int emin_;
  VInt least_field_, offset_;
  VWord smallest_;  ///< magnitude - 1, so that zeros are above all others
  VInt largest_;    ///< magnitude
};

/// The same of a row of codes of 16 bits, in lanes of 16 bits.
template <class F>
class HalfExponents {
 public:
  explicit HalfExponents(int offset)
      : offset_(hn::Set(D(), static_cast<std::int16_t>(offset - F::bias))),
        smallest_(hn::Set(DU(), std::uint16_t{0xffff})),
        largest_(hn::Zero(D())) {}

  HWY_INLINE void pack_row(const std::uint16_t* HWY_RESTRICT codes, std::int8_t* HWY_RESTRICT exponents) {
    const D d;
    const DU du;
    const hn::Rebind<std::int8_t, D> dbyte;
    const auto one = hn::Set(d, std::int16_t{1}), sentinel = hn::Set(d, std::int16_t{zero_sentinel});
    for (std::size_t x = 0; x < panel_columns; x += hn::MaxLanes(d)) {
      const auto magnitude =
          hn::BitCast(d, hn::And(hn::LoadU(du, codes + x), hn::Set(du, F::magnitude_mask)));
      const auto below = hn::Sub(magnitude, one);
      smallest_ = hn::Min(smallest_, hn::BitCast(du, below));
      largest_ = hn::Max(largest_, magnitude);
      const auto exponent = hn::Add(hn::Max(hn::ShiftRight<F::fraction_bits>(magnitude), one), offset_);
      const auto zero = hn::Eq(magnitude, hn::Zero(d));
      hn::Store(hn::DemoteTo(dbyte, hn::IfThenElse(zero, sentinel, exponent)), dbyte, exponents + x);
    }
  }

  ExponentRange range() const {
    int smallest = 0xffff, largest = 0;
    HWY_ALIGN std::uint16_t below[hn::MaxLanes(D())];
    HWY_ALIGN std::int16_t most[hn::MaxLanes(D())];
    hn::Store(smallest_, DU(), below);
    hn::Store(largest_, D(), most);
    for (std::size_t x = 0; x < hn::MaxLanes(D()); ++x) {
      smallest = std::min(smallest, int{below[x]});
      largest = std::max(largest, int{most[x]});
    }
    if (largest == 0) return {Exponents::nowhere, -Exponents::nowhere};
    return {exponent_of(smallest + 1), exponent_of(largest)};
  }

 private:
  using D = hn::ScalableTag<std::int16_t>;
  using DU = hn::RebindToUnsigned<D>;

  static int exponent_of(int magnitude) {
    return magnitude > F::max_finite ? Binary32::emax + 1
                                     : std::max(magnitude >> F::fraction_bits, 1) - F::bias;
  }

  hn::Vec<D> offset_;
  hn::Vec<DU> smallest_;  ///< magnitude - 1
  hn::Vec<D> largest_;
};

/// The low byte of each lane in all of its bytes.
HWY_INLINE VWord replicated(VWord x) {
  const DWord dw;
#if HWY_TARGET == HWY_SCALAR
  return hn::Mul(hn::And(x, hn::Set(dw, 0xff)), hn::Set(dw, 0x01010101));
#else
  const hn::Repartition<std::uint8_t, DWord> db;
  // Bytes 0, 4, 8, 12 of each 128-bit block, four times each.
  const auto first_bytes = hn::ShiftLeft<2>(hn::And(hn::Iota(dw, 0), hn::Set(dw, 3)));
  return hn::BitCast(dw,
                     hn::TableLookupBytes(hn::BitCast(db, x),
                                          hn::BitCast(db, hn::Mul(first_bytes, hn::Set(dw, 0x01010101)))));
#endif
}

/// Position in packed order of element k of a group.
constexpr std::size_t packed_position(const KernelRow& rule, std::size_t k) {
  if (!rule.pairs) return k;
  return (k % 4 < 2 ? 0 : group / 2) + k / 4 * 2 + k % 2;
}

/// The exponent of subnormals, as the units see them.
template <class F>
constexpr int emin_of(const KernelRow& rule) {
  return sizeof(F::canonical_nan) == 1 && rule.as_fp16 ? Binary16::emin : F::emin;
}

template <class F>
ExponentRange pack_a_of(const Operand& a, GemmShape shape, std::int64_t row, std::int64_t k,
                        std::size_t depth, const KernelRow& rule, float* HWY_RESTRICT values,
                        std::uint32_t* HWY_RESTRICT exponents) {
  const DFloat df;
  const DWord dw;
  Exponents exponents_of(emin_of<F>(rule), a_exponent_offset);
  HWY_ALIGN WordOf<F> scratch[row_block * group];
  for (std::size_t offset = 0; offset < depth; offset += group) {
    gather_part<typename F::Bits>(a, shape.m, shape.k, row, k + static_cast<std::int64_t>(offset), row_block,
                                  group, scratch);
    if (rule.pairs) {
      for (std::size_t r = 0; r < row_block; ++r) {
        WordOf<F> ordered[group];
        for (std::size_t i = 0; i < group; ++i) ordered[packed_position(rule, i)] = scratch[r * group + i];
        std::memcpy(scratch + r * group, ordered, sizeof ordered);
      }
    }
    for (std::size_t i = 0; i < row_block * group; i += lanes) {
      const auto value = load_values<F>(scratch + i);
      hn::Store(value, df, values + offset * row_block + i);
      const auto exponent = hn::BitCast(dw, exponents_of.of(value));
      hn::Store(replicated(exponent), dw, exponents + offset * row_block + i);
    }
  }
  return exponents_of.range();
}

template <class F>
ExponentRange pack_b_of(const Operand& b, GemmShape shape, std::int64_t column, std::int64_t k,
                        std::size_t depth, const KernelRow& rule, float* HWY_RESTRICT values,
                        std::int8_t* HWY_RESTRICT exponents) {
  const DFloat df;
  const DByte db;
  constexpr bool halves = sizeof(typename F::Bits) == 2,
                 in_words = sizeof(typename F::Bits) == sizeof(WordOf<F>);
  std::conditional_t<halves, HalfExponents<F>, Exponents> exponents_of = [&] {
    if constexpr (halves)
      return HalfExponents<F>(b_exponent_offset);
    else
      return Exponents(emin_of<F>(rule), b_exponent_offset);
  }();
  HWY_ALIGN WordOf<F> scratch[group * panel_columns];
  // Whole rows of a panel are read where they are.
  const bool in_place =
      in_words && !b.transposed && shape.n - column >= static_cast<std::int64_t>(panel_columns);
  for (std::size_t offset = 0; offset < depth; offset += group) {
    const std::int64_t first = k + static_cast<std::int64_t>(offset);
    const std::size_t rows = clipped(shape.k - first, group);
    const WordOf<F>* from = scratch;
    std::size_t stride = panel_columns;
    if (in_place) {
      from = static_cast<const WordOf<F>*>(b.data) + first * b.leading_dimension + column;
      stride = static_cast<std::size_t>(b.leading_dimension);
    } else {
      gather_part<typename F::Bits>(b, shape.k, shape.n, first, column, group, panel_columns, scratch);
    }
    for (std::size_t i = 0; i < group; ++i) {
      const std::size_t to = (offset + packed_position(rule, i)) * panel_columns;
      if (i >= rows) {
        std::memset(values + to, 0, panel_columns * sizeof(float));
        std::memset(exponents + to, zero_sentinel, panel_columns);
        continue;
      }
      const WordOf<F>* const row = from + i * stride;
      if constexpr (halves) exponents_of.pack_row(row, exponents + to);
      for (std::size_t x = 0; x < panel_columns; x += lanes) {
        const auto value = load_values<F>(row + x);
        hn::Store(value, df, values + to + x);
        if constexpr (!halves) hn::Store(hn::DemoteTo(db, exponents_of.of(value)), db, exponents + to + x);
      }
    }
  }
  return exponents_of.range();
}

inline ExponentRange pack_a(const Operand& a, GemmShape shape, std::int64_t row, std::int64_t k,
                            std::size_t depth, const KernelRow& rule, float* values,
                            std::uint32_t* exponents) {
  return visit_dtype<is_operand>(a.format, [&](auto dtype) {
    using F = typename decltype(dtype)::Format;
    return pack_a_of<F>(a, shape, row, k, depth, rule, values, exponents);
  });
}

inline ExponentRange pack_b(const Operand& b, GemmShape shape, std::int64_t column, std::int64_t k,
                            std::size_t depth, const KernelRow& rule, float* values, std::int8_t* exponents) {
  return visit_dtype<is_operand>(b.format, [&](auto dtype) {
    using F = typename decltype(dtype)::Format;
    return pack_b_of<F>(b, shape, column, k, depth, rule, values, exponents);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace fp16lab::gemm_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard
