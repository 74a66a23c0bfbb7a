// How an operation rounds: direction, options and exception flags, as arguments and never as global state.
#pragma once

#include <cstdint>

#include "numerics/platform/portability.hpp"

namespace fp16lab {

/// The rounding-direction attributes of IEEE 754-2019, 4.3, and stochastic rounding.
enum class Rounding {
  nearest_even,  ///< roundTiesToEven: the default everywhere
  toward_zero,   ///< roundTowardZero: truncation of the magnitude
  upward,        ///< roundTowardPositive
  downward,      ///< roundTowardNegative
  nearest_away,  ///< roundTiesToAway
  /// Away from zero with a probability of the discarded fraction of the last place (Croci et al., "Stochastic
  /// rounding", Royal Society Open Science 9, 2022), decided by explicit random bits. Overflows to infinity.
  stochastic,
};

/// The five directions that IEEE 754 defines.
inline constexpr Rounding all_roundings[] = {Rounding::nearest_even, Rounding::toward_zero, Rounding::upward,
                                             Rounding::downward, Rounding::nearest_away};

constexpr const char* name_of(Rounding rounding) {
  switch (rounding) {
    case Rounding::nearest_even:
      return "nearest_even";
    case Rounding::toward_zero:
      return "toward_zero";
    case Rounding::upward:
      return "upward";
    case Rounding::downward:
      return "downward";
    case Rounding::nearest_away:
      return "nearest_away";
    case Rounding::stochastic:
      return "stochastic";
  }
  return "?";
}

/// When a result counts as tiny, which together with inexact raises underflow (IEEE 754-2019, 7.5): x86 and
/// RISC-V detect it after rounding, ARM before.
enum class Tininess { after_rounding, before_rounding };

/// Everything that may change the bits or the flags of one operation. A bare `Rounding` converts to it.
struct ArithmeticOptions {
  Rounding rounding = Rounding::nearest_even;
  Tininess tininess = Tininess::after_rounding;
  bool flush_inputs = false;   ///< subnormal operands count as zeros of their sign (DAZ; PTX .ftz)
  bool flush_results = false;  ///< subnormal results become zeros of their sign, inexactly (FTZ; PTX .ftz)
  bool saturate = false;       ///< results beyond the largest finite number, infinity included, become it
  /// Stochastic rounding: the magnitude rounds up exactly if floor(2^32 * discarded fraction) + random_bits
  /// >= 2^32. Uniform bits therefore round up with that probability, to within 2^-32.
  std::uint32_t random_bits = 0;

  constexpr ArithmeticOptions() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a rounding direction is the common way to say options
  FP16LAB_HD constexpr ArithmeticOptions(Rounding direction) : rounding(direction) {}
};

/// Exception flags of IEEE 754-2019, 7. Functions that take a pointer to them or into it and never clear;
/// null: no flags.
struct ExceptionFlags {
  bool invalid = false;
  bool divide_by_zero = false;
  bool overflow = false;
  bool underflow = false;  ///< inexact and tiny (see Tininess)
  bool inexact = false;

  bool operator==(const ExceptionFlags&) const = default;
};

}  // namespace fp16lab
