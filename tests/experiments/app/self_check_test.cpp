// The digests of self-check: those that ship equal those computed on any number of threads; another one is
// reported.
#include "experiments/app/self_check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fp16lab::experiments {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(SelfCheck, ThisBuildHasTheBitsThatShip) {
  for (const int threads : {1, 3}) {
    const SelfCheck check = compare_with_shipped(computed_digests(threads));
    EXPECT_EQ(check.differing, 0)
        << check.text
        << "where bits changed on purpose, the lines of fp16lab self-check --digests go into "
           "experiments/app/self_check_digests.cpp";
    EXPECT_THAT(check.text, HasSubstr("training: 3 of 3 have the bits of the build that shipped\n"));
  }
}

TEST(SelfCheck, AnotherBitIsNamed) {
  std::vector<CheckedDigest> computed = computed_digests(2);
  computed.front().digest.front() ^= 1;
  computed.push_back({"products future f16 f32", "0123456789abcdef"});
  const SelfCheck check = compare_with_shipped(computed);
  EXPECT_EQ(check.differing, 2);
  EXPECT_THAT(check.text, HasSubstr("conversions f16: "));
  EXPECT_THAT(check.text, HasSubstr("products future f16 f32: 0123456789abcdef here, unknown in the build"));
  EXPECT_THAT(check.text, HasSubstr("conversions: 11 of 12 have"));
  EXPECT_THAT(check.text, Not(HasSubstr("training f16: ")));
}

}  // namespace
}  // namespace fp16lab::experiments
