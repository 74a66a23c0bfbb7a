// Every golden trace of loss-scale policies (tests/golden/policy_traces.tsv), and rules that these sequences
// do not reach.
#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "engine/amp/policies/power_of_two.hpp"
#include "tests/engine/amp/policy_traces.hpp"

namespace fp16lab::engine::test {
namespace {

using testing::HasSubstr;

struct GoldenTrace {
  std::string sequence, policy, settings, kind;
  std::vector<std::string> values;
};

std::vector<GoldenTrace> golden_traces() {
  std::ifstream file(FP16LAB_SOURCE_DIR "/tests/golden/policy_traces.tsv");
  EXPECT_TRUE(file) << "tests/golden/policy_traces.tsv cannot be read";
  std::vector<GoldenTrace> all;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream fields(line);
    GoldenTrace golden;
    std::getline(fields, golden.sequence, '\t');
    std::getline(fields, golden.policy, '\t');
    std::getline(fields, golden.settings, '\t');
    std::getline(fields, golden.kind, '\t');
    for (std::string value; fields >> value;) golden.values.push_back(value);
    all.push_back(std::move(golden));
  }
  return all;
}

/// The number in `text`, hexadecimal floats too; all of it must be one.
double number_of(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  EXPECT_EQ(*end, '\0') << text;
  return value;
}

TEST(PolicyTraces, EveryPolicyFollowsItsPeerOnBothSequences) {
  const std::vector<GoldenTrace> golden = golden_traces();
  ASSERT_EQ(golden.size(), 52u);
  for (const GoldenTrace& row : golden) {
    SCOPED_TRACE(row.policy + " (" + row.settings + "), " + row.kind + ", on " + row.sequence);
    const std::vector<double> scales = trace_of(row.policy, row.settings, row.sequence);
    ASSERT_EQ(scales.size(), row.values.size());
    for (std::size_t step = 0; step < scales.size(); ++step) {
      const double expected = number_of(row.values[step]);
      if (row.kind == "exact") {
        EXPECT_EQ(scales[step], std::ldexp(1.0, static_cast<int>(expected))) << "step " << step + 1;
      } else if (row.kind == "decimals") {
        // A value rounded to two decimals is at most half of the second away.
        EXPECT_LE(std::abs(std::log2(scales[step]) - expected), 0.005 + 1e-9) << "step " << step + 1;
      } else {
        ASSERT_EQ(row.kind, "fp32");
        EXPECT_EQ(scales[step], expected) << "step " << step + 1;
      }
    }
  }
}

std::string repeated(int good, char kind = 'F') { return std::string(static_cast<std::size_t>(good), kind); }

TEST(PolicyTraces, PaddleAndTensorFlowDifferOnlyInWhatAGoodStepForgives) {
  // Three overflows, each two good steps apart, back off at the third without being in a row only in
  // TensorFlow.
  const std::string settings = "initial_scale=1024 growth_interval=1000 bad_steps=3 backoff_factor=0.5";
  EXPECT_EQ(trace_of("paddle-static", settings, "OFFOFFO").back(), 1024.0);
  EXPECT_EQ(trace_of("tf1-exponential", settings, "OFFOFFO").back(), 512.0);
  EXPECT_EQ(trace_of("paddle-static", settings, "OFFOOO").back(), 512.0);
  // A growth clears both counts.
  const std::string growing = "initial_scale=1024 growth_interval=2 bad_steps=2 backoff_factor=0.5";
  EXPECT_EQ(trace_of("tf1-exponential", growing, "OFFO").back(), 2048.0);
  EXPECT_EQ(trace_of("tf1-exponential", growing, "OFFOO").back(), 1024.0);
}

TEST(PolicyTraces, OneFactorDividesOrMultipliesByTheReciprocalAsThePeerDoes) {
  const std::string settings = "initial_scale=1000 growth_factor=3 growth_interval=2 min_scale=1";
  const float third = 1.0f / 3.0f;
  EXPECT_EQ(trace_of("keras2", settings, "OO"), (std::vector<double>{1000.0f / 3.0f, 1000.0f / 3.0f / 3.0f}));
  EXPECT_EQ(trace_of("mindspore-cell", settings, "OO"),
            (std::vector<double>{1000.0f * third, 1000.0f * third * third}));
  EXPECT_EQ(trace_of("mindspore", settings, "OO"),
            (std::vector<double>{1000.0 * (1.0 / 3.0), 1000.0 * (1.0 / 3.0) * (1.0 / 3.0)}));
  EXPECT_EQ(trace_of("apex-fp16-utils", settings, "OO"),
            (std::vector<double>{1000.0 / 3.0, 1000.0 / 3.0 / 3.0}));
  EXPECT_EQ(trace_of("deepspeed", settings + " hysteresis=1", "OO"),
            (std::vector<double>{1000.0 / 3.0, 1000.0 / 3.0 / 3.0}));
}

TEST(PolicyTraces, ProductsAreRoundedAsThePeersDo) {
  // 9 * 0.7: the FP64 product rounded to FP32 is another number than the FP32 product.
  const auto rounded_once = static_cast<float>(9.0 * 0.7);
  const float fp32 = 9.0f * 0.7f;
  ASSERT_NE(rounded_once, fp32) << "the numbers show nothing";
  const std::string settings = "initial_scale=9 backoff_factor=0.7 hysteresis=1 bad_steps=1 min_scale=0";
  for (const std::string name : {"torch", "apex-hysteresis"})
    EXPECT_EQ(trace_of(name, settings, "O").back(), rounded_once) << name;
  for (const std::string name :
       {"paddle", "paddle-static", "tf1-exponential", "megatron", "colossalai", "flax"})
    EXPECT_EQ(trace_of(name, settings, "O").back(), fp32) << name;
  for (const std::string name : {"apex", "fastllm", "chainer"})
    EXPECT_EQ(trace_of(name, settings, "O").back(), 9.0 * 0.7) << name;
}

TEST(PolicyTraces, TorchNeverGrowsToInfinityAndHasNoFloor) {
  // By its own rule: a scale that once is infinite never comes back (flax#2547, pytorch#98828).
  EXPECT_EQ(trace_of("torch",
                     "initial_scale=85070591730234615865843651857942052864 growth_interval=1 finite_guard=0",
                     "FFFO"),
            (std::vector<double>{0x1p127, 0x1p127, 0x1p127, 0x1p126}));
  EXPECT_EQ(trace_of("torch", "initial_scale=1", "OOO").back(), 0.125);
}

TEST(PolicyTraces, ConstantScalesNeverMove) {
  for (const std::string name : {"fixed", "mindspore-fixed", "ada-loss", "layerwise", "groups"})
    EXPECT_EQ(trace_of(name, "initial_scale=2048", "OFFO"), std::vector<double>(4, 2048)) << name;
  EXPECT_EQ(trace_of("none", "", "OFFO"), std::vector<double>(4, 1));
}

TEST(PolicyTraces, MxnetIsApexOneStepLate) {
  const std::string settings = "initial_scale=65536 growth_interval=4";
  for (const std::string sequence : {"FFFFFOFFFFOOFFFFFFFFOOOFFFFFFF", "FFOFFOFFOFFOFFOFFOFF"}) {
    std::vector<double> late = trace_of("apex", settings, sequence);
    late.pop_back();
    late.insert(late.begin(), 65536);
    EXPECT_EQ(trace_of("mxnet", settings, sequence), late);
  }
  // Ceiling and floor hold for the scale that waits too: nothing has to be undone first.
  EXPECT_EQ(trace_of("mxnet", "initial_scale=4 growth_interval=1 max_scale=8", "FFFFOFF"),
            (std::vector<double>{4, 8, 8, 8, 8, 4, 8}));
  EXPECT_EQ(trace_of("mxnet", "initial_scale=4 growth_interval=1 min_scale=2", "OOOOFFF"),
            (std::vector<double>{4, 2, 2, 2, 2, 4, 8}));
}

TEST(PolicyTraces, FairseqBacksOffWhereOverflowsAreFrequent) {
  // tolerance 0.25: one overflow among 4 steps since the last change is enough, one among 5 is not; the
  // second among the next few is.
  const std::string settings = "initial_scale=1024 growth_interval=1000 tolerance=0.25";
  EXPECT_EQ(trace_of("fairseq", settings, "FFFO").back(), 512.0);
  EXPECT_EQ(trace_of("fairseq", settings, "FFFFO").back(), 1024.0);
  EXPECT_EQ(trace_of("fairseq", settings, "FFFFOFFO").back(), 512.0);    // 2 of 8
  EXPECT_EQ(trace_of("fairseq", settings, "FFFFOFFFO").back(), 1024.0);  // 2 of 9
  // Growth begins another count of steps, but keeps that of overflows: 1 of 3, then 2 of 3.
  EXPECT_EQ(trace_of("fairseq", "initial_scale=1024 growth_interval=3 tolerance=0.5", "FFFFFOFFFFFO"),
            (std::vector<double>{1024, 1024, 2048, 2048, 2048, 2048, 2048, 2048, 4096, 4096, 4096, 2048}));
  // The threshold is a floor that the rule applies before it asks whether to end.
  EXPECT_EQ(trace_of("fairseq", "initial_scale=2 min_scale=1", "OOO"), (std::vector<double>{1, 1, 1}));
}

TEST(PolicyTraces, MetaseqMovesItsInterval) {
  // Interval 2: after the second good step the scale doubles and the interval is 4; after the fourth (a
  // multiple of 4, counted from the last overflow) again, and the interval is 8.
  EXPECT_EQ(trace_of("metaseq", "initial_scale=4 growth_interval=2", "FFFFFFFFF"),
            (std::vector<double>{4, 8, 8, 16, 16, 16, 16, 32, 32}));
  // At the floor the scale stays, and the interval shrinks all the same: here from 4 to 1 by two overflows.
  EXPECT_EQ(trace_of("metaseq", "initial_scale=0.03125 growth_interval=4", "OOF"),
            (std::vector<double>{0.03125, 0.03125, 0.0625}));
  // An interval that is no integer: 3 * 1.5 = 4.5 divides 9.
  const std::vector<double> scales =
      trace_of("metaseq", "initial_scale=4 growth_interval=3 growth_factor=1.5", "FFFFFFFFFF");
  EXPECT_EQ(scales, (std::vector<double>{4, 4, 6, 6, 6, 6, 6, 6, 9, 9}));
}

TEST(PolicyTraces, ChainersSmoothGrowthDoublesInTheInterval) {
  // 1000 products by 2^(1/1000), each rounded: at most 1000 * (the factor's 2^-53 + one rounding of 2^-53).
  const std::vector<double> scales = trace_of("chainer", "initial_scale=1024", "O" + repeated(1000));
  EXPECT_NEAR(scales.back(), 1024.0, 1024.0 * 1000 * 0x1p-52);
  EXPECT_EQ(trace_of("chainer", "initial_scale=16384", "FFF"), (std::vector<double>{32768, 65504, 65504}));
  EXPECT_EQ(trace_of("chainer", "", "O").back(), 1.0);
}

TEST(PolicyTraces, TheRootOfTwoIsCorrectlyRounded) {
  // x is the rounding of the n-th root of 2 if and only if (x - half an ulp)^n < 2 < (x + half an ulp)^n.
  // Powers in long double (64 bits): relative error below n * 2^-64; the half ulps move the power by n *
  // 2^-53 or more.
  for (const int n : {2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}) {
    const double root = amp::power_of_two(1.0 / n);
    const long double half_ulp = 0x1p-53L;
    long double below = static_cast<long double>(root) - half_ulp;
    long double above = static_cast<long double>(root) + half_ulp;
    for (int m = 1; m < n; m *= 2) {
      below *= below;
      above *= above;
    }
    EXPECT_LT(below, 2.0L) << n;
    EXPECT_GT(above, 2.0L) << n;
  }
  // Others against mpmath with 400 bits (the exponent is the rounded 1/n).
  EXPECT_EQ(amp::power_of_two(1.0 / 1000), 0x1.002d711c79a96p+0);
  EXPECT_EQ(amp::power_of_two(1.0 / 3), 0x1.428a2f98d728bp+0);
  EXPECT_EQ(amp::power_of_two(1.0 / 2000), 0x1.0016b78c34fb4p+0);
}

TEST(PolicyTraces, SomeRulesEndTheRun) {
  const auto reason = [](const std::string& name, const std::string& settings, const std::string& sequence) {
    const amp::ScalePolicy policy = policy_of(name, settings);
    EXPECT_NE(policy.stop, nullptr);
    StepState step = policy.initial;
    trace_from(step, policy, sequence);
    return policy.stop(step, policy.values).value_or("goes on");
  };
  EXPECT_EQ(reason("mindspore", "", repeated(1000, 'O')), "goes on");
  EXPECT_EQ(reason("mindspore", "", repeated(1000, 'O') + "F" + repeated(1000, 'O')), "goes on");
  EXPECT_EQ(reason("mindspore", "", repeated(1001, 'O')),
            "overflows in 1001 steps in a row, more than scaler.overflow_limit = 1000");
  EXPECT_EQ(reason("mindspore", "overflow_limit=2", "OO"), "goes on");
  EXPECT_THAT(reason("mindspore", "overflow_limit=2", "OOO"), HasSubstr("3 steps in a row"));
  EXPECT_EQ(reason("deepspeed", "initial_scale=2 hysteresis=1", "O"), "goes on");
  EXPECT_THAT(reason("deepspeed", "initial_scale=2 hysteresis=1", "OO"),
              HasSubstr("raise_error_at_min_scale"));
  EXPECT_EQ(reason("deepspeed", "initial_scale=2 hysteresis=1 raise_error_at_min_scale=0", "OO"), "goes on");
  EXPECT_EQ(reason("deepspeed", "initial_scale=1 hysteresis=3", "OO"), "goes on");
  // 2^-13 is above 1e-4, 2^-14 is not.
  EXPECT_EQ(reason("fairseq", "initial_scale=1", repeated(13, 'O')), "goes on");
  EXPECT_THAT(reason("fairseq", "initial_scale=1", repeated(14, 'O')), HasSubstr("min_loss_scale"));
  EXPECT_EQ(trace_of("fairseq", "initial_scale=1", repeated(15, 'O')).back(), 0x1p-13);
  // The peer asks for min_loss_scale at every overflow, also at one that its tolerance forgives.
  EXPECT_THAT(reason("fairseq", "initial_scale=1 min_loss_scale=1 tolerance=0.5", "FFFO"),
              HasSubstr("min_loss_scale"));
  EXPECT_THAT(reason("fairseq", "initial_scale=1 min_loss_scale=2 tolerance=0.5", "FFFO"),
              HasSubstr("min_loss_scale"));
  EXPECT_EQ(reason("fairseq", "initial_scale=1 min_loss_scale=2 tolerance=0.5", "FFFF"), "goes on");
  EXPECT_EQ(reason("fairseq", "initial_scale=4 min_loss_scale=2 tolerance=0.5", "FFFO"), "goes on");
  EXPECT_THAT(reason("fairseq", "initial_scale=4 min_loss_scale=2", "FFFO"), HasSubstr("min_loss_scale"));
  // Who goes on all the same finds the scale where it was.
  EXPECT_THAT(reason("fairseq", "initial_scale=1", repeated(14, 'O') + repeated(3000)),
              HasSubstr("min_loss_scale"));
  EXPECT_EQ(policy_of("metaseq").stop, nullptr);
  EXPECT_EQ(policy_of("torch").stop, nullptr);
}

TEST(PolicyTraces, EntriesOfTheSameRuleDifferInDefaultsAlone) {
  const std::string a = "FFFFFOFFFFOOFFFFFFFFOOOFFFFFFF";
  const auto same = [&a](const std::string& one, const std::string& other, const std::string& settings) {
    EXPECT_EQ(trace_of(one, settings, a), trace_of(other, settings, a)) << one << ", " << other;
  };
  const std::string common = "initial_scale=65536 growth_interval=4 min_scale=1";
  same("paddle", "paddle-amp-scaler", common);
  same("paddle", "paddle-2.2", common + " bad_steps=2");
  same("paddle-static", "paddle-static-legacy", common + " bad_steps=2 backoff_factor=0.8");
  same("megatron", "colossalai", common);
  same("megatron", "fastllm", common);
  same("fairseq", "fairseq-train", common);
  same("deepspeed", "deepspeed-fused", common + " hysteresis=2");
  same("deepspeed", "deepspeed-unfused", common + " hysteresis=2");
}

}  // namespace
}  // namespace fp16lab::engine::test
