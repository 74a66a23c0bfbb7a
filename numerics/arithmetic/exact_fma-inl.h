// A vector fused multiply-add that is correctly rounded on every target.
//
// Where the hardware has fma it is used. hwy::MulAdd splits into two roundings where it has not, so there the
// detour goes through FP64: the product of two FP32 numbers is exact (48 bits), the sum is rounded to odd
// (Boldo & Melquiond, IEEE Trans. Computers 57(4), 2008), and 53 >= 24 + 2 bits make the final rounding to
// FP32 the only one that shows. On those targets a vector holds as many floats as fit when widened to double.
#if defined(FP16LAB_EXACT_FMA_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FP16LAB_EXACT_FMA_INL_H_
#undef FP16LAB_EXACT_FMA_INL_H_
#else
#define FP16LAB_EXACT_FMA_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace fp16lab::gemm_detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_NATIVE_FMA

using DFma = hn::ScalableTag<float>;

HWY_INLINE hn::Vec<DFma> exact_fma(hn::Vec<DFma> a, hn::Vec<DFma> b, hn::Vec<DFma> c) {
  return hn::MulAdd(a, b, c);
}

#else

using DFma = hn::Rebind<float, hn::ScalableTag<double> >;

HWY_INLINE hn::Vec<DFma> exact_fma(hn::Vec<DFma> a, hn::Vec<DFma> b, hn::Vec<DFma> c) {
  const hn::ScalableTag<double> d;
  const hn::RebindToSigned<decltype(d)> di;
  const auto product = hn::Mul(hn::PromoteTo(d, a), hn::PromoteTo(d, b));
  const auto addend = hn::PromoteTo(d, c);
  const auto sum = hn::Add(product, addend);
  // TwoSum (Knuth, TAOCP 2, 4.2.2): sum + error is the exact value. NaN where the sum is not finite.
  const auto back = hn::Sub(sum, product);
  const auto error = hn::Add(hn::Sub(product, hn::Sub(sum, back)), hn::Sub(addend, back));
  // To odd: where the sum is inexact and even, step one ulp toward the exact value. A sum of zero is always
  // exact.
  const auto bits = hn::BitCast(di, sum);
  const auto zero = hn::Zero(di);
  const auto one = hn::Set(di, 1);
  const auto inexact = hn::VecFromMask(di, hn::RebindMask(di, hn::Gt(hn::Abs(error), hn::Zero(d))));
  const auto even = hn::VecFromMask(di, hn::Eq(hn::And(bits, one), zero));
  const auto inward =
      hn::BroadcastSignBit(hn::Xor(bits, hn::BitCast(di, error)));  // -1: the exact value is smaller
  const auto step = hn::Or(inward, one);                            // -1 or +1
  const auto odd = hn::Add(bits, hn::And(step, hn::And(inexact, even)));
#if HWY_TARGET == HWY_SCALAR  // its DemoteTo clamps to the largest finite number
  return hn::Set(DFma(), static_cast<float>(hn::GetLane(hn::BitCast(d, odd))));
#else
  return hn::DemoteTo(DFma(), hn::BitCast(d, odd));
#endif
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace fp16lab::gemm_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard
