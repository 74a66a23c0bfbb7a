// Array conversions FP32 <-> FP16, vectorised for every instruction set that Highway knows and dispatched at
// run time.
//
// Rounding to nearest even uses the CPU's own conversion where there is one (F16C, AVX-512): it is correctly
// rounded and keeps subnormals, only its NaNs differ and are repaired. Everything else is the integer form of
// round_pack. This file compiles itself once per instruction set (foreach_target).
#include "numerics/convert.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <stdexcept>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/convert.cpp"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include <hwy/highway.h>

#undef FP16LAB_HAVE_HALF_CONVERSION
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
#define FP16LAB_HAVE_HALF_CONVERSION 1
#else
#define FP16LAB_HAVE_HALF_CONVERSION 0
#endif

HWY_BEFORE_NAMESPACE();
namespace fp16lab::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using BitsTag = hn::RebindToUnsigned<FloatTag>;
using IntTag = hn::RebindToSigned<FloatTag>;
using HalfBitsTag = hn::Rebind<std::uint16_t, FloatTag>;
using HalfTag = hn::Rebind<hwy::float16_t, FloatTag>;

using FloatVector = hn::Vec<FloatTag>;
using BitsVector = hn::Vec<BitsTag>;
using HalfBitsVector = hn::Vec<HalfBitsTag>;

constexpr int dropped_bits = Binary32::fraction_bits - Binary16::fraction_bits;
constexpr std::uint32_t exponent_rebias = Binary32::bias - Binary16::bias;

BitsVector constant(std::uint32_t value) { return hn::Set(BitsTag(), value); }

/// round_pack<Binary16> for FP32 operands, lane by lane, without branches: one constant is added below the
/// last place and the sum is cut. All quantities are integers, so FTZ and DAZ could not touch them.
template <Rounding rounding>
struct NarrowByIntegers {
  HalfBitsVector operator()(FloatVector x) const {
    const BitsTag du;
    const BitsVector bits = hn::BitCast(du, x);
    const BitsVector magnitude = hn::And(bits, constant(Binary32::magnitude_mask));
    const BitsVector negative = hn::ShiftRight<31>(bits);  // 0 or 1
    const BitsVector field = hn::ShiftRight<Binary32::fraction_bits>(magnitude);

    // Significand with its hidden one, unless the FP32 number is itself subnormal (then it is far below 2^-25
    // and only counts as "something"). The last place is 13 bits up, more for subnormal results; 25 drops
    // every bit.
    const BitsVector hidden = hn::IfThenZeroElse(hn::Eq(field, constant(0)), constant(Binary32::min_normal));
    const BitsVector significand = hn::Or(hn::And(magnitude, constant(Binary32::fraction_mask)), hidden);
    const BitsVector lowest_field = constant(Binary32::bias + Binary16::emin);
    const BitsVector clamped_field = hn::Max(field, lowest_field);
    const BitsVector shift = hn::Min(hn::Add(constant(dropped_bits), hn::Sub(clamped_field, field)),
                                     constant(Binary32::precision + 1));

    // What to add before cutting: half a last place (for ties to even one less, plus the last kept bit), a
    // whole last place less one (directed away from zero), or nothing.
    const BitsVector one = constant(1);
    const BitsVector below = hn::Sub(hn::Shl(one, shift), one);
    const BitsVector half = hn::Shl(one, hn::Sub(shift, one));
    BitsVector addend = constant(0);
    if constexpr (rounding == Rounding::nearest_even)
      addend = hn::Add(hn::Sub(half, one), hn::And(hn::Shr(significand, shift), one));
    if constexpr (rounding == Rounding::nearest_away) addend = half;
    if constexpr (rounding == Rounding::upward) addend = hn::IfThenZeroElse(hn::Eq(negative, one), below);
    if constexpr (rounding == Rounding::downward) addend = hn::IfThenElseZero(hn::Eq(negative, one), below);
    const BitsVector kept = hn::Shr(hn::Add(significand, addend), shift);

    // The kept hidden one moves the exponent field up by one, a carry by another one.
    BitsVector result =
        hn::Add(kept, hn::ShiftLeft<Binary16::fraction_bits>(hn::Sub(clamped_field, lowest_field)));
    BitsVector largest = constant(Binary16::infinity);  // what overflow gives
    if constexpr (rounding == Rounding::toward_zero) largest = constant(Binary16::max_finite);
    if constexpr (rounding == Rounding::upward) largest = hn::Sub(largest, negative);
    if constexpr (rounding == Rounding::downward) largest = hn::Sub(largest, hn::Xor(negative, one));
    result = hn::Min(result, largest);

    result = hn::Or(result, hn::ShiftLeft<15>(negative));
    const auto is_infinite = hn::Eq(magnitude, constant(Binary32::infinity));
    const BitsVector signed_infinity = hn::Or(constant(Binary16::infinity), hn::ShiftLeft<15>(negative));
    result = hn::IfThenElse(is_infinite, signed_infinity, result);
    result = hn::IfThenElse(hn::Gt(magnitude, constant(Binary32::infinity)),
                            constant(Binary16::canonical_nan), result);
    return hn::DemoteTo(HalfBitsTag(),
                        hn::BitCast(IntTag(), result));  // results are at most 0xffff: no saturation
  }
};

