// The gap between two engines' log-probabilities, on numbers whose answers are known.
#include "analysis/probability_gap.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/message_of.hpp"

namespace fp16lab::analysis {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_support::message_of;

TEST(ProbabilityGap, LogProbabilitiesAreThoseOfTheTargets) {
  const float large = 1e4F;
  const std::vector<float> logits{0, 0, 0, std::log(3.0F), large, large};
  const std::vector<std::int32_t> targets{1, 1, 0};
  const std::vector<double> found = log_probabilities(logits, targets);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_DOUBLE_EQ(found[0], -std::log(2.0));
  EXPECT_NEAR(found[1], std::log(0.75), 1e-7);  // the logit is an FP32 number
  EXPECT_DOUBLE_EQ(found[2], -std::log(2.0));
  EXPECT_TRUE(log_probabilities({}, {}).empty());
  EXPECT_THAT(message_of([&] {
                log_probabilities(logits, std::vector<std::int32_t>{0, 2, 0});
              }),
              HasSubstr("target 1 is 2, which is not in [0, 2)"));
  EXPECT_THAT(message_of([&] {
                log_probabilities(logits, std::vector<std::int32_t>{0, 1, 0, 0});
              }),
              HasSubstr("6 logits for 4 targets"));
}

TEST(ProbabilityGap, DistancesRatiosAndBatches) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> a{-1, -2, -3, -infinity}, b{-1, -2.5, -2.75, -infinity};
  const ProbabilityGap gap = probability_gap(a, b, std::vector<std::size_t>{2, 2}, 1.3);
  EXPECT_EQ(gap.targets, 4u);
  EXPECT_DOUBLE_EQ(gap.mean_magnitude, 0.75 / 4);
  EXPECT_DOUBLE_EQ(gap.mean, -0.25 / 4);
  EXPECT_DOUBLE_EQ(gap.largest, 0.5);
  EXPECT_EQ(gap.largest_at, 1u);
  EXPECT_DOUBLE_EQ(gap.outside, 0.25);  // exp(-0.5) alone: exp(0.25) = 1.284 is within
  ASSERT_TRUE(gap.interval);
  EXPECT_NEAR((gap.interval->lower + gap.interval->upper) / 2, 0.75 / 4, 1e-12);
  // t(0.975, 1) s / sqrt(2) of 0.25 and 0.125
  EXPECT_NEAR(gap.interval->upper - gap.interval->lower, 2 * 12.7062 * 0.0625, 1e-4);

  const ProbabilityGap equal = probability_gap(a, a, std::vector<std::size_t>{4}, 1);
  EXPECT_EQ(equal.mean_magnitude, 0);
  EXPECT_EQ(equal.outside, 0);
  EXPECT_FALSE(equal.interval);
  const ProbabilityGap lost =
      probability_gap(a, std::vector<double>{-1, NAN, -3, -1}, std::vector<std::size_t>{4}, 2);
  EXPECT_TRUE(std::isnan(lost.mean_magnitude) && std::isnan(lost.largest));
  EXPECT_EQ(lost.largest_at, 1u);
  EXPECT_DOUBLE_EQ(lost.outside, 0.5);
  EXPECT_THAT(message_of([&] { probability_gap(a, b, std::vector<std::size_t>{3}, 2); }),
              HasSubstr("4 and 4 log-probabilities, and batches of 3 together"));
  EXPECT_THAT(message_of([&] { probability_gap(a, b, std::vector<std::size_t>{4}, 0.5); }),
              HasSubstr("a band of 0.5"));
}

}  // namespace
}  // namespace fp16lab::analysis
