// Exact decimal numbers: what a user types and what a bit pattern is worth, with nothing rounded in between.
//
// Every binary floating-point number is m * 2^e, and 2^-k = 5^k * 10^-k, so its decimal expansion is finite.
// Typed decimals are finite by nature. So both have one type, differences between them (rounding errors) are
// exact, and rounding a typed decimal to a format happens once: parsing into a double first would round
// twice.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "numerics/arithmetic/round_pack.hpp"
#include "numerics/formats/runtime_format.hpp"

namespace fp16lab {

/// (-1)^sign * coefficient * 10^exponent with a coefficient of any length. Zero keeps its sign.
class Decimal {
 public:
  Decimal() = default;  ///< +0
  /// The value of a zero or finite `exact` without sticky bit; std::invalid_argument otherwise.
  explicit Decimal(const Exact& exact);

  bool negative() const { return negative_; }
  bool is_zero() const { return limbs_.empty(); }

  /// The leading 64 significant bits, and in `sticky` whether anything follows: all that round_pack needs for
  /// every format of up to 62 bits of precision.
  Exact to_exact() const;
  /// Rounded to nearest even. For ratios and plots, never for bits that matter.
  double to_double() const;

  Decimal negated() const;
  Decimal magnitude() const;
  Decimal operator-(const Decimal& other) const;  ///< exact; x - x = +0
  Decimal scaled_by_two(int exponent) const;      ///< times 2^exponent, exactly

  /// All digits: "0.1", "65504", "6.663799285888671875e-05". Scientific where the decimal exponent is below
  /// -4 or above 20, with at least two exponent digits as printf writes them.
  std::string to_string() const;
  /// Correctly rounded to at most `significant` digits (>= 1; ties to even), as printf's "%.{significant}g".
  std::string to_string(int significant) const;
  /// The power of ten of the first significant digit: 4 of 65504, -2 of 0.05; 0 of zero.
  int leading() const { return is_zero() ? 0 : digits().leading; }

 private:
  friend struct DecimalParser;
  friend std::string shortest_text(const RuntimeFormat& format, std::uint64_t bits);
  /// The significant digits without leading and trailing zeros, and the power of ten of the first one.
  struct Digits {
    std::string text;
    int leading = 0;
  };
  Digits digits() const;
  static Digits rounded(Digits digits, int significant);
  std::string layout(const Digits& digits, int max_plain) const;

  std::vector<std::uint32_t> limbs_;  ///< coefficient, base 2^32, least significant first, no leading zeros
  int exponent_ = 0;
  bool negative_ = false;
};

/// The value of a code in the fewest correctly rounded digits that read back to this code, so that it and its
/// neighbours never print alike; all of its digits where they are no more than some number of the format
/// needs (FP16: 5, so 65504 and not 65500). "inf", "-inf" and "nan" are those. Laid out as
/// Decimal::to_string().
std::string shortest_text(const RuntimeFormat& format, std::uint64_t bits);

/// A number as a user writes it.
struct ParsedNumber {
  Exact::Kind kind = Exact::Kind::zero;  ///< never a NaN payload: NaN is NaN
  Decimal value;                         ///< zero and finite; its sign also counts for infinity

  Exact to_exact() const;  ///< what round_pack takes
};

/// Accepts decimals ("-1.5e-8", ".5"), hexadecimal floats ("0x1.8p-3", "0x10"), powers of two ("2^-24",
/// "-2^3"), "inf"/"infinity" and "nan", case-insensitive, with an optional sign. Throws std::invalid_argument
/// saying what is wrong; so do more than 4096 digits or an exponent beyond +-20000.
ParsedNumber parse_number(std::string_view text);

}  // namespace fp16lab
