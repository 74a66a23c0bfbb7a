// Exponent histograms against counting element by element.
#include "numerics/histogram/exponent_histogram.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "numerics/convert/convert.hpp"
#include "numerics/formats/bits.hpp"
#include "tests/numerics/histogram/histogram_cases.hpp"
#include "tests/support/instruction_sets.hpp"

namespace fp16lab {
namespace {

/// From the definition: the e with 2^e < |x| <= 2^(e+1), through frexp.
int bin_exponent(float x) {
  int exponent = 0;
  const float fraction = std::frexp(std::fabs(x), &exponent);  // fraction in [1/2, 1)
  return fraction == 0.5f ? exponent - 2 : exponent - 1;
}

/// Counts every value on its own, with nothing of what is tested.
template <class Values>
ExponentHistogram counted(const Values& values) {
  ExponentHistogram expected;
  float smallest = INFINITY, greatest = 0;
  for (const float x : values) {
    if (std::isnan(x))
      ++expected.nan;
    else if (std::isinf(x))
      ++expected.infinite;
    else if (x == 0)
      ++expected.zero;
    else {
      ++expected.bins[static_cast<std::size_t>(bin_exponent(x) - ExponentHistogram::min_exponent)];
      smallest = std::min(smallest, std::fabs(x));
      greatest = std::max(greatest, std::fabs(x));
    }
  }
  if (greatest > 0) {
    expected.smallest = bits_of(smallest);
    expected.greatest = bits_of(greatest);
  }
  return expected;
}

TEST(ExponentHistogram, EqualsTheDefinitionAndSumsToN) {
  for (const std::size_t n : {0u, 1u, 7u, 8u, 9u, 4095u, 4096u, 4097u, 100003u}) {
    const std::vector<float> values = random_patterns(n, static_cast<std::uint32_t>(n));
    const ExponentHistogram expected = counted(values);
    const ExponentHistogram actual = histogram_of(values);
    EXPECT_EQ(actual, expected) << n;
    EXPECT_EQ(actual.total(), n);
    ExponentHistogram one_by_one;
    for (const float x : values) one_by_one.count(bits_of(x));
    EXPECT_EQ(one_by_one, expected) << n;
  }
}

/// Finite values of `width` neighbouring bins from 2^low on, one in nine a zero: what gradients look like.
std::vector<float> within_bins(std::size_t n, int low, int width, std::uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) {
    const auto exponent = low + static_cast<int>(engine() % static_cast<std::uint32_t>(width));
    const float significand = 1.0f + static_cast<float>(engine() >> 9) * 0x1p-23f;
    values[i] =
        engine() % 9 == 0 ? -0.0f : std::ldexp(engine() % 2 == 0 ? significand : -significand, exponent);
  }
  return values;
}

TEST(ExponentHistogram, EveryInstructionSetCountsNarrowAndWideRangesAlike) {
  struct Range {
    int low, width;
  };
  const Range ranges[] = {{-24, 1},  {-40, 5},    {-126, 8}, {-30, 9},  {-28, 12},  {-50, 47}, {-60, 48},
                          {-61, 49}, {-126, 254}, {120, 8},  {-149, 3}, {-149, 23}, {-130, 9}, {-149, 277}};
  testing_support::for_each_instruction_set([&] {
    for (const Range& range : ranges) {
      for (const std::size_t n : {63u, 64u, 65u, 1000u, 4095u, 4096u, 4097u, 70001u}) {
        std::vector<float> values = within_bins(n, range.low, range.width, static_cast<std::uint32_t>(n));
        EXPECT_EQ(histogram_of(values), counted(values)) << range.low << ' ' << range.width << ' ' << n;
        // One value that is not finite makes its whole block take another path.
        values[n / 2] = std::numeric_limits<float>::infinity();
        values[n - 1] = std::numeric_limits<float>::quiet_NaN();
        EXPECT_EQ(histogram_of(values), counted(values)) << range.low << ' ' << range.width << ' ' << n;
      }
    }
    for (const float same : {0.0f, -0.0f, 1.0f, 0x1p-149f, std::numeric_limits<float>::max()}) {
      const std::vector<float> values(9000, same);  // no tally of 8 bits may wrap
      EXPECT_EQ(histogram_of(values), counted(values)) << same;
    }
  });
}

TEST(ExponentHistogram, BinsAreHalfOpenAtTheBottom) {
  for (int e = -148; e <= 127; ++e) {
    const float power = std::ldexp(1.0f, e);
    EXPECT_EQ(histogram_of({power}).at(e - 1), 1u) << e;
    EXPECT_EQ(histogram_of({-power}).at(e - 1), 1u) << e;
    if (e > -148) {
      EXPECT_EQ(histogram_of({std::nextafter(power, 0.0f)}).at(e - 1), 1u) << e;
    }
    EXPECT_EQ(histogram_of({std::nextafter(power, std::numeric_limits<float>::infinity())}).at(e), 1u) << e;
  }
  EXPECT_EQ(histogram_of({0x1p-149f}).at(-150), 1u);
  EXPECT_EQ(histogram_of({0x1p-134f}).at(-135), 1u);  // the tie of BF16
  EXPECT_EQ(histogram_of({0x1p-126f}).at(-127), 1u);
  EXPECT_EQ(histogram_of({std::nextafter(0x1p-126f, 1.0f)}).at(-126), 1u);
  EXPECT_EQ(histogram_of({std::numeric_limits<float>::max()}).at(127), 1u);
  EXPECT_EQ(histogram_of({1.0f}).at(-151), 0u);
  EXPECT_EQ(histogram_of({1.0f}).at(128), 0u);
}

TEST(ExponentHistogram, MergeIsAddition) {
  const std::vector<float> values = random_patterns(50000, 5);
  const std::vector<float> first(values.begin(), values.begin() + 12345);
  const std::vector<float> second(values.begin() + 12345, values.end());
  ExponentHistogram merged = histogram_of(first);
  merged += histogram_of(second);
  EXPECT_EQ(merged, histogram_of(values));
  ExponentHistogram continued = histogram_of(first);
  count_exponents(second, continued);
  EXPECT_EQ(continued, merged);
  EXPECT_EQ(ExponentHistogram(merged) += ExponentHistogram(), merged);
}

TEST(ExponentHistogram, EndsOfBins) {
  for (int bin = 0; bin < ExponentHistogram::bin_count; ++bin) {
    const int e = bin + ExponentHistogram::min_exponent;
    const double low = std::ldexp(1.0, e), high = std::ldexp(1.0, e + 1);
    const double first = float_from_bits(ExponentHistogram::smallest_of_bin(bin));
    const double last = float_from_bits(ExponentHistogram::greatest_of_bin(bin));
    EXPECT_GT(first, low) << e;
    EXPECT_LE(std::nextafter(static_cast<float>(first), 0.0f), low) << e;
    EXPECT_EQ(last, e == 127 ? std::numeric_limits<float>::max() : high) << e;
    EXPECT_EQ(ExponentHistogram::bin_of(bits_of(static_cast<float>(first))), bin);
    EXPECT_EQ(ExponentHistogram::bin_of(bits_of(static_cast<float>(last))), bin);
  }
}

TEST(ExponentHistogram, UnknownExtremesStayUnknown) {
  ExponentHistogram old;  // counts without extremes, as older folders have them
  old.bins[100] = 3;
  EXPECT_FALSE(old.extremes_known());
  EXPECT_TRUE(ExponentHistogram{}.extremes_known());
  const ExponentHistogram known = histogram_of({1.0f, 2.0f});
  EXPECT_TRUE(known.extremes_known());
  for (const bool reverse : {false, true}) {
    ExponentHistogram sum = reverse ? old : known;
    sum += reverse ? known : old;
    EXPECT_FALSE(sum.extremes_known());
    EXPECT_EQ(sum.smallest, 0u);
    EXPECT_EQ(sum.finite_nonzero(), 5u);
  }
  for (const std::size_t n : {3u, 5000u}) {
    ExponentHistogram sum = old;
    count_exponents(std::vector<float>(n, 1.0f), sum);
    EXPECT_FALSE(sum.extremes_known());
  }
  ExponentHistogram same = old;
  EXPECT_EQ(same += ExponentHistogram{}, old);
}

TEST(ExponentHistogram, PowersOfTwoMoveWholeBins) {
  std::mt19937 random(7);
  for (int shift = -60; shift <= 60; shift += 7) {
    std::vector<float> values, moved;
    for (int i = 0; i < 400; ++i) {  // normal before and after: nothing rounds
      const int exponent = static_cast<int>(random() % 120) - 60;
      values.push_back(std::ldexp(1.0f + static_cast<float>(random() % 0x800000) * 0x1p-23f, exponent));
      moved.push_back(std::ldexp(values.back(), shift));
    }
    values.insert(values.end(), {0.0f, INFINITY, NAN});
    moved.insert(moved.end(), {0.0f, INFINITY, NAN});
    EXPECT_EQ(times_power_of_two(histogram_of(values), shift), counted(moved)) << shift;
  }
  EXPECT_EQ(times_power_of_two(histogram_of({0x1p-149f, 0x1.8p-120f}), 20),
            counted(std::vector{0x1p-129f, 0x1.8p-100f}));
  EXPECT_EQ(times_power_of_two(histogram_of({0x1p-129f, 1.0f}), -20),
            counted(std::vector{0x1p-149f, 0x1p-20f}));
  // 1.25 x 2^-148 is no FP32 number: the extreme becomes the next one above, in the same bin.
  const ExponentHistogram rounded = times_power_of_two(histogram_of({0x1.4p-100f, 1.0f}), -48);
  EXPECT_EQ(rounded.at(-148), 1u);
  EXPECT_EQ(float_from_bits(rounded.smallest), 0x1.8p-148f);
  // What leaves FP32 does so as by a product in FP32, and its extreme is not known.
  const ExponentHistogram edge = histogram_of({0x1p100f, 0x1p-100f});
  EXPECT_EQ(times_power_of_two(edge, 100).infinite, 1u);
  EXPECT_EQ(times_power_of_two(edge, -100).zero, 1u);
  EXPECT_FALSE(times_power_of_two(edge, 100).extremes_known());
  ExponentHistogram old = edge;
  old.forget_extremes();
  EXPECT_FALSE(times_power_of_two(old, 3).extremes_known());
}

TEST(ExponentHistogram, ThreadsDoNotShow) {
  const std::vector<float> values = random_patterns((std::size_t{1} << 22) + 12345, 6);
  const ExponentHistogram one = histogram_of(values, 1);
  EXPECT_EQ(histogram_of(values, 2), one);
  EXPECT_EQ(histogram_of(values, 3), one);
  EXPECT_EQ(one.total(), values.size());
  std::vector<Float16> halves(values.size());
  narrow<Binary16>(values, halves);
  ExponentHistogram half_one;
  ExponentHistogram half_two;
  count_exponents(halves, half_one, 1);
  count_exponents(halves, half_two, 2);
  EXPECT_EQ(half_one, half_two);
}

TEST(ExponentHistogram, AllHalvesCountAsTheirWidenedValues) {
  std::vector<Float16> halves;
  std::vector<float> wide;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    halves.push_back(Float16::from_bits(static_cast<std::uint16_t>(bits)));
    wide.push_back(widen(halves.back()));
  }
  ExponentHistogram histogram;
  count_exponents(halves, histogram);
  EXPECT_EQ(histogram, histogram_of(wide));
  EXPECT_EQ(histogram.total(), 65536u);
  EXPECT_EQ(histogram.zero, 2u);
  EXPECT_EQ(histogram.infinite, 2u);
  EXPECT_EQ(histogram.nan, 2u * 1023u);
  EXPECT_EQ(histogram.at(-25), 2u);  // 2^-24 alone, both signs
  EXPECT_EQ(histogram.at(0), 2u * 1024u);
  EXPECT_EQ(histogram.at(15), 2u * 1023u);  // above 32768 up to 65504
  ExponentHistogram small;
  count_exponents(std::span(halves).first(1000), small);
  EXPECT_EQ(small, histogram_of(std::vector<float>(wide.begin(), wide.begin() + 1000)));
}

TEST(ExponentHistogram, AllBFloat16CountAsTheirWidenedValues) {
  std::vector<BFloat16> words;
  std::vector<float> wide;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    words.push_back(BFloat16::from_bits(static_cast<std::uint16_t>(bits)));
    wide.push_back(float_from_bits(bits << 16));
  }
  for (const int threads : {1, 2}) {
    ExponentHistogram histogram;
    count_exponents(words, histogram, threads);
    EXPECT_EQ(histogram, histogram_of(wide));
    EXPECT_EQ(histogram.total(), 65536u);
    EXPECT_EQ(histogram.zero, 2u);
    EXPECT_EQ(histogram.infinite, 2u);
    EXPECT_EQ(histogram.nan, 2u * 127u);
    // Subnormals are multiples of 2^-133: the smallest alone in its bin, then 2^k more in each.
    EXPECT_EQ(histogram.at(-134), 2u);
    for (int k = 0; k < 7; ++k) EXPECT_EQ(histogram.at(-133 + k), 2u << k) << k;
    EXPECT_EQ(histogram.at(-127), 2u * 64u);  // with 2^-126
    EXPECT_EQ(float_from_bits(histogram.smallest), 0x1p-133f);
    EXPECT_EQ(float_from_bits(histogram.greatest), 0x1.fep127f);
    EXPECT_EQ(histogram.at(0), 2u * 128u);
    EXPECT_EQ(histogram.at(127), 2u * 127u);
  }
  ExponentHistogram small;
  count_exponents(std::span<const BFloat16>(words).first(50), small);  // subnormals, one by one
  EXPECT_EQ(small, histogram_of(std::vector<float>(wide.begin(), wide.begin() + 50)));
}

template <class F>
void expect_fused_equals_separate(const std::vector<float>& values, const ArithmeticOptions& options,
                                  int threads) {
  const std::size_t n = values.size();
  const auto sentinel = SmallFloat<F>::from_bits(0x55);
  std::vector<SmallFloat<F>> separate(n + 1, sentinel), fused(n + 1, sentinel);
  narrow<F>(values, std::span(separate).first(n), options);
  ExponentHistogram histogram = histogram_of({1.0f});  // counts are added
  ExponentHistogram expected = histogram;
  count_exponents(values, expected);
  narrow_and_count<F>(values, std::span(fused).first(n), histogram, options, threads);
  EXPECT_EQ(histogram, expected) << n;
  for (std::size_t i = 0; i <= n; ++i) ASSERT_EQ(fused[i].bits(), separate[i].bits()) << n << ' ' << i;
}

TEST(NarrowAndCount, EqualsTheTwoCalls) {
  ArithmeticOptions saturating_upward = Rounding::upward;
  saturating_upward.saturate = true;
  for (const std::size_t n : {0u, 1u, 17u, 4095u, 4096u, 4097u, 100003u, 2100003u})
    for (const int threads : {1, 2}) {
      const std::vector<float> values = random_patterns(n, static_cast<std::uint32_t>(n));
      expect_fused_equals_separate<Binary16>(values, Rounding::nearest_even, threads);
      expect_fused_equals_separate<BrainFloat16>(values, Rounding::toward_zero, threads);
      expect_fused_equals_separate<Fp8E4M3>(values, saturating_upward, threads);
      expect_fused_equals_separate<Fp8E5M2>(values, Rounding::nearest_even, threads);
    }
  ExponentHistogram histogram;
  const std::vector<float> three(3);
  std::vector<Float16> two(2);
  EXPECT_THROW(narrow_and_count<Binary16>(three, two, histogram), std::invalid_argument);
  EXPECT_THROW(narrow_and_count<Binary16>(std::span(three).first(2), two, histogram, {}, 0),
               std::invalid_argument);
}

template <class F>
void expect_both_sides_counted() {
  using Half = SmallFloat<F>;
  for (const std::size_t n : {0u, 5u, 63u, 64u, 4097u, 200001u})
    for (const int threads : {1, 2})
      for (const bool wide : {false, true}) {
        const std::vector<float> values = wide ? random_patterns(n, 3) : within_bins(n, -30, 18, 4);
        std::vector<Half> fused(n, Half::from_bits(0xabcd)), separate(fused);
        ExponentHistogram before, after, expected_before, expected_after;
        narrow_and_count(values, fused, before, after, threads);
        narrow<F>(values, separate);
        std::vector<float> stored;
        for (const Half x : separate) stored.push_back(widen(x));
        expected_before = counted(values);
        expected_after = counted(stored);
        EXPECT_EQ(before, expected_before) << n;
        EXPECT_EQ(after, expected_after) << n;
        EXPECT_EQ(after.total(), n);
        for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(fused[i].bits(), separate[i].bits()) << n << ' ' << i;
      }
  std::vector<Half> too_short(2);
  ExponentHistogram before, after;
  EXPECT_THROW(narrow_and_count(std::vector<float>(3), too_short, before, after), std::invalid_argument);
}

TEST(NarrowAndCount, CountsBothSidesOfF16) { expect_both_sides_counted<Binary16>(); }
TEST(NarrowAndCount, CountsBothSidesOfBf16) { expect_both_sides_counted<BrainFloat16>(); }

TEST(ExponentHistogram, ThreadsMustBePositive) {
  ExponentHistogram histogram;
  EXPECT_THROW(count_exponents(std::span<const float>(), histogram, 0), std::invalid_argument);
}

}  // namespace
}  // namespace fp16lab
