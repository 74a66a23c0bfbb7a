// Exact decimals against the C library, which prints and reads binary floating-point numbers exactly and
// rounds them correctly (glibc), and against exact rationals.
#include "numerics/formats/decimal.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <boost/multiprecision/cpp_int.hpp>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string>

#include "numerics/formats/bits.hpp"

namespace fp16lab {
namespace {

using Rational = boost::multiprecision::cpp_rational;
using Integer = boost::multiprecision::cpp_int;

Decimal decimal_of(double x) { return Decimal(decode(SmallFloat<Binary64>::from_bits(bits_of(x)))); }

/// All digits of x by printf, in Decimal's layout.
std::string printed(double x) {
  std::array<char, 1200> text{};
  std::snprintf(text.data(), text.size(), "%.*e", 1080, x);
  std::string digits = text.data();
  const std::size_t e = digits.find('e');
  std::string exponent = digits.substr(e);
  digits.erase(e);
  digits.erase(digits.find_last_not_of('0') + 1);
  if (digits.back() == '.') digits.pop_back();
  return digits + exponent;
}

TEST(Decimal, WritesKnownValues) {
  const auto half = [](unsigned bits) {
    return Decimal(decode(Float16::from_bits(static_cast<std::uint16_t>(bits)))).to_string();
  };
  EXPECT_EQ(half(0x3c00), "1");
  EXPECT_EQ(half(0xbc00), "-1");
  EXPECT_EQ(half(0x7bff), "65504");
  EXPECT_EQ(half(0x0001), "5.9604644775390625e-08");
  EXPECT_EQ(half(0x2e66), "0.0999755859375");
  EXPECT_EQ(half(0x045e), "6.663799285888671875e-05");
  EXPECT_EQ(half(0x0000), "0");
  EXPECT_EQ(half(0x8000), "-0");
  EXPECT_EQ(decimal_of(1e20).to_string(), "100000000000000000000");
  EXPECT_EQ(decimal_of(1e22).to_string(), "1e+22");
  EXPECT_EQ(decimal_of(0.0001).to_string().substr(0, 22), "0.00010000000000000000");
}

/// Is no other number of the format nearer to what the C library reads, and none as near, but for an odd one?
template <class F>
bool reads_back(SmallFloat<F> x, const std::string& text) {
  const auto value = [](std::uint64_t bits) {
    const auto code = SmallFloat<F>::from_bits(static_cast<typename F::Bits>(bits));
    const Exact exact = decode(code);
    const double magnitude = std::ldexp(static_cast<double>(exact.significand), exact.exponent);
    return exact.kind == Exact::Kind::zero ? 0.0 : exact.sign ? -magnitude : magnitude;
  };
  const double read = std::strtod(text.c_str(), nullptr);
  const double distance = std::abs(read - value(x.bits()));
  for (const int step : {-1, 1}) {
    const std::uint64_t other = x.bits() + static_cast<std::uint64_t>(step);
    if ((x.bits() & F::magnitude_mask) + static_cast<std::uint64_t>(step) > F::max_finite) continue;
    const double others = std::abs(read - value(other));
    if (others < distance || (others == distance && x.bits() % 2 != 0)) return false;
  }
  return std::signbit(read) == ((x.bits() & F::sign_mask) != 0);
}

template <class F>
void expect_every_code_reads_back() {
  const RuntimeFormat format = RuntimeFormat::of<F>();
  std::string last;
  for (std::uint64_t bits = 0; bits <= format.magnitude_mask; ++bits) {
    const auto code = SmallFloat<F>::from_bits(static_cast<typename F::Bits>(bits));
    const std::string text = shortest_text(format, bits);
    if (!format.is_finite(bits)) {
      EXPECT_EQ(text, format.is_nan(bits) ? "nan" : "inf");
      continue;
    }
    ASSERT_TRUE(reads_back(code, text)) << F::width << " bits: " << std::hex << bits << ' ' << text;
    ASSERT_NE(text, last) << "neighbours";
    ASSERT_EQ(shortest_text(format, bits | format.sign_mask), "-" + text);
    last = text;
  }
}

/// The significant digits of a text, without the zeros at their ends.
std::string digits_in(std::string text) {
  text.erase(std::min(text.find('e'), text.size()));
  std::erase_if(text, [](char c) { return c == '.' || c == '-'; });
  text.erase(0, text.find_first_not_of('0'));
  return text.substr(0, text.find_last_not_of('0') + 1);
}

TEST(ShortestText, ReadsBackToTheSameCode) {
  expect_every_code_reads_back<Binary16>();
  expect_every_code_reads_back<BrainFloat16>();
  expect_every_code_reads_back<Fp8E4M3>();
  expect_every_code_reads_back<Fp8E5M2>();
  const RuntimeFormat single = RuntimeFormat::of<Binary32>(), wide = RuntimeFormat::of<Binary64>();
  std::mt19937_64 random(11);
  for (int i = 0; i < 5000; ++i) {
    const auto word = static_cast<std::uint32_t>(random());
    if (single.is_finite(word)) {
      const std::string text = shortest_text(single, word);
      ASSERT_EQ(bits_of(std::strtof(text.c_str(), nullptr)), word) << text;
    }
    const std::uint64_t bits = random();
    if (!wide.is_finite(bits)) continue;
    const std::string text = shortest_text(wide, bits);
    ASSERT_EQ(bits_of(std::strtod(text.c_str(), nullptr)), bits) << text;
    std::array<char, 40> shortest{};  // by the C++ library
    const auto end = std::to_chars(shortest.data(), shortest.data() + shortest.size(), double_from_bits(bits),
                                   std::chars_format::scientific);
    if (text == Decimal(wide.decode(bits)).to_string()) continue;  // all digits
    ASSERT_EQ(digits_in(text), digits_in(std::string(shortest.data(), end.ptr)));
  }
}

TEST(ShortestText, ShowsAllDigitsWhereTheyAreFew) {
  const RuntimeFormat half = RuntimeFormat::of<Binary16>(), single = RuntimeFormat::of<Binary32>();
  EXPECT_EQ(shortest_text(half, 0x7bff), "65504");
  EXPECT_EQ(shortest_text(half, 0x2e66), "0.1");
  EXPECT_EQ(shortest_text(half, 0x6801), "2050");
  EXPECT_EQ(shortest_text(single, 0x4b800001), "16777218");
  EXPECT_EQ(shortest_text(single, 0x3f7fffff), "0.99999994");
  EXPECT_EQ(shortest_text(RuntimeFormat::of<Fp8E4M3>(), 0x7e), "448");
}

TEST(Decimal, WritesEveryDigitThatPrintfWrites) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 2000; ++i) {
    const double x = double_from_bits(random() & Binary64::magnitude_mask);
    if (!(x > 0) || x > 1e308) continue;
    if (x > 1e-5 && x < 1e22) continue;  // plain notation: the test above
    ASSERT_EQ(decimal_of(x).to_string(), printed(x));
  }
  EXPECT_EQ(decimal_of(0x1p-1074).to_string(), printed(0x1p-1074));
}

TEST(Decimal, ReadsAsStrtodAndStrtofRound) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 20000; ++i) {
    // 1 to 40 random digits and an exponent that reaches below the subnormals and above the largest float.
    std::string text;
    const auto count = 1 + random() % 40;
    for (std::uint64_t d = 0; d < count; ++d) text += static_cast<char>('0' + random() % 10);
    if (random() % 2 == 0) text.insert(random() % text.size(), ".");
    text += "e" + std::to_string(static_cast<int>(random() % 120) - 80);
    const Exact exact = parse_number(text).value.to_exact();
    ASSERT_EQ(round_pack<Binary64>(exact, Rounding::nearest_even).bits(),
              bits_of(std::strtod(text.c_str(), nullptr)))
        << text;
    ASSERT_EQ(round_pack<Binary32>(exact, Rounding::nearest_even).bits(),
              bits_of(std::strtof(text.c_str(), nullptr)))
        << text;
  }
}

void expect_read_as_the_library_does(const std::string& text) {
  const Exact exact = parse_number(text).value.to_exact();
  EXPECT_EQ(round_pack<Binary64>(exact, Rounding::nearest_even).bits(),
            bits_of(std::strtod(text.c_str(), nullptr)))
      << text;
  EXPECT_EQ(round_pack<Binary32>(exact, Rounding::nearest_even).bits(),
            bits_of(std::strtof(text.c_str(), nullptr)))
      << text;
}

TEST(Decimal, ReadsTheHardCases) {
  // Inputs that hung or misled parsers (PHP bug 53632, Java bug 4421494), and the ends of both formats.
  for (const char* text : {"2.2250738585072011e-308",
                           "2.2250738585072012e-308",
                           "2.2250738585072014e-308",
                           "1.7976931348623157e308",
                           "1.7976931348623158e308",
                           "1.7976931348623159e308",
                           "1.797693134862315807e308",
                           "1.797693134862315808e308",
                           "4.9406564584124654e-324",
                           "2.4703282292062327e-324",
                           "2.4703282292062328e-324",
                           "9007199254740993",
                           "9007199254740992.99999999999999999999",
                           "9007199254740993.00000000000000000001",
                           "6.02214076e23",
                           "8.98846567431158e307",
                           "3.4028234e38",
                           "3.40282356e38",
                           "3.4028235677973366e38",
                           "3.4028235677973367e38",
                           "1.17549435e-38",
                           "1.17549421e-38",
                           "7.006492321624085e-46",
                           "7.0064923216240853e-46",
                           "7.0064923216240854e-46",
                           "16777217",
                           "16777217.0000000000000001",
                           "0.500000000000000166533453693773481063544750213623046875",
                           "1e-400",
                           "1e400",
                           "123456789012345678901234567890e-330"})
    expect_read_as_the_library_does(text);
}

TEST(Decimal, HalfwayCasesOfDoublesWithAllTheirDigits) {
  // Midpoints of adjacent doubles have up to 768 significant digits; one more digit after them decides.
  std::mt19937_64 random(17);
  for (int i = 0; i < 1000; ++i) {
    std::uint64_t bits = random() % Binary64::max_finite;
    if (i % 4 == 0) bits = random() % (Binary64::min_normal + 1000);  // subnormals: the longest expansions
    Exact middle = decode(SmallFloat<Binary64>::from_bits(bits));
    middle.kind = Exact::Kind::finite;
    if (bits == 0) middle.exponent = Binary64::exponent_of_min_subnormal;
    middle.significand = 2 * middle.significand + 1;
    --middle.exponent;
    const std::string text = Decimal(middle).to_string();
    expect_read_as_the_library_does(text);
    ASSERT_EQ(round_pack<Binary64>(parse_number(text).value.to_exact(), {}).bits(), bits + bits % 2) << text;
    // The digit goes in front of the exponent, after all others.
    std::string above = text;
    const std::size_t e = std::min(above.find('e'), above.size());
    above.insert(e, above.find('.') == std::string::npos ? ".0001" : "0001");
    ASSERT_EQ(round_pack<Binary64>(parse_number(above).value.to_exact(), {}).bits(), bits + 1) << above;
  }
}

TEST(Decimal, EveryHalfAndManyDoublesReadBackFromTheirDigits) {
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const auto half = Float16::from_bits(static_cast<std::uint16_t>(bits));
    const std::string text = Decimal(decode(half)).to_string();
    ASSERT_EQ(round_pack<Binary16>(parse_number(text).value.to_exact(), {}).bits(), bits) << text;
  }
  std::mt19937_64 random(19);
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t bits = random() % (Binary64::max_finite + 1);
    const std::string text = Decimal(decode(SmallFloat<Binary64>::from_bits(bits))).to_string();
    ASSERT_EQ(round_pack<Binary64>(parse_number(text).value.to_exact(), {}).bits(), bits) << text;
  }
  const std::string longest =
      Decimal(decode(SmallFloat<Binary64>::from_bits(Binary64::min_normal - 1))).to_string();
  EXPECT_EQ(std::count_if(longest.begin(), longest.begin() + static_cast<std::ptrdiff_t>(longest.find('e')),
                          [](char c) { return c != '.'; }),
            767)
      << "the largest subnormal has the longest expansion of all";
}

TEST(Decimal, RoundsDigitsAsPrintfDoes) {
  std::mt19937_64 random(23);
  std::array<char, 64> text{};
  for (int i = 0; i < 20000; ++i) {
    double x = double_from_bits(random());
    if (!std::isfinite(x)) continue;
    if (i % 2 == 0)
      x = std::ldexp(static_cast<double>(random() % 4096), static_cast<int>(random() % 40) - 20);  // ties
    const int digits = 1 + static_cast<int>(random() % 17);
    std::snprintf(text.data(), text.size(), "%.*g", digits, x);
    ASSERT_EQ(decimal_of(x).to_string(digits), text.data()) << digits;
  }
  EXPECT_EQ(decimal_of(9.9999999).to_string(7), "10");
  EXPECT_EQ(decimal_of(0.5).to_string(7), "0.5");
  EXPECT_EQ(decimal_of(-0.0).to_string(7), "-0");
  EXPECT_THROW(static_cast<void>(decimal_of(1).to_string(0)), std::invalid_argument);
}

TEST(Decimal, ScalesByPowersOfTwoExactly) {
  EXPECT_EQ(decimal_of(3).scaled_by_two(-2).to_string(), "0.75");
  EXPECT_EQ(decimal_of(-0.75).scaled_by_two(2).to_string(), "-3");
  EXPECT_EQ(decimal_of(0x1p-1074).scaled_by_two(1074).to_string(), "1");
  EXPECT_EQ(decimal_of(0).scaled_by_two(-5000).to_string(), "0");
}

TEST(Decimal, RoundsOnceWhereAPathThroughDoubleRoundsTwice) {
  // 1 + 2^-11 is the tie between the FP16 numbers 1 and 1 + 2^-10. Just above it by less than half a double's
  // ulp: a double would sit on the tie and round to even, down; the value itself rounds up.
  const std::string text = "1.00048828125000000000000000001";
  EXPECT_EQ(std::strtod(text.c_str(), nullptr), 1.00048828125);
  EXPECT_EQ(round_pack<Binary16>(parse_number(text).value.to_exact(), Rounding::nearest_even).bits(), 0x3c01);
  EXPECT_EQ(
      round_pack<Binary16>(parse_number("1.00048828125").value.to_exact(), Rounding::nearest_even).bits(),
      0x3c00);
}

TEST(Decimal, ReadsHexadecimalFloatsAndPowersOfTwo) {
  for (const char* text : {"0x1.8p-3", "0x10", "-0x.8p1", "0x1.fffffep127", "0x1p-149", "0xABCDEFp-200"})
    EXPECT_EQ(parse_number(text).value.to_double(), std::strtod(text, nullptr)) << text;
  EXPECT_EQ(parse_number("2^-24").value.to_double(), 0x1p-24);
  EXPECT_EQ(parse_number("-2^3").value.to_double(), -8.0);
  EXPECT_EQ(parse_number("-inf").kind, Exact::Kind::infinite);
  EXPECT_TRUE(parse_number("-inf").value.negative());
  EXPECT_EQ(parse_number("NaN").kind, Exact::Kind::nan);
  EXPECT_EQ(parse_number("-0").kind, Exact::Kind::zero);
  EXPECT_TRUE(parse_number("-0").value.negative());
}

TEST(Decimal, DifferencesAreExact) {
  const auto rational = [](double x) {
    int exponent = 0;
    const double fraction = std::frexp(x, &exponent);
    Rational value(static_cast<long long>(std::ldexp(fraction, 53)));
    exponent -= 53;
    const Rational power(Integer(1) << static_cast<unsigned>(std::abs(exponent)));
    return exponent < 0 ? Rational(value / power) : Rational(value * power);
  };
  std::mt19937_64 random(13);
  const auto draw = [&random] {
    const double magnitude =
        std::ldexp(static_cast<double>(random() >> 11), static_cast<int>(random() % 200) - 150);
    return random() % 2 == 0 ? magnitude : -magnitude;
  };
  for (int i = 0; i < 500; ++i) {
    const double a = draw();
    const double b = i % 10 == 0 ? a : draw();
    const Decimal difference = decimal_of(a) - decimal_of(b);
    // Back into a rational through all of its digits.
    const std::string text = difference.to_string();
    const std::size_t e = text.find('e');
    std::string digits = text.substr(0, e);
    long power = e == std::string::npos ? 0 : std::strtol(text.c_str() + e + 1, nullptr, 10);
    if (const std::size_t point = digits.find('.'); point != std::string::npos) {
      power -= static_cast<long>(digits.size() - point - 1);
      digits.erase(point, 1);
    }
    const bool negative = digits.front() == '-';
    if (negative) digits.erase(0, 1);
    digits.erase(0,
                 std::min(digits.find_first_not_of('0'), digits.size() - 1));  // cpp_int reads 0... as octal
    Rational value{Integer(digits)};
    Integer scale = 1;
    for (long p = 0; p < std::abs(power); ++p) scale *= 10;
    value = power < 0 ? Rational(value / scale) : Rational(value * scale);
    if (negative) value = -value;
    ASSERT_EQ(value, rational(a) - rational(b)) << a << " - " << b;
  }
  EXPECT_FALSE((decimal_of(-3) - decimal_of(-3)).negative()) << "x - x is +0";
}

TEST(Decimal, RefusesWhatIsNoNumber) {
  for (const char* text :
       {"", "-", "abc", "1e", "1.2.3", "0x", "0x1p", "1 ", " 1", "2^", "--1", "1e20001", "nanx", "."})
    EXPECT_THROW(parse_number(text), std::invalid_argument) << "'" << text << "'";
  EXPECT_THROW(parse_number(std::string(5000, '1')), std::invalid_argument);
  try {
    parse_number("1.5x");
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("'1.5x' is not a number: 'x' is left over"));
  }
}

}  // namespace
}  // namespace fp16lab
