// The general kernel of the emulated GEMM: any block size, any exponents, NaN and infinity, in FP64 lanes.
//
// The steps are those of the fast kernel (emulated_gemm_kernel-inl.h) with wider margins:
//   * Products have at most 22 bits and are between 2^-272 and 2^256 (BF16 and TF32): exact in FP64, and so
//     is any scaling below, by powers of two between 2^-400 and 2^350.
//   * t = trunc(p * 2^(F-E)) is an integer of at most F + 2 bits. With (4L + 2) 2^F <= 2^53
//     (has_general_kernel) every partial sum is exact, in any order.
//   * r * 2^(E-F) is exact; rounding to the output's last place is one truncation or one rounding to nearest
//     of the value in units of that place, which is a power of two taken from its exponent field.
//   * Maxima of exponents are 16-bit integers; zero operands have -16384 and cannot count.
//   * NaN, infinity and 0 * infinity need no care: IEEE arithmetic on the terms has the hardware's rules for
//     them (tensor_core_model.hpp), and nothing finite overflows. Only their exponents must stay in range.
//   * Sums start at +0 and so never are -0: a zero sum is +0.
//
// With block scales the power of two that products are multiplied by is 2^(F-E) times both scales, between
// 2^-630 and 2^610: a NaN scale is a NaN factor. The sum of the scales' exponents joins that of the products
// in the maximum. Where groups of products are exact, a group's FP64 sum is, and so is that times both
// scales, whose exponents alone make the maximum; a group counts if masks of non-zero elements share a bit.
// An operand that was packed with its scales has them in its elements.
#include "numerics/gemm/emulated_gemm_kernels.hpp"

#if defined(FP16LAB_EMULATED_GEMM_GENERAL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FP16LAB_EMULATED_GEMM_GENERAL_INL_H_
#undef FP16LAB_EMULATED_GEMM_GENERAL_INL_H_
#else
#define FP16LAB_EMULATED_GEMM_GENERAL_INL_H_
#endif

#include "hwy/highway.h"
#include "numerics/gemm/emulated_gemm_pack-inl.h"
#include "numerics/gemm/emulated_gemm_scales.hpp"
#include "numerics/gemm/gemm_support.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp16lab::gemm_detail {
namespace HWY_NAMESPACE {

using DWide = hn::ScalableTag<double>;
using DWideInt = hn::Rebind<std::int64_t, DWide>;
using DNarrow = hn::Rebind<float, DWide>;
using DShort = hn::ScalableTag<std::int16_t>;
using VWide = hn::Vec<DWide>;

constexpr std::size_t wide_lanes = hn::MaxLanes(DWide());

constexpr std::int64_t wide_bits(std::int64_t exponent_field) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(exponent_field) << Binary64::fraction_bits);
}
HWY_INLINE VWide wide_power(int exponent) {
  return hn::BitCast(DWide(), hn::Set(DWideInt(), wide_bits(exponent + Binary64::bias)));
}

/// 2^e for |x| in [2^e, 2^(e+1)), at least `least`; infinity and NaN count as 2^200, which is above every
/// FP32 number and far from overflow in what follows.
HWY_INLINE VWide leading_power(VWide x, VWide least) {
  const DWide d;
  const auto power = hn::And(x, hn::BitCast(d, hn::Set(DWideInt(), wide_bits(2 * Binary64::bias + 1))));
  return hn::Min(hn::Max(power, least), wide_power(200));
}

/// The rounding that ends a block.
class OutputRounding {
 public:
  explicit OutputRounding(const KernelRow& model)
      : nearest_(model.output == BlockOutput::fp16_nearest_even),
        positive_zero_(model.underflow_zero == UnderflowZero::positive),
        precision_(nearest_                                        ? Binary16::precision
                   : model.output == BlockOutput::fp32_toward_zero ? Binary32::precision
                                                                   : 14),
        least_power_(wide_power(nearest_ ? Binary16::emin : Binary32::emin)),
        beyond_(wide_power((nearest_ ? Binary16::emax : Binary32::emax) + 1)) {}

