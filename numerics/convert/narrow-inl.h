// The vector form of convert: FP32 or FP64 lanes to the code of a narrower format, without branches.
//
// Everything but the hardware's own conversion is integer arithmetic, so no floating-point mode (rounding,
// flush-to-zero, denormals-are-zero) can touch it. It follows round_pack line by line: cut the significand
// into what is kept and a left-aligned fraction, decide from the fraction whether to go away from zero, cap
// what overflows, put the specials back.
#if defined(FP16LAB_NARROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FP16LAB_NARROW_INL_H_
#undef FP16LAB_NARROW_INL_H_
#else
#define FP16LAB_NARROW_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "numerics/arithmetic/round_pack.hpp"

#undef FP16LAB_HAVE_HALF_CONVERSION
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
#define FP16LAB_HAVE_HALF_CONVERSION 1
#else
#define FP16LAB_HAVE_HALF_CONVERSION 0
#endif

HWY_BEFORE_NAMESPACE();
namespace fp16lab::conversion_detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Lanes of From's bits, and the narrower lanes that To's codes of one such vector fill.
template <class From>
using Tag = hn::ScalableTag<typename From::Bits>;
template <class From>
using Vec = hn::Vec<Tag<From>>;
template <class To, class From>
using CodeTag = hn::Rebind<typename To::Bits, Tag<From>>;

/// From AVX2 on, variable shifts by 32 (64) or more, negative counts among them, give zero. Elsewhere Highway
/// leaves them undefined.
inline constexpr bool long_shifts_give_zero = HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2;

/// How the rounding directions differ as code: the two nearest ones and the three directed ones are one kernel each
/// with other constants.
enum class Decision { nearest, directed, stochastic };

/// `flush` false: options.flush_inputs and options.flush_results are known to be false.
template <class To, class From, Decision decision, bool flush>
class Narrow {
  using D = Tag<From>;
  using V = Vec<From>;
  using Bits = typename From::Bits;

  static constexpr int word = 8 * sizeof(Bits);
  static constexpr Bits half = Bits{1} << (word - 1);  ///< of a last place
  static constexpr int dropped = From::fraction_bits - To::fraction_bits;
  static constexpr bool same_exponents = To::exponent_bits == From::exponent_bits;
  /// From's exponent field of To's smallest normal number.
  static constexpr Bits lowest_field = To::emin + From::bias;
  static_assert(dropped >= 1 && To::has_zero && To::emin >= From::emin && To::emax <= From::emax);

 public:
  HWY_INLINE explicit Narrow(const ArithmeticOptions& options)
      : flush_inputs_below_(constant(options.flush_inputs ? From::min_normal : 0)),
        flush_results_below_(constant(options.flush_results ? To::min_normal : 0)),
        infinity_(constant(options.saturate ? To::max_finite : To::infinity)),
        positive_overflow_(constant(overflow(options, false))),
        negative_overflow_(constant(overflow(options, true))),
        odd_last_place_(constant(options.rounding == Rounding::nearest_away ? 0 : 1)),
        largest_below_(constant(half - (options.rounding == Rounding::nearest_away ? 1 : 0))),
        positive_away_(constant(options.rounding == Rounding::upward ? Bits(~Bits{0}) : Bits{0})),
        negative_away_(constant(options.rounding == Rounding::downward ? Bits(~Bits{0}) : Bits{0})) {}

  /// `random` holds a 32-bit word in each lane; only stochastic rounding looks at it.
  HWY_INLINE V operator()(V bits, V random) const {
    const D d;
    const V sign = To::has_sign ? hn::And(bits, constant(From::sign_mask)) : hn::Zero(d);
    V magnitude = hn::And(bits, constant(From::magnitude_mask));
    if constexpr (flush) magnitude = hn::IfThenZeroElse(hn::Lt(magnitude, flush_inputs_below_), magnitude);

    const Cut cut = cut_at_last_place(magnitude);
    V rounded = hn::Sub(cut.kept, hn::VecFromMask(d, rounds_away(cut, magnitude, sign, random)));
    rounded = hn::Add(rounded, cut.exponent);  // a carry out of the significand moves it up by one more

    if constexpr (decision == Decision::directed) {
      rounded = hn::Min(rounded, by_sign(sign, positive_overflow_, negative_overflow_));
      rounded = hn::IfThenElse(hn::Eq(magnitude, constant(From::infinity)), infinity_, rounded);
    } else {
      rounded = hn::Min(rounded, infinity_);  // overflow gives what infinity gives
    }
    if constexpr (flush) rounded = hn::IfThenZeroElse(hn::Lt(rounded, flush_results_below_), rounded);

    V result = rounded;
    if constexpr (To::has_sign)
      result = hn::Or(result, hn::And(hn::ShiftRight<word - To::width>(bits), constant(To::sign_mask)));
    if constexpr (To::encoding == Encoding::fnuz)  // it has one zero
      result = hn::IfThenZeroElse(hn::Eq(rounded, hn::Zero(d)), result);
    return hn::IfThenElse(hn::Gt(magnitude, constant(From::infinity)), constant(To::canonical_nan), result);
  }

