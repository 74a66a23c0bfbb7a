// Binary floating-point formats as types with derived constants.
//
// Sources: IEEE 754-2019, 3.4 (binary interchange encodings) and table 3.5; OCP 8-bit Floating Point
// Specification (OFP8), revision 1.0, table 1; OCP Microscaling Formats (MX), version 1.0, 5.3 and 5.4; for
// the FNUZ formats Noune et al., "8-bit Numerical Formats for Deep Neural Networks", arXiv 2206.02915; for
// UE4M3 the PTX ISA, 5.2.3. A format is its number of exponent bits, its precision p (significant bits, the
// hidden one included) and which codes are numbers; everything else follows. No code writes 65504 or 2^-24 by
// hand.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace fp16lab {

/// Which codes are no signed numbers.
enum class Encoding {
  ieee,     ///< those with the largest exponent field are infinities and NaNs: IEEE 754, OFP8 E5M2
  numbers,  ///< the last code is NaN; no infinities: OFP8 E4M3
  finite,   ///< none: MX E2M1, E2M3, E3M2. What overflows, and NaN, becomes the largest number
  fnuz,     ///< that of -0 is NaN; no infinities, and the bias is one larger: E4M3FNUZ, E5M2FNUZ
  scale,    ///< no sign bit, and the last code is NaN: MX E8M0, UE4M3. A number is stored without its sign
};

constexpr std::array<std::string_view, 5> names_of(Encoding) {
  return {"ieee", "numbers", "finite", "fnuz", "scale"};
}

/// The constants of a binary format: a sign bit (but for scales), `exponent_bits` exponent bits,
/// `precision - 1` fraction bits. The smallest exponent field holds zeros and subnormals; with a precision of
/// 1, which has neither, it is an exponent as all others.
struct FormatConstants {
  constexpr FormatConstants(int exponent_bits, int precision, Encoding encoding);

  int exponent_bits;
  int precision;  ///< significant bits of a normal number
  Encoding encoding;
  bool has_sign, has_zero, has_infinity, has_nan;
  int fraction_bits;  ///< stored significand bits
  int width, bias;
  int emin;  ///< exponent of the smallest normal number
  int emax;  ///< exponent of the largest finite number
  int exponent_of_min_subnormal;

  std::uint64_t sign_mask, magnitude_mask, fraction_mask, exponent_mask, max_finite;
  /// The NaN that fp16lab stores for NaN: positive, all fraction bits set, as NVIDIA hardware produces it. Where
  /// the format has none, the largest number (PTX ISA, cvt to e2m1, e2m3 and e3m2). Overflow's: `infinity`.
  std::uint64_t canonical_nan;
  /// What overflow stores, with its sign. Without infinities it is the format's NaN (OFP8, non-saturating mode).
  std::uint64_t infinity;
  std::uint64_t min_normal;
  std::uint64_t min_subnormal;  ///< the smallest number above zero
  std::uint64_t quiet_bit;
};

constexpr FormatConstants::FormatConstants(int e, int p, Encoding codes)
    : exponent_bits(e),
      precision(p),
      encoding(codes),
      has_sign(codes != Encoding::scale),
      has_zero(p > 1),
      has_infinity(codes == Encoding::ieee),
      has_nan(codes != Encoding::finite),
      fraction_bits(p - 1),
      width((has_sign ? 1 : 0) + e + fraction_bits),
      bias((1 << (e - 1)) - (codes == Encoding::fnuz ? 0 : 1)),
      emin((has_zero ? 1 : 0) - bias),
      emax(0),
      exponent_of_min_subnormal(emin - fraction_bits),
      sign_mask(has_sign ? std::uint64_t{1} << (width - 1) : 0),
      magnitude_mask((std::uint64_t{1} << (e + fraction_bits)) - 1),
      fraction_mask((std::uint64_t{1} << fraction_bits) - 1),
      exponent_mask(magnitude_mask ^ fraction_mask),
      max_finite(has_infinity                                             ? exponent_mask - 1
                 : codes == Encoding::numbers || codes == Encoding::scale ? magnitude_mask - 1
                                                                          : magnitude_mask),
      canonical_nan(codes == Encoding::fnuz ? sign_mask : magnitude_mask),
      infinity(has_infinity ? exponent_mask : canonical_nan),
      min_normal(has_zero ? std::uint64_t{1} << fraction_bits : 0),
      min_subnormal(has_zero ? 1 : 0),
      quiet_bit((std::uint64_t{1} << fraction_bits) >> 1) {
  emax = static_cast<int>(max_finite >> fraction_bits) - bias;
}

