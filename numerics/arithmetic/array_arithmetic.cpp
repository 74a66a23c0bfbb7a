#include "numerics/arithmetic/array_arithmetic.hpp"

#include <cstddef>
#include <cstdint>
#include <tuple>

#include "numerics/platform/for_each_chunk.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/arithmetic/array_arithmetic.cpp"
#include "numerics/platform/highway_targets.hpp"
// clang-format off: the order is Highway's protocol
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "numerics/arithmetic/array_loop-inl.h"
#include "numerics/convert/narrow-inl.h"
#include "numerics/convert/widen-inl.h"
// clang-format on

#ifndef FP16LAB_ARITHMETIC_KERNELS
#define FP16LAB_ARITHMETIC_KERNELS
namespace fp16lab::conversion_detail {

template <class F>
struct ArithmeticKernels {
  using Code = typename F::Bits;
  void (*add)(const Code* a, const Code* b, Code* out, std::size_t n);
  void (*sub)(const Code* a, const Code* b, Code* out, std::size_t n);
  void (*mul)(const Code* a, const Code* b, Code* out, std::size_t n);
  void (*fma)(const Code* a, const Code* b, const Code* c, Code* out, std::size_t n);
};

using AllArithmeticKernels = std::tuple<ArithmeticKernels<Binary16>, ArithmeticKernels<BrainFloat16>>;

}  // namespace fp16lab::conversion_detail
#endif

HWY_BEFORE_NAMESPACE();
namespace fp16lab::conversion_detail {
namespace HWY_NAMESPACE {
namespace {

using FloatTag = hn::ScalableTag<float>;
using Floats = hn::Vec<FloatTag>;
using CodesTag = hn::Rebind<std::uint16_t, FloatTag>;
using Codes = hn::Vec<CodesTag>;

/// To nearest even, NaN canonical.
template <class F>
HWY_INLINE Codes narrowed(Floats x) {
#if FP16LAB_HAVE_HALF_CONVERSION
  if constexpr (F::exponent_bits == Binary16::exponent_bits)
    return NarrowByInstruction<_MM_FROUND_TO_NEAREST_INT>()(x);
#endif
  const Narrow<F, Binary32, Decision::nearest, false> kernel{ArithmeticOptions()};
  const Tag<Binary32> d;
  return packed<F, Binary32>(kernel(hn::BitCast(d, x), hn::Zero(d)));
}

/// a + b rounded to odd, in FP32 or FP64: toward zero, then the last bit set if that was inexact. The
/// operands must be finite and far from overflow, or not finite.
template <class D>
HWY_INLINE hn::Vec<D> add_to_odd(D d, hn::Vec<D> a, hn::Vec<D> b) {
  const hn::RebindToSigned<D> di;
  const auto sum = hn::Add(a, b);
  // TwoSum (Knuth, TAOCP 2, 4.2.2): sum + error is the exact value. NaN where the sum is not finite.
  const auto back = hn::Sub(sum, a);
  const auto error = hn::Add(hn::Sub(a, hn::Sub(sum, back)), hn::Sub(b, back));
  const auto bits = hn::BitCast(di, sum);
  const auto inexact = hn::RebindMask(di, hn::Gt(hn::Abs(error), hn::Zero(d)));
  const auto toward_zero = hn::Add(bits, hn::BroadcastSignBit(hn::Xor(bits, hn::BitCast(di, error))));
  return hn::BitCast(d, hn::IfThenElse(inexact, hn::Or(toward_zero, hn::Set(di, 1)), bits));
}

struct Add {
  template <class F>
  HWY_INLINE Codes apply(Codes a, Codes b) const {
    return narrowed<F>(hn::Add(Widen<F>()(a), Widen<F>()(b)));
  }
};
struct Sub {
  template <class F>
  HWY_INLINE Codes apply(Codes a, Codes b) const {
    return narrowed<F>(hn::Sub(Widen<F>()(a), Widen<F>()(b)));
  }
};
struct Mul {
  template <class F>
  HWY_INLINE Codes apply(Codes a, Codes b) const {
    return narrowed<F>(hn::Mul(Widen<F>()(a), Widen<F>()(b)));
  }
};

HWY_INLINE Codes load(const std::uint16_t* from) { return hn::LoadU(CodesTag(), from); }

template <class F, class Operation>
void binary(const std::uint16_t* a, const std::uint16_t* b, std::uint16_t* out, std::size_t n) {
  transform(
      [](std::uint16_t* to, const std::uint16_t* x, const std::uint16_t* y) {
        hn::StoreU(Operation().template apply<F>(load(x), load(y)), CodesTag(), to);
      },
      n, hn::Lanes(FloatTag()), out, a, b);
}

/// The product has at most 22 bits and is in [2^-48, 2^32), so FP32 holds it exactly.
void fma_binary16(const std::uint16_t* a, const std::uint16_t* b, const std::uint16_t* c, std::uint16_t* out,
                  std::size_t n) {
  const Widen<Binary16> widen;
  transform(
      [=](std::uint16_t* to, const std::uint16_t* x, const std::uint16_t* y, const std::uint16_t* z) {
        const Floats product = hn::Mul(widen(load(x)), widen(load(y)));
        hn::StoreU(narrowed<Binary16>(add_to_odd(FloatTag(), product, widen(load(z)))), CodesTag(), to);
      },
      n, hn::Lanes(FloatTag()), out, a, b, c);
}

/// BF16: products reach below FP32's smallest subnormal, but FP64 holds them all, and 53 >= 8 + 2 bits leave
/// room for rounding to odd.
void fma_brain_float16(const std::uint16_t* a, const std::uint16_t* b, const std::uint16_t* c,
                       std::uint16_t* out, std::size_t n) {
  const hn::ScalableTag<double> d;
  const Tag<Binary64> du;
  const hn::Rebind<float, hn::ScalableTag<double>> df;
  const hn::Rebind<std::uint32_t, hn::ScalableTag<double>> dw;
  const CodeTag<BrainFloat16, Binary64> dc;
  const Narrow<BrainFloat16, Binary64, Decision::nearest, false> narrow{ArithmeticOptions()};
  const auto wide = [=](const std::uint16_t* from) {
    return hn::PromoteTo(d, hn::BitCast(df, hn::ShiftLeft<16>(hn::PromoteTo(dw, hn::LoadU(dc, from)))));
  };
  transform(
      [=](std::uint16_t* to, const std::uint16_t* x, const std::uint16_t* y, const std::uint16_t* z) {
        const auto sum = add_to_odd(d, hn::Mul(wide(x), wide(y)), wide(z));
        hn::StoreU(packed<BrainFloat16, Binary64>(narrow(hn::BitCast(du, sum), hn::Zero(du))), dc, to);
      },
      n, hn::Lanes(d), out, a, b, c);
}

template <class F>
constexpr ArithmeticKernels<F> kernels_with(decltype(ArithmeticKernels<F>::fma) fma) {
  return {binary<F, Add>, binary<F, Sub>, binary<F, Mul>, fma};
}

}  // namespace

const AllArithmeticKernels& arithmetic_kernels_of_target() {
  static constexpr AllArithmeticKernels table{kernels_with<Binary16>(fma_binary16),
                                              kernels_with<BrainFloat16>(fma_brain_float16)};
  return table;
}

}  // namespace HWY_NAMESPACE
}  // namespace fp16lab::conversion_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp16lab {
namespace conversion_detail {
namespace {
HWY_EXPORT(arithmetic_kernels_of_target);

template <class F>
const ArithmeticKernels<F>& arithmetic_kernels() {
  return std::get<ArithmeticKernels<F>>(HWY_DYNAMIC_DISPATCH(arithmetic_kernels_of_target)());
}
}  // namespace
}  // namespace conversion_detail