 private:
  struct Cut {
    V kept;      ///< in last places of the result
    V fraction;  ///< fraction of a last place, in units of 2^-word
    V exponent;  ///< what the exponent adds to the code, hidden one not counted
  };

  static HWY_INLINE V constant(Bits value) { return hn::Set(D(), value); }

  static Bits overflow(const ArithmeticOptions& options, bool sign) {
    return overflows_to_infinity(options, sign) ? To::infinity : To::max_finite;
  }

  static HWY_INLINE V by_sign(V sign, V positive, V negative) {
    return hn::IfThenElse(hn::Eq(sign, hn::Zero(D())), positive, negative);
  }

  static HWY_INLINE Cut cut_at_last_place(V magnitude) {
    const D d;
    if constexpr (same_exponents) {  // the last place is the same bit everywhere, subnormals included
      return {hn::ShiftRight<dropped>(magnitude), hn::ShiftLeft<word - dropped>(magnitude), hn::Zero(d)};
    } else {
      // A source that is zero or subnormal gets a hidden one it does not have: it is then still far below the
      // last place, where only "not zero" counts, and rounds_away asks the magnitude for that.
      const V field = hn::ShiftRight<From::fraction_bits>(magnitude);
      const V significand =
          hn::Or(hn::And(magnitude, constant(From::fraction_mask)), constant(From::min_normal));
      const V clamped_field = hn::Max(field, constant(lowest_field));
      const V place = hn::Sub(hn::Add(clamped_field, constant(dropped)), field);
      Cut cut;
      cut.exponent = hn::ShiftLeft<To::fraction_bits>(hn::Sub(clamped_field, constant(lowest_field)));
      if constexpr (long_shifts_give_zero && decision != Decision::directed) {
        const V left = hn::Sub(constant(word), place);
        cut.kept = hn::Shr(significand, place);
        cut.fraction = hn::Shl(significand, left);
        if constexpr (decision == Decision::stochastic)
          cut.fraction = hn::Or(cut.fraction, hn::Shr(significand, hn::Sub(place, constant(word))));
      } else {  // a tiny fraction is too large, but not zero
        const V shift = hn::Min(place, constant(word - 1));
        cut.kept = hn::Shr(significand, shift);
        cut.fraction = hn::Shl(significand, hn::Sub(constant(word), shift));
        if constexpr (decision == Decision::stochastic) {  // here its size counts
          const V excess = hn::Sub(hn::Max(place, constant(word)), constant(word));
          const V tiny = hn::Shr(significand, hn::Min(excess, constant(word - 1)));
          cut.fraction = hn::IfThenElse(hn::Eq(place, shift), cut.fraction, tiny);
        }
      }
      return cut;
    }
  }

  HWY_INLINE hn::Mask<D> rounds_away(const Cut& cut, V magnitude, V sign, V random) const {
    const D d;
    if constexpr (decision == Decision::nearest) {
      return hn::Gt(hn::Add(cut.fraction, hn::And(cut.kept, odd_last_place_)), largest_below_);
    } else if constexpr (decision == Decision::directed) {
      const V relevant = hn::And(cut.fraction, by_sign(sign, positive_away_, negative_away_));
      return hn::Ne(hn::Min(relevant, magnitude), hn::Zero(d));
    } else {
      // fraction + random >= 2^32 in units of 2^-32
      V fraction = cut.fraction;
      if constexpr (word == 64) fraction = hn::ShiftRight<word - 32>(fraction);
      return hn::Gt(fraction, hn::Xor(random, constant(0xffffffffu)));
    }
  }

  V flush_inputs_below_, flush_results_below_;
  V infinity_, positive_overflow_, negative_overflow_;
  V odd_last_place_, largest_below_;  ///< a tie goes away from zero where the last place is odd, or everywhere
  V positive_away_, negative_away_;
};