  HWY_INLINE VWide operator()(VWide x) const {
    const DWide d;
    const DWideInt di;
    const auto power = hn::BitCast(di, leading_power(x, least_power_));
    const auto per_place =
        hn::BitCast(d, hn::Sub(hn::Set(di, wide_bits(2 * Binary64::bias + precision_ - 1)), power));
    const auto place = hn::BitCast(d, hn::Sub(power, hn::Set(di, wide_bits(precision_ - 1))));
    const auto places = hn::Mul(x, per_place);
    auto rounded = hn::Mul(nearest_ ? hn::Round(places) : hn::Trunc(places), place);
    const auto sign = hn::And(x, hn::SignBit(d));
    rounded = hn::Or(rounded, sign);
    const auto infinity = hn::BitCast(d, hn::Set(di, wide_bits(2 * Binary64::bias + 1)));
    rounded = hn::IfThenElse(hn::Ge(hn::Abs(rounded), beyond_), hn::Or(infinity, sign), rounded);
    return positive_zero_ ? hn::Add(rounded, hn::Zero(d)) : rounded;
  }

 private:
  bool nearest_, positive_zero_;
  int precision_;
  VWide least_power_, beyond_;
};

/// FP32 numbers, infinities and NaNs from FP64 lanes that hold them; NaNs become canonical.
HWY_INLINE void store_narrow(VWide x, float* to) {
  const DNarrow dn;
#if HWY_TARGET == HWY_SCALAR  // its DemoteTo clamps to the largest finite number
  const auto narrow = hn::Set(dn, static_cast<float>(hn::GetLane(x)));
#else
  const auto narrow = hn::DemoteTo(dn, x);
#endif
  const auto canonical = hn::Set(dn, float_from_bits(Binary32::canonical_nan));
  hn::Store(hn::IfThenElse(hn::IsNaN(narrow), canonical, narrow), dn, to);
}

class GeneralTile {
 public:
  explicit GeneralTile(const EmulatedTile& tile)
      : t_(tile),
        rounding_(*tile.row),
        up_bias_(hn::Set(DWideInt(), wide_bits(tile.row->fraction_bits + 2 * Binary64::bias))),
        down_bias_(hn::Set(DWideInt(), wide_bits(tile.row->fraction_bits))),
        least_c_power_(wide_power(accumulator_emin(*tile.row))),
        // Beyond these floors nothing changes: no term has a smaller exponent, and none has a bit left.
        floor_(static_cast<std::int16_t>(std::clamp(tile.row->exponent_floor, -300, 400))) {}

  void run() {
    const bool joined = t_.row->joined;
    const std::size_t step = joined ? group / 2 : static_cast<std::size_t>(t_.row->block_size);
    const std::size_t depth = joined ? round_up(t_.depth, group) : t_.depth;
    HWY_ALIGN float partial[row_block * panel_columns];
    for (std::size_t k = 0; k < depth; k += step) {
      const bool second = k % group != 0;
      if (joined && !second) std::fill_n(partial, t_.rows * panel_columns, 0.0f);
      run_block(k, std::min(step, depth - k), joined ? partial : t_.tile);
      if (joined && second) join(partial);
    }
  }

 private:
  static int accumulator_emin(const KernelRow& model) {
    if (model.accumulator() == DType::f32)
      return model.subnormal_accumulator == SubnormalAccumulator::fp16_emin ? Binary16::emin : Binary32::emin;
    return model.subnormal_accumulator != SubnormalAccumulator::own_exponent
               ? Binary16::emin
               : Binary16::exponent_of_min_subnormal;
  }

  /// One block, products [k, k + count).
  void run_block(std::size_t k, std::size_t count, float* accumulators) {
    widen_a(k, count);
    widen_b(k, count);
    const bool scaled = t_.row->scales.block > 0, grouped = t_.row->exact_group > 1;
    if (scaled) load_scales(k, count);
    if (grouped)
      find_group_maxima(count);
    else
      find_maxima(count, scaled);
    for (std::size_t row = 0; row < t_.rows; ++row)
      for (std::size_t x = 0; x < panel_columns; x += at_once * wide_lanes) {
        float* const at = accumulators + row * panel_columns + x;
        if (grouped)
          run_vectors(row, x, at, [&](VWide* sum, const VWide* up) {
            add_groups(row, x, count, t_.b_values + k * panel_columns, sum, up);
          });
        else
          run_vectors(row, x, at, [&](VWide* sum, VWide* up) {
            if (scaled)
              for (std::size_t v = 0; v < at_once; ++v) up[v] = hn::Mul(up[v], scale_of(row, x, v, 0));
            add_products(row, x, count, sum, up);
          });
      }
  }

