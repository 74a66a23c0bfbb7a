// The yardsticks of exp_policy_league, and the program on a grid that is far too small for its claims.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/amp/policy.hpp"
#include "experiments/policy_league/league.hpp"
#include "experiments/policy_league/rank_correlation.hpp"
#include "tests/experiments/small_runs.hpp"

namespace fp16lab::experiments {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(RankCorrelation, IsSpearmans) {
  EXPECT_THAT(ranks(std::vector<double>{3, 1, 2}), ElementsAre(3, 1, 2));
  EXPECT_THAT(ranks(std::vector<double>{5, 1, 5, 1, 9}), ElementsAre(3.5, 1.5, 3.5, 1.5, 5)) << "ties share";
  const std::vector<double> x{1, 2, 3, 4};
  EXPECT_DOUBLE_EQ(rank_correlation(x, std::vector<double>{1, 8, 27, 1e9}).value(), 1)
      << "any rising function";
  EXPECT_DOUBLE_EQ(rank_correlation(x, std::vector<double>{4, 3, 2, 1}).value(), -1);
  // Without ties 1 - 6 sum(d^2) / (n (n^2 - 1)): here d = 1, 1, 1, 1.
  EXPECT_DOUBLE_EQ(rank_correlation(x, std::vector<double>{2, 1, 4, 3}).value(), 1 - 6.0 * 4 / (4 * 15));
  EXPECT_FALSE(rank_correlation(x, std::vector<double>{7, 7, 7, 7}).has_value());
  EXPECT_FALSE(rank_correlation(std::vector<double>{1, 2}, std::vector<double>{1, 2}).has_value());
  EXPECT_THROW(rank_correlation(x, std::vector<double>{1}), std::invalid_argument);
  EXPECT_THROW(ranks(std::vector<double>{1, NAN}), std::invalid_argument);
}

TrainedRuns trained(std::vector<double> losses, std::vector<double> differences) {
  TrainedRuns runs;
  runs.complete = runs.planned = static_cast<int>(losses.size());
  runs.final_losses = std::move(losses);
  runs.differences = std::move(differences);
  runs.steps = 300;
  return runs;
}

/// lost-mass against torch: a workload each of `skips` and `lost` of both.
League made_league(const std::vector<std::array<ReplayInterval, 4>>& cases) {
  League league;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const std::string workload = "w" + std::to_string(i);
    league.workloads.push_back(workload);
    league.rows.push_back({.workload = workload, .policy = "fp32", .trained = trained({1, 1.01}, {0, 0})});
    ReplayedPolicy ours, peer;
    ours.skips = cases[i][0];
    peer.skips = cases[i][1];
    ours.lost_l1 = cases[i][2];
    peer.lost_l1 = cases[i][3];
    league.rows.push_back({.workload = workload,
                           .policy = "lost-mass",
                           .replays = {ours},
                           .trained = trained({1, 1.02}, {0, 1})});
    league.rows.push_back(
        {.workload = workload, .policy = "torch", .replays = {peer}, .trained = trained({1, 1.02}, {0, 1})});
  }
  return league;
}

TEST(LeagueClaims, LostMassIsJudgedByTheMiddlesWhereBoundsOverlap) {
  const std::array<ReplayInterval, 4> good{{{0, 0}, {3, 4}, {0.1, 0.1}, {0.2, 0.2}}};
  const std::array<ReplayInterval, 4> by_middle{{{0, 4}, {2, 4}, {0.1, 0.2}, {0.1, 0.3}}};
  const std::array<ReplayInterval, 4> skips_more{{{5, 5}, {3, 4}, {0, 0}, {0.2, 0.2}}};
  const std::array<ReplayInterval, 4> loses_more{{{0, 0}, {3, 4}, {0.3, 0.3}, {0.1, 0.2}}};
  const LeagueClaim three = judge(made_league({good, by_middle, good, skips_more}))[1];
  EXPECT_EQ(three.verdict, ClaimVerdict::holds);
  EXPECT_THAT(
      three.measured,
      HasSubstr("w1: skips 0..4 against 2..4, lost L1 10..20 % against 10..30 %: yes by the middles"));
  EXPECT_THAT(three.measured, HasSubstr("w3: skips 5 against 3..4, lost L1 0 % against 20 %: no"));
  EXPECT_EQ(judge(made_league({good, loses_more, good, skips_more}))[1].verdict, ClaimVerdict::fails);

  // The first claim is the same about the replays with each policy's own growth interval, and about nothing else.
  League own = made_league({good, loses_more, good, skips_more});
  EXPECT_EQ(judge(own)[0].verdict, ClaimVerdict::undecided) << "there are none";
  for (LeagueRow& row : own.rows) row.own_replays = own.row("w0", row.policy).replays;
  EXPECT_EQ(judge(own)[0].verdict, ClaimVerdict::holds);
  EXPECT_EQ(judge(own)[1].verdict, ClaimVerdict::fails);
}

