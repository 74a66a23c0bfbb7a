// From words to verdicts, and the claims of exp_underflow on made-up measurements: each verdict can be
// reached.
#include "experiments/study/judged_sweep.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "experiments/questions/underflow.hpp"
#include "tests/experiments/study/judged_row.hpp"

namespace fp16lab::experiments {
namespace {

using enum Verdict;
using testing::HasSubstr;

TEST(JudgedRows, WorseIsWorseThanFp32AndThanItsTwin) {
  EXPECT_EQ(is_worse(worse_row()), holds);
  EXPECT_EQ(is_worse(judged_row({}, {}, 3)), holds) << "diverged";
  EXPECT_EQ(is_worse(equal_row()), fails);
  EXPECT_EQ(is_worse(better_row()), fails);
  EXPECT_EQ(is_worse(open_row()), cannot_tell);
  EXPECT_EQ(is_worse(judged_row(too_few, too_few)), cannot_tell) << "two pairs";
  EXPECT_EQ(is_worse(judged_row(clearly_worse, scattered)), cannot_tell) << "FP32 by itself may be as bad";
  EXPECT_EQ(is_worse(judged_row(clearly_worse, {})), cannot_tell) << "no twin, no control";
  EXPECT_EQ(is_worse(JudgedRow{}), not_run);
  for (const JudgedRow& row : {worse_row(), equal_row(), better_row(), open_row(), JudgedRow{}}) {
    const Verdict worse = is_worse(row), good = is_as_good(row);
    EXPECT_EQ(good, worse == holds ? fails : worse == fails ? holds : worse);
  }
}

TEST(JudgedRows, OfSeveralConditionsTheDecisiveOneCounts) {
  EXPECT_EQ(all_of(std::array{holds, holds}), holds);
  EXPECT_EQ(all_of(std::array{holds, cannot_tell}), cannot_tell);
  EXPECT_EQ(all_of(std::array{cannot_tell, not_run, holds}), not_run);
  EXPECT_EQ(all_of(std::array{cannot_tell, fails, not_run}), fails);
  EXPECT_EQ(all_of({}), not_run);
}

TEST(JudgedRows, SayTheNumberTheIntervalAndBothWords) {
  EXPECT_EQ(words_of(worse_row()), "+7.24 % (worse) [+6.55, +7.93], worse; than the twin: worse");
  EXPECT_EQ(words_of(judged_row(clearly_worse, {})),
            "+7.24 % (worse) [+6.55, +7.93], worse; no twin to compare with");
  EXPECT_THAT(words_of(judged_row({0.5}, {0.5})),
              HasSubstr("+0.50 % (worse), one seed: three are needed for a verdict"));
  EXPECT_THAT(words_of(judged_row(clearly_worse, clearly_worse, 1)), HasSubstr("worse (1 of 6 diverged)"));
  EXPECT_EQ(words_of(JudgedRow{}), "no pair with FP32");
}

TEST(Study, TooShortToDecideIsRehearsed) {
  const std::vector<Question<int>> questions{{"it is three", "== 3",
                                              [](int x) -> Answer {
                                                return {verdict_of(x == 3), std::to_string(x)};
                                              }},
                                             {"nobody measured", "at all", [](int) -> Answer { return {}; }}};
  const std::vector<Claim> long_enough = judged(questions, 4), quick = judged(questions, 4, false);
  EXPECT_EQ(long_enough[0].verdict, fails);
  EXPECT_EQ(long_enough[0].measured, "4");
  EXPECT_EQ(long_enough[0].criterion, "== 3");
  EXPECT_EQ(quick[0].verdict, rehearsed);
  EXPECT_EQ(quick[0].measured, "4");
  EXPECT_EQ(quick[1].verdict, not_run) << "not even a quick look";
}

std::vector<Verdict> verdicts(const JudgedRow& none, const JudgedRow& small, const JudgedRow& large) {
  const Underflow underflow{.variants = {{.name = "fp32"},
                                         {.name = "none", .judged = none},
                                         {.name = "fixed-2p3", .judged = small},
                                         {.name = "fixed-2p7", .judged = large}}};
  return verdicts_of(underflow_questions(), underflow);
}

TEST(UnderflowClaims, HarmIsWorseThanNoiseByMoreThanFivePercent) {
  const auto harm = [](const JudgedRow& none) { return verdicts(none, equal_row(), equal_row())[0]; };
  EXPECT_EQ(harm(worse_row()), holds);
  EXPECT_EQ(harm(judged_row({}, {}, 5)), holds) << "diverged: no interval";
  EXPECT_EQ(harm(judged_row(slightly_worse, slightly_worse)), fails)
      << "worse, and all of the interval below 5 %";
  EXPECT_EQ(harm(judged_row({4.0, 7.0, 5.5, 6.0, 4.5}, clearly_worse)), cannot_tell)
      << "5 % is in the interval";
  EXPECT_EQ(harm(equal_row()), fails);
  EXPECT_EQ(harm(judged_row(clearly_worse, scattered)), cannot_tell);
  EXPECT_EQ(harm(JudgedRow{}), not_run);
}

TEST(UnderflowClaims, OneScaleIsEnoughToBringItBack) {
  const auto recovery = [](const JudgedRow& small, const JudgedRow& large) {
    return verdicts(worse_row(), small, large)[1];
  };
  EXPECT_EQ(recovery(worse_row(), equal_row()), holds);
  EXPECT_EQ(recovery(better_row(), open_row()), holds);
  EXPECT_EQ(recovery(worse_row(), worse_row()), fails);
  EXPECT_EQ(recovery(worse_row(), open_row()), cannot_tell);
  EXPECT_EQ(recovery(JudgedRow{}, JudgedRow{}), not_run);
}

}  // namespace
}  // namespace fp16lab::experiments