  static constexpr std::int16_t zero_exponent = ScaleTable::zero_exponent;
  static constexpr std::int16_t exponent_of(std::int8_t packed, int offset) {
    return static_cast<std::int16_t>(packed == zero_sentinel ? zero_exponent : packed - offset);
  }

  void widen_a(std::size_t k, std::size_t count) {
    for (std::size_t done = 0; done < count;) {  // the block may straddle groups
      const std::size_t some = std::min(count - done, group - (k + done) % group);
      const std::size_t at = (k + done) / group * group * row_block + (k + done) % group;
      for (std::size_t row = 0; row < t_.rows; ++row) {
        for (std::size_t i = 0; i < some; ++i) {
          const std::size_t from = at + row * group + i;
          const std::size_t to = row * max_block_size + done + i;
          a_values_[to] = static_cast<double>(t_.a_values[from]);
          a_exponents_[to] =
              exponent_of(static_cast<std::int8_t>(t_.a_exponents[from] & 0xff), a_exponent_offset);
        }
      }
      done += some;
    }
  }

  void widen_b(std::size_t k, std::size_t count) {
    const float* const values = t_.b_values + k * panel_columns;
    const std::int8_t* const exponents = t_.b_exponents + k * panel_columns;
    for (std::size_t i = 0; i < count * panel_columns; i += wide_lanes)
      hn::Store(hn::PromoteTo(DWide(), hn::Load(DNarrow(), values + i)), DWide(), b_values_ + i);
    for (std::size_t i = 0; i < count * panel_columns; ++i)
      b_exponents_[i] = exponent_of(exponents[i], b_exponent_offset);
  }

  /// The scales of each group of products, one without exact groups: values and exponents. Columns without
  /// outputs have those that are there.
  void load_scales(std::size_t k, std::size_t count) {
    const auto block = static_cast<std::size_t>(t_.row->scales.block);
    const ScaleTable& table = scale_table(t_.row->scales.format);
    for (std::size_t g = 0; g * products_of_group() < count; ++g) {
      const auto at = static_cast<std::int64_t>((k + g * products_of_group()) / block);
      const std::uint8_t* const a = t_.scales.a + at * t_.scales.a_block_step;
      const std::uint8_t* const b = t_.scales.b + at * t_.scales.b_block_step;
      for (std::size_t row = 0; row < t_.rows; ++row) {
        const std::uint8_t code = a[static_cast<std::int64_t>(row) * t_.scales.a_row_step];
        a_scales_[g * row_block + row] = t_.a_has_scales ? 1 : table.values[code];
        a_scale_exponents_[g * row_block + row] = t_.a_has_scales ? 0 : table.exponents[code];
      }
      for (std::size_t x = 0; x < panel_columns; ++x) {
        const auto column = static_cast<std::int64_t>(std::min(x, t_.columns - 1));
        const std::uint8_t code = b[column * t_.scales.b_column_step];
        b_scales_[g * panel_columns + x] = t_.b_has_scales ? 1 : table.values[code];
        b_scale_exponents_[g * panel_columns + x] = t_.b_has_scales ? 0 : table.exponents[code];
      }
    }
  }

  std::size_t products_of_group() const {
    const int exact = t_.row->exact_group;
    return static_cast<std::size_t>(exact > 1 ? exact : t_.row->block_size);
  }

  /// Both scales of group g, for vector v from column x on.
  HWY_INLINE VWide scale_of(std::size_t row, std::size_t x, std::size_t v, std::size_t g) const {
    const DWide d;
    return hn::Mul(hn::Set(d, a_scales_[g * row_block + row]),
                   hn::Load(d, b_scales_ + g * panel_columns + x + v * wide_lanes));
  }

  void find_maxima(std::size_t count, bool scaled) {
    const DShort ds;
    const auto floor = hn::Set(ds, floor_);
    for (std::size_t row = 0; row < t_.rows; ++row) {
      for (std::size_t x = 0; x < panel_columns; x += hn::Lanes(ds)) {
        auto maximum = scaled ? hn::Set(ds, zero_exponent) : floor;
        for (std::size_t i = 0; i < count; ++i)
          maximum = hn::Max(maximum, hn::Add(hn::Set(ds, a_exponents_[row * max_block_size + i]),
                                             hn::Load(ds, b_exponents_ + i * panel_columns + x)));
        if (scaled) maximum = hn::Max(floor, hn::Add(maximum, scale_exponents_of(row, x, 0)));
        hn::Store(maximum, ds, maxima_ + row * panel_columns + x);
      }
    }
  }

