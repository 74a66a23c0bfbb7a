// The yardsticks of exp_policy_league, and the program on a grid that is far too small for its claims.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>

#include "engine/amp/policy.hpp"
#include "experiments/questions/policy_league.hpp"
#include "tests/experiments/app/small_runs.hpp"
#include "tests/experiments/study/judged_row.hpp"

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

// The jackknife, worked out beside it: without ties Spearman's is 1 - 6 sum(d^2) / (n (n^2 - 1)).
double spearman(const std::vector<double>& x, const std::vector<double>& y) {
  double squares = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    double rank = 0;
    for (std::size_t j = 0; j < x.size(); ++j) rank += (x[j] < x[i] ? 1 : 0) - (y[j] < y[i] ? 1 : 0);
    squares += rank * rank;
  }
  const auto n = static_cast<double>(x.size());
  return 1 - 6 * squares / (n * (n * n - 1));
}
double gain(const std::vector<PredictedPoint>& points, std::size_t without) {
  std::vector<double> a, b, outcome;
  for (const PredictedPoint& point : points) {
    if (point.group == without) continue;
    a.push_back(point.a);
    b.push_back(point.b);
    outcome.push_back(point.outcome);
  }
  return spearman(b, outcome) - spearman(a, outcome);
}

/// Seven scales a group; the lower the scale, the larger both quantities, each with an offset of its group.
std::vector<PredictedPoint> simulated(std::mt19937_64& random, std::size_t groups, double off_a, double off_b,
                                      double noise, bool told) {
  std::normal_distribution<double> normal;
  std::vector<PredictedPoint> points;
  for (std::size_t group = 0; group < groups; ++group) {
    const double cost = 3 * normal(random), a = cost + off_a * normal(random),
                 b = cost + off_b * normal(random);
    for (int scale = 0; scale < 7; ++scale)
      points.push_back({.group = group,
                        .a = a - scale,
                        .b = b - scale,
                        .outcome = (told ? cost - scale : 0) + noise * normal(random)});
  }
  return points;
}

TEST(PredictorContest, HasTheJackknifesInterval) {
  std::mt19937_64 random(7);
  const std::vector<PredictedPoint> points = simulated(random, 4, 2, 2, 1, true);
  const PredictorContest found = contest(points);
  ASSERT_TRUE(found.difference && found.by_a && found.by_b);
  EXPECT_EQ(found.groups, 4u);
  const double all = gain(points, 99);
  EXPECT_NEAR(*found.by_b - *found.by_a, all, 1e-12);
  std::vector<double> pseudo;
  double mean = 0, squares = 0;
  for (std::size_t group = 0; group < 4; ++group) pseudo.push_back(4 * all - 3 * gain(points, group));
  for (const double value : pseudo) mean += value / 4;
  for (const double value : pseudo) squares += (value - mean) * (value - mean);
  const double half = 3.182446305284263 * std::sqrt(squares / 3) / 2;  // t(0.975, 3)
  EXPECT_NEAR(found.difference->lower, mean - half, 1e-9);
  EXPECT_NEAR(found.difference->upper, mean + half, 1e-9);
}

TEST(PredictorContest, FindsNoDifferenceWhereThereIsNoneAndOneWhereThereIs) {
  constexpr int contests = 1000;
  const auto decided = [](std::size_t groups, double off_a, double off_b, double noise, bool told) {
    std::mt19937_64 random(11);
    int for_a = 0, for_b = 0;
    for (int i = 0; i < contests; ++i) {
      const PredictorContest found = contest(simulated(random, groups, off_a, off_b, noise, told));
      for_b += found.difference && found.difference->lower > 0 ? 1 : 0;
      for_a += found.difference && found.difference->upper < 0 ? 1 : 0;
    }
    return std::pair(for_a, for_b);
  };
  // The level is 5 %; two standard deviations of a count above it.
  const double most = contests * 0.05 + 2 * std::sqrt(contests * 0.05 * 0.95);
  for (const bool told : {true, false}) {
    const auto [for_a, for_b] = decided(4, 3, 3, 1, told);
    EXPECT_LE(for_a + for_b, most) << told;
  }
  // b is the cost itself, a has nothing to do with it across groups: twelve would nearly always tell, four
  // seldom do.
  const auto [wrong, right] = decided(12, 20, 0, 0.1, true);
  EXPECT_EQ(wrong, 0);
  EXPECT_GE(right, 0.85 * contests);
  EXPECT_LE(decided(4, 20, 0, 0.1, true).second, 0.5 * contests);
}

