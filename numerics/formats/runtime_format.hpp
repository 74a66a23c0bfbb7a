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
struct RuntimeFormat : FormatConstants {
  /// std::invalid_argument unless 2 <= exponent_bits <= 15, 2 <= precision, exponent_bits + precision <= 64;
  /// a precision of 1 is possible for a scale.
  RuntimeFormat(int exponent_bits, int precision, Encoding encoding = Encoding::ieee);

  template <class F>
  static RuntimeFormat of() {
    return RuntimeFormat(F::exponent_bits, F::precision, F::encoding);
  }

  Exact decode(std::uint64_t bits) const { return decode_bits(*this, bits); }
  std::uint64_t round(const Exact& exact, const ArithmeticOptions& options = {},
                      ExceptionFlags* flags = nullptr) const {
    return round_bits(*this, exact, options, flags);
  }

  bool is_nan(std::uint64_t bits) const { return decode(bits).kind == Exact::Kind::nan; }
  bool is_finite(std::uint64_t bits) const {
    const Exact::Kind kind = decode(bits).kind;
    return kind == Exact::Kind::zero || kind == Exact::Kind::finite;
  }

  /// As next_up_bits and next_down_bits of numerics/arithmetic/comparison.hpp.
  std::uint64_t next_up(std::uint64_t bits) const;
  std::uint64_t next_down(std::uint64_t bits) const;
};

}  // namespace fp16lab