  HWY_INLINE hn::Vec<DShort> scale_exponents_of(std::size_t row, std::size_t x, std::size_t g) const {
    const DShort ds;
    return hn::Add(hn::Set(ds, a_scale_exponents_[g * row_block + row]),
                   hn::Load(ds, b_scale_exponents_ + g * panel_columns + x));
  }

  /// Of groups in which a product and both scales are not zero.
  void find_group_maxima(std::size_t count) {
    const DShort ds;
    const std::size_t size = products_of_group();
    const auto floor = hn::Set(ds, floor_);
    HWY_ALIGN std::int16_t masks[panel_columns];
    for (std::size_t row = 0; row < t_.rows; ++row)
      std::fill_n(maxima_ + row * panel_columns, panel_columns, floor_);
    for (std::size_t g = 0; g * size < count; ++g)
      for (std::size_t begin = 0; begin < size; begin += 16) {
        const std::size_t first = g * size + begin, end = std::min(first + 16, (g + 1) * size);
        std::fill_n(masks, panel_columns, std::int16_t{0});
        for (std::size_t i = first; i < end; ++i)
          for (std::size_t x = 0; x < panel_columns; ++x)
            masks[x] = static_cast<std::int16_t>(
                masks[x] | (b_exponents_[i * panel_columns + x] != zero_exponent ? 1 << (i - first) : 0));
        for (std::size_t row = 0; row < t_.rows; ++row) {
          int mask = 0;
          for (std::size_t i = first; i < end; ++i)
            mask |= a_exponents_[row * max_block_size + i] != zero_exponent ? 1 << (i - first) : 0;
          const auto own = hn::Set(ds, static_cast<std::int16_t>(mask));
          for (std::size_t x = 0; x < panel_columns; x += hn::Lanes(ds)) {
            const auto counts = hn::Ne(hn::And(own, hn::Load(ds, masks + x)), hn::Zero(ds));
            std::int16_t* const at = maxima_ + row * panel_columns + x;
            hn::Store(hn::Max(hn::Load(ds, at), hn::IfThenElse(counts, scale_exponents_of(row, x, g), floor)),
                      ds, at);
          }
        }
      }
  }

  /// The exponent with which c enters, as a power of two; zero for c = 0.
  HWY_INLINE VWide accumulator_power(VWide c) const {
    return hn::IfThenZeroElse(hn::Eq(c, hn::Zero(DWide())), leading_power(c, least_c_power_));
  }

  HWY_INLINE void add_products(std::size_t row, std::size_t x, std::size_t count, VWide* HWY_RESTRICT sum,
                               const VWide* HWY_RESTRICT up) const {
    const DWide d;
    const double* HWY_RESTRICT a = a_values_ + row * max_block_size;
    const double* HWY_RESTRICT b = b_values_ + x;
    for (std::size_t i = 0; i < count; ++i) {
      const auto element = hn::Set(d, a[i]);
      for (std::size_t v = 0; v < at_once; ++v) {
        const auto product = hn::Mul(element, hn::Load(d, b + i * panel_columns + v * wide_lanes));
        sum[v] = hn::Add(sum[v], hn::Trunc(hn::Mul(product, up[v])));
      }
    }
  }

  /// A group's sum is exact in FP32: below 2^16 in units of 2^-8 (E3M2).
  HWY_INLINE void add_groups(std::size_t row, std::size_t x, std::size_t count, const float* HWY_RESTRICT b,
                             VWide* HWY_RESTRICT sum, const VWide* HWY_RESTRICT up) const {
    const DWide d;
    const DFloat df;
    const std::size_t size = products_of_group();
    constexpr std::size_t width = at_once * wide_lanes, vectors = width / lanes;
    for (std::size_t g = 0; g * size < count; ++g) {
      VFloat dot[vectors];
      for (std::size_t v = 0; v < vectors; ++v) dot[v] = hn::Zero(df);
      for (std::size_t i = g * size; i < (g + 1) * size; ++i) {
        const auto element = hn::Set(df, static_cast<float>(a_values_[row * max_block_size + i]));
        for (std::size_t v = 0; v < vectors; ++v)
          dot[v] = hn::MulAdd(element, hn::Load(df, b + i * panel_columns + x + v * lanes), dot[v]);
      }
      HWY_ALIGN float dots[width];
      for (std::size_t v = 0; v < vectors; ++v) hn::Store(dot[v], df, dots + v * lanes);
      for (std::size_t v = 0; v < at_once; ++v) {
        const auto wide = hn::PromoteTo(d, hn::Load(DNarrow(), dots + v * wide_lanes));
        sum[v] = hn::Add(sum[v], hn::Trunc(hn::Mul(hn::Mul(wide, scale_of(row, x, v, g)), up[v])));
      }
    }
  }