/// A format as a type. Any pair of sizes is one, `Format<6, 10>` as well as those named below.
template <int ExponentBits, int Precision, Encoding Codes = Encoding::ieee>
struct Format {
  static_assert(ExponentBits >= 2 && ExponentBits <= 15 && ExponentBits + Precision <= 64);
  static_assert(Precision >= 2 || (Precision == 1 && Codes == Encoding::scale));

  static constexpr FormatConstants constants{ExponentBits, Precision, Codes};
  static constexpr int width = constants.width;
  using Bits =
      std::conditional_t<(width <= 8), std::uint8_t,
                         std::conditional_t<(width <= 16), std::uint16_t,
                                            std::conditional_t<(width <= 32), std::uint32_t, std::uint64_t>>>;

  static constexpr int exponent_bits = ExponentBits, precision = Precision;
  static constexpr Encoding encoding = Codes;
  static constexpr bool has_sign = constants.has_sign, has_zero = constants.has_zero,
                        has_infinity = constants.has_infinity, has_nan = constants.has_nan;
  static constexpr int fraction_bits = constants.fraction_bits, bias = constants.bias, emin = constants.emin,
                       emax = constants.emax, exponent_of_min_subnormal = constants.exponent_of_min_subnormal;
  static constexpr Bits sign_mask = static_cast<Bits>(constants.sign_mask),
                        magnitude_mask = static_cast<Bits>(constants.magnitude_mask),
                        fraction_mask = static_cast<Bits>(constants.fraction_mask),
                        exponent_mask = static_cast<Bits>(constants.exponent_mask),
                        max_finite = static_cast<Bits>(constants.max_finite),
                        canonical_nan = static_cast<Bits>(constants.canonical_nan),
                        infinity = static_cast<Bits>(constants.infinity),
                        min_normal = static_cast<Bits>(constants.min_normal),
                        min_subnormal = static_cast<Bits>(constants.min_subnormal),
                        quiet_bit = static_cast<Bits>(constants.quiet_bit);
};

using Binary16 = Format<5, 11>;
using BrainFloat16 = Format<8, 8>;
using TensorFloat32 = Format<8, 11>;  ///< 19 significant bit positions; stored here in its own 19-bit code
using Binary32 = Format<8, 24>;
using Binary64 = Format<11, 53>;
using Fp8E4M3 = Format<4, 4, Encoding::numbers>;
using Fp8E5M2 = Format<5, 3>;
using Fp8E4M3Fnuz = Format<4, 4, Encoding::fnuz>;
using Fp8E5M2Fnuz = Format<5, 3, Encoding::fnuz>;
using Fp6E2M3 = Format<2, 4, Encoding::finite>;
using Fp6E3M2 = Format<3, 3, Encoding::finite>;
using Fp4E2M1 = Format<2, 2, Encoding::finite>;
using ScaleE8M0 = Format<8, 1, Encoding::scale>;
using ScaleUE4M3 = Format<4, 4, Encoding::scale>;

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
// OCP MX, tables 1, 2 and 7 to 9; ml_dtypes for FNUZ.
static_assert(Fp8E4M3Fnuz::bias == 8 && Fp8E4M3Fnuz::emax == 7 && Fp8E4M3Fnuz::max_finite == 0x7f &&
              Fp8E4M3Fnuz::canonical_nan == 0x80 && Fp8E4M3Fnuz::infinity == 0x80);
static_assert(Fp8E5M2Fnuz::bias == 16 && Fp8E5M2Fnuz::emax == 15 && Fp8E5M2Fnuz::max_finite == 0x7f);
static_assert(Fp6E2M3::width == 6 && Fp6E2M3::bias == 1 && Fp6E2M3::emax == 2 && Fp6E2M3::max_finite == 0x1f);
static_assert(Fp6E3M2::width == 6 && Fp6E3M2::bias == 3 && Fp6E3M2::emax == 4 && Fp6E3M2::emin == -2);
static_assert(Fp4E2M1::width == 4 && Fp4E2M1::emax == 2 && Fp4E2M1::emin == 0 && Fp4E2M1::max_finite == 7 &&
              Fp4E2M1::infinity == 7);
static_assert(ScaleE8M0::width == 8 && ScaleE8M0::emin == -127 && ScaleE8M0::emax == 127 &&
              ScaleE8M0::max_finite == 0xfe && ScaleE8M0::canonical_nan == 0xff);
static_assert(ScaleUE4M3::width == 7 && ScaleUE4M3::emax == 8 && ScaleUE4M3::max_finite == 0x7e &&
              ScaleUE4M3::sign_mask == 0);

}  // namespace fp16lab
