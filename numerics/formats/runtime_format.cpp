#include "numerics/formats/runtime_format.hpp"

#include <stdexcept>
#include <string>

namespace fp16lab {
namespace {

void check(int exponent_bits, int precision) {
  if (exponent_bits < 2 || exponent_bits > 15)
    throw std::invalid_argument("format: " + std::to_string(exponent_bits) +
                                " exponent bits; 2 to 15 are possible");
  if (precision < 2 || exponent_bits + precision > 64)
    throw std::invalid_argument("format: a precision of " + std::to_string(precision) + " bits with " +
                                std::to_string(exponent_bits) + " exponent bits; 2 to " +
                                std::to_string(64 - exponent_bits) + " are possible");
}

}  // namespace

// The definitions are those of Format, where the sources are.
RuntimeFormat::RuntimeFormat(int exponent_bits_, int precision_, TopBinade top)
    : exponent_bits((check(exponent_bits_, precision_), exponent_bits_)),
      precision(precision_),
      has_infinity(top == TopBinade::specials),
      fraction_bits(precision - 1),
      width(1 + exponent_bits + fraction_bits),
      bias((1 << (exponent_bits - 1)) - 1),
      emax(has_infinity ? bias : bias + 1),
      emin(1 - bias),
      exponent_of_min_subnormal(emin - fraction_bits),
      sign_mask(std::uint64_t{1} << (width - 1)),
      magnitude_mask(sign_mask - 1),
      fraction_mask((std::uint64_t{1} << fraction_bits) - 1),
      exponent_mask(magnitude_mask ^ fraction_mask),
      infinity(has_infinity ? exponent_mask : magnitude_mask),
      max_finite(infinity - 1),
      min_normal(std::uint64_t{1} << fraction_bits),
      min_subnormal(1),
      quiet_bit(std::uint64_t{1} << (fraction_bits - 1)),
      canonical_nan(magnitude_mask) {}

std::uint64_t RuntimeFormat::next_up(std::uint64_t bits) const {
  if (is_nan(bits)) return canonical_nan;
  if ((bits & magnitude_mask) == 0) return min_subnormal;
  if ((bits & sign_mask) != 0) return bits - 1;
  return bits == (has_infinity ? infinity : max_finite) ? bits : bits + 1;
}

std::uint64_t RuntimeFormat::next_down(std::uint64_t bits) const {
  return is_nan(bits) ? canonical_nan : next_up(bits ^ sign_mask) ^ sign_mask;
}

}  // namespace fp16lab