  /// `add_terms(sum, up)` adds the products, multiplied by `up` and cut, to `sum`.
  template <class AddTerms>
  HWY_INLINE void run_vectors(std::size_t row, std::size_t x, float* HWY_RESTRICT accumulators,
                              const AddTerms& add_terms) {
    const DWide d;
    const DWideInt di;
    VWide up[at_once];    // 2^(F-E)
    VWide down[at_once];  // 2^(E-F)
    VWide sum[at_once];
    for (std::size_t v = 0; v < at_once; ++v) {
      const auto c = hn::PromoteTo(d, hn::Load(DNarrow(), accumulators + v * wide_lanes));
      const auto exponents =
          hn::Load(hn::Rebind<std::int16_t, DWide>(), maxima_ + row * panel_columns + x + v * wide_lanes);
      const auto wide = hn::PromoteTo(di, hn::PromoteTo(hn::Rebind<std::int32_t, DWide>(), exponents));
      const auto products =
          hn::ShiftLeft<Binary64::fraction_bits>(hn::Add(wide, hn::Set(di, Binary64::bias)));
      const auto power = hn::BitCast(di, hn::Max(hn::BitCast(d, products), accumulator_power(c)));
      up[v] = hn::BitCast(d, hn::Sub(up_bias_, power));
      down[v] = hn::BitCast(d, hn::Sub(power, down_bias_));
      sum[v] = hn::Add(hn::Zero(d), hn::Trunc(hn::Mul(c, up[v])));
    }
    add_terms(sum, up);
    for (std::size_t v = 0; v < at_once; ++v)
      store_narrow(rounding_(hn::Mul(sum[v], down[v])), accumulators + v * wide_lanes);
  }

  /// The ordinary addition that ends an instruction of FP8 through FP16. The FP64 sum of two FP16 numbers is
  /// exact; that of two FP32 numbers rounds to FP32 as if once: 53 >= 2 * 24 + 2 (Figueroa 1995).
  void join(const float* partial) const {
    const DWide d;
    const bool halves = t_.row->accumulator() == DType::f16;
    for (std::size_t i = 0; i < t_.rows * panel_columns; i += wide_lanes) {
      const auto sum = hn::Add(hn::PromoteTo(d, hn::Load(DNarrow(), partial + i)),
                               hn::PromoteTo(d, hn::Load(DNarrow(), t_.tile + i)));
      store_narrow(halves ? rounding_(sum) : sum, t_.tile + i);
    }
  }

  static constexpr std::size_t at_once = 4;
  static_assert(panel_columns % (at_once * wide_lanes) == 0);

  const EmulatedTile& t_;
  OutputRounding rounding_;
  hn::Vec<DWideInt> up_bias_, down_bias_;
  VWide least_c_power_;
  std::int16_t floor_;
  HWY_ALIGN double a_values_[row_block * max_block_size];
  HWY_ALIGN double b_values_[max_block_size * panel_columns];
  HWY_ALIGN std::int16_t a_exponents_[row_block * max_block_size];
  HWY_ALIGN std::int16_t b_exponents_[max_block_size * panel_columns];
  HWY_ALIGN std::int16_t maxima_[row_block * panel_columns];
  // Of a block's groups.
  HWY_ALIGN double a_scales_[max_block_size * row_block];
  HWY_ALIGN double b_scales_[max_block_size * panel_columns];
  HWY_ALIGN std::int16_t a_scale_exponents_[max_block_size * row_block];
  HWY_ALIGN std::int16_t b_scale_exponents_[max_block_size * panel_columns];
};

inline void run_general(const EmulatedTile& tile) {
  GeneralTile general(tile);
  general.run();
}

}  // namespace HWY_NAMESPACE
}  // namespace fp16lab::gemm_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard
