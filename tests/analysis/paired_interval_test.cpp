// Student's interval of paired differences.
#include "analysis/paired_interval.hpp"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <stdexcept>
#include <vector>

namespace fp16lab::analysis {
namespace {

TEST(PairedInterval, OfStudentsOwnSleepDataIsTheOneInTheBooks) {
  // Hours of extra sleep under two drugs, ten patients ("Student" 1908, page 20): mean difference 1.58. R's t.test(...,
  // paired = TRUE) prints the interval 0.7001142 to 2.4598858.
  const std::array<double, 10> hours = {1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4};
  const auto interval = paired_interval(hours);
  ASSERT_TRUE(interval);
  EXPECT_EQ(interval->pairs, 10);
  // Half of the last printed digit.
  EXPECT_NEAR(interval->mean, 1.58, 1e-12);
  EXPECT_NEAR(interval->lower, 0.7001142, 5e-8);
  EXPECT_NEAR(interval->upper, 2.4598858, 5e-8);
}

TEST(PairedInterval, OfEqualRunsIsZeroWide) {
  const std::vector<double> same(5, 0.0);
  const auto interval = paired_interval(same);
  ASSERT_TRUE(interval);
  EXPECT_EQ(interval->mean, 0);
  EXPECT_EQ(interval->lower, 0);
  EXPECT_EQ(interval->upper, 0);
  EXPECT_TRUE(interval->contains(0));
}

TEST(PairedInterval, OfTwoPairsUsesOneDegreeOfFreedom) {
  // t(0.975, 1) = tan(0.475 pi) = 12.7062047; s / sqrt(2) = |d1 - d2| / 2.
  const auto interval = paired_interval(std::array{1.0, 3.0});
  ASSERT_TRUE(interval);
  EXPECT_NEAR(interval->upper - interval->mean, 12.7062047, 5e-8);
  // Shifts with the differences and turns round with their sign.
  const auto turned = paired_interval(std::array{-1.0, -3.0});
  EXPECT_EQ(turned->lower, -interval->upper);
  EXPECT_EQ(turned->upper, -interval->lower);
}

TEST(PairedInterval, IsNotToldWithoutWhatItNeeds) {
  EXPECT_FALSE(paired_interval({}));
  EXPECT_FALSE(paired_interval(std::array{1.0}));
  EXPECT_FALSE(paired_interval(std::array{1.0, 2.0, std::numeric_limits<double>::quiet_NaN()}));
  EXPECT_FALSE(paired_interval(std::array{1.0, std::numeric_limits<double>::infinity()}));
  for (const double bad : {0.0, 1.0, -0.5, 95.0})
    EXPECT_THROW(paired_interval(std::array{1.0, 2.0}, bad), std::invalid_argument) << bad;
}

}  // namespace
}  // namespace fp16lab::analysis