/// The lower parts of the lanes, where the codes are.
template <class To, class From>
HWY_INLINE hn::Vec<CodeTag<To, From>> packed(Vec<From> codes) {
#if HWY_TARGET <= HWY_AVX3
  // One instruction where Highway has a shuffle, a permutation and their constants.
  if constexpr (sizeof(typename To::Bits) == 1 && sizeof(typename From::Bits) == 4)
    return {_mm512_cvtepi32_epi8(codes.raw)};
#endif
  if constexpr (sizeof(typename To::Bits) == sizeof(typename From::Bits))
    return codes;
  else
    return hn::TruncateTo(CodeTag<To, From>(), codes);
}

#if FP16LAB_HAVE_HALF_CONVERSION

HWY_INLINE hn::Vec<hn::ScalableTag<float>> with_canonical_nan(hn::Vec<hn::ScalableTag<float>> x) {
  const hn::ScalableTag<float> d;
  const auto nan = hn::BitCast(d, hn::Set(Tag<Binary32>(), Binary32::canonical_nan));
  return hn::IfThenElse(hn::IsNaN(x), nan, x);
}

/// FP32 to FP16 by F16C or AVX-512, rounding as `immediate` says. Correctly rounded, subnormal results kept,
/// MXCSR's rounding and FTZ ignored (but not DAZ, which FloatingPointScope keeps off); only its NaNs differ
/// from ours.
template <int immediate>
struct NarrowByInstruction {
  HWY_INLINE hn::Vec<CodeTag<Binary16, Binary32>> operator()(hn::Vec<hn::ScalableTag<float>> x) const {
#if HWY_TARGET <= HWY_AVX3
    return {_mm512_cvtps_ph(with_canonical_nan(x).raw, immediate | _MM_FROUND_NO_EXC)};
#else
    return {_mm256_cvtps_ph(with_canonical_nan(x).raw, immediate)};
#endif
  }
};

#if HWY_TARGET <= HWY_AVX3

/// Stochastic rounding to FP16 with random words whose lower halves are zero. Such a word is an exact FP32
/// number of last places; adding it toward zero keeps the floor, because multiples of the result's last place
/// are FP32 numbers; and cutting the sum is what stochastic rounding does.
struct NarrowHalfStochastic {
  HWY_INLINE hn::Vec<CodeTag<Binary16, Binary32>> operator()(hn::Vec<hn::ScalableTag<float>> x,
                                                             Vec<Binary32> random) const {
    const hn::ScalableTag<float> df;
    const Tag<Binary32> d;
    const auto exponent_of = [](int exponent) {
      return static_cast<std::uint32_t>(exponent + Binary32::bias) << Binary32::fraction_bits;
    };
    const auto bits = hn::BitCast(d, x);
    const auto sign = hn::And(bits, hn::Set(d, Binary32::sign_mask));
    const auto exponent =
        hn::Max(hn::And(bits, hn::Set(d, Binary32::exponent_mask)), hn::Set(d, exponent_of(Binary16::emin)));
    constexpr std::uint32_t places = (Binary16::fraction_bits + 16) << Binary32::fraction_bits;
    const auto unit = hn::BitCast(df, hn::Sub(exponent, hn::Set(d, places)));  // 2^-16 of a last place
    const auto count =
        hn::ConvertTo(df, hn::BitCast(hn::RebindToSigned<decltype(d)>(), hn::ShiftRight<16>(random)));
    const auto noise = hn::BitCast(df, hn::Or(hn::BitCast(d, hn::Mul(count, unit)), sign));
    auto sum = hn::BitCast(
        d, decltype(x){_mm512_add_round_ps(x.raw, noise.raw, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)});

    // Cutting would keep overflow finite.
    const auto magnitude = hn::And(sum, hn::Set(d, Binary32::magnitude_mask));
    const auto infinity = hn::Or(sign, hn::Set(d, Binary32::infinity));
    sum = hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, exponent_of(Binary16::emax + 1) - 1)), infinity, sum);
    sum = hn::IfThenElse(hn::RebindMask(d, hn::IsNaN(x)), hn::Set(d, Binary32::canonical_nan), sum);
    return {_mm512_cvtps_ph(hn::BitCast(df, sum).raw, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)};
  }
};

#endif

#endif  // FP16LAB_HAVE_HALF_CONVERSION

}  // namespace HWY_NAMESPACE
}  // namespace fp16lab::conversion_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard
