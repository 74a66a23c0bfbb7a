// Stochastic rounding of arrays, judged exactly and not by statistics. A number between two neighbours of the
// format must round away for exactly the words r with floor(2^32 f) + r >= 2^32, where f is the fraction of
// the way. The fraction comes from exact rationals; whether an implementation rounds away is monotonic in r,
// so the two words at the threshold and the extremes decide all 2^32.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "numerics/convert/convert.hpp"
#include "numerics/random/philox_words.hpp"
#include "tests/support/exact_rounding.hpp"
#include "tests/support/instruction_sets.hpp"

namespace fp16lab {
namespace {

using oracle::Integer;
using oracle::Rational;
using oracle::ValueTable;
using testing_support::for_each_instruction_set;

/// A positive number strictly between the codes low and low + 1, or at low.
struct Split {
  float x = 0;
  std::uint64_t low = 0;
  std::uint64_t fraction = 0;  ///< floor(2^32 f)
};

Split split(const ValueTable& table, float x) {
  Split result{x};
  const Rational value = oracle::rational(x);
  result.low = table.round(value, false, Rounding::toward_zero).magnitude;
  const Rational low = table.value(result.low);
  const Rational fraction = (value - low) / (table.value(result.low + 1) - low) * oracle::power_of_two(32);
  result.fraction = static_cast<std::uint64_t>(numerator(fraction) / denominator(fraction));
  return result;
}

/// Numbers in every binade of the format and below it, with random significands and with few bits.
template <class F>
std::vector<Split> numbers() {
  const ValueTable table = ValueTable::of<F>();
  std::mt19937 engine(21);
  std::vector<Split> result;
  const int lowest = std::max(F::exponent_of_min_subnormal - 36, Binary32::exponent_of_min_subnormal);
  for (int exponent = lowest; exponent <= F::emax; ++exponent)
    for (int i = 0; i < 6; ++i) {
      const std::uint32_t fraction = static_cast<std::uint32_t>(engine()) & Binary32::fraction_mask;
      const float significand = float_from_bits((127u << 23) | (i < 3 ? fraction : fraction & ~0xfffu));
      const float x = std::ldexp(i == 5 ? 1.0f : significand, exponent);
      // Without NaN and infinity nothing is above the largest number.
      if (oracle::rational(x) < table.value(table.infinity() - (F::has_nan ? 0 : 1)))
        result.push_back(split(table, x));
    }
  return result;
}

template <class F>
class StochasticConversion : public testing::Test {};
using Formats =
    testing::Types<Binary16, BrainFloat16, TensorFloat32, Fp8E4M3, Fp8E5M2, Fp8E5M2Fnuz, Fp6E2M3, Fp4E2M1>;
TYPED_TEST_SUITE(StochasticConversion, Formats);

TYPED_TEST(StochasticConversion, RoundsAwayForExactlyTheRightWords) {
  using F = TypeParam;
  std::vector<float> from;
  std::vector<std::uint32_t> words;
  std::vector<typename F::Bits> expected;
  const ValueTable table = ValueTable::of<F>();
  for (const Split& number : numbers<F>())
    for (const bool negative : {false, true}) {
      const auto add = [&](std::uint64_t word) {
        const std::uint64_t code = number.low + ((number.fraction + word) >> 32);
        from.push_back(negative ? -number.x : number.x);
        words.push_back(static_cast<std::uint32_t>(word));
        expected.push_back(static_cast<typename F::Bits>(table.code(code, negative)));
      };
      add(0);
      add(0xffffffffu);
      if (number.fraction == 0) continue;
      add((std::uint64_t{1} << 32) - number.fraction);
      add((std::uint64_t{1} << 32) - number.fraction - 1);
    }
  std::vector<SmallFloat<F>> to(from.size());
  for_each_instruction_set([&] {
    narrow_stochastic<F>(from, to, words);
    for (std::size_t i = 0; i < from.size(); ++i) {
      ASSERT_EQ(to[i].bits(), expected[i]) << std::hexfloat << from[i] << " word " << words[i];
      ArithmeticOptions options = Rounding::stochastic;
      options.random_bits = words[i];
      ASSERT_EQ(narrow<F>(from[i], options).bits(), expected[i])
          << std::hexfloat << from[i] << ' ' << words[i];
    }
  });
}

/// All 2^16 words with the lower half zero: the number that rounds away is floor(2^16 f), the whole fraction
/// if it has at most 16 bits.
TYPED_TEST(StochasticConversion, FrequencyOverAllHalvesIsTheFraction) {
  using F = TypeParam;
  std::vector<std::uint32_t> words;
  for (std::uint32_t half = 0; half < 0x10000; ++half) words.push_back(half << 16);
  std::vector<SmallFloat<F>> to(words.size());
  const std::vector<Split> all = numbers<F>();
  for (std::size_t i = 0; i < all.size(); i += all.size() / 60 + 1) {
    const std::vector<float> from(words.size(), all[i].x);
    narrow_stochastic<F>(from, to, words);
    std::uint64_t away = 0;
    for (const auto code : to) {
      ASSERT_TRUE(code.bits() == all[i].low || code.bits() == all[i].low + 1) << all[i].x;
      away += code.bits() - all[i].low;
    }
    ASSERT_EQ(away, all[i].fraction >> 16) << std::hexfloat << all[i].x;
  }
}

template <class F>
std::vector<float> numbers_and_specials() {
  std::vector<float> from = {0.0f,
                             -0.0f,
                             std::numeric_limits<float>::infinity(),
                             -std::numeric_limits<float>::infinity(),
                             std::numeric_limits<float>::quiet_NaN(),
                             float_from_bits(0xff800001u),
                             std::numeric_limits<float>::max(),
                             0x1p-149f,
                             65504.0f,
                             65519.0f,
                             65535.996f,
                             -65535.0f,
                             65536.0f,
                             0x1p-25f,
                             0x1p-41f,
                             448.0f,
                             460.0f,
                             479.0f};
  for (const Split& number : numbers<F>()) from.push_back(-number.x);
  std::mt19937 engine(22);
  for (int i = 0; i < 5000; ++i) from.push_back(float_from_bits(static_cast<std::uint32_t>(engine())));
  return from;
}

std::uint32_t half_of(const PhiloxStream& stream, std::uint64_t i) {
  const std::uint32_t word = stream.word(i / 2);
  return i % 2 == 0 ? word << 16 : word & 0xffff0000u;
}

TYPED_TEST(StochasticConversion, PhiloxBitsDependOnTheLogicalIndexOnly) {
  using F = TypeParam;
  const PhiloxStream stream{.seed = 5, .stream = stream_id("fc1.weight"), .iteration = 7, .micro_batch = 1};
  const std::vector<float> from = numbers_and_specials<F>();
  std::vector<SmallFloat<F>> to(from.size());
  for_each_instruction_set([&] {
    for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{0x3ffffffffd}})
      for (const bool saturate : {false, true}) {
        ArithmeticOptions options = Rounding::stochastic;
        options.saturate = saturate;
        narrow_stochastic<F>(from, to, stream, first, options);
        for (std::size_t i = 0; i < from.size(); ++i) {
          options.random_bits = half_of(stream, first + i);
          ASSERT_EQ(to[i].bits(), narrow<F>(from[i], options).bits()) << std::hexfloat << from[i] << ' ' << i;
        }
      }
    // In two calls.
    std::vector<SmallFloat<F>> parts(from.size());
    const std::size_t cut = 1237;
    narrow_stochastic<F>(std::span(from).first(cut), std::span(parts).first(cut), stream, 9);
    narrow_stochastic<F>(std::span(from).subspan(cut), std::span(parts).subspan(cut), stream, 9 + cut);
    narrow_stochastic<F>(from, to, stream, 9);
    for (std::size_t i = 0; i < from.size(); ++i) ASSERT_EQ(parts[i].bits(), to[i].bits()) << i;
  });
}

TEST(StochasticConversionOfLargeArrays, ThreadsDoNotShow) {
  const std::size_t n = 600001;
  std::vector<float> from(n);
  for (std::size_t i = 0; i < n; ++i) from[i] = static_cast<float>(i) * 0x1.234p-20f;
  std::vector<std::uint32_t> words(n);
  const PhiloxStream stream{.seed = 1};
  philox_words(stream, 3, words);
  std::vector<Float16> one(n), two(n);
  const auto expect_equal = [&] {
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(one[i].bits(), two[i].bits()) << i;
  };
  narrow_stochastic<Binary16>(from, one, stream, 1, {}, 1);
  narrow_stochastic<Binary16>(from, two, stream, 1, {}, 2);
  expect_equal();
  narrow_stochastic<Binary16>(from, one, words, {}, 1);
  narrow_stochastic<Binary16>(from, two, words, {}, 2);
  expect_equal();
}

/// The explicit words and the halves may differ only as far as their bits do.
TEST(StochasticConversionOfLargeArrays, WordsAndHalvesAgreeOnTheSameBits) {
  const std::vector<float> from = numbers_and_specials<Binary16>();
  const PhiloxStream stream{.seed = 2};
  std::vector<std::uint32_t> words(from.size());
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = half_of(stream, i);
  std::vector<Float16> by_words(from.size()), by_stream(from.size());
  for_each_instruction_set([&] {
    narrow_stochastic<Binary16>(from, by_words, words);
    narrow_stochastic<Binary16>(from, by_stream, stream);
    for (std::size_t i = 0; i < from.size(); ++i)
      ASSERT_EQ(by_words[i].bits(), by_stream[i].bits()) << from[i];
  });
}

TEST(PhiloxWords, AreThoseOfTheStream) {
  const PhiloxStream stream{
      .seed = 0x0123456789abcdef, .stream = 99, .iteration = 0xffffffff, .micro_batch = 3};
  for_each_instruction_set([&] {
    for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{3}, (std::uint64_t{1} << 34) - 40})
      for (const std::size_t n : {0u, 1u, 2u, 3u, 4u, 5u, 31u, 64u, 67u, 1000u}) {
        std::vector<std::uint32_t> words(n + 1, 0xdeadbeef);
        philox_words(stream, first, std::span(words).first(n));
        for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(words[i], stream.word(first + i)) << first << ' ' << i;
        ASSERT_EQ(words[n], 0xdeadbeef);
      }
  });
}

}  // namespace
}  // namespace fp16lab
