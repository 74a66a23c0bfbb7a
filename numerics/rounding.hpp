// The rounding-direction attributes of IEEE 754-2019, 4.3.
#pragma once

namespace fp16lab {

enum class Rounding {
  nearest_even,  ///< roundTiesToEven: the default everywhere
  toward_zero,   ///< roundTowardZero: truncation of the magnitude
  upward,        ///< roundTowardPositive
  downward,      ///< roundTowardNegative
  nearest_away,  ///< roundTiesToAway
};

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
  }
  return "?";
}

}  // namespace fp16lab
