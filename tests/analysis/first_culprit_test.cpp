// Advice about culprits: thresholds against exhaustive rounding, and every branch of the advice.
#include "analysis/first_culprit.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

namespace fp16lab::analysis {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

TEST(FirstCulprit, BinadesAreTheLeastShiftThatFits) {
  EXPECT_EQ(binades_above(0.0, DType::f16), 0u);
  EXPECT_EQ(binades_above(65519.996, DType::f16), 0u);
  EXPECT_EQ(binades_above(65520.0, DType::f16), 1u);
  EXPECT_EQ(binades_above(131039.9, DType::f16), 1u);
  EXPECT_EQ(binades_above(131040.0, DType::f16), 2u);
  for (double magnitude = 1.0; magnitude < 1e38; magnitude *= 1.37) {
    const auto k = static_cast<int>(binades_above(magnitude, DType::f16));
    EXPECT_LT(std::ldexp(magnitude, -k), 65520.0);
    if (k > 0) {
      EXPECT_GE(std::ldexp(magnitude, 1 - k), 65520.0);
    }
  }
  EXPECT_EQ(binades_above(464.0, DType::e4m3), 0u);  // the tie, which E4M3 keeps
  EXPECT_EQ(binades_above(465.0, DType::e4m3), 1u);
  // bfloat16's greatest finite number is (2 - 2^-7) 2^127, half an ulp of it 2^119.
  EXPECT_EQ(binades_above((2.0 - 0x1p-7) * 0x1p127 + 0x1p119, DType::bf16), 1u);
  EXPECT_THROW(binades_above(1.0, DType::i32), std::invalid_argument);
  EXPECT_THROW(binades_above(-1.0, DType::f16), std::invalid_argument);
  EXPECT_THROW(binades_above(infinity, DType::f16), std::invalid_argument);
  EXPECT_THROW(binades_above(nan, DType::f16), std::invalid_argument);
}

CulpritRow overflow(CulpritPass pass) {
  CulpritRow row;
  row.step = 7;
  row.pass = pass;
  row.cause = CulpritCause::operation;
  row.op = "linear";
  row.layer = "fc2";
  row.tensor = pass == CulpritPass::forward ? "fc2.output" : "fc2.input";
  row.dtype = DType::f16;
  row.shape = {4, 3};
  row.element = 7;
  row.value = infinity;
  row.wide_value = 100000.0;
  row.wide_greatest = 300000.0;
  row.loss_scale = 1024.0;
  row.reached = true;
  return row;
}

TEST(FirstCulprit, ForwardAnFp32Cast) {
  CulpritRow row = overflow(CulpritPass::forward);
  advise(row);
  EXPECT_EQ(row.verdict, CulpritVerdict::fp32_cast);
  EXPECT_EQ(row.black, "linear");
  EXPECT_EQ(row.excluded, "fc2");
  EXPECT_EQ(row.binades, 0u) << "the scale is no part of forward values";
  EXPECT_EQ(
      culprit_line(row),
      "step 7, forward, micro-batch 0: linear in fc2 gave fc2.output (4, 3)[2, 1] = inf (f16) of finite "
      "operands, 100000 in FP32. Advice: an FP32 cast would have saved this value (amp.excluded = [\"fc2\"] "
      "or amp.black = [\"linear\"]); whether the rest of the step is finite then was not tested");
}

TEST(FirstCulprit, BackwardALowerScaleForTheWholeTensor) {
  CulpritRow row = overflow(CulpritPass::backward);
  advise(row);
  EXPECT_EQ(row.verdict, CulpritVerdict::lower_scale);
  EXPECT_EQ(row.binades, 3u) << "300000 / 2^3 fits, not the element's 100000 / 2";
  EXPECT_THAT(row.advice,
              AllOf(HasSubstr("3 binades"), HasSubstr("S = 2^10 -> 2^7"), HasSubstr("amp.excluded")));
}

TEST(FirstCulprit, WhatWasCheckedForTheWholeStepComesFirst) {
  CulpritRow row = overflow(CulpritPass::backward);
  advise(row);
  EXPECT_THAT(row.advice, AllOf(HasSubstr("this tensor"), HasSubstr("was not tested")));
  row.finite_scale = 16.0;
  advise(row);
  EXPECT_EQ(row.verdict, CulpritVerdict::lower_scale);
  EXPECT_EQ(row.binades, 3u) << "of this tensor";
  EXPECT_EQ(
      row.advice,
      "S = 2^4 makes every gradient of this step finite, S = 2^5 does not (checked: its backward passes were "
      "repeated); for this tensor a loss scale lower by 3 binades (S = 2^10 -> 2^7) would do; FP32 would "
      "have saved this tensor too: amp.excluded = [\"fc2\"] or amp.black = [\"linear\"]");
  row.finite_scale = 0.0;
  advise(row);
  EXPECT_EQ(row.verdict, CulpritVerdict::unknown) << "a lower scale helps this tensor, and not the step";
  EXPECT_THAT(row.advice, HasSubstr("no loss scale down to 2^-24"));
  // FP32 gradients beyond FP32: at a lower scale they are numbers.
  row.wide_value = infinity;
  advise(row);
  EXPECT_EQ(row.verdict, CulpritVerdict::model);
  row.finite_scale = 0.5;
  advise(row);
  EXPECT_EQ(row.verdict, CulpritVerdict::lower_scale);
  EXPECT_THAT(row.advice, HasSubstr("S = 2^-1 makes every gradient"));
}

TEST(FirstCulprit, OpsThatNoListKnowsAreNotProposed) {
  CulpritRow row = overflow(CulpritPass::backward);
  row.op = "cast";
  row.layer = "loss";
  advise(row);
  EXPECT_EQ(row.verdict, CulpritVerdict::lower_scale);
  EXPECT_EQ(row.black, "");
  EXPECT_THAT(row.advice, Not(HasSubstr("amp.")));
}

TEST(FirstCulprit, AScaleOfALayersOwnIsToldApart) {
  CulpritRow row = overflow(CulpritPass::backward);
  row.part = "scale";
  row.tensor = row.layer;
  advise(row);
  EXPECT_EQ(row.verdict, CulpritVerdict::lower_scale);
  EXPECT_EQ(row.binades, 3u);
  EXPECT_THAT(row.advice,
              AllOf(HasSubstr("scale of this layer"), HasSubstr("3 binades"), Not(HasSubstr("S ="))));
}

CulpritOperandRow operand(const std::string& name, std::uint64_t zeros, std::uint64_t ones) {
  CulpritOperandRow row{.name = name, .dtype = DType::f16};
  row.histogram.zero = zeros;
  row.histogram.bins[static_cast<std::size_t>(-1 - ExponentHistogram::min_exponent)] = ones;
  row.smallest = row.greatest = ones > 0 ? 1.0 : 0.0;
  return row;
}

TEST(FirstCulprit, NotANumberInFp32EitherIsTheModelsUnlessAnOperandIsZero) {
  for (const double wide : {infinity, nan}) {
    for (const CulpritPass pass : {CulpritPass::forward, CulpritPass::backward}) {
      CulpritRow row = overflow(pass);
      row.wide_value = wide;
      row.operands = {operand("input", 0, 8)};
      advise(row);
      EXPECT_EQ(row.verdict, CulpritVerdict::model);
      EXPECT_EQ(row.black, "");
      const std::string what = std::isnan(wide) ? "NaN" : "Inf";
      EXPECT_THAT(row.advice, AllOf(HasSubstr("the model: " + what + " also when computed in FP32 of these"),
                                    Not(HasSubstr("already"))));
      row.operands.push_back(operand("add of act", 3, 5));
      advise(row);
      EXPECT_EQ(row.verdict, CulpritVerdict::unknown);
      EXPECT_THAT(row.advice,
                  AllOf(HasSubstr(what + " also when computed in FP32 of these operands, which 16 "
                                         "bits may have rounded"),
                        Not(HasSubstr("the model"))));
    }
  }
}

TEST(FirstCulprit, ADescriptionCountsZerosOfOperands) {
  CulpritRow row = overflow(CulpritPass::forward);
  row.op = "divide";
  row.value = row.wide_value.emplace(-nan);
  row.operands = {operand("x", 3, 5), operand("add of act", 8, 0), operand("fc2.weight", 0, 2)};
  row.operands.push_back({.name = "empty"});
  row.operands.push_back(operand("mask", 1, 1));
  row.operands.back().histogram.infinite = 2;
  row.operands.back().histogram.nan = 4;
  EXPECT_EQ(
      description(row),
      "divide in fc2 gave fc2.output (4, 3)[2, 1] = nan (f16) of finite operands, nan in FP32 of these "
      "operands; |x| in [1, 1], 3 of 8 zero, |add of act|: 8 of 8 zero, |fc2.weight| in [1, 1], |empty|: "
      "no elements, |mask| in [1, 1], 1 of 8 zero, 2 of 8 infinite, 4 of 8 NaN");
}

TEST(FirstCulprit, DataAndWeightsAndScales) {
  const auto verdict_of = [](CulpritCause cause) {
    CulpritRow row = overflow(CulpritPass::backward);
    row.cause = cause;
    advise(row);
    EXPECT_FALSE(row.advice.empty()) << name_of(cause);
    return row.verdict;
  };
  EXPECT_EQ(verdict_of(CulpritCause::data), CulpritVerdict::data);
  EXPECT_EQ(verdict_of(CulpritCause::constant), CulpritVerdict::data);
  EXPECT_EQ(verdict_of(CulpritCause::parameter), CulpritVerdict::model);
  EXPECT_EQ(verdict_of(CulpritCause::infinity), CulpritVerdict::model);
  EXPECT_EQ(verdict_of(CulpritCause::loss_scale), CulpritVerdict::lower_scale);
}

TEST(FirstCulprit, WhatComesAgainIsOneLineAtTheEnd) {
  ToldOnce told;
  EXPECT_TRUE(told.is_new("a", 1, 0x1p16));
  EXPECT_TRUE(told.again().empty());
  EXPECT_FALSE(told.is_new("a", 1, 0x1p16));  // another micro-batch
  EXPECT_TRUE(told.again().empty());
  EXPECT_FALSE(told.is_new("a", 2, 0x1p15));
  EXPECT_EQ(told.again(), std::vector<std::string>{"the same in step 2, at a scale of 2^15"});
  for (int step = 3; step <= 20; ++step)
    EXPECT_FALSE(told.is_new("a", static_cast<std::uint64_t>(step), std::ldexp(1, 17 - step)));
  EXPECT_EQ(told.again(),
            std::vector<std::string>{"the same in steps 2 to 20, at scales from 2^15 down to 2^-3"});
  EXPECT_TRUE(told.is_new("b", 21, 1));
  EXPECT_FALSE(told.is_new("b", 23, 2));
  EXPECT_FALSE(told.is_new("b", 30, 2));
  EXPECT_EQ(told.again(), (std::vector<std::string>{
                              "the same as in step 1 (a) in steps 2 to 20, at scales from 2^15 down to 2^-3",
                              "the same as in step 21 (b) in 2 steps from 23 to 30, at a scale of 2^1"}));
  CulpritRow row = overflow(CulpritPass::backward);
  const std::string kind = kind_of(row);
  row.step = 9;
  row.loss_scale = 3;
  row.element = 7;
  EXPECT_EQ(kind_of(row), kind);
  row.pass = CulpritPass::forward;
  EXPECT_NE(kind_of(row), kind);
}

TEST(FirstCulprit, UnknownStaysUnknown) {
  CulpritRow row = overflow(CulpritPass::forward);
  row.wide_value.reset();
  advise(row);
  EXPECT_EQ(row.verdict, CulpritVerdict::unknown);
  row.wide_value = 1.0;  // fits, so that a cast of the result alone would not have made it overflow
  advise(row);
  EXPECT_EQ(row.verdict, CulpritVerdict::unknown);
}

}  // namespace
}  // namespace fp16lab::analysis
