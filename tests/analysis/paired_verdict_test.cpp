// Verdicts of paired runs: the rules one by one, and what they do over a thousand simulated leagues.
#include "analysis/paired_verdict.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <boost/math/distributions/non_central_t.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

namespace fp16lab::analysis {
namespace {

using ::testing::HasSubstr;

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

Judgement judge_one(PairedSample sample) { return judge(std::array{std::move(sample)}).front(); }

// Intervals -------------------------------------------------------------------------------------------------

TEST(MeanInterval, OfStudentsOwnSleepDataIsTheOneInTheBooks) {
  // Hours of extra sleep under two drugs, ten patients ("Student" 1908, page 20): mean difference 1.58. R's
  // t.test(..., paired = TRUE) prints the interval 0.7001142 to 2.4598858.
  const std::array<double, 10> hours = {1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4};
  const auto interval = mean_interval(hours);
  ASSERT_TRUE(interval);
  EXPECT_NEAR(interval->lower, 0.7001142, 5e-8);  // half of the last printed digit
  EXPECT_NEAR(interval->upper, 2.4598858, 5e-8);
  // R prints t = 4.0621, p = 0.002833 with it.
  const Judgement judgement = judge_one({.differences = {hours.begin(), hours.end()}, .margin = 0.1});
  EXPECT_NEAR(*judgement.p_differs, 0.002833, 5e-7);
  EXPECT_EQ(judgement.word, Word::worse);
}

TEST(MeanInterval, OfTwoUsesOneDegreeOfFreedomAndTurnsWithTheSign) {
  // t(0.975, 1) = tan(0.475 pi) = 12.7062047; s / sqrt(2) = |d1 - d2| / 2.
  const auto interval = mean_interval(std::array{1.0, 3.0});
  ASSERT_TRUE(interval);
  EXPECT_NEAR(interval->upper - 2.0, 12.7062047, 5e-8);
  const auto turned = mean_interval(std::array{-1.0, -3.0});
  EXPECT_EQ(turned->lower, -interval->upper);
  EXPECT_EQ(turned->upper, -interval->lower);
}

TEST(MeanInterval, IsNotToldWithoutWhatItNeeds) {
  EXPECT_FALSE(mean_interval({}));
  EXPECT_FALSE(mean_interval(std::array{1.0}));
  EXPECT_FALSE(mean_interval(std::array{1.0, 2.0, not_a_number}));
  EXPECT_FALSE(mean_interval(std::array{1.0, std::numeric_limits<double>::infinity()}));
  for (const double bad : {0.0, 1.0, -0.5, 95.0})
    EXPECT_THROW(mean_interval(std::array{1.0, 2.0}, bad), std::invalid_argument) << bad;
}

TEST(SingleRunBand, IsWiderThanTheMeansBySqrtOfNPlusOne) {
  const std::array values{0.3, -0.1, 0.4, 0.2, 0.9};
  const auto mean = mean_interval(values), band = single_run_band(values);
  ASSERT_TRUE(mean && band);
  EXPECT_NEAR((band->upper - band->lower) / (mean->upper - mean->lower), std::sqrt(6.0), 1e-12);
}

TEST(SingleRunBand, NeedsThreeValuesThatAreNotAllTheSame) {
  EXPECT_FALSE(single_run_band(std::array{0.3, 0.4}));
  EXPECT_FALSE(single_run_band(std::array{0.0, 0.0, 0.0})) << "a band without width judges no run";
  EXPECT_TRUE(single_run_band(std::array{0.0, 0.0, 0.1}));
}

// Differences -----------------------------------------------------------------------------------------------

TEST(Difference, HasTheMetricsOwnSign) {
  EXPECT_EQ(loss_difference(2.0, 2.0), 0);
  EXPECT_NEAR(loss_difference(2.0 * std::exp(0.01), 2.0), 1, 1e-12);
  EXPECT_EQ(loss_difference(1.0, 2.0), -loss_difference(2.0, 1.0));
  EXPECT_NEAR(accuracy_difference(0.89, 0.90), -1, 1e-12);
  const std::vector<double> lower{-9, -9.1, -8.9};
  EXPECT_EQ(judge_one({.differences = lower}).word, Word::better);
  EXPECT_EQ(judge_one({.differences = lower, .higher_is_better = true}).word, Word::worse);
  for (const double bad : {0.0, -1.0, std::numeric_limits<double>::infinity(), not_a_number}) {
    EXPECT_TRUE(std::isnan(loss_difference(bad, 1.0))) << bad;
    EXPECT_TRUE(std::isnan(loss_difference(1.0, bad))) << bad;
  }
}

// The words -------------------------------------------------------------------------------------------------

TEST(Judge, SaysWorseOfAnyRunThatDivergedHoweverFewPairsThereAre) {
  const Judgement alone = judge_one({.differences = {}, .diverged = 1});
  EXPECT_EQ(alone.word, Word::worse);
  EXPECT_EQ(words_of(alone, "%"), "worse (1 of 1 diverged)");
  const Judgement among = judge_one({.differences = {-5, -5.1, -4.9, -5}, .diverged = 1});
  EXPECT_EQ(among.word, Word::worse);
  EXPECT_FALSE(among.interval);
  EXPECT_FALSE(among.p_differs);
  EXPECT_EQ(words_of(among, "%"), "worse (1 of 5 diverged)");
}

TEST(Judge, CannotTellFromFewerThanThreePairs) {
  for (const std::vector<double>& few : {std::vector<double>{}, {9.0}, {9.0, 9.1}}) {
    const Judgement judgement = judge_one({.differences = few, .dropped = 2});
    EXPECT_EQ(judgement.word, Word::cannot_tell);
    EXPECT_FALSE(judgement.interval);
    EXPECT_EQ(judgement.dropped, 2);
  }
  const auto said = [](std::vector<double> few) { return words_of(judge_one({.differences = few}), "%"); };
  EXPECT_EQ(said({}), "no pair: three are needed for a verdict");
  EXPECT_EQ(said({9.0}), "one seed: three are needed for a verdict");
  EXPECT_EQ(said({9.0, 9.1}), "two seeds: three are needed for a verdict");
}

TEST(Judge, OfOnePairIsEqualExactlyWhereTheNinetyPercentIntervalLiesWithinTheMargin) {
  const std::array values{0.3, -0.1, 0.4, 0.2, 0.9};
  const auto ninety = mean_interval(values, 0.9);
  const double edge = std::max(-ninety->lower, ninety->upper);
  EXPECT_EQ(judge_one({.differences = {values.begin(), values.end()}, .margin = edge * 1.0001}).word,
            Word::equal);
  EXPECT_EQ(judge_one({.differences = {values.begin(), values.end()}, .margin = edge * 0.9999}).word,
            Word::cannot_tell);
}

TEST(Judge, EqualWinsOverWorseAndSaysSo) {
  const Judgement judgement = judge_one({.differences = {0.8, 0.81, 0.79, 0.8, 0.82}});
  EXPECT_EQ(judgement.word, Word::equal);
  EXPECT_TRUE(judgement.differs);
  EXPECT_EQ(words_of(judgement, "%"), "equal within 1 % (measurably +0.8 %)");
  EXPECT_TRUE(judgement.adjusted);
  // So small that no test asks whether they differ, sure as they are.
  const Judgement small = judge_one({.differences = {0.3, 0.31, 0.29, 0.3, 0.32}});
  EXPECT_EQ(words_of(small, "%"), "equal within 1 %");
  EXPECT_LT(*small.p_differs, 1e-4);
  EXPECT_EQ(words_of(judge_one({.differences = {0.1, -0.2, 0.15, -0.1, 0.05}, .margin = 0.5}), "points"),
            "equal within 0.5 points");
}

TEST(Judge, OfDifferencesThatAreAllTheSameHasNoTest) {
  // Three times a tenth has a mean whose rounding must not look like a deviation.
  for (const double same : {0.0, 0.1, 1.0, -1.0}) {
    const Judgement judgement = judge_one({.differences = {same, same, same}});
    EXPECT_EQ(judgement.word, Word::equal) << same;
    EXPECT_FALSE(judgement.p_differs);
    EXPECT_FALSE(judgement.interval);
  }
  const Judgement far = judge_one({.differences = {3, 3, 3}});
  EXPECT_EQ(far.word, Word::cannot_tell);
  EXPECT_THAT(words_of(far, "%"), HasSubstr("every pair differs by the same +3 %"));
}

TEST(PairedVerdict, LossesAreTestedByLogarithmsAndToldInPercent) {
  // Twice the loss, half of it, and 1.2 times: logarithms cancel, percents (+100, -50, +20) would not.
  const std::vector<double> differences = {loss_difference(2, 1), loss_difference(1, 2),
                                           loss_difference(1.2, 1)};
  const Judgement by_logarithms = judge_one({.differences = differences});
  const Judgement told = judge_one({.differences = differences, .is_of_losses = true});
  EXPECT_NEAR(told.mean, 100 * (std::cbrt(1.2) - 1), 1e-12);  // the geometric mean of the ratios
  ASSERT_TRUE(told.interval && told.detectable);
  EXPECT_NEAR(std::log1p(told.interval->upper / 100), by_logarithms.interval->upper / 100, 1e-12);
  EXPECT_NEAR(std::log1p(told.interval->lower / 100), by_logarithms.interval->lower / 100, 1e-12);
  EXPECT_NEAR(std::log1p(*told.detectable / 100), *by_logarithms.detectable / 100, 1e-12);
  EXPECT_EQ(told.p_equal, by_logarithms.p_equal);
  EXPECT_EQ(told.p_differs, by_logarithms.p_differs);
  EXPECT_EQ(told.word, by_logarithms.word);
  // 0.077717 against 0.06436, as a table of losses shows them.
  EXPECT_NEAR(judge_one({.differences = {loss_difference(0.077717, 0.06436)}, .is_of_losses = true}).mean,
              100 * (0.077717 / 0.06436 - 1), 1e-12);
}

TEST(Judge, CountsTheSameRunsOnce) {
  // p = 0.0413 alone; with nineteen other tests of p near 1 it does not pass, with one merged group it does.
  const std::vector<double> found{0.9, 1.4, 2.9, 0.4, 3.1, 0.1}, nothing{-5, 5.1, -4.9, 5, -5.2, 4.9};
  const Judgement alone = judge_one({.differences = found, .margin = 0.1});
  ASSERT_EQ(alone.word, Word::worse);
  ASSERT_GT(*alone.p_differs, 0.05 / 20);
  std::vector<PairedSample> family(19, {.differences = nothing, .margin = 0.1});
  family.push_back({.differences = found, .margin = 0.1});
  EXPECT_EQ(judge(family).back().word, Word::cannot_tell);
  for (PairedSample& sample : family)
    if (sample.differences == nothing) sample.bits = 7;
  family.back().bits = 8;
  // Two tests now: p <= 0.05 / 2 passes.
  EXPECT_EQ(judge(family).back().word, *alone.p_differs <= 0.025 ? Word::worse : Word::cannot_tell);
}

/// With two degrees of freedom P(T > t) = (1 - t / sqrt(2 + t^2)) / 2: the t that leaves that much above it.
double t_of_two(double above) {
  const double share = 1 - 2 * above;
  return share * std::sqrt(2 / (1 - share * share));
}

TEST(Judge, StepsUpToEqualAsBenjaminiAndHochbergsOwnExampleDoes) {
  // Table 1 of their paper: at q = 0.05 the four smallest of these fifteen p pass, not the three of
  // Hochberg's procedure; the largest four, above 0.5, are lower here. Three pairs with mean 0 and the
  // deviation that gives each p.
  const std::array p{.0001, .0004, .0019, .0095, .0201, .0278, .0298, .0344,
                     .0459, .3240, .4262, .4400, .4500, .4600, .4700};
  std::vector<PairedSample> family;
  for (const double value : p) {
    const double s = std::sqrt(3.0) / t_of_two(value);
    family.push_back({.differences = {-s, 0, s}, .margin = 1});
  }
  const std::vector<Judgement> judged = judge(family);
  for (std::size_t i = 0; i < judged.size(); ++i) {
    EXPECT_NEAR(*judged[i].p_equal, p[i], 1e-9);
    EXPECT_EQ(judged[i].word, i < 4 ? Word::equal : Word::cannot_tell) << p[i];
  }
}

TEST(Judge, StepsDownToADifferenceAsHolmDoes) {
  // 0.05 / 15, / 14, / 13 pass the first three; 0.0095 is above 0.05 / 12.
  const std::array p{.0001, .0004, .0019, .0095, .0201, .0278, .0298, .0344,
                     .0459, .3240, .4262, .5719, .6528, .7590, 1.0};
  std::vector<PairedSample> family;
  for (const double value : p) {
    const double s = std::sqrt(3.0) / t_of_two(value / 2);
    family.push_back(value == 1.0 ? PairedSample{.differences = {-1, 0, 1}, .margin = 1e-9}
                                  : PairedSample{.differences = {1 - s, 1, 1 + s}, .margin = 1e-9});
  }
  const std::vector<Judgement> judged = judge(family);
  for (std::size_t i = 0; i < judged.size(); ++i) {
    EXPECT_NEAR(*judged[i].p_differs, p[i], 1e-9);
    EXPECT_EQ(judged[i].word, i < 3 ? Word::worse : Word::cannot_tell) << p[i];
  }
  const auto expected = mean_interval(family[2].differences, 1 - 0.05 / 13);
  EXPECT_NEAR(judged[2].adjusted->lower, expected->lower, 1e-12);
  EXPECT_GT(judged[2].adjusted->lower, 0);
}

/// The smallest case of the fault: a clear and a noisy pair are one word whatever else the table holds.
TEST(Judge, SurelyEqualPairsMakeNoOthersDiffer) {
  const std::vector<double> noisy{2.917, 0.917, 3.917, 0.117, 1.917};
  std::vector<PairedSample> family{{.differences = noisy}, {.differences = {3, -2, 1, -3, .5}}};
  EXPECT_EQ(judge(family).front().word, Word::cannot_tell);
  for (int i = 0; i < 9; ++i) family.push_back({.differences = {.2, .201, .199, .2, .2005}});
  const std::vector<Judgement> judged = judge(family);
  EXPECT_EQ(judged.front().word, Word::cannot_tell);
  EXPECT_EQ(judged.back().word, Word::equal);
  // Alone it is one test.
  EXPECT_EQ(judge_one({.differences = noisy}).word, Word::worse);
}

TEST(Judge, RefusesWhatItsCallerHadToCount) {
  EXPECT_THROW(judge_one({.differences = {1, 2, not_a_number}}), std::invalid_argument);
  EXPECT_THROW(judge_one({.differences = {1, 2, 3}, .margin = 0}), std::invalid_argument);
}

// Power: against simulation, which shares nothing with the integrals ----------------------------------------

std::vector<double> normal_values(std::mt19937_64& random, int n, double mean, double deviation) {
  std::normal_distribution<double> normal(mean, deviation);
  std::vector<double> values;
  for (int i = 0; i < n; ++i) values.push_back(normal(random));
  return values;
}

TEST(Power, OfTheDetectableEffectIsFourFifths) {
  // R: power.t.test(n = 10, power = .8, type = "paired")$delta is 0.9960, n = 20: 0.6604 (four digits).
  EXPECT_NEAR(detectable_effect(10), 0.9960, 1e-3);
  EXPECT_NEAR(detectable_effect(20), 0.6604, 1e-3);
  std::mt19937_64 random(3);
  for (const int n : {3, 6, 20}) {
    int found = 0;
    constexpr int trials = 4000;
    for (int i = 0; i < trials; ++i) {
      const auto interval = mean_interval(normal_values(random, n, detectable_effect(n), 1));
      found += interval->contains(0) ? 0 : 1;
    }
    // Five deviations of a binomial share of 0.8.
    EXPECT_NEAR(found / static_cast<double>(trials), 0.8, 5 * std::sqrt(0.16 / trials)) << n;
  }
}

TEST(Power, OfEquivalenceIsWhatSimulationFinds) {
  std::mt19937_64 random(4);
  for (const int n : {3, 5, 12, 40})
    for (const double ratio : {0.4, 0.8, 1.5, 4.0}) {
      int equal = 0;
      constexpr int trials = 3000;
      for (int i = 0; i < trials; ++i) {
        const auto ninety = mean_interval(normal_values(random, n, 0, 1), 0.9);
        equal += -ratio < ninety->lower && ninety->upper < ratio ? 1 : 0;
      }
      const double power = equivalence_power(n, ratio);
      EXPECT_NEAR(equal / static_cast<double>(trials), power, 5 * std::sqrt(0.25 / trials))
          << n << " " << ratio;
    }
}

TEST(Power, SeedsNeededIsTheFirstNumberThatReachesIt) {
  const std::vector<double> values{2.1, -1.7, 1.4, -1.9, 0.8, -0.2};
  const Judgement judgement = judge_one({.differences = values, .margin = 1});
  ASSERT_EQ(judgement.word, Word::cannot_tell);
  ASSERT_TRUE(judgement.seeds_needed);
  // chi^2 of 5 degrees of freedom has 20 % below 2.3425 (any table).
  const double upper = judgement.deviation * std::sqrt(5 / 2.3425);
  EXPECT_GE(equivalence_power(*judgement.seeds_needed, 1 / upper), 0.8 - 1e-4);
  EXPECT_LT(equivalence_power(*judgement.seeds_needed - 1, 1 / upper), 0.8);
  EXPECT_THAT(words_of(judgement, "%"), HasSubstr("seeds would decide; both unadjusted"));
  const Judgement hopeless = judge_one({.differences = {20, -20, 21, -19}, .margin = 1});
  EXPECT_FALSE(hopeless.seeds_needed);
  EXPECT_THAT(words_of(hopeless, "%"), HasSubstr("not at this margin"));
}

// A thousand leagues ----------------------------------------------------------------------------------------

/// Variants that share one reference, as a table's do: `effects` in deviations of one run.
std::vector<PairedSample> league(std::mt19937_64& random, int seeds, const std::vector<double>& effects,
                                 double margin) {
  const std::vector<double> reference = normal_values(random, seeds, 0, 1);
  std::vector<PairedSample> family;
  for (const double effect : effects) {
    PairedSample sample{.differences = normal_values(random, seeds, effect, 1), .margin = margin};
    for (int i = 0; i < seeds; ++i)
      sample.differences[static_cast<std::size_t>(i)] -= reference[static_cast<std::size_t>(i)];
    family.push_back(std::move(sample));
  }
  return family;
}

TEST(Leagues, WithoutAnyDifferenceSeldomFindOne) {
  // 5 % and two deviations of a binomial count of 1,000: 64.
  std::mt19937_64 random(1);
  for (const int seeds : {3, 6, 20}) {
    int wrong = 0;
    for (int i = 0; i < 1000; ++i) {
      bool any = false;
      for (const Judgement& one : judge(league(random, seeds, std::vector<double>(24, 0.0), 1e-9)))
        any = any || one.word == Word::worse || one.word == Word::better;
      wrong += any ? 1 : 0;
    }
    EXPECT_LE(wrong, 64) << seeds << " seeds";
    EXPECT_GT(wrong, 0) << "a test that never fires is none";
  }
}

TEST(Leagues, WithKnownEffectsFindThemAsOftenAsStated) {
  // One pair a league: nothing to adjust. Its differences have deviation sqrt(2).
  std::mt19937_64 random(2);
  constexpr int seeds = 10;
  const double effect = detectable_effect(seeds) * std::sqrt(2.0);
  int found = 0, told_equal = 0;
  for (int i = 0; i < 1000; ++i) {
    found += judge(league(random, seeds, {effect}, 1e-9)).front().word == Word::worse ? 1 : 0;
    // A margin at which ten seeds have four fifths: the ratio comes from the power itself.
    double low = 0.1, high = 10;
    while (i == 0 && high - low > 1e-6)
      (equivalence_power(seeds, (low + high) / 2) < 0.8 ? low : high) = (low + high) / 2;
    static const double ratio = high;
    told_equal +=
        judge(league(random, seeds, {0}, ratio * std::sqrt(2.0))).front().word == Word::equal ? 1 : 0;
  }
  // Five deviations.
  EXPECT_NEAR(found, 800, 5 * std::sqrt(160));
  EXPECT_NEAR(told_equal, 800, 5 * std::sqrt(160));
}

/// Independent pairs without any difference, by the deviation of each.
std::vector<PairedSample> nulls(std::mt19937_64& random, int seeds, const std::vector<double>& deviations) {
  std::vector<PairedSample> family;
  for (const double deviation : deviations)
    family.push_back({.differences = normal_values(random, seeds, 0, deviation), .margin = 1});
  return family;
}

bool says_a_difference(const std::vector<Judgement>& judged) {
  return std::ranges::any_of(
      judged, [](const Judgement& one) { return one.word == Word::worse || one.word == Word::better; });
}

/// Tables of every shape that people have: many pairs that are significantly equal beside a few noisy ones,
/// deviations about the margin, all noisy. At most 5 % of them may have a false word: 64 of 1,000 are two
/// deviations more.
TEST(Leagues, OfEveryShapeSeldomFindADifferenceThatIsNone) {
  const auto shape = [](int sure, int noisy) {
    std::vector<double> deviations(static_cast<std::size_t>(sure), 0.05);
    deviations.insert(deviations.end(), static_cast<std::size_t>(noisy), 4.0);
    return deviations;
  };
  std::vector<double> about_the_margin, mixed;
  for (int i = 0; i < 40; ++i) about_the_margin.push_back(0.3 + 0.02 * i);
  for (int i = 0; i < 40; ++i) mixed.push_back(std::exp2(-5 + 0.2 * i));
  std::mt19937_64 random(6);
  for (const int seeds : {3, 5, 12})
    for (const auto& [name, deviations] :
         std::vector<std::pair<std::string, std::vector<double>>>{{"36 sure and 4 noisy", shape(36, 4)},
                                                                  {"90 and 10", shape(90, 10)},
                                                                  {"about the margin", about_the_margin},
                                                                  {"from 1/32 to 8 margins", mixed}}) {
      int wrong = 0;
      for (int i = 0; i < 1000; ++i)
        wrong += says_a_difference(judge(nulls(random, seeds, deviations))) ? 1 : 0;
      EXPECT_LE(wrong, 64) << name << ", " << seeds << " seeds";
    }
}

/// One effect among 39 without: Holm's first step is a test at 0.05 / 40, whose power is known.
TEST(Leagues, FindALargeEffectBesideManyNullsAsOftenAsStated) {
  constexpr int seeds = 10;
  constexpr double effect = 2;
  const double t = boost::math::quantile(boost::math::students_t(seeds - 1), 1 - 0.05 / 80);
  const double power = boost::math::cdf(
      boost::math::complement(boost::math::non_central_t(seeds - 1, effect * std::sqrt(double{seeds})), t));
  ASSERT_GT(power, 0.8);
  std::mt19937_64 random(7);
  int found = 0;
  for (int i = 0; i < 1000; ++i) {
    std::vector<PairedSample> family = nulls(random, seeds, std::vector<double>(39, 1.0));
    family.push_back({.differences = normal_values(random, seeds, effect, 1), .margin = 1e-9});
    for (PairedSample& sample : family) sample.margin = 1e-9;
    found += judge(family).back().word == Word::worse ? 1 : 0;
  }
  EXPECT_NEAR(found, 1000 * power, 5 * std::sqrt(1000 * power * (1 - power)) + 5) << power;
}

TEST(PairedVerdict, IntervalsShowDigitsWhereBothEndsAreSmall) {
  EXPECT_EQ(interval_text(Interval{-0.124, 3.2}), "[-0.12, +3.20]");
  EXPECT_EQ(interval_text(Interval{-0.0041, 0.00382}), "[-0.0041, +0.0038]");
  EXPECT_EQ(interval_text(Interval{0, 0}), "[+0.00, +0.00]");
  EXPECT_EQ(interval_text({}), "");
  EXPECT_EQ(with_unit(1, "points"), "1 point");
  EXPECT_EQ(with_unit(0.5, "points"), "0.5 points");
  EXPECT_EQ(with_unit(1, "%"), "1 %");
}

}  // namespace
}  // namespace fp16lab::analysis
