// The one form of claims.
#include "analysis/claim.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace fp16lab::analysis {
namespace {

std::vector<Claim> every_kind() {
  return {{.claim = "one", .criterion = "at most 1", .measured = "0.5", .verdict = Verdict::holds},
          {.claim = "two",
           .criterion = "at most 1",
           .measured = "2",
           .verdict = Verdict::fails,
           .topic = "limits",
           .notes = {"seen in step 3"}},
          {.claim = "three",
           .criterion = "10 x",
           .measured = "9 x",
           .verdict = Verdict::fails,
           .topic = "limits",
           .decides = false},
          {.claim = "theirs",
           .criterion = "0.067",
           .measured = "0.0671",
           .verdict = Verdict::fails,
           .recorded = Verdict::fails},
          {.claim = "new",
           .criterion = "1",
           .measured = "1",
           .verdict = Verdict::holds,
           .recorded = Verdict::fails},
          {.claim = "later", .criterion = "1"}};
}

TEST(Claims, AreMismatchesWhereTheyFailOrContradictTheirRecord) {
  const std::vector<Claim> all = every_kind();
  std::vector<bool> wrong;
  for (const Claim& claim : all) wrong.push_back(is_mismatch(claim));
  EXPECT_THAT(wrong, ::testing::ElementsAre(false, true, false, false, true, false));
  EXPECT_FALSE(any_mismatch({}));
  EXPECT_FALSE(is_mismatch({.claim = "", .criterion = "", .verdict = Verdict::cannot_tell}));
  EXPECT_FALSE(is_mismatch({.claim = "", .criterion = "", .recorded = Verdict::holds}));
}

TEST(Claims, ReadTheSameEverywhere) {
  EXPECT_EQ(claims_text(every_kind()),
            "claim 1: one\n  criterion: at most 1\n  measured: 0.5\n  verdict: HOLDS\n"
            "\nlimits\n"
            "claim 2: two\n  criterion: at most 1\n  measured: 2\n  verdict: FAILS\n    seen in step 3\n"
            "claim 3: three\n  criterion: 10 x\n  measured: 9 x\n  verdict: BEHIND\n"
            "\n\n"
            "claim 4: theirs\n  criterion: 0.067\n  measured: 0.0671\n  verdict: FAILS, as recorded\n"
            "claim 5: new\n  criterion: 1\n  measured: 1\n  verdict: HOLDS, RECORDED AS FAILS\n"
            "claim 6: later\n  criterion: 1\n  verdict: NOT RUN\n");
  const std::vector<Claim> all = every_kind();
  EXPECT_EQ(
      claims_lines(std::span(all).first(2)),
      "  HOLDS        one: 0.5 (expected at most 1)\n\nlimits\n  FAILS        two: 2 (expected at most 1)\n"
      "               seen in step 3\n");
  EXPECT_EQ(claims_lines(std::span(all).subspan(3, 2)),
            "  FAILS, as recorded       theirs: 0.0671 (expected 0.067)\n  HOLDS, RECORDED AS FAILS new: 1\n")
      << "what was measured need not be said twice";
  EXPECT_EQ(claims_count(all), "6 claims: 2 hold, 2 fail, 1 falls short, 1 was not run; 1 of 2 as recorded");
}

TEST(Claims, AsJsonHaveWhatTheyHave) {
  const auto json = nlohmann::json::parse(claims_json("is it so?", every_kind()));
  EXPECT_EQ(json["question"], "is it so?");
  EXPECT_EQ(json["claims"][0]["verdict"], "HOLDS");
  EXPECT_FALSE(json["claims"][0].contains("topic"));
  EXPECT_EQ(json["claims"][1]["notes"][0], "seen in step 3");
  EXPECT_EQ(json["claims"][2]["decides"], false);
  EXPECT_EQ(json["claims"][4]["recorded"], "FAILS");
}

}  // namespace
}  // namespace fp16lab::analysis
