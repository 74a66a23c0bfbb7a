// Conversions between formats, scalar (the definition) and array (fast, same bits).
//
// NaNs: a NaN becomes the target format's canonical NaN, as by NVIDIA's cvt and unlike F16C, which keeps sign and payload;
// overflow in a format without infinities becomes its NaN with the sign. Infinities and signed zeros are preserved.
#pragma once

#include <cstdint>
#include <ranges>
#include <span>

#include "numerics/arithmetic/round_pack.hpp"
#include "numerics/formats/rounding.hpp"
#include "numerics/formats/small_float.hpp"
#include "numerics/random/philox.hpp"

namespace fp16lab {

/// Correctly rounded conversion between any two formats (IEEE 754-2019, 5.4.2 formatOf-convertFormat).
template <class To, class From>
FP16LAB_HD constexpr SmallFloat<To> convert(SmallFloat<From> x, const ArithmeticOptions& options = {},
                                            ExceptionFlags* flags = nullptr) {
  if (flags != nullptr && x.is_signaling_nan()) flags->invalid = true;
  Exact exact = decode(x);
  if (options.flush_inputs && x.is_subnormal()) exact.kind = Exact::Kind::zero;
  return round_pack<To>(exact, options, flags);
}

/// The same for a host/device float, through its bits.
template <class To>
FP16LAB_HD constexpr SmallFloat<To> narrow(float x, const ArithmeticOptions& options = {}) {
  return convert<To>(SmallFloat<Binary32>::from_bits(bits_of(x)), options);
}

/// Exact: every number of these formats is an FP32 number. NaN becomes 0x7fffffff.
template <class From>
FP16LAB_HD constexpr float widen(SmallFloat<From> x) {
  static_assert(From::precision <= Binary32::precision && From::exponent_bits <= Binary32::exponent_bits);
  return float_from_bits(convert<Binary32>(x).bits());
}

// Array forms: vectorised for the current CPU, element for element the bits of the scalar form. Sizes must
// agree and threads be at least 1 (std::invalid_argument); source and destination must not overlap; `threads`
// changes speed, never bits. To is a format narrower than FP32 (FP16LAB_LOW_FORMATS), from FP64 also
// Binary32. Name it, narrow<Binary16>(floats, halves), unless the destination is a span, which says it.
//
// TensorFloat32 codes are 19 bits in a 32-bit word; the register that tensor cores read is code << 13.

/// to[i] = convert<To>(from[i], options). Rounding::stochastic: all use options.random_bits, by default 0, which truncates.
template <class To>
void narrow(std::span<const float> from, std::span<SmallFloat<To>> to, const ArithmeticOptions& options = {},
            int threads = 1);
template <class To>
void narrow(std::span<const double> from, std::span<SmallFloat<To>> to, const ArithmeticOptions& options = {},
            int threads = 1);

/// Stochastic rounding with random_bits = random_words[i] for element i. The rounding direction and the
/// random bits of `options` are not used.
template <class To>
void narrow_stochastic(std::span<const float> from, std::span<SmallFloat<To>> to,
                       std::span<const std::uint32_t> random_words, ArithmeticOptions options = {},
                       int threads = 1);

/// The same with 16 random bits an element: random_bits is half number first_index + i of the stream, in its
/// upper half, where the halves of the stream are those of word(0), word(1), ..., lower half first. A pure
/// function of the stream and of the element's logical index, however the array is cut into calls or threads.
/// The probability of rounding away is the discarded fraction cut to a multiple of 2^-16: exact for normal
/// FP16 and BF16 results, at most 2^-16 too small otherwise, so that less than 2^-16 of the smallest
/// subnormal always becomes zero.
template <class To>
void narrow_stochastic(std::span<const float> from, std::span<SmallFloat<To>> to, const PhiloxStream& stream,
                       std::uint64_t first_index = 0, ArithmeticOptions options = {}, int threads = 1);

/// to[i] = widen(from[i]), exact.
template <class From>
void widen(std::span<const SmallFloat<From>> from, std::span<float> to, int threads = 1);

/// The same for any contiguous range of codes.
template <std::ranges::contiguous_range Codes>
requires requires { typename std::ranges::range_value_t<Codes>::Format; }
void widen(const Codes& from, std::span<float> to, int threads = 1) {
  widen(std::span<const std::ranges::range_value_t<Codes>>(from), to, threads);
}

}  // namespace fp16lab
