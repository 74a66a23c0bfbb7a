// The vector form of widen: codes of narrow formats to FP32, exactly.
#if defined(FP16LAB_WIDEN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FP16LAB_WIDEN_INL_H_
#undef FP16LAB_WIDEN_INL_H_
#else
#define FP16LAB_WIDEN_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "numerics/convert/narrow-inl.h"
#include "numerics/formats/bits.hpp"
#include "numerics/formats/format.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp16lab::conversion_detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Codes of From to FP32 numbers. Multiplication by a power of two from integers is the only floating-point
/// step, and its operands and results are normal numbers.
template <class From>
struct Widen {
  using D = Tag<Binary32>;
  using V = Vec<Binary32>;

  HWY_INLINE hn::Vec<hn::ScalableTag<float>> operator()(hn::Vec<CodeTag<From, Binary32>> codes) const {
    if constexpr (sizeof(typename From::Bits) == sizeof(float))
      return hn::BitCast(hn::ScalableTag<float>(), bits(codes));
    else
      return hn::BitCast(hn::ScalableTag<float>(), bits(hn::PromoteTo(D(), codes)));
  }

 private:
  static HWY_INLINE V bits(V code) {
    constexpr int added = Binary32::fraction_bits - From::fraction_bits;
    V sign = hn::Zero(D());
    if constexpr (From::has_sign)
      sign = hn::ShiftLeft<32 - From::width>(hn::And(code, constant(From::sign_mask)));
    const V magnitude = hn::And(code, constant(From::magnitude_mask));
    V result = hn::ShiftLeft<added>(magnitude);
    if constexpr (From::exponent_bits != Binary32::exponent_bits) {
      const V normal = hn::Add(result, constant((Binary32::bias - From::bias) << Binary32::fraction_bits));
      const V subnormal = times_min_subnormal(magnitude);
      result = hn::IfThenElse(hn::Lt(magnitude, constant(From::min_normal)), subnormal, normal);
      if constexpr (From::has_infinity)
        result =
            hn::IfThenElse(hn::Eq(magnitude, constant(From::infinity)), constant(Binary32::infinity), result);
    }
    if constexpr (!From::has_zero)  // 2^-127, a subnormal
      result = hn::IfThenElse(hn::Eq(magnitude, hn::Zero(D())), constant(Binary32::min_normal / 2), result);
    result = hn::Or(result, sign);
    constexpr auto largest_number = From::has_infinity ? From::infinity : From::max_finite;
    auto nan = hn::Gt(magnitude, constant(largest_number));
    if constexpr (From::encoding == Encoding::fnuz) nan = hn::Eq(code, constant(From::canonical_nan));
    return hn::IfThenElse(nan, constant(Binary32::canonical_nan), result);
  }

  static HWY_INLINE V constant(std::uint32_t value) { return hn::Set(D(), value); }

  static HWY_INLINE V times_min_subnormal(V integer) {
    const hn::ScalableTag<float> df;
    constexpr std::uint32_t unit = (Binary32::bias + From::exponent_of_min_subnormal)
                                   << Binary32::fraction_bits;
    const auto count = hn::ConvertTo(df, hn::BitCast(hn::ScalableTag<std::int32_t>(), integer));
    return hn::BitCast(D(), hn::Mul(count, hn::Set(df, float_from_bits(unit))));
  }
};

#if FP16LAB_HAVE_HALF_CONVERSION
template <>
struct Widen<Binary16> {
  HWY_INLINE hn::Vec<hn::ScalableTag<float>> operator()(hn::Vec<CodeTag<Binary16, Binary32>> code) const {
    const hn::Rebind<hwy::float16_t, hn::ScalableTag<float>> half;
    return with_canonical_nan(hn::PromoteTo(hn::ScalableTag<float>(), hn::BitCast(half, code)));
  }
};
#endif

}  // namespace HWY_NAMESPACE
}  // namespace fp16lab::conversion_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard
