// Array conversions against the scalar definition, and against exact rationals where that alone would leave
// both wrong together: every format, direction and option, every instruction set, odd lengths, threads, and
// floating-point modes that must not matter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include "numerics/convert/convert.hpp"
#include "tests/support/cases.hpp"
#include "tests/support/exact_rounding.hpp"
#include "tests/support/instruction_sets.hpp"
#include "tests/support/message_of.hpp"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace fp16lab {
namespace {

using testing_support::for_each_instruction_set;
using testing_support::message_of;

template <class T>
using FormatOf = std::conditional_t<std::is_same_v<T, float>, Binary32, Binary64>;

/// Magnitudes at which a result in format F can change: at every exponent of F, its first and last numbers
/// and the midpoints beside them, with their neighbours in T; then the ends of T, infinity and NaN.
template <class F, class T>
std::vector<T> corners() {
  using Source = FormatOf<T>;
  std::vector<typename Source::Bits> magnitudes = {0,
                                                   1,
                                                   2,
                                                   Source::min_normal - 1,
                                                   Source::min_normal,
                                                   Source::min_normal + 1,
                                                   Source::max_finite,
                                                   Source::infinity,
                                                   Source::infinity + 1,
                                                   Source::canonical_nan,
                                                   Source::infinity | Source::quiet_bit};
  const int lowest = std::max(F::exponent_of_min_subnormal - 40, Source::exponent_of_min_subnormal);
  for (int exponent = lowest; exponent <= std::min(F::emax + 2, Source::emax); ++exponent)
    for (const int last_place :
         {F::fraction_bits - 1, F::fraction_bits, F::fraction_bits + 1, F::fraction_bits + 2})
      for (const int places : {0, 1, 2, 3}) {
        for (const T significand :
             {T(1) + std::ldexp(T(places), -last_place), T(2) - std::ldexp(T(places), -last_place),
              T(1.5) + std::ldexp(T(places), -last_place)}) {
          const T x = std::ldexp(significand, exponent);
          if (!(x > 0 && std::isfinite(x))) continue;
          const auto bits = bits_of(x);
          for (const auto near : {bits - 1, bits, bits + 1}) magnitudes.push_back(near);
        }
      }
  std::vector<T> result;
  for (const auto magnitude : magnitudes)
    for (const auto sign : {typename Source::Bits{0}, Source::sign_mask}) {
      const auto bits = static_cast<typename Source::Bits>(magnitude | sign);
      if constexpr (sizeof(T) == sizeof(float))
        result.push_back(float_from_bits(bits));
      else
        result.push_back(double_from_bits(bits));
    }
  return result;
}

template <class T>
void append_random_patterns(std::vector<T>& values, int count, std::uint32_t seed) {
  std::mt19937_64 engine(seed);
  for (int i = 0; i < count; ++i)
    if constexpr (sizeof(T) == sizeof(float))
      values.push_back(float_from_bits(static_cast<std::uint32_t>(engine())));
    else if (i % 2 == 0)
      values.push_back(double_from_bits(engine()));
    else  // near the range of the small formats
      values.push_back(std::ldexp(static_cast<double>(static_cast<std::int64_t>(engine())),
                                  static_cast<int>(engine() % 340) - 233));
}

std::vector<ArithmeticOptions> all_options() {
  std::vector<ArithmeticOptions> result;
  for (const Rounding rounding : {Rounding::nearest_even, Rounding::toward_zero, Rounding::upward,
                                  Rounding::downward, Rounding::nearest_away, Rounding::stochastic})
    for (int switches = 0; switches < 8; ++switches) {
      ArithmeticOptions options = rounding;
      options.flush_inputs = (switches & 1) != 0;
      options.flush_results = (switches & 2) != 0;
      options.saturate = (switches & 4) != 0;
      options.random_bits = 0x80000000u + 0x12345u * static_cast<std::uint32_t>(switches);
      result.push_back(options);
    }
  return result;
}

template <class F, class T>
void expect_scalar_bits(const std::vector<T>& from, const ArithmeticOptions& options, int threads = 1) {
  std::vector<SmallFloat<F>> to(from.size());
  narrow<F>(from, to, options, threads);
  for (std::size_t i = 0; i < from.size(); ++i)
    ASSERT_EQ(to[i].bits(), convert<F>(SmallFloat<FormatOf<T>>::from_bits(bits_of(from[i])), options).bits())
        << std::hexfloat << from[i] << ' ' << name_of(options.rounding) << " flush " << options.flush_inputs
        << options.flush_results << " saturate " << options.saturate;
}

template <class F>
std::vector<SmallFloat<F>> all_codes() {
  std::vector<SmallFloat<F>> codes;
  for (std::uint32_t bits = 0; bits < std::uint32_t{1} << F::width; ++bits)
    codes.push_back(SmallFloat<F>::from_bits(static_cast<typename F::Bits>(bits)));
  return codes;
}

template <class F>
class ArrayConversion : public testing::Test {};

using Formats = testing::Types<Binary16, BrainFloat16, TensorFloat32, Fp8E4M3, Fp8E5M2, Fp8E4M3Fnuz,
                               Fp8E5M2Fnuz, Fp6E3M2, Fp6E2M3, Fp4E2M1, ScaleE8M0, ScaleUE4M3>;
struct FormatNames {
  template <class F>
  static std::string GetName(int) {
    return "E" + std::to_string(F::exponent_bits) + "M" + std::to_string(F::fraction_bits) +
           (F::has_infinity ? "" : std::string(names_of(F::encoding)[static_cast<std::size_t>(F::encoding)]));
  }
};
TYPED_TEST_SUITE(ArrayConversion, Formats, FormatNames);

TYPED_TEST(ArrayConversion, SinglesEqualTheScalarForm) {
  std::vector<float> from = corners<TypeParam, float>();
  append_random_patterns(from, 2000, 1);
  for_each_instruction_set([&] {
    for (const ArithmeticOptions& options : all_options()) expect_scalar_bits<TypeParam>(from, options);
  });
}

TYPED_TEST(ArrayConversion, DoublesEqualTheScalarForm) {
  std::vector<double> from = corners<TypeParam, double>();
  append_random_patterns(from, 2000, 2);
  for_each_instruction_set([&] {
    for (const ArithmeticOptions& options : all_options()) expect_scalar_bits<TypeParam>(from, options);
  });
}

/// The oracle is a list of the format's values and exact rational arithmetic. It knows no options.
TYPED_TEST(ArrayConversion, SinglesEqualExactRationals) {
  using F = TypeParam;
  const auto table = oracle::ValueTable::of<F>();
  std::vector<float> from;
  const std::vector<float> all = corners<F, float>();
  for (std::size_t i = 0; i < all.size(); i += all.size() / 6000 + 1)
    if (std::isfinite(all[i])) from.push_back(all[i]);
  std::vector<oracle::ValueTable::Place> places;
  for (const float x : from) places.push_back(table.place(oracle::rational(std::fabs(x))));
  std::vector<SmallFloat<F>> to(from.size());
  for (const Rounding rounding : all_roundings) {
    narrow<F>(from, to, rounding);
    for (std::size_t i = 0; i < from.size(); ++i) {
      const bool negative = std::signbit(from[i]) && F::has_sign;
      const oracle::Rounded expected = table.round(places[i], negative, rounding);
      ASSERT_EQ(to[i].bits(), table.code(expected.magnitude, negative))
          << std::hexfloat << from[i] << ' ' << name_of(rounding);
    }
  }
}

TYPED_TEST(ArrayConversion, EveryCodeWidensExactlyAndComesBack) {
  using F = TypeParam;
  using Code = SmallFloat<F>;
  const auto table = oracle::ValueTable::of<F>();
  const std::vector<Code> codes = all_codes<F>();
  std::vector<float> wide(codes.size());
  std::vector<Code> back(codes.size());
  for_each_instruction_set([&] {
    widen(codes, wide);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const Code code = codes[i];
      ASSERT_EQ(bits_of(wide[i]), bits_of(widen(code))) << i;
      if (code.is_nan()) {
        ASSERT_EQ(bits_of(wide[i]), 0x7fffffffu) << i;
        continue;
      }
      ASSERT_EQ(std::signbit(wide[i]), code.sign()) << i;
      if (code.is_infinite()) {
        ASSERT_TRUE(std::isinf(wide[i])) << i;
      } else {
        ASSERT_EQ(oracle::rational(std::fabs(wide[i])), table.value(code.magnitude())) << i;
      }
    }
    for (const ArithmeticOptions& options : all_options()) {
      if (options.flush_inputs || options.flush_results || options.saturate) continue;
      narrow<F>(wide, back, options);
      for (std::size_t i = 0; i < codes.size(); ++i)
        ASSERT_EQ(back[i].bits(), codes[i].is_nan() ? F::canonical_nan : codes[i].bits()) << i;
    }
  });
}

TYPED_TEST(ArrayConversion, TouchesNothingButItsElementsAndThreadsDoNotShow) {
  using Code = SmallFloat<TypeParam>;
  const Code sentinel = Code::from_bits(0x55);
  std::vector<float> random;
  append_random_patterns(random, 600001, 3);
  std::vector<std::size_t> lengths = {255, 600001};
  for (std::size_t n = 0; n < 70; ++n) lengths.push_back(n);
  for (const std::size_t n : lengths) {
    const std::span<const float> from = std::span(random).first(n);
    std::vector<Code> one(n + 2, sentinel);
    std::vector<Code> two = one;
    narrow(from, std::span(one).subspan(1, n), Rounding::nearest_even, 1);
    narrow(from, std::span(two).subspan(1, n), Rounding::nearest_even, 2);
    std::vector<float> wide_one(n + 2, 42.0f);
    std::vector<float> wide_two = wide_one;
    widen(std::span(one).subspan(1, n), std::span(wide_one).subspan(1, n), 1);
    widen(std::span(two).subspan(1, n), std::span(wide_two).subspan(1, n), 2);
    for (const std::size_t edge : {std::size_t{0}, n + 1}) {
      ASSERT_EQ(one[edge].bits(), sentinel.bits()) << n;
      ASSERT_EQ(two[edge].bits(), sentinel.bits()) << n;
      ASSERT_EQ(wide_one[edge], 42.0f) << n;
      ASSERT_EQ(wide_two[edge], 42.0f) << n;
    }
    for (std::size_t i = 1; i <= n; ++i) {
      ASSERT_EQ(one[i].bits(), narrow<TypeParam>(from[i - 1]).bits()) << n << ' ' << i;
      ASSERT_EQ(two[i].bits(), one[i].bits()) << n << ' ' << i;
      ASSERT_EQ(bits_of(wide_one[i]), bits_of(widen(one[i]))) << n << ' ' << i;
      ASSERT_EQ(bits_of(wide_two[i]), bits_of(wide_one[i])) << n << ' ' << i;
    }
  }
}

