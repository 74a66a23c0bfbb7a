// fp16lab hist --exact-mass: sums value by value.
#include <gmock/gmock.h>

#include "tests/experiments/app/commands/hist_fixture.hpp"

namespace fp16lab::experiments {
namespace {

using ::testing::HasSubstr;

class ExactHist : public SmallRuns {};

TEST_F(ExactHist, SumsOfADump) {
  // One zero; 2^-25 and 3 * 2^-27 are lost at scale 1, 2^-20 is subnormal, 0.75 and 1 are normal, 65520
  // overflows.
  write_bytes(path("g.npy"),
              npy("<f8", "(7,)", doubles({0.0, 0x1p-25, -0x1.8p-26, 0x1p-20, -0.75, 1.0, 65520.0})));
  const auto result = fp16lab({"hist", path("g.npy"), "--exact-mass", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json document = json::parse(result.out);
  const json& exact = document.at("exact").at(0);
  EXPECT_EQ(exact.at("tensor"), "g");
  EXPECT_EQ(exact.at("zero"), 1);
  EXPECT_EQ(exact.at("lost").at("count"), 2);
  EXPECT_EQ(exact.at("lost").at("l1").get<double>(), 0x1p-25 + 0x1.8p-26);
  EXPECT_EQ(exact.at("lost").at("l2_squared").get<double>(), 0x1p-50 + 0x1.2p-51);
  EXPECT_EQ(exact.at("subnormal").at("l1").get<double>(), 0x1p-20);
  EXPECT_EQ(exact.at("normal").at("l2_squared").get<double>(), 1.5625);
  EXPECT_EQ(exact.at("overflow").at("count"), 1);
  EXPECT_EQ(exact.at("total").at("count"), 6);
  // The shares that stand with the counts are the same ones.
  const json& counts = document.at("tensors").at(0);
  const double share = exact.at("lost").at("l1_share").get<double>();
  EXPECT_EQ(counts.at("l1").at("lost"), json({share, share}));
  EXPECT_EQ(counts.at("overflow"), json({1, 1}));

  // Values that carry a scale: zones at --scale, sums of the values as they are in the file.
  const json carried = json::parse(fp16lab({"hist", path("g.npy"), "--exact-mass", "--json",
                                            "--recorded-scale", "2^10", "--scale", "2^11"})
                                       .out);
  EXPECT_EQ(carried.at("exact").at(0).at("lost").at("count"), 0);  // twice 3 * 2^-27 is above 2^-25
  EXPECT_EQ(carried.at("exact").at(0).at("subnormal").at("l1").get<double>(), 0x1p-25 + 0x1.8p-26 + 0x1p-20);
  EXPECT_THAT(fp16lab({"hist", path("g.npy"), "--exact-mass"}).out, HasSubstr("Exactly, value by value"));
}

TEST_F(ExactHist, RunFoldersHoldNoValues) {
  ASSERT_EQ(train("run").exit_code, 0);
  expect_one_line_error(fp16lab({"hist", path("run"), "--exact-mass"}), 2,
                        "run folders hold counts, not values");
  // What their casts stored is shown beside what had been zero before.
  const auto table = fp16lab({"hist", path("run"), "--all"});
  EXPECT_THAT(table.out, HasSubstr(" as they were recorded, at loss scale"));
  EXPECT_THAT(table.out, HasSubstr("By magnitude"));
}

}  // namespace
}  // namespace fp16lab::experiments