TEST(PredictorContest, SaysNothingOfTwoGroups) {
  std::mt19937_64 random(3);
  EXPECT_FALSE(contest(simulated(random, 2, 1, 1, 1, true)).difference);
  EXPECT_TRUE(contest(simulated(random, 2, 1, 1, 1, true)).by_a);
  EXPECT_FALSE(contest({}).by_a);
}

/// lost-mass against torch: a workload each of `skips` and `lost` of both.
League made_league(const std::vector<std::array<ReplayInterval, 4>>& cases) {
  League league;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const std::string workload = "w" + std::to_string(i);
    league.workloads.push_back(workload);
    ReplayedPolicy ours, peer;
    ours.skips = cases[i][0];
    peer.skips = cases[i][1];
    ours.lost_l1 = cases[i][2];
    peer.lost_l1 = cases[i][3];
    league.rows.push_back(
        {.workload = workload, .policy = "lost-mass", .replays = {ours}, .trained = equal_row()});
    league.rows.push_back(
        {.workload = workload, .policy = "torch", .replays = {peer}, .trained = equal_row()});
  }
  league.replayed_steps = 240;
  return league;
}

Claim claim_of(const League& league, std::size_t number) {
  return judged(std::vector{league_questions().at(number - 1)}, league).front();
}

TEST(LeagueClaims, LostMassIsUndecidedWhereBoundsOverlap) {
  const std::array<ReplayInterval, 4> good{{{0, 0}, {3, 4}, {0.1, 0.1}, {0.2, 0.2}}};
  const std::array<ReplayInterval, 4> overlaps{{{0, 4}, {2, 4}, {0.1, 0.2}, {0.1, 0.3}}};
  const std::array<ReplayInterval, 4> skips_more{{{5, 5}, {3, 4}, {0, 0}, {0.2, 0.2}}};
  const std::array<ReplayInterval, 4> loses_more{{{0, 0}, {3, 4}, {0.3, 0.3}, {0.1, 0.2}}};
  EXPECT_EQ(claim_of(made_league({good, good, good, skips_more}), 2).verdict, Verdict::holds);
  const Claim open = claim_of(made_league({good, overlaps, good, skips_more}), 2);
  EXPECT_EQ(open.verdict, Verdict::cannot_tell);
  EXPECT_THAT(
      open.measured,
      HasSubstr("w1: skips 0..4 against 2..4, lost L1 10..20 % against 10..30 %: the bounds overlap"));
  EXPECT_THAT(open.measured, HasSubstr("w3: skips 5 against 3..4, lost L1 0 % against 20 %: no"));
  EXPECT_THAT(open.measured, HasSubstr("in all, of 240 steps, lost-mass skips 5..9 and torch 11..16"));
  EXPECT_EQ(claim_of(made_league({good, loses_more, good, skips_more}), 2).verdict, Verdict::fails);

  // The first claim is the same about the replays with each policy's own growth interval, and about nothing
  // else.
  League own = made_league({good, loses_more, good, skips_more});
  EXPECT_EQ(claim_of(own, 1).verdict, Verdict::not_run) << "there are none";
  EXPECT_THAT(claim_of(own, 1).claim, HasSubstr("torch's is 2000"));
  for (LeagueRow& row : own.rows) row.own_replays = own.row("w0", row.policy).replays;
  EXPECT_EQ(claim_of(own, 1).verdict, Verdict::holds);
  EXPECT_EQ(claim_of(own, 2).verdict, Verdict::fails);
}