TEST(LeagueClaims, ScalesRiseOnlyIfTheyDoInEverySeed) {
  League league = made_league({{}, {}, {}});
  const auto add = [&](const std::string& workload, std::int64_t seed, double late) {
    AllowedScales allowed{.workload = workload, .seed = seed};
    for (std::uint64_t step = 1; step <= 40; ++step) {
      allowed.band.steps.push_back(step);
      allowed.band.log2_highest.push_back(step > 30 ? 12 + late : 12);
    }
    league.allowed.push_back(allowed);
  };
  for (const char* const workload : {"w0", "w1", "w2"}) {
    add(workload, 1, 2);
    add(workload, 2, 1.5);
  }
  EXPECT_EQ(judge(league)[2].verdict, ClaimVerdict::holds);
  add("w2", 3, 1);
  EXPECT_EQ(judge(league)[2].verdict, ClaimVerdict::fails) << "one binade is not more than one";
}

TEST(LeagueClaims, APolicyBehindFp32IsNamed) {
  League league = made_league({{}});
  EXPECT_EQ(judge(league)[3].verdict, ClaimVerdict::holds);
  league.rows.push_back({.workload = "w0", .policy = "apex", .trained = trained({2, 2.01}, {100, 100})});
  const LeagueClaim claim = judge(league)[3];
  EXPECT_EQ(claim.verdict, ClaimVerdict::fails);
  EXPECT_THAT(claim.measured, HasSubstr("apex on w0"));
  EXPECT_THAT(claim.measured, HasSubstr("1 of 3 pairs"));
}

TEST(LeagueClaims, LostMassAgainstLostValuesAsPredictors) {
  League league = made_league({{}});
  const auto add = [&](double lost, double mass, double cost, std::uint64_t skipped) {
    FixedScale fixed{
        .workload = "w0", .lost_count = {lost, lost}, .lost_l1 = {mass, mass}, .lost_l2 = {mass, mass}};
    fixed.trained = trained({1, 1}, {cost, cost});
    fixed.trained.skipped = skipped;
    league.fixed.push_back(fixed);
  };
  add(0.5, 0.001, 0, 0);
  add(0.4, 0.01, 1, 0);
  add(0.6, 0.1, 2, 0);
  add(0.9, 0.9, -50, 200);  // mostly skipped: not underflow's fault
  const LeagueClaim claim = judge(league)[4];
  EXPECT_EQ(claim.verdict, ClaimVerdict::holds);
  EXPECT_THAT(claim.measured,
              HasSubstr("3 points (1 left out): +0.500 for the share of lost values, +1.000 for lost L1"));
}

class PolicyLeague : public SmallRuns {};

TEST_F(PolicyLeague, PlansEveryPolicyOnEveryWorkload) {
  write_config("12");
  const std::filesystem::path file = folder_ / "league.toml";
  testing_support::write_bytes(file,
                               "[[workload]]\nname = \"a\"\nconfig = \"small.toml\"\nseeds = [1, 2]\n"
                               "[[variant]]\nname = \"fp32\"\nset = [\"amp.level=O0\"]\n");
  CommonOptions common;
  common.config = file;
  common.out = folder_ / "out";
  const SweepPlan plan = league_plan(common, false);
  EXPECT_EQ(plan.runs.size(), 2 * (1 + engine::amp::scale_policies().size() + league_scales(false).size()));
  for (const PlannedRun& run : plan.runs) {
    const auto interval = run.config.scaler.parameter("growth_interval");
    if (interval) {
      EXPECT_LE(*interval, static_cast<double>(league_interval)) << run.name;
    }
  }
}

TEST_F(PolicyLeague, RunsRepeatsNothingAndDecidesNothingWhenQuick) {
  write_config("12");
  testing_support::write_bytes(folder_ / "league.toml",
                               "[[workload]]\nname = \"a\"\nconfig = \"small.toml\"\nseeds = [1, 2]\n"
                               "[[variant]]\nname = \"fp32\"\nset = [\"amp.level=O0\"]\n");
  const std::vector<std::string> arguments{"--quick",   "-c", path("league.toml"), "-o", path("out"),
                                           "--threads", "2"};
  const std::string program = std::string(FP16LAB_BIN_DIR) + "/exp_policy_league";
  const testing_support::Finished first = testing_support::run_program(program, arguments, folder_);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("6 runs"));
  EXPECT_THAT(first.out, HasSubstr("\nlost-mass "));
  EXPECT_THAT(first.out, HasSubstr("claim 5: "));
  EXPECT_THAT(first.out, HasSubstr("verdict: UNDECIDED"));
  EXPECT_EQ(first.out.find("verdict: PASS"), std::string::npos);
  EXPECT_EQ(column("out/exp_policy_league.csv", "policy").size(), 4u);
  EXPECT_EQ(column("out/fixed_scales.csv", "log2_scale").size(), 2u);
  const std::vector<std::string> underflow = column("out/exp_policy_league.csv", "underflow");
  EXPECT_EQ(underflow[0], "") << "FP32 casts nothing";
  for (std::size_t i = 1; i < underflow.size(); ++i) EXPECT_GE(std::stod(underflow[i]), 0);
  const testing_support::Finished second = testing_support::run_program(program, arguments, folder_);
  EXPECT_EQ(second.exit_code, 0);
  EXPECT_THAT(second.err, HasSubstr("6 of 6 runs are already complete"));
  EXPECT_EQ(second.out, first.out);
}

}  // namespace
}  // namespace fp16lab::experiments
