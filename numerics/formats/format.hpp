// Binary floating-point formats as types with derived constants.
//
// Source: IEEE 754-2019, 3.4 (binary interchange encodings) and table 3.5; OCP 8-bit Floating Point
// Specification (OFP8), revision 1.0, table 1 for E4M3. A format is its number of exponent bits, its
// precision p (significant bits, the hidden one included) and what its largest exponent field means;
// everything else follows. No code writes 65504 or 2^-24 by hand.
#pragma once

#include <cstdint>
#include <type_traits>

namespace fp16lab {

/// What the codes with the largest exponent field are.
enum class TopBinade {
  specials,  ///< infinities and NaNs: every IEEE 754 format, OFP8 E5M2
  numbers,   ///< numbers, but for the last code, the one NaN; no infinities: OFP8 E4M3
};

/// A binary format: 1 sign bit, `ExponentBits` exponent bits, `Precision - 1` fraction bits. The smallest
/// exponent field holds zeros and subnormals. Any pair of sizes is a format, `Format<6, 10>` as well as those
/// named below.
template <int ExponentBits, int Precision, TopBinade Top = TopBinade::specials>
struct Format {
  static_assert(ExponentBits >= 2 && ExponentBits <= 15 && Precision >= 2 && ExponentBits + Precision <= 64);

  static constexpr int exponent_bits = ExponentBits;
  static constexpr int precision = Precision;          ///< significant bits of a normal number
  static constexpr int fraction_bits = Precision - 1;  ///< stored significand bits
  static constexpr int width = 1 + exponent_bits + fraction_bits;

  using Bits =
      std::conditional_t<(width <= 8), std::uint8_t,
                         std::conditional_t<(width <= 16), std::uint16_t,
                                            std::conditional_t<(width <= 32), std::uint32_t, std::uint64_t>>>;

  static constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  static constexpr bool has_infinity = Top == TopBinade::specials;
  static constexpr int emax = has_infinity ? bias : bias + 1;  ///< exponent of the largest finite number
  static constexpr int emin = 1 - bias;                        ///< exponent of the smallest normal number
  static constexpr int exponent_of_min_subnormal = emin - fraction_bits;

  static constexpr Bits sign_mask = static_cast<Bits>(Bits{1} << (width - 1));
  static constexpr Bits fraction_mask = static_cast<Bits>((std::uint64_t{1} << fraction_bits) - 1);
  static constexpr Bits magnitude_mask = static_cast<Bits>(sign_mask - 1);
  static constexpr Bits exponent_mask = static_cast<Bits>(magnitude_mask ^ fraction_mask);

  /// What overflow stores. Formats without infinities store their NaN instead (OFP8, non-saturating mode).
  static constexpr Bits infinity = has_infinity ? exponent_mask : magnitude_mask;
  static constexpr Bits max_finite = static_cast<Bits>(infinity - 1);
  static constexpr Bits min_normal = static_cast<Bits>(std::uint64_t{1} << fraction_bits);
  static constexpr Bits min_subnormal = 1;
  static constexpr Bits quiet_bit = static_cast<Bits>(std::uint64_t{1} << (fraction_bits - 1));
  /// The one NaN that fp16lab stores: positive, all fraction bits set, as NVIDIA hardware produces it.
  static constexpr Bits canonical_nan = magnitude_mask;
};

using Binary16 = Format<5, 11>;
using BrainFloat16 = Format<8, 8>;
using TensorFloat32 = Format<8, 11>;  ///< 19 significant bit positions; stored here in its own 19-bit code
using Binary32 = Format<8, 24>;
using Binary64 = Format<11, 53>;
using Fp8E4M3 = Format<4, 4, TopBinade::numbers>;
using Fp8E5M2 = Format<5, 3>;

// IEEE 754-2019, table 3.5, and OFP8, table 1.
static_assert(Binary16::emax == 15 && Binary16::emin == -14 && Binary16::exponent_of_min_subnormal == -24);
static_assert(Binary16::max_finite == 0x7bff && Binary16::infinity == 0x7c00 &&
              Binary16::canonical_nan == 0x7fff);
static_assert(BrainFloat16::emax == 127 && BrainFloat16::max_finite == 0x7f7f &&
              BrainFloat16::canonical_nan == 0x7fff);
static_assert(TensorFloat32::width == 19 && TensorFloat32::emin == -126 &&
              TensorFloat32::exponent_of_min_subnormal == -136);
static_assert(Binary32::emax == 127 && Binary32::emin == -126 &&
              Binary32::exponent_of_min_subnormal == -149 && Binary32::max_finite == 0x7f7fffff &&
              Binary32::canonical_nan == 0x7fffffff);
static_assert(Binary64::emax == 1023 && Binary64::emin == -1022 &&
              Binary64::exponent_of_min_subnormal == -1074);
static_assert(Fp8E4M3::width == 8 && Fp8E4M3::bias == 7 && Fp8E4M3::emax == 8 && Fp8E4M3::emin == -6 &&
              Fp8E4M3::exponent_of_min_subnormal == -9 && Fp8E4M3::max_finite == 0x7e &&
              Fp8E4M3::canonical_nan == 0x7f);
static_assert(Fp8E5M2::width == 8 && Fp8E5M2::bias == 15 && Fp8E5M2::emax == 15 && Fp8E5M2::emin == -14 &&
              Fp8E5M2::exponent_of_min_subnormal == -16 && Fp8E5M2::max_finite == 0x7b &&
              Fp8E5M2::infinity == 0x7c);

}  // namespace fp16lab