#if defined(__x86_64__)
/// Rounding mode, flush-to-zero and denormals-are-zero of the FPU must not reach into conversions.
TYPED_TEST(ArrayConversion, FloatingPointModesDoNotShow) {
  using F = TypeParam;
  using Code = SmallFloat<F>;
  std::vector<float> from = corners<F, float>();
  append_random_patterns(from, 1000, 4);
  const std::vector<Code> codes = all_codes<F>();
  std::vector<Code> expected(from.size());
  std::vector<Code> actual(from.size());
  std::vector<float> expected_wide(codes.size());
  std::vector<float> actual_wide(codes.size());
  const unsigned usual = _mm_getcsr();
  for_each_instruction_set([&] {
    for (const Rounding rounding : all_roundings)
      for (const unsigned mode :
           {0x8040u, 0x2000u, 0xe040u}) {  // FTZ and DAZ; downward; toward zero and both
        narrow<F>(from, expected, rounding);
        widen(codes, expected_wide);
        _mm_setcsr(usual | mode);
        narrow<F>(from, actual, rounding);
        widen(codes, actual_wide);
        _mm_setcsr(usual);
        for (std::size_t i = 0; i < from.size(); ++i)
          ASSERT_EQ(actual[i].bits(), expected[i].bits())
              << std::hexfloat << from[i] << ' ' << name_of(rounding) << " mxcsr " << std::hex << mode;
        for (std::size_t i = 0; i < codes.size(); ++i)
          ASSERT_EQ(bits_of(actual_wide[i]), bits_of(expected_wide[i])) << i << " mxcsr " << std::hex << mode;
      }
  });
}
#endif

