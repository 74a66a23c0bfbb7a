// Replays of hand-made runs whose answers are known.
#include "experiments/app/replay/replay.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <random>

#include "experiments/app/replay/fixed_scale.hpp"
#include "tests/experiments/app/replay/replay_folder.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::experiments {
namespace {

using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::message_of;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

class Replay : public testing::Test {
 protected:
  std::filesystem::path folder() const { return temporary_.path() / "run"; }

  /// One policy; without the oracle's row.
  ReplayedPolicy replayed(const std::vector<std::string>& settings, const std::string& policy = "torch") {
    ReplayOptions options;
    options.contestants = {.policies = {policy}, .settings = settings, .interval = {}};
    options.oracle = false;
    file_ = replay_run(folder(), options);
    return file_.policies.at(0);
  }

  testing_support::TemporaryFolder temporary_;
  ReplayFile file_;
};

MadeStep weights(std::vector<double> values) {
  MadeStep step;
  step.tensors.push_back({.values = std::move(values)});
  return step;
}

// torch from 2^12 with an interval of 2. The largest gradient is 3, and once 24: 24 * 2^13 = 196608.
TEST_F(Replay, FollowsTorchThroughCertainOverflows) {
  make_run(folder(),
           {weights({3, 0x1p-30}), weights({3, 0x1p-30}), weights({24, 0x1p-30}), weights({3, 0x1p-30}),
            weights({0.75, 0x1p-30}), weights({0.75, 0x1p-30}), weights({0.75, 0x1p-30})});
  const ReplayedPolicy torch = replayed({"torch.initial_scale=2^12", "torch.growth_interval=2"});
  // step  scale  largest         bin's end
  //  1    2^12   3 * 2^12        2^14       good
  //  2    2^12                              good, the second: doubled
  //  3    2^13   24 * 2^13       2^18       overflow: halved
  //  4    2^12                              good
  //  5    2^12                              good: doubled
  //  6    2^13   0.75 * 2^13                good
  //  7    2^13                              the last
  EXPECT_THAT(torch.steps, ElementsAre(1u, 3u, 4u, 6u, 7u));
  EXPECT_THAT(torch.log2_scale_lower, ElementsAre(12, 13, 12, 13, 13));
  EXPECT_EQ(torch.log2_scale_upper, torch.log2_scale_lower);
  EXPECT_THAT(torch.skipped_lower, ElementsAre(3u));
  EXPECT_THAT(torch.skipped_upper, ElementsAre(3u));
  EXPECT_EQ(torch.skips, (ReplayInterval{1, 1}));
  EXPECT_EQ(torch.wasted_steps, (ReplayInterval{1, 1}));
  EXPECT_TRUE(torch.exact);
  EXPECT_TRUE(file_.exact);
  // Nothing is lost: 2^-30 * 2^12 = 2^-18 > 2^-25.
  EXPECT_EQ(torch.lost_count, (ReplayInterval{0, 0}));
  EXPECT_EQ(torch.lost_l1, (ReplayInterval{0, 0}));
  EXPECT_EQ(file_.total_steps, 7u);
  EXPECT_EQ(file_.observed_steps, 7u);
  EXPECT_EQ(file_.workload, "classifier");
  EXPECT_EQ(file_.run, "run");
}

TEST_F(Replay, CountsWhatIsLostInTakenStepsOnly) {
  // At 2^0: 2^-25 is lost (the tie), 2^-24 and 1 stay. The second step overflows: its losses do not count.
  make_run(folder(), {weights({1, 0x1p-24, 0x1p-25, 0x1p-40, 0}), weights({1e6, 0x1p-40})});
  const ReplayedPolicy fixed = replayed({"fixed.initial_scale=1"}, "fixed");
  EXPECT_EQ(fixed.skips, (ReplayInterval{1, 1}));
  EXPECT_EQ(fixed.lost_count, (ReplayInterval{0.5, 0.5})) << "2 of 4 that are not zero";
  // L1: lost 2^-25 + 2^-40, in (2^-26 + 2^-41, 2^-25 + 2^-40]; kept 1 + 2^-24, in (2^-1 + 2^-25, 1 + 2^-24].
  EXPECT_NEAR(fixed.lost_l1.lower, (0x1p-26 + 0x1p-41) / (0x1p-26 + 0x1p-41 + 1 + 0x1p-24), 1e-18);
  EXPECT_NEAR(fixed.lost_l1.upper, (0x1p-25 + 0x1p-40) / (0x1p-25 + 0x1p-40 + 0.5 + 0x1p-25), 1e-18);
  EXPECT_LE(fixed.lost_l1.lower, (0x1p-25 + 0x1p-40) / (0x1p-25 + 0x1p-40 + 1 + 0x1p-24));
  EXPECT_GT(fixed.cosine.lower, 0.999);
  EXPECT_LE(fixed.cosine.upper, 1.0);
  EXPECT_EQ(replayed({"fixed.initial_scale=2"}, "fixed").lost_count, (ReplayInterval{0.25, 0.25}));
}

TEST_F(Replay, WhereNoStepIsAppliedNothingIsKnownOfWhatIsLost) {
  make_run(folder(), {weights({1, 0x1p-40}), weights({2, 0x1p-40})});
  const ReplayedPolicy none = replayed({"fixed.initial_scale=2^30"}, "fixed");
  EXPECT_EQ(none.skips, (ReplayInterval{2, 2}));
  EXPECT_FALSE(none.any_applied);
  for (const ReplayInterval& share : {none.lost_count, none.lost_l1, none.lost_l2, none.cosine})
    EXPECT_EQ(share, (ReplayInterval{0, 1}));
  const std::string table = replay_table(file_);
  EXPECT_THAT(table, ContainsRegex("fixed +2 +2 +- +- +- +- +2\\^30 +yes"));
  EXPECT_TRUE(replayed({"fixed.initial_scale=1"}, "fixed").any_applied);
}

TEST_F(Replay, AStepWithoutAnyGradientLeftIsWasted) {
  make_run(folder(), {weights({0x1p-30}), weights({0x1p-20}), weights({0, 0})});
  EXPECT_EQ(replayed({"fixed.initial_scale=1"}, "fixed").wasted_steps, (ReplayInterval{1, 1}))
      << "zeros that were zero before the cast are not the scale's fault";
  EXPECT_EQ(replayed({"fixed.initial_scale=2^10"}, "fixed").wasted_steps, (ReplayInterval{0, 0}));
}

// 20000 is in (2^14, 2^15], and twice that bin contains 65520; but the value itself was recorded.
TEST_F(Replay, TheGreatestValueDecidesWhereTheEdgeCutsItsBin) {
  make_run(folder(), {weights({20000, 1}), weights({32759, -3}), weights({32760}), weights({1})});
  const ReplayedPolicy fixed = replayed({"fixed.initial_scale=2"}, "fixed");
  EXPECT_TRUE(fixed.exact);
  EXPECT_TRUE(file_.exact);
  EXPECT_THAT(fixed.skipped_lower, ElementsAre(3u)) << "65518 rounds to 65504, 65520 to infinity";
  EXPECT_EQ(fixed.skipped_upper, fixed.skipped_lower);
  EXPECT_THAT(file_.notes, testing::Not(testing::Contains(HasSubstr("are bounds"))));
  EXPECT_THAT(file_.notes, testing::Contains(HasSubstr("a replay is not what training would do")));
  // No powers of two: 2 + 2^-13 makes 65522 of 32759, 2 - 2^-13 makes 65516 of 32760.
  EXPECT_THAT(replayed({"fixed.initial_scale=2.0001220703125"}, "fixed").skipped_lower, ElementsAre(2u, 3u));
  EXPECT_TRUE(file_.exact);
  EXPECT_THAT(replayed({"fixed.initial_scale=1.9998779296875"}, "fixed").skipped_lower, IsEmpty());
  EXPECT_TRUE(file_.exact);
}

// Folders of older versions only have the bin: the largest may be on either side.
TEST_F(Replay, FollowsBothAnswersWhereTheEdgeCutsABin) {
  make_older_run(folder(), {weights({20000}), weights({20000}), weights({1})});
  const ReplayedPolicy torch = replayed({"torch.initial_scale=2", "torch.growth_interval=100"});
  EXPECT_FALSE(torch.exact);
  EXPECT_FALSE(file_.exact);
  EXPECT_EQ(torch.skips, (ReplayInterval{0, 1})) << "halved once, it fits";
  EXPECT_THAT(torch.skipped_lower, IsEmpty());
  EXPECT_THAT(torch.skipped_upper, ElementsAre(1u, 2u));
  EXPECT_THAT(torch.steps, ElementsAre(1u, 2u, 3u));
  EXPECT_THAT(torch.log2_scale_lower, ElementsAre(1, 0, 0));
  EXPECT_THAT(torch.log2_scale_upper, ElementsAre(1, 1, 1));
  EXPECT_THAT(file_.notes, testing::Contains(HasSubstr("by an older version")));
  EXPECT_THAT(file_.notes, testing::Contains(HasSubstr("scales and skips of 1 of 1 rows are bounds")));
}

// BF16 has FP32's exponents: nothing here overflows or is lost in it, and all of it is in FP16.
TEST_F(Replay, EachTensorIsJudgedByTheFormatThatHeldIt) {
  MadeStep step;
  step.tensors = {{.values = {1e9, 0x1p-60}, .dtype = DType::bf16}};
  make_run(folder(), {step, step});
  EXPECT_EQ(replayed({"fixed.initial_scale=2"}, "fixed").skips, (ReplayInterval{0, 0}));
  EXPECT_EQ(replayed({"fixed.initial_scale=2"}, "fixed").lost_count, (ReplayInterval{0, 0}));
  // 1e9 * 2^98 = 3.17e38; * 2^99 is beyond BF16's largest number, 3.39e38. 2^-60 * 2^-74 = 2^-134 is the tie
  // to zero.
  EXPECT_EQ(replayed({"fixed.initial_scale=2^98"}, "fixed").skips, (ReplayInterval{0, 0}));
  EXPECT_EQ(replayed({"fixed.initial_scale=2^99"}, "fixed").skips, (ReplayInterval{2, 2}));
  EXPECT_EQ(replayed({"fixed.initial_scale=2^-73"}, "fixed").lost_count, (ReplayInterval{0, 0}));
  EXPECT_EQ(replayed({"fixed.initial_scale=2^-74"}, "fixed").lost_count, (ReplayInterval{0.5, 0.5}));
  EXPECT_THAT(file_.band.log2_highest, ElementsAre(98, 98));
  EXPECT_THAT(file_.band.log2_lossless, ElementsAre(-73, -73));
}

// The cast to FP8 within a product saturates: it overflows nowhere, and loses what is at most E5M2's tie,
// 2^-17.
TEST_F(Replay, Fp8WithinProductsLosesButDoesNotOverflow) {
  MadeStep step;
  step.tensors = {
      {.values = {1, 0x1p-16}, .dtype = DType::bf16},
      {.name = "fc1.output", .values = {1e9, 0x1p-16, 0x1p-17}, .kind = "activation", .dtype = DType::e5m2}};
  make_run(folder(), {step});
  const ReplayedPolicy fixed = replayed({"fixed.initial_scale=1"}, "fixed");
  EXPECT_EQ(fixed.skips, (ReplayInterval{0, 0}));
  EXPECT_EQ(fixed.lost_count, (ReplayInterval{0.2, 0.2}));
  EXPECT_EQ(replayed({"fixed.initial_scale=4"}, "fixed").skips, (ReplayInterval{0, 0}));
  EXPECT_EQ(replayed({"fixed.initial_scale=4"}, "fixed").lost_count, (ReplayInterval{0, 0}));
}

TEST_F(Replay, ScalesThatAreNoPowersOfTwoGiveBounds) {
  // 2^-25 / 0.75 is within the bin of 0x1.2p-25 and 0x1.8p-25.
  make_run(folder(), {weights({0x1.2p-25, 0x1.8p-25, 1})});
  const ReplayedPolicy fixed = replayed({"fixed.initial_scale=0.75"}, "fixed");
  EXPECT_NEAR(fixed.lost_count.lower, 1.0 / 3, 1e-15) << "the smallest value is known";
  EXPECT_NEAR(fixed.lost_count.upper, 2.0 / 3, 1e-15);
  EXPECT_TRUE(fixed.exact) << "its trace and skips are";
}

TEST_F(Replay, AnOverflowInFp16IsOneAtLargerScalesAndPerhapsAtSmallerOnes) {
  MadeStep recorded;
  recorded.tensors.push_back({.values = {infinity, 1}, .dtype = DType::f16});
  recorded.loss_scale = 0x1p10;
  recorded.found_inf = true;
  make_run(folder(), {recorded});
  EXPECT_EQ(replayed({"fixed.initial_scale=2^10"}, "fixed").skips, (ReplayInterval{1, 1}));
  EXPECT_EQ(replayed({"fixed.initial_scale=2^12"}, "fixed").skips, (ReplayInterval{1, 1}));
  EXPECT_EQ(replayed({"fixed.initial_scale=2^4"}, "fixed").skips, (ReplayInterval{0, 1}));
}

TEST_F(Replay, WhatFp16TookAtAScaleItTakesAtSmallerOnes) {
  MadeStep recorded;
  recorded.tensors.push_back(
      {.values = {60}, .dtype = DType::f16});  // 61440 at 2^10, in the bin that 65520 cuts
  recorded.loss_scale = 0x1p10;
  make_run(folder(), {recorded});
  EXPECT_EQ(replayed({"fixed.initial_scale=2^10"}, "fixed").skips, (ReplayInterval{0, 0}));
  EXPECT_EQ(replayed({"fixed.initial_scale=1000"}, "fixed").skips, (ReplayInterval{0, 0}));
  EXPECT_EQ(replayed({"fixed.initial_scale=2^11"}, "fixed").skips, (ReplayInterval{1, 1}));
}

TEST_F(Replay, ANanWithNothingInfiniteAtScaleOneIsTheModels) {
  make_run(folder(), {weights({nan, 1})});
  EXPECT_EQ(replayed({"fixed.initial_scale=2^-10"}, "fixed").skips, (ReplayInterval{1, 1}));
  std::filesystem::remove_all(folder());
  make_run(folder(), {weights({infinity, 1})});
  EXPECT_EQ(replayed({"fixed.initial_scale=2^-10"}, "fixed").skips, (ReplayInterval{0, 1}));
  EXPECT_EQ(replayed({"fixed.initial_scale=1"}, "fixed").skips, (ReplayInterval{1, 1}));
}

TEST_F(Replay, AnActivationBeyondFp16MayBeStoppedByAMask) {
  MadeStep step;
  step.tensors = {{.name = "fc2.input", .values = {1e9}, .kind = "activation"}, {.values = {1}}};
  make_run(folder(), {step});
  EXPECT_EQ(replayed({"fixed.initial_scale=1"}, "fixed").skips, (ReplayInterval{0, 1}));
}

TEST_F(Replay, WideGradientsOfAnFp16RunStayWide) {
  MadeStep step;
  step.tensors = {{.values = {1}, .dtype = DType::f16},
                  {.name = "norm.weight", .values = {1e9, 0x1p-60}, .dtype = DType::f32}};
  make_run(folder(), {step});
  const ReplayedPolicy fixed = replayed({"fixed.initial_scale=2"}, "fixed");
  EXPECT_EQ(fixed.skips, (ReplayInterval{0, 0}));
  EXPECT_EQ(fixed.lost_count, (ReplayInterval{0, 0}));
}

TEST_F(Replay, StepsWithoutHistogramsHoldTheLastOnesOrAreLeftOut) {
  make_run(folder(), {weights({24}), {}, {}, weights({1})});
  const std::vector<std::string> settings{"torch.initial_scale=2^13", "torch.growth_interval=100"};
  const ReplayedPolicy held = replayed(settings);
  EXPECT_THAT(held.skipped_lower, ElementsAre(1u, 2u)) << "24 * 2^13, 24 * 2^12; 24 * 2^11 = 49152 fits";
  EXPECT_EQ(held.skipped_upper, held.skipped_lower);
  EXPECT_FALSE(held.exact);
  EXPECT_EQ(file_.total_steps, 4u);
  EXPECT_EQ(file_.observed_steps, 2u);
  EXPECT_THAT(file_.notes, testing::Contains(HasSubstr("2 of 4 steps have no histograms")));
  ReplayOptions options;
  options.contestants = {.policies = {"torch"}, .settings = settings, .interval = {}};
  options.recorded_only = true;
  options.oracle = false;
  const ReplayFile recorded = replay_run(folder(), options);
  EXPECT_EQ(recorded.total_steps, 2u);
  EXPECT_THAT(recorded.policies[0].steps, ElementsAre(1u, 4u));
  EXPECT_THAT(recorded.policies[0].skipped_upper, ElementsAre(1u));
  EXPECT_TRUE(recorded.policies[0].exact);
}

TEST_F(Replay, TheOracleIsTheLargestScaleThatNeverOverflows) {
  make_run(folder(), {weights({1, 0x1p-40}), weights({100, 0x1p-40}), weights({3, 0x1p-40})});
  ReplayOptions options;
  options.contestants.policies = {"none"};
  const ReplayFile file = replay_run(folder(), options);
  ASSERT_EQ(file.policies.size(), 2u);
  const ReplayedPolicy& oracle = file.policies[1];
  EXPECT_EQ(oracle.name, "oracle");
  EXPECT_THAT(oracle.log2_scale_lower, testing::Each(9)) << "100 * 2^9 = 51200";
  EXPECT_EQ(oracle.skips, (ReplayInterval{0, 0}));
  EXPECT_THAT(file.band.log2_highest, ElementsAre(15, 9, 14));
  EXPECT_THAT(file.band.log2_lossless, ElementsAre(16, 16, 16))
      << "2^-40 * 2^16 = 2^-24; its bin ends at 2^-41";
}

TEST_F(Replay, ManyStatesFallBackToTwoMachinesAndSaySo) {
  std::vector<MadeStep> steps;
  for (int i = 0; i < 12; ++i) steps.push_back(weights({20000.0 / (i % 3 + 1)}));
  make_older_run(folder(), steps);
  ReplayOptions options;
  options.contestants = {.policies = {"torch"},
                         .settings = {"torch.initial_scale=2", "torch.growth_interval=2"},
                         .interval = {}};
  options.state_limit = 2;
  options.oracle = false;
  const ReplayedPolicy torch = replay_run(folder(), options).policies[0];
  EXPECT_FALSE(torch.exact);
  EXPECT_THAT(torch.note, HasSubstr("more than 2 states from step"));
}

TEST_F(Replay, EveryPolicyRunsAndPerLayerOnesSayWhyTheyDoNot) {
  make_run(folder(), {weights({1, 0x1p-20}), weights({2, 0x1p-20}), weights({1, 0x1p-20})});
  ReplayOptions options;
  options.contestants.interval = 2;
  const ReplayFile file = replay_run(folder(), options);
  ASSERT_EQ(file.policies.size(), engine::amp::scale_policies().size() + 1);
  for (std::size_t i = 0; i + 1 < file.policies.size(); ++i) {
    const engine::amp::PolicyDescription& description = engine::amp::scale_policies()[i];
    const ReplayedPolicy& policy = file.policies[i];
    EXPECT_EQ(policy.name, description.name);
    EXPECT_EQ(policy.replayed, !description.per_layer) << policy.name;
    if (description.per_layer) {
      EXPECT_THAT(policy.note, HasSubstr("not replayable"));
      continue;
    }
    EXPECT_EQ(policy.steps.front(), 1u) << policy.name;
    EXPECT_EQ(policy.steps.back(), 3u) << policy.name;
    for (const auto& [name, value] : policy.parameters) {
      if (name == "growth_interval") {
        EXPECT_LE(value, 2) << policy.name;
      }
    }
  }
}

TEST_F(Replay, SettingsAreCheckedByName) {
  make_run(folder(), {weights({1})});
  const auto error = [&](const std::vector<std::string>& settings, const std::vector<std::string>& policies) {
    ReplayOptions options;
    options.contestants = {.policies = policies, .settings = settings, .interval = {}};
    return message_of([&] { replay_run(folder(), options); });
  };
  EXPECT_THAT(error({"torch.grwth_interval=2"}, {}), HasSubstr("did you mean 'growth_interval'"));
  EXPECT_THAT(error({"torhc.growth_interval=2"}, {}), HasSubstr("did you mean 'torch'"));
  EXPECT_THAT(error({"growth_interval=2"}, {}), HasSubstr("expected POLICY.PARAMETER=VALUE"));
  EXPECT_THAT(error({"torch.growth_interval=0.5"}, {}), HasSubstr("scaler.growth_interval = 0.5: must be"));
  EXPECT_THAT(error({"torch.growth_interval=many"}, {}), HasSubstr("--set torch.growth_interval=many"));
  EXPECT_THAT(error({"torch.growth_interval=2"}, {"none"}), HasSubstr("torch does not take part"));
  EXPECT_THAT(error({}, {"dynamci"}), HasSubstr("dynamci"));
  EXPECT_EQ(replayed({"dynamic.growth_interval=2"}, "dynamic").name, "torch");
  EXPECT_EQ(replayed({"scaler.initial_scale=4"}, "torch").log2_scale_lower.at(0), 2);
}

TEST_F(Replay, SaysWhatIsWrongWithARun) {
  const auto error = [&] { return message_of([&] { replayed({}); }); };
  EXPECT_THAT(error(), HasSubstr("is not a run folder"));
  make_run(folder(), {MadeStep{}});
  EXPECT_THAT(error(), HasSubstr("no histograms recorded"));
  std::filesystem::remove_all(folder());
  make_run(folder(), {});
  EXPECT_THAT(error(), HasSubstr("the run has no steps"));
  std::filesystem::remove_all(folder());
  make_run(folder(), {weights({1})}, "[model]\nname = \"classifier\"\n[scaler]\nper_loss = true\n");
  EXPECT_THAT(error(), HasSubstr("scaler.per_loss"));

  std::filesystem::remove_all(folder());
  make_run(folder(), {weights({1}), weights({1})});
  const auto append = [&](const std::string& line) {
    std::ofstream(folder() / "histograms.jsonl", std::ios::app) << line << '\n';
  };
  const std::string empty = R"({"zero":0,"inf":0,"nan":0,"first_exponent":0,"counts":[]})";
  const auto row = [&](const std::string& step, const std::string& scale) {
    return R"({"step":)" + step + R"(,"tensor":"a","kind":"weight","dtype":"f32","loss_scale":)" + scale +
           R"(,"before":)" + empty + R"(,"after":)" + empty + "}";
  };
  append(row("1", "1"));
  EXPECT_THAT(error(), HasSubstr("histograms.jsonl:3: step 1 comes after step 2"));
  std::filesystem::remove_all(folder());
  make_run(folder(), {weights({1}), weights({1})});
  append(row("2", "0"));
  EXPECT_THAT(error(), HasSubstr("histograms.jsonl:3: loss_scale is 0"));
  std::filesystem::remove_all(folder());
  make_run(folder(), {weights({1}), weights({1})});
  append("{\"step\":2}");
  EXPECT_THAT(error(), HasSubstr("histograms.jsonl:3: the key 'tensor' is missing"));
}

// A suggestion that was made of one step, on the others. 32 * 2^12 is beyond 65520, 32 * 2^11 too, 32 * 2^10
// is not.
TEST_F(Replay, AFixedScaleIsTriedOnEveryRecordedStep) {
  make_run(folder(), {weights({3, 0x1p-30}), weights({32, 0x1p-30}), MadeStep{}, weights({3, 0x1p-30})});
  const RecordedRun run(folder());
  const FixedScaleReplay high = replay_fixed_scale(run, 12), low = replay_fixed_scale(run, 10);
  EXPECT_EQ(high.steps, 3u) << "one has no histograms";
  EXPECT_EQ(high.overflows, 1u);
  EXPECT_EQ(high.unknown, 0u);
  EXPECT_EQ(high.first, 2u);
  EXPECT_EQ(high.highest, 10);
  EXPECT_FALSE(high.holds());
  EXPECT_EQ(
      sentence(high),
      "Replayed in FP16 over all 3 recorded steps: at 2^12 gradients overflow in 1 (the first is step 2). "
      "For the run take 2^10, the largest scale at which certainly none overflows (without headroom).");
  EXPECT_EQ(high.for_run(), 10);
  EXPECT_EQ(low.for_run(), 10);
  EXPECT_TRUE(low.holds());
  EXPECT_EQ(low.highest, 10);
  EXPECT_EQ(sentence(low),
            "Replayed in FP16 over all 3 recorded steps: at 2^10 no gradient overflows in any of them.");
}

TEST_F(Replay, AFixedScaleIsNotKnownWhereARecordedStepWasNotFinite) {
  make_run(folder(), {weights({3}), weights({infinity})});
  const FixedScaleReplay replay = replay_fixed_scale(RecordedRun(folder()), -1);
  EXPECT_EQ(replay.overflows, 0u);
  EXPECT_EQ(replay.unknown, 1u) << "infinite at 1: at 1/2 it may be a number";
  EXPECT_FALSE(replay.highest.has_value());
  EXPECT_THAT(sentence(replay),
              HasSubstr("may overflow in 1 (the first is step 2: it held Inf or NaN at its own scale, so it "
                        "is not known). For the run take 2^-1: no step certainly overflows there; no scale "
                        "down to 2^-24 is certainly without one."));
  // A certain step differs from one that is not known.
  std::filesystem::remove_all(folder());
  MadeStep odd = weights({infinity});
  odd.loss_scale = 0x1p20;
  make_run(folder(), {odd, weights({3}), weights({32})});
  const FixedScaleReplay mixed = replay_fixed_scale(RecordedRun(folder()), 12);
  EXPECT_EQ(mixed.first, 1u);
  EXPECT_EQ(mixed.first_unknown, 1u);
  EXPECT_EQ(mixed.first_certain, 3u);
  EXPECT_THAT(
      sentence(mixed),
      HasSubstr(
          "at 2^12 gradients overflow in 1 and may in 1 (the first certain one is step 3; step 1 held Inf or "
          "NaN at its own scale, so it is not known). For the run take 2^10, the largest scale at which no "
          "step certainly overflows (without headroom); no scale down to 2^-24 is certainly without one."));
  EXPECT_EQ(mixed.for_run(), 10);
  // Nothing to take: the model's own NaN, which no scale cures.
  std::filesystem::remove_all(folder());
  make_run(folder(), {weights({std::nan("")})});
  EXPECT_THAT(
      sentence(replay_fixed_scale(RecordedRun(folder()), 3)),
      HasSubstr("over the one recorded step: at 2^3 gradients overflow in 1 (the first is step 1). No scale "
                "down to 2^-24 is without one."));
}

}  // namespace
}  // namespace fp16lab::experiments