TEST(LeagueClaims, ScalesRiseIfTheIntervalOverSeedsSaysSo) {
  const auto league_of = [](std::vector<double> late, double last) {
    League league = made_league({{}, {}, {}});
    for (const std::string& workload : league.workloads) {
      if (workload == "w2") late.back() = last;
      for (std::size_t seed = 0; seed < late.size(); ++seed) {
        AllowedScales allowed{.workload = workload, .seed = static_cast<std::int64_t>(seed)};
        for (std::uint64_t step = 1; step <= 40; ++step) {
          allowed.band.steps.push_back(step);
          allowed.band.log2_highest.push_back(step > 30 ? 12 + late[seed] : 12);
        }
        league.allowed.push_back(allowed);
      }
    }
    return league;
  };
  const Claim rises = claim_of(league_of({2, 1.9, 2.1}, 2.1), 3);
  EXPECT_EQ(rises.verdict, Verdict::holds);
  EXPECT_THAT(rises.measured, HasSubstr("w0: +2.00 binades [+1.75, +2.25] (3 seeds)"));
  EXPECT_THAT(rises.measured, HasSubstr("40 steps"));
  EXPECT_EQ(claim_of(league_of({2, 1.9, 2.1}, -2), 3).verdict, Verdict::cannot_tell)
      << "one workload is open";
  EXPECT_EQ(claim_of(league_of({0.2, 0.1, 0.3}, 0.3), 3).verdict, Verdict::fails);
  EXPECT_EQ(claim_of(league_of({2, 2.1}, 2.1), 3).verdict, Verdict::cannot_tell) << "two seeds";
  EXPECT_EQ(claim_of(made_league({{}}), 3).verdict, Verdict::not_run);
}

TEST(LeagueClaims, EveryPolicyIsAsGoodOnlyIfAllAreEqual) {
  League league = made_league({{}});
  EXPECT_EQ(claim_of(league, 4).verdict, Verdict::holds);
  league.rows.front().trained = better_row();
  EXPECT_EQ(claim_of(league, 4).verdict, Verdict::holds) << "better is as well as";
  league.rows.front().trained = equal_row();
  league.rows.push_back({.workload = "w0", .policy = "megatron", .trained = open_row()});
  EXPECT_EQ(claim_of(league, 4).verdict, Verdict::cannot_tell);
  league.rows.push_back(
      {.workload = "w0", .policy = "flax", .trained = judged_row(clearly_worse, scattered)});
  EXPECT_EQ(claim_of(league, 4).verdict, Verdict::cannot_tell)
      << "worse than FP32, but FP32's twin may be too";
  league.rows.push_back({.workload = "w0", .policy = "none", .trained = worse_row()});
  EXPECT_EQ(claim_of(league, 4).verdict, Verdict::cannot_tell) << "it does not move its scale";
  league.rows.push_back(
      {.workload = "w0", .policy = "apex", .trained = judged_row(clearly_worse, clearly_worse)});
  league.rows.back().trained.row.skipped = 7;
  const Claim claim = claim_of(league, 4);
  EXPECT_EQ(claim.verdict, Verdict::fails);
  EXPECT_THAT(claim.measured,
              HasSubstr("5 pairs of policy and workload are 5 with bits of their own: 2 equal, 0 "
                        "better, 2 worse (1 of them also than FP32's one-ulp twin), 1 undecided"));
  EXPECT_THAT(claim.measured, HasSubstr("+7.24 % (worse) [+6.55, +7.93], worse"));
  // The same runs under another name are no second pair.
  league.rows.push_back(league.rows.back());
  for (std::size_t i = league.rows.size() - 2; i < league.rows.size(); ++i)
    league.rows[i].trained.row.bits = 42;
  EXPECT_THAT(
      claim_of(league, 4).measured,
      HasSubstr("6 pairs of policy and workload are 5 with bits of their own: 2 equal, 0 better, 2 worse"));
  EXPECT_EQ(claim_of(League{}, 4).verdict, Verdict::not_run);
}

