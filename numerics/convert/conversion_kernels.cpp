// The inner loops of array conversions, compiled once per instruction set (foreach_target).
#include "numerics/convert/conversion_kernels.hpp"

#include "numerics/convert/convert.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/convert/conversion_kernels.cpp"
#include "numerics/platform/highway_targets.hpp"
// clang-format off: the order is Highway's protocol
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "numerics/arithmetic/array_loop-inl.h"
#include "numerics/convert/narrow-inl.h"
#include "numerics/convert/widen-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace fp16lab::conversion_detail {
namespace HWY_NAMESPACE {
namespace {

/// kernel(to + i, from + i, the random word of each lane).
template <class Kernel, class To>
void with_random_bits(const Kernel& kernel, std::size_t n, To* to, const float* from, RandomBits random) {
  const Tag<Binary32> d;
  const hn::Rebind<std::uint16_t, Tag<Binary32>> half;
  if (random.words != nullptr)
    transform(
        [=](To* code, const float* x, const std::uint32_t* word) { kernel(code, x, hn::LoadU(d, word)); }, n,
        hn::Lanes(d), to, from, random.words);
  else
    transform(
        [=](To* code, const float* x, const std::uint16_t* upper) {
          kernel(code, x, hn::ShiftLeft<16>(hn::PromoteTo(d, hn::LoadU(half, upper))));
        },
        n, hn::Lanes(d), to, from, random.halves);
}

/// One step of narrow_by_integers.
template <class To, class From, Decision decision, bool flush>
struct NarrowByIntegers {
  HWY_INLINE void operator()(typename To::Bits* code, const Hardware<From>* x, Vec<From> word) const {
    const auto bits = hn::BitCast(Tag<From>(), hn::LoadU(hn::ScalableTag<Hardware<From>>(), x));
    hn::StoreU(packed<To, From>(narrow(bits, word)), CodeTag<To, From>(), code);
  }
  Narrow<To, From, decision, flush> narrow;
};

template <class To, class From, Decision decision, bool flush>
void narrow_by_integers(const Hardware<From>* from, typename To::Bits* to, std::size_t n,
                        const ArithmeticOptions& options, RandomBits random) {
  const NarrowByIntegers<To, From, decision, flush> kernel{Narrow<To, From, decision, flush>(options)};
  if constexpr (decision == Decision::stochastic && std::is_same_v<From, Binary32>) {
    with_random_bits(kernel, n, to, from, random);
  } else {
    const Tag<From> d;
    const Vec<From> same_word = hn::Set(d, options.random_bits);
    transform([=](typename To::Bits* code, const Hardware<From>* x) { kernel(code, x, same_word); }, n,
              hn::Lanes(d), to, from);
  }
}

template <class To, class From, bool flush>
void narrow_in_direction(const Hardware<From>* from, typename To::Bits* to, std::size_t n,
                         const ArithmeticOptions& options, RandomBits random) {
  switch (options.rounding) {
    case Rounding::nearest_even:
    case Rounding::nearest_away:
      return narrow_by_integers<To, From, Decision::nearest, flush>(from, to, n, options, random);
    case Rounding::toward_zero:
    case Rounding::upward:
    case Rounding::downward:
      return narrow_by_integers<To, From, Decision::directed, flush>(from, to, n, options, random);
    case Rounding::stochastic:
      return narrow_by_integers<To, From, Decision::stochastic, flush>(from, to, n, options, random);
  }
}

#if FP16LAB_HAVE_HALF_CONVERSION
template <int immediate>
void narrow_by_instruction(const float* from, std::uint16_t* to, std::size_t n) {
  const hn::ScalableTag<float> d;
  const NarrowByInstruction<immediate> narrow;
  transform([=](std::uint16_t* code,
                const float* x) { hn::StoreU(narrow(hn::LoadU(d, x)), CodeTag<Binary16, Binary32>(), code); },
            n, hn::Lanes(d), to, from);
}

#if HWY_TARGET <= HWY_AVX3
void narrow_half_stochastically(const float* from, std::uint16_t* to, std::size_t n, RandomBits random) {
  const hn::ScalableTag<float> d;
  const NarrowHalfStochastic narrow;
  with_random_bits(
      [=](std::uint16_t* code, const float* x, Vec<Binary32> word) {
        hn::StoreU(narrow(hn::LoadU(d, x), word), CodeTag<Binary16, Binary32>(), code);
      },
      n, to, from, random);
}
#endif

/// False where only integers will do. Denormals-are-zero must be off (FloatingPointScope): these instructions
/// honour it, and 2^-149 rounded upward would give zero.
bool narrow_half_by_instruction(const float* from, std::uint16_t* to, std::size_t n,
                                const ArithmeticOptions& options, [[maybe_unused]] RandomBits random) {
  if (options.flush_inputs || options.flush_results || options.saturate) return false;
  switch (options.rounding) {
    case Rounding::nearest_even:
      narrow_by_instruction<_MM_FROUND_TO_NEAREST_INT>(from, to, n);
      return true;
    case Rounding::toward_zero:
      narrow_by_instruction<_MM_FROUND_TO_ZERO>(from, to, n);
      return true;
    case Rounding::upward:
      narrow_by_instruction<_MM_FROUND_TO_POS_INF>(from, to, n);
      return true;
    case Rounding::downward:
      narrow_by_instruction<_MM_FROUND_TO_NEG_INF>(from, to, n);
      return true;
    case Rounding::nearest_away:
      return false;
    case Rounding::stochastic:
#if HWY_TARGET <= HWY_AVX3
      if (random.halves == nullptr) return false;
      narrow_half_stochastically(from, to, n, random);
      return true;
#else
      return false;
#endif
  }
  return false;
}
#endif

/// Formats that trainings narrow FP32 to have loops without the two comparisons of flushing; others share one.
template <class To, class From>
constexpr bool has_loop_without_flushing = std::is_same_v<From, Binary32> &&
                                           (std::is_same_v<To, Binary16> ||
                                            std::is_same_v<To, BrainFloat16> || std::is_same_v<To, Fp8E4M3> ||
                                            std::is_same_v<To, Fp8E5M2> || std::is_same_v<To, Fp4E2M1>);

template <class To, class From>
void narrow_array(const Hardware<From>* from, typename To::Bits* to, std::size_t n,
                  const ArithmeticOptions& options, RandomBits random) {
#if FP16LAB_HAVE_HALF_CONVERSION
  if constexpr (std::is_same_v<To, Binary16> && std::is_same_v<From, Binary32>) {
    if (narrow_half_by_instruction(from, to, n, options, random)) return;
  }
#endif
  if constexpr (!To::has_zero) {  // scales are few
    for (std::size_t i = 0; i < n; ++i) {
      ArithmeticOptions own = options;
      if (random.words != nullptr) own.random_bits = random.words[i];
      if (random.halves != nullptr) own.random_bits = std::uint32_t{random.halves[i]} << 16;
      to[i] = convert<To>(SmallFloat<From>::from_bits(bits_of(from[i])), own).bits();
    }
  } else {
    if constexpr (has_loop_without_flushing<To, From>)
      if (!options.flush_inputs && !options.flush_results)
        return narrow_in_direction<To, From, false>(from, to, n, options, random);
    narrow_in_direction<To, From, true>(from, to, n, options, random);
  }
}

template <class From>
void widen_array(const typename From::Bits* from, float* to, std::size_t n) {
  const hn::ScalableTag<float> d;
  const Widen<From> widen;
  transform(
      [=](float* x, const typename From::Bits* code) {
        hn::StoreU(widen(hn::LoadU(CodeTag<From, Binary32>(), code)), d, x);
      },
      n, hn::Lanes(d), to, from);
}

template <class To, class From>
constexpr void put(NarrowKernel<To, From>& kernel) {
  kernel.run = narrow_array<To, From>;
}
template <class From>
constexpr void put(WidenKernel<From>& kernel) {
  kernel.run = widen_array<From>;
}

constexpr Kernels all_kernels() {
  Kernels kernels{};
  std::apply([](auto&... kernel) { (put(kernel), ...); }, kernels);
  return kernels;
}

}  // namespace

const Kernels& kernels_of_target() {
  static constexpr Kernels table = all_kernels();
  return table;
}

}  // namespace HWY_NAMESPACE
}  // namespace fp16lab::conversion_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp16lab::conversion_detail {
HWY_EXPORT(kernels_of_target);
const Kernels& kernels() { return HWY_DYNAMIC_DISPATCH(kernels_of_target)(); }
}  // namespace fp16lab::conversion_detail
#endif
