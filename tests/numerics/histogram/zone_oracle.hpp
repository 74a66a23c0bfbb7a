// The zones of every format written down by hand, and the zone of one value decided in rationals.
#pragma once

#include <cmath>
#include <vector>

#include "numerics/formats/format_range.hpp"
#include "tests/support/exact_rounding.hpp"

namespace fp16lab::oracle {

struct FormatZones {
  const char* name;
  FormatRange range;
  Rational tie, smallest_normal, threshold;
  bool threshold_overflows;
  int precision;

  /// The zone of a magnitude above zero. 0: rounds to zero, 1: subnormal, 2: normal, 3: overflows.
  int zone_of(const Rational& y) const {
    if (y <= tie) return 0;
    if (y < smallest_normal) return 1;
    return y < threshold || (y == threshold && !threshold_overflows) ? 2 : 3;
  }
};

inline const std::vector<FormatZones>& all_formats() {
  // Largest finite numbers: 65504, (2 - 2^-7) 2^127, 448, 57344, (2 - 2^-23) 2^127; thresholds are half a
  // place above.
  static const std::vector<FormatZones> formats{
      {"f16", FormatRange::of<Binary16>(), power_of_two(-25), power_of_two(-14), 65520, true, 11},
      {"bf16", FormatRange::of<BrainFloat16>(), power_of_two(-134), power_of_two(-126),
       power_of_two(128) - power_of_two(119), true, 8},
      {"e4m3", FormatRange::of<Fp8E4M3>(), power_of_two(-10), power_of_two(-6), 464, false, 4},
      {"e5m2", FormatRange::of<Fp8E5M2>(), power_of_two(-17), power_of_two(-14), 61440, true, 3},
      {"f32", FormatRange::of<Binary32>(), power_of_two(-150), power_of_two(-126),
       power_of_two(128) - power_of_two(103), true, 24}};
  return formats;
}

}  // namespace fp16lab::oracle
