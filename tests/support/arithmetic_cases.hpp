// Operands that decide about arithmetic: interesting exponents crossed with interesting significands.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "tests/support/arithmetic_oracle.hpp"

namespace fp16lab::cases {

/// Codes of a format, both signs: zero, the ends of the subnormals, of the binades at both ends of the range
/// and around 1, with all fraction bits, none, the first, the last, and patterns between; infinities, quiet
/// and signalling NaNs.
inline std::vector<std::uint64_t> corner_codes(const oracle::Sizes& sizes) {
  const int fraction_bits = sizes.precision - 1;
  const std::uint64_t hidden = std::uint64_t{1} << fraction_bits;
  const std::uint64_t last_field = (std::uint64_t{1} << sizes.exponent_bits) - 1;
  const std::uint64_t bias = last_field / 2;
  const std::uint64_t p = static_cast<std::uint64_t>(sizes.precision);
  std::vector<std::uint64_t> codes;
  for (const std::uint64_t field : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2}, bias - 1, bias,
                                    bias + 1, bias + p, bias - p, bias + p / 2, last_field - 1, last_field})
    for (const std::uint64_t fraction : {std::uint64_t{0}, std::uint64_t{1}, hidden / 2, hidden / 2 + 1,
                                         hidden - 1, hidden - 2, hidden / 3, hidden / 4 * 3})
      if (field <= last_field) codes.push_back(field * hidden + fraction % hidden);
  std::sort(codes.begin(), codes.end());
  codes.erase(std::unique(codes.begin(), codes.end()), codes.end());
  const std::size_t positive = codes.size();
  for (std::size_t i = 0; i < positive; ++i) codes.push_back(codes[i] | sizes.sign_mask());
  return codes;
}

/// A random code: any bits, or an exponent near that of `other` so that sums cancel, significands often
/// short.
inline std::uint64_t random_code(const oracle::Sizes& sizes, std::mt19937_64& engine, std::uint64_t other) {
  const std::uint64_t mask = 2 * sizes.sign_mask() - 1;
  const std::uint64_t word = engine();
  const std::uint64_t kind = word >> 60;
  if (kind < 6) return engine() & mask;
  std::uint64_t fraction = engine() & ((std::uint64_t{1} << (sizes.precision - 1)) - 1);
  // NOLINTNEXTLINE(misc-redundant-expression): two draws, so that three of four bits are zero
  if (kind % 2 == 0) fraction &= engine() & engine();
  if (kind % 4 == 1) fraction &= ~((std::uint64_t{1} << (sizes.precision / 2)) - 1);
  const std::uint64_t last_field = (std::uint64_t{1} << sizes.exponent_bits) - 1;
  const std::uint64_t field = ((other >> (sizes.precision - 1)) + word % 7 - 3) & last_field;
  return ((word & 1024) != 0 ? sizes.sign_mask() : 0) | (field << (sizes.precision - 1)) | fraction;
}

}  // namespace fp16lab::cases
