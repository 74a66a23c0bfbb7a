// The cost of rounding given values to few bits: sums of squared errors, for every format below FP32 at every
// power-of-two scale, from one pass. In a format of p bits a value of the binade [2^e, 2^(e+1)) keeps p
// significant bits where it is a normal number, fewer where it is a subnormal one, and none where it becomes
// zero: which of them, the scale decides, but for each number of bits the error is a fact about the value.
// Nothing rounds before the end, so merging is addition, and neither chunks nor threads show.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "numerics/arithmetic/fixed_point_sum.hpp"
#include "numerics/formats/format_range.hpp"

namespace fp16lab {

class RoundingErrors {
 public:
  /// FP16's bits; every format below FP32 keeps at most as many.
  static constexpr int most_bits = 11;
  /// Values of one call of add: sums of so many squares fit into 128 bits.
  static constexpr std::size_t most_values = std::size_t{1} << 16;

  /// Values that are zero, infinite or NaN have no error. std::invalid_argument beyond most_values.
  template <class T>  // float, double
  void add(std::span<const T> values);
  RoundingErrors& operator+=(const RoundingErrors& other);

  struct Squares {
    double error = 0;  ///< error of rounding to nearest even, overflow left aside
    double lost = 0;   ///< the part of it that becomes zero
    double plain = 0;  ///< with an unlimited exponent
    /// The same as expected of values whose last bits are spread evenly: a twelfth of the spacing's square
    /// each.
    double expected_plain = 0;
  };
  /// In units of the values, each binade's sum rounded once. `range.precision` <= most_bits
  /// (std::invalid_argument). FP64's subnormal numbers count as lost at every scale.
  Squares squares(const FormatRange& range, int log2_scale) const;

  bool operator==(const RoundingErrors&) const = default;

 private:
  /// The errors of one binade, in units of the last place of FP64 in it, squared: [b]: rounded to b bits,
  /// where 0 bits leave 0 and 2^(e+1); the last one: the values themselves. At most 2^64 squares of 2^106.
  struct Sums {
    std::uint64_t count = 0;
    std::array<FixedPointSum<0, 3>, most_bits + 2> squares{};
    bool operator==(const Sums&) const = default;
  };
  std::map<std::uint32_t, Sums> binades_;  ///< by FP64's exponent field
};

}  // namespace fp16lab