namespace {

template <class F>
using Operand = std::span<const SmallFloat<F>>;
template <class F>
using Result = std::span<SmallFloat<F>>;

/// SmallFloat holds exactly its bits.
template <class F>
const typename F::Bits* words_of(Operand<F> codes, std::size_t first) {
  return reinterpret_cast<const typename F::Bits*>(codes.data()) + first;
}
template <class F>
typename F::Bits* words_of(Result<F> codes, std::size_t first) {
  return reinterpret_cast<typename F::Bits*>(codes.data()) + first;
}

template <class F, class Kernel>
void run_binary(const char* name, Kernel kernel, Operand<F> a, Operand<F> b, Result<F> out, int threads) {
  check_arrays(name, threads, {{"a", a.size()}, {"b", b.size()}, {"out", out.size()}});
  for_each_chunk(out.size(), threads, [&](std::size_t first, std::size_t count) {
    kernel(words_of<F>(a, first), words_of<F>(b, first), words_of<F>(out, first), count);
  });
}

}  // namespace

template <class F>
void add(Operand<F> a, Operand<F> b, Result<F> out, int threads) {
  run_binary<F>("add", conversion_detail::arithmetic_kernels<F>().add, a, b, out, threads);
}

template <class F>
void sub(Operand<F> a, Operand<F> b, Result<F> out, int threads) {
  run_binary<F>("sub", conversion_detail::arithmetic_kernels<F>().sub, a, b, out, threads);
}

template <class F>
void mul(Operand<F> a, Operand<F> b, Result<F> out, int threads) {
  run_binary<F>("mul", conversion_detail::arithmetic_kernels<F>().mul, a, b, out, threads);
}

template <class F>
void fma(Operand<F> a, Operand<F> b, Operand<F> c, Result<F> out, int threads) {
  check_arrays("fma", threads, {{"a", a.size()}, {"b", b.size()}, {"c", c.size()}, {"out", out.size()}});
  const auto kernel = conversion_detail::arithmetic_kernels<F>().fma;
  for_each_chunk(out.size(), threads, [&](std::size_t first, std::size_t count) {
    kernel(words_of<F>(a, first), words_of<F>(b, first), words_of<F>(c, first), words_of<F>(out, first),
           count);
  });
}

#define FP16LAB_ARITHMETIC(F)                                   \
  template void add<F>(Operand<F>, Operand<F>, Result<F>, int); \
  template void sub<F>(Operand<F>, Operand<F>, Result<F>, int); \
  template void mul<F>(Operand<F>, Operand<F>, Result<F>, int); \
  template void fma<F>(Operand<F>, Operand<F>, Operand<F>, Result<F>, int);

FP16LAB_ARITHMETIC(Binary16)
FP16LAB_ARITHMETIC(BrainFloat16)

#undef FP16LAB_ARITHMETIC

}  // namespace fp16lab
#endif