TEST(LeagueClaims, LostMassAgainstLostValuesNeedsMoreThanAFewWorkloads) {
  const auto league_of = [](int workloads, bool by_mass) {
    League league;
    for (int w = 0; w < workloads; ++w) {
      league.workloads.push_back("w" + std::to_string(w));
      // Across workloads one quantity tells the cost and the other is the wrong way round.
      for (int scale = 0; scale < 4; ++scale) {
        const double cost = 10 * w - scale, opposite = 10 * (workloads - w) - scale;
        const double lost = by_mass ? opposite : cost, mass = by_mass ? cost : opposite;
        league.fixed.push_back({.workload = league.workloads.back(),
                                .log2_scale = scale,
                                .lost_count = {lost, lost},
                                .lost_l1 = {mass, mass},
                                .differences = {cost, cost + 0.1},
                                .steps = 300});
      }
    }
    return league;
  };
  EXPECT_EQ(claim_of(league_of(6, true), 5).verdict, Verdict::holds);
  EXPECT_EQ(claim_of(league_of(6, false), 5).verdict, Verdict::fails);
  League two = league_of(2, true);
  EXPECT_EQ(claim_of(two, 5).verdict, Verdict::cannot_tell) << "two workloads have no interval";
  EXPECT_THAT(claim_of(two, 5).measured, HasSubstr("8 points of 2 workloads, not independent (0 left out)"));
  two.fixed[0].skipped = 30;  // a tenth of the steps: overflow
  two.fixed[1].diverged = 1;
  EXPECT_THAT(claim_of(two, 5).measured, HasSubstr("6 points of 2 workloads, not independent (2 left out)"));
  EXPECT_EQ(claim_of(League{}, 5).verdict, Verdict::not_run);
}

class PolicyLeague : public SmallRuns {};

TEST_F(PolicyLeague, PlansEveryPolicyOnEveryWorkload) {
  write_config("12");
  CommonOptions common;
  common.config = write_sweep({"a"}, "1, 2", {{"fp32", {"amp.level=O0"}}});
  common.out = folder_ / "out";
  const SweepPlan plan = league_plan(common, false);
  EXPECT_EQ(plan.runs.size(), 2 * (2 + engine::amp::scale_policies().size() + league_scales(false).size()));
  for (const PlannedRun& run : plan.runs) {
    const auto interval = run.config.scaler.parameter("growth_interval");
    if (interval) {
      EXPECT_LE(*interval, static_cast<double>(league_interval)) << run.name;
    }
  }
}

TEST_F(PolicyLeague, RunsRepeatsNothingAndDecidesNothingWhenQuick) {
  write_config("12");
  const std::string grid = write_sweep({"a"}, "1, 2", {{"fp32", {"amp.level=O0"}}});
  const std::vector<std::string> arguments{"--quick", "-c", grid, "-o", "out", "--threads", "2"};
  const testing_support::Finished first = run_inside("exp_policy_league", arguments);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("7 runs"));
  EXPECT_THAT(first.out, HasSubstr("\n  lost-mass "));
  EXPECT_THAT(first.out, HasSubstr("\n  policy-torch "));
  EXPECT_THAT(first.out, HasSubstr("claim 5: "));
  EXPECT_THAT(first.out, HasSubstr("verdict: REHEARSED"));
  EXPECT_THAT(first.out,
              testing::EndsWith("a short run that shows the form of the answer and decides nothing\n"));
  for (const char* const decided : {"verdict: HOLDS", "verdict: FAILS", "verdict: CANNOT TELL"})
    EXPECT_EQ(first.out.find(decided), std::string::npos) << decided;
  EXPECT_THAT(read("out/claims.json"), HasSubstr("REHEARSED"));
  EXPECT_EQ(column("out/exp_policy_league.csv", "configuration").size(), 7u);
  EXPECT_EQ(column("out/replays.csv", "growth_interval"),
            (std::vector<std::string>{"", "20", "2000", "", ""}))
      << "torch's own interval too";
  EXPECT_EQ(column("out/fixed_scales.csv", "log2_scale").size(), 2u);
  const std::vector<std::string> underflow = column("out/exp_policy_league.csv", "underflow_rate");
  EXPECT_EQ(underflow[0], "") << "FP32 casts nothing";
  for (std::size_t i = 2; i < underflow.size(); ++i) EXPECT_GE(std::stod(underflow[i]), 0);
  const testing_support::Finished second = run_inside("exp_policy_league", arguments);
  EXPECT_EQ(second.exit_code, 0);
  EXPECT_THAT(second.err, HasSubstr("7 of 7 runs are already complete"));
  EXPECT_EQ(second.out, first.out);
}

}  // namespace
}  // namespace fp16lab::experiments