#if FP16LAB_HAVE_HALF_CONVERSION
FloatVector with_canonical_nan(FloatVector x) {
  return hn::IfThenElse(hn::IsNaN(x), hn::BitCast(FloatTag(), constant(Binary32::canonical_nan)), x);
}

struct NarrowByInstruction {
  HalfBitsVector operator()(FloatVector x) const {
    return hn::BitCast(HalfBitsTag(), hn::DemoteTo(HalfTag(), with_canonical_nan(x)));
  }
};
using NarrowNearestEven = NarrowByInstruction;

struct Widen {
  FloatVector operator()(HalfBitsVector x) const {
    return with_canonical_nan(hn::PromoteTo(FloatTag(), hn::BitCast(HalfTag(), x)));
  }
};
#else
using NarrowNearestEven = NarrowByIntegers<Rounding::nearest_even>;

struct Widen {
  FloatVector operator()(HalfBitsVector x) const {
    const FloatTag df;
    const BitsTag du;
    const BitsVector bits = hn::PromoteTo(du, x);
    const BitsVector sign = hn::ShiftLeft<16>(hn::And(bits, constant(Binary16::sign_mask)));
    const BitsVector magnitude = hn::And(bits, constant(Binary16::magnitude_mask));
    const BitsVector normal =
        hn::Add(hn::ShiftLeft<dropped_bits>(magnitude), constant(exponent_rebias << Binary32::fraction_bits));
    // A subnormal is its fraction as an integer, times 2^-24: both steps are exact.
    const FloatVector fraction = hn::ConvertTo(df, hn::BitCast(IntTag(), magnitude));
    const FloatVector unit = hn::Set(
        df,
        float_from_bits((Binary32::bias + Binary16::exponent_of_min_subnormal) << Binary32::fraction_bits));
    const BitsVector subnormal = hn::BitCast(du, hn::Mul(fraction, unit));
    BitsVector result = hn::IfThenElse(hn::Lt(magnitude, constant(Binary16::min_normal)), subnormal, normal);
    result =
        hn::IfThenElse(hn::Eq(magnitude, constant(Binary16::infinity)), constant(Binary32::infinity), result);
    result = hn::Or(result, sign);
    result = hn::IfThenElse(hn::Gt(magnitude, constant(Binary16::infinity)),
                            constant(Binary32::canonical_nan), result);
    return hn::BitCast(df, result);
  }
};
#endif

FloatVector load(const float* from) { return hn::LoadU(FloatTag(), from); }
HalfBitsVector load(const std::uint16_t* from) { return hn::LoadU(HalfBitsTag(), from); }
void store(FloatVector x, float* to) { hn::StoreU(x, FloatTag(), to); }
void store(HalfBitsVector x, std::uint16_t* to) { hn::StoreU(x, HalfBitsTag(), to); }

