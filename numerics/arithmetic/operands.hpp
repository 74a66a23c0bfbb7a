// What every operation does with its operands before it computes: flush subnormals, signal signalling NaNs.
#pragma once

#include "numerics/formats/rounding.hpp"
#include "numerics/formats/small_float.hpp"
#include "numerics/platform/portability.hpp"

namespace fp16lab {

/// Raises flags that the caller may not have asked for.
FP16LAB_HD constexpr void raise_invalid(ExceptionFlags* flags) {
  if (flags != nullptr) flags->invalid = true;
}

/// Every signalling NaN among the operands raises invalid (IEEE 754-2019, 6.2).
template <class... F>
FP16LAB_HD constexpr void signal_nans(ExceptionFlags* flags, SmallFloat<F>... operands) {
  if ((operands.is_signaling_nan() || ...)) raise_invalid(flags);
}

/// The operand as the operation sees it: with `flush_inputs` a subnormal is the zero of its sign, and no flag
/// shows it.
template <class F>
FP16LAB_HD constexpr SmallFloat<F> operand(SmallFloat<F> x, const ArithmeticOptions& options) {
  if (!options.flush_inputs || !x.is_subnormal()) return x;
  return SmallFloat<F>::from_bits(static_cast<typename F::Bits>(x.bits() & F::sign_mask));
}

}  // namespace fp16lab
