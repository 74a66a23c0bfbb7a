// A floating-point format chosen at run time, for tools that take "6,10" from their user.
//
// Codes are uint64_t. Arithmetic and everything fast uses the types of numerics/formats/format.hpp; both
// round in the same place (numerics/arithmetic/round_pack.hpp).
#pragma once

#include <cstdint>

#include "numerics/arithmetic/round_pack.hpp"
#include "numerics/formats/format.hpp"

namespace fp16lab {

/// The constants of Format under the same names, as values.
struct RuntimeFormat {
  /// std::invalid_argument unless 2 <= exponent_bits <= 15, 2 <= precision, exponent_bits + precision <= 64.
  RuntimeFormat(int exponent_bits, int precision, TopBinade top = TopBinade::specials);

  template <class F>
  static RuntimeFormat of() {
    return RuntimeFormat(F::exponent_bits, F::precision,
                         F::has_infinity ? TopBinade::specials : TopBinade::numbers);
  }

  int exponent_bits;
  int precision;
  bool has_infinity;
  int fraction_bits, width, bias, emax, emin, exponent_of_min_subnormal;
  std::uint64_t sign_mask, magnitude_mask, fraction_mask, exponent_mask;
  std::uint64_t infinity, max_finite, min_normal, min_subnormal, quiet_bit, canonical_nan;

  Exact decode(std::uint64_t bits) const { return decode_bits(*this, bits); }
  std::uint64_t round(const Exact& exact, const ArithmeticOptions& options = {},
                      ExceptionFlags* flags = nullptr) const {
    return round_bits(*this, exact, options, flags);
  }

  bool is_nan(std::uint64_t bits) const { return decode(bits).kind == Exact::Kind::nan; }
  bool is_finite(std::uint64_t bits) const { return (bits & magnitude_mask) <= max_finite; }

  /// As next_up and next_down of numerics/arithmetic/comparison.hpp: the greatest number is its own
  /// neighbour, and a NaN gives the canonical one.
  std::uint64_t next_up(std::uint64_t bits) const;
  std::uint64_t next_down(std::uint64_t bits) const;
};

}  // namespace fp16lab