TEST(ArrayConversionOfHalves, EqualsTheScalarFormAtEveryHalfAndMidpoint) {
  std::vector<float> from = cases::half_corners();
  const std::size_t positive = from.size();
  for (std::size_t i = 0; i < positive; ++i) from.push_back(-from[i]);
  for_each_instruction_set([&] {
    for (const Rounding rounding : all_roundings) expect_scalar_bits<Binary16>(from, rounding);
  });
}

TEST(ArrayConversionOfDoubles, ToSinglesEqualsTheScalarForm) {
  std::vector<double> from = corners<Binary32, double>();
  append_random_patterns(from, 20000, 5);
  for_each_instruction_set([&] {
    for (const ArithmeticOptions& options : all_options()) expect_scalar_bits<Binary32>(from, options);
  });
  expect_scalar_bits<Binary32>(from, Rounding::nearest_even, 2);
}

/// OFP8 revision 1.0, tables 1 to 3.
TEST(ArrayConversionToFp8, HasTheLimitsAndOverflowsOfTheOcpDocument) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> from = {448.0f,
                                   0x1p-6f,
                                   0x1.cp-7f,
                                   0x1p-9f,
                                   57344.0f,
                                   0x1p-14f,
                                   0x1.8p-15f,
                                   0x1p-16f,
                                   infinity,
                                   -infinity,
                                   1e9f,
                                   -1e9f,
                                   464.0f,
                                   465.0f,
                                   61439.0f,
                                   61440.0f,
                                   std::numeric_limits<float>::quiet_NaN()};
  const auto codes = [&]<class F>(F, bool saturate) {
    ArithmeticOptions options;
    options.saturate = saturate;
    std::vector<SmallFloat<F>> to(from.size());
    narrow<F>(from, to, options);
    std::vector<int> bits;
    for (const auto code : to) bits.push_back(code.bits());
    return bits;
  };
  using testing::ElementsAre;
  EXPECT_THAT(codes(Fp8E4M3(), false), ElementsAre(0x7e, 0x08, 0x07, 0x01, 0x7f, 0x00, 0x00, 0x00, 0x7f, 0xff,
                                                   0x7f, 0xff, 0x7e, 0x7f, 0x7f, 0x7f, 0x7f));
  EXPECT_THAT(codes(Fp8E4M3(), true), ElementsAre(0x7e, 0x08, 0x07, 0x01, 0x7e, 0x00, 0x00, 0x00, 0x7e, 0xfe,
                                                  0x7e, 0xfe, 0x7e, 0x7e, 0x7e, 0x7e, 0x7f));
  EXPECT_THAT(codes(Fp8E5M2(), false), ElementsAre(0x5f, 0x24, 0x23, 0x18, 0x7b, 0x04, 0x03, 0x01, 0x7c, 0xfc,
                                                   0x7c, 0xfc, 0x5f, 0x5f, 0x7b, 0x7c, 0x7f));
  EXPECT_THAT(codes(Fp8E5M2(), true), ElementsAre(0x5f, 0x24, 0x23, 0x18, 0x7b, 0x04, 0x03, 0x01, 0x7b, 0xfb,
                                                  0x7b, 0xfb, 0x5f, 0x5f, 0x7b, 0x7b, 0x7f));
}

TEST(ArrayConversionErrors, AreNamed) {
  std::vector<float> from(3);
  std::vector<Float16> to(2);
  EXPECT_EQ(message_of([&] { narrow<Binary16>(from, to); }),
            "narrow: source has 3 elements and destination has 2; they must agree");
  EXPECT_THROW(widen(to, from), std::invalid_argument);
  const std::vector<std::uint32_t> words(2);
  EXPECT_THROW(narrow_stochastic<Binary16>(from, to, words), std::invalid_argument);
  EXPECT_THROW(narrow_stochastic<Binary16>(from, to, PhiloxStream()), std::invalid_argument);
  to.resize(3);
  EXPECT_EQ(message_of([&] { narrow<Binary16>(from, to, Rounding::nearest_even, 0); }),
            "narrow: threads is 0; at least 1 is needed");
  EXPECT_EQ(message_of([&] { narrow_stochastic<Binary16>(from, to, words); }),
            "narrow_stochastic: source has 3 elements and random words has 2; they must agree");
}

}  // namespace
}  // namespace fp16lab