/// Applies a lane-wise kernel to n elements; the tail goes through a whole vector of its own.
template <class Kernel, class From, class To>
void transform(const From* from, To* to, std::size_t n, Kernel kernel) {
  const std::size_t lanes = hn::Lanes(FloatTag());
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) store(kernel(load(from + i)), to + i);
  if (i == n) return;
  std::array<From, HWY_MAX_BYTES / sizeof(float)> tail_from{};
  std::array<To, HWY_MAX_BYTES / sizeof(float)> tail_to{};
  std::memcpy(tail_from.data(), from + i, (n - i) * sizeof(From));
  store(kernel(load(tail_from.data())), tail_to.data());
  std::memcpy(to + i, tail_to.data(), (n - i) * sizeof(To));
}

}  // namespace

void narrow_array(const float* from, std::uint16_t* to, std::size_t n, Rounding rounding) {
  switch (rounding) {
    case Rounding::nearest_even:
      return transform(from, to, n, NarrowNearestEven());
    case Rounding::toward_zero:
      return transform(from, to, n, NarrowByIntegers<Rounding::toward_zero>());
    case Rounding::upward:
      return transform(from, to, n, NarrowByIntegers<Rounding::upward>());
    case Rounding::downward:
      return transform(from, to, n, NarrowByIntegers<Rounding::downward>());
    case Rounding::nearest_away:
      return transform(from, to, n, NarrowByIntegers<Rounding::nearest_away>());
  }
}

void widen_array(const std::uint16_t* from, float* to, std::size_t n) { transform(from, to, n, Widen()); }

}  // namespace fp16lab::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp16lab {
namespace {

HWY_EXPORT(narrow_array);
HWY_EXPORT(widen_array);

/// Elements per piece of work. Fixed, so that it never depends on the number of threads; 1.5 MiB of traffic
/// each.
constexpr std::size_t chunk = std::size_t{1} << 18;

void check(const char* name, std::size_t from, std::size_t to, int threads) {
  if (from != to)
    throw std::invalid_argument(
        fmt::format("{}: source has {} elements and destination {}; they must agree", name, from, to));
  if (threads < 1)
    throw std::invalid_argument(fmt::format("{}: threads is {}; at least 1 is needed", name, threads));
}

template <class Body>
void for_each_chunk(std::size_t n, int threads, const Body& body) {
  if (threads == 1 || n <= chunk) {  // not by an `if` clause: a team of one costs as much as 3000 elements
    if (n > 0) body(std::size_t{0}, n);
    return;
  }
  const std::size_t chunks = (n + chunk - 1) / chunk;
#pragma omp parallel for schedule(static) num_threads(threads)
  for (std::size_t i = 0; i < chunks; ++i) body(i * chunk, std::min(chunk, n - i * chunk));
}

}  // namespace

void narrow(std::span<const float> from, std::span<Float16> to, Rounding rounding, int threads) {
  check("narrow", from.size(), to.size(), threads);
  auto* const words = reinterpret_cast<std::uint16_t*>(to.data());  // SmallFloat holds exactly its bits
  const auto kernel = HWY_DYNAMIC_DISPATCH(narrow_array);
  for_each_chunk(from.size(), threads, [&](std::size_t first, std::size_t count) {
    kernel(from.data() + first, words + first, count, rounding);
  });
}

void widen(std::span<const Float16> from, std::span<float> to, int threads) {
  check("widen", from.size(), to.size(), threads);
  const auto* const words = reinterpret_cast<const std::uint16_t*>(from.data());
  const auto kernel = HWY_DYNAMIC_DISPATCH(widen_array);
  for_each_chunk(from.size(), threads, [&](std::size_t first, std::size_t count) {
    kernel(words + first, to.data() + first, count);
  });
}

}  // namespace fp16lab
#endif  // HWY_ONCE
