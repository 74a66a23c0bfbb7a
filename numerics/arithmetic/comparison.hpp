// Comparisons, minima and maxima, neighbours and the total order of one format's numbers.
//
// Source: IEEE 754-2019, 5.3.1 (nextUp, nextDown), 5.6.1 and 5.11 (comparisons), 5.10 (totalOrder), 9.6
// (minimum and maximum). Nothing here rounds. Only the option `flush_inputs` has a meaning here.
#pragma once

#include <cstdint>

#include "numerics/arithmetic/operands.hpp"
#include "numerics/arithmetic/round_pack.hpp"
#include "numerics/formats/rounding.hpp"
#include "numerics/formats/small_float.hpp"

namespace fp16lab {

/// Exactly one of these holds between two numbers; zeros of both signs are equal, a NaN is unordered with
/// everything.
enum class Relation : std::uint8_t { less, equal, greater, unordered };

/// The codes of a sign-magnitude format as integers that ascend with the value; the two zeros differ by one.
template <class F>
FP16LAB_HD constexpr std::int64_t ascending_code(SmallFloat<F> x) {
  const auto magnitude = static_cast<std::int64_t>(x.magnitude());
  return x.sign() ? -magnitude - 1 : magnitude;
}

/// compareQuiet...: a signalling NaN raises invalid.
template <class F>
FP16LAB_HD constexpr Relation compare_quiet(SmallFloat<F> a, SmallFloat<F> b,
                                            const ArithmeticOptions& options = {},
                                            ExceptionFlags* flags = nullptr) {
  signal_nans(flags, a, b);
  if (a.is_nan() || b.is_nan()) return Relation::unordered;
  a = operand(a, options);
  b = operand(b, options);
  if (a.bits() == b.bits() || (a.is_zero() && b.is_zero())) return Relation::equal;
  return ascending_code(a) < ascending_code(b) ? Relation::less : Relation::greater;
}

/// compareSignaling...: any NaN raises invalid.
template <class F>
FP16LAB_HD constexpr Relation compare_signaling(SmallFloat<F> a, SmallFloat<F> b,
                                                const ArithmeticOptions& options = {},
                                                ExceptionFlags* flags = nullptr) {
  const Relation relation = compare_quiet(a, b, options);
  if (relation == Relation::unordered) raise_invalid(flags);
  return relation;
}

// The predicates of the languages' operators: == is quiet, < and <= signal (IEEE 754-2019, table 5.1 and
// 5.2); > and >= are these with the operands exchanged. The variants of the other kind name it.

template <class F>
FP16LAB_HD constexpr bool equal(SmallFloat<F> a, SmallFloat<F> b, const ArithmeticOptions& options = {},
                                ExceptionFlags* flags = nullptr) {
  return compare_quiet(a, b, options, flags) == Relation::equal;
}

template <class F>
FP16LAB_HD constexpr bool equal_signaling(SmallFloat<F> a, SmallFloat<F> b,
                                          const ArithmeticOptions& options = {},
                                          ExceptionFlags* flags = nullptr) {
  return compare_signaling(a, b, options, flags) == Relation::equal;
}

template <class F>
FP16LAB_HD constexpr bool less(SmallFloat<F> a, SmallFloat<F> b, const ArithmeticOptions& options = {},
                               ExceptionFlags* flags = nullptr) {
  return compare_signaling(a, b, options, flags) == Relation::less;
}

template <class F>
FP16LAB_HD constexpr bool less_quiet(SmallFloat<F> a, SmallFloat<F> b, const ArithmeticOptions& options = {},
                                     ExceptionFlags* flags = nullptr) {
  return compare_quiet(a, b, options, flags) == Relation::less;
}

template <class F>
FP16LAB_HD constexpr bool less_equal(SmallFloat<F> a, SmallFloat<F> b, const ArithmeticOptions& options = {},
                                     ExceptionFlags* flags = nullptr) {
  const Relation relation = compare_signaling(a, b, options, flags);
  return relation == Relation::less || relation == Relation::equal;
}

template <class F>
FP16LAB_HD constexpr bool less_equal_quiet(SmallFloat<F> a, SmallFloat<F> b,
                                           const ArithmeticOptions& options = {},
                                           ExceptionFlags* flags = nullptr) {
  const Relation relation = compare_quiet(a, b, options, flags);
  return relation == Relation::less || relation == Relation::equal;
}

template <class F>
FP16LAB_HD constexpr bool unordered(SmallFloat<F> a, SmallFloat<F> b, const ArithmeticOptions& options = {},
                                    ExceptionFlags* flags = nullptr) {
  return compare_quiet(a, b, options, flags) == Relation::unordered;
}

/// totalOrder(a, b): a is below b or the same code, where -NaN < -Inf < ... < -0 < +0 < ... < +Inf < +NaN and
/// payloads order NaNs of one sign, signalling ones nearer to the numbers.
template <class F>
FP16LAB_HD constexpr bool total_order(SmallFloat<F> a, SmallFloat<F> b) {
  return ascending_code(a) <= ascending_code(b);
}

/// minimum: the lesser operand, -0 below +0; NaN if either is a NaN.
template <class F>
FP16LAB_HD constexpr SmallFloat<F> minimum(SmallFloat<F> a, SmallFloat<F> b,
                                           const ArithmeticOptions& options = {},
                                           ExceptionFlags* flags = nullptr) {
  signal_nans(flags, a, b);
  if (a.is_nan() || b.is_nan()) return SmallFloat<F>::from_bits(F::canonical_nan);
  a = operand(a, options);
  b = operand(b, options);
  return ascending_code(a) < ascending_code(b) ? a : b;
}

/// maximum: the greater operand, +0 above -0; NaN if either is a NaN.
template <class F>
FP16LAB_HD constexpr SmallFloat<F> maximum(SmallFloat<F> a, SmallFloat<F> b,
                                           const ArithmeticOptions& options = {},
                                           ExceptionFlags* flags = nullptr) {
  signal_nans(flags, a, b);
  if (a.is_nan() || b.is_nan()) return SmallFloat<F>::from_bits(F::canonical_nan);
  a = operand(a, options);
  b = operand(b, options);
  return ascending_code(a) > ascending_code(b) ? a : b;
}

/// minimumNumber: as `minimum`, but a number beats a NaN (a signalling one still raises invalid).
template <class F>
FP16LAB_HD constexpr SmallFloat<F> minimum_number(SmallFloat<F> a, SmallFloat<F> b,
                                                  const ArithmeticOptions& options = {},
                                                  ExceptionFlags* flags = nullptr) {
  signal_nans(flags, a, b);
  if (a.is_nan() && !b.is_nan()) return operand(b, options);
  if (b.is_nan() && !a.is_nan()) return operand(a, options);
  return minimum(a, b, options);
}

/// maximumNumber: as `maximum`, but a number beats a NaN (a signalling one still raises invalid).
template <class F>
FP16LAB_HD constexpr SmallFloat<F> maximum_number(SmallFloat<F> a, SmallFloat<F> b,
                                                  const ArithmeticOptions& options = {},
                                                  ExceptionFlags* flags = nullptr) {
  signal_nans(flags, a, b);
  if (a.is_nan() && !b.is_nan()) return operand(b, options);
  if (b.is_nan() && !a.is_nan()) return operand(a, options);
  return maximum(a, b, options);
}

/// nextUp of a code: the least number of format `f` above it, zeros of both signs being one number (-0 is
/// below the least positive number). The greatest number is its own neighbour: +Inf, or in a format without
/// infinities the largest finite number. NaN gives the canonical NaN.
template <class F>
FP16LAB_HD constexpr std::uint64_t next_up_bits(const F& f, std::uint64_t bits) {
  const Exact::Kind kind = decode_bits(f, bits).kind;
  if (kind == Exact::Kind::nan) return f.canonical_nan;
  if (kind == Exact::Kind::zero) return f.min_subnormal;
  if (bits == (f.has_infinity ? f.infinity : f.max_finite)) return bits;
  if ((bits & f.sign_mask) == 0) return bits + 1;
  return f.encoding == Encoding::fnuz && bits - 1 == f.sign_mask ? 0 : bits - 1;
}

/// nextDown(x) = -nextUp(-x). The least scale is its own neighbour.
template <class F>
FP16LAB_HD constexpr std::uint64_t next_down_bits(const F& f, std::uint64_t bits) {
  const Exact::Kind kind = decode_bits(f, bits).kind;
  if (kind == Exact::Kind::nan) return f.canonical_nan;
  if (kind == Exact::Kind::zero) return f.has_sign ? f.sign_mask | f.min_subnormal : bits;
  if ((bits & f.sign_mask) == 0) return bits == 0 ? bits : bits - 1;
  return (bits & f.magnitude_mask) == (f.has_infinity ? f.infinity : f.max_finite) ? bits : bits + 1;
}

/// The same for typed codes.
template <class F>
FP16LAB_HD constexpr SmallFloat<F> next_up(SmallFloat<F> x, ExceptionFlags* flags = nullptr) {
  signal_nans(flags, x);
  return SmallFloat<F>::from_bits(static_cast<typename F::Bits>(next_up_bits(F{}, x.bits())));
}
template <class F>
FP16LAB_HD constexpr SmallFloat<F> next_down(SmallFloat<F> x, ExceptionFlags* flags = nullptr) {
  signal_nans(flags, x);
  return SmallFloat<F>::from_bits(static_cast<typename F::Bits>(next_down_bits(F{}, x.bits())));
}

}  // namespace fp16lab
