// Softmax and the norms at their edges: masked and huge rows, variances that a careless formula loses; which
// dtype they compute in; what they show of their gradients; their errors.
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "engine/amp/levels/autocast.hpp"
#include "engine/autograd/counting.hpp"
#include "tests/engine/autograd/twin.hpp"

namespace fp16lab::engine::test::normalization_test {
namespace {

using V = std::vector<Variable>;

constexpr float infinity = std::numeric_limits<float>::infinity();

class NormalizationTest : public testing::Test {
 protected:
  Variable constant(const Shape& shape, const std::vector<float>& values) {
    return tape.constant(tensor_of(*backend, shape, values));
  }
  std::vector<float> values(const Variable& x) { return values_of(*backend, x.tensor()); }

  std::unique_ptr<Backend> backend = hopper_backend();
  Tape tape{*backend};
};

// ---- softmax at its edges -------------------------------------------------------------------------

TEST_F(NormalizationTest, SoftmaxOfMaskedHugeAndUndefinedRows) {
  const Variable x = constant({5, 3}, {0, -infinity, 0,                  // a masked class
                                       3e38f, -3e38f, 3e38f,             // x - max overflows to -infinity
                                       -infinity, -infinity, -infinity,  // nothing to choose from
                                       infinity, 0, 0,                   // infinity - infinity
                                       -1000, -1000, -1000});            // exp(x) alone would be 0
  const std::vector<float> y = values(ops::softmax(x, 1));
  EXPECT_EQ((std::vector<float>(y.begin(), y.begin() + 6)),
            (std::vector<float>{0.5f, 0, 0.5f, 0.5f, 0, 0.5f}));
  for (std::size_t i = 6; i < 9; ++i) EXPECT_TRUE(std::isnan(y[i])) << i;
  EXPECT_TRUE(std::isnan(y[9]));
  EXPECT_EQ((std::vector<float>(y.begin() + 12, y.end())), (std::vector<float>(3, 1.0f / 3.0f)));
  const std::vector<float> logs = values(ops::log_softmax(x, 1));
  EXPECT_EQ(logs[1], -infinity);
  EXPECT_EQ(logs[4], -infinity);
  // log(1/3) to the error of log_f32 (below 1 ulp of numbers in [1, 2)) and of the twin's own rounding.
  for (std::size_t i = 12; i < 15; ++i) EXPECT_NEAR(logs[i], -1.09861228866810969, 0x1p-23);
}

TEST_F(NormalizationTest, MaskedClassesHaveNoGradientAndSpoilNone) {
  const Variable x = tape.input(tensor_of(*backend, {1, 3}, {1, -infinity, 1}));
  const Variable y = ops::softmax(x, 1);
  const Tensor seed = tensor_of(*backend, {1, 3}, {1, 5, 0});
  const auto gradient =
      tape.gradients(std::vector{y}, std::vector{seed}, std::vector{x}, {.create_graph = true});
  EXPECT_EQ(values(gradient[0]), (std::vector<float>{0.25f, 0, -0.25f}));
  const auto second =
      tape.gradients(std::vector{ops::sum(ops::multiply(gradient[0], gradient[0]))}, {}, std::vector{x});
  for (const float value : values(second[0])) EXPECT_FALSE(std::isnan(value));
}

// ---- values that a careless variance would lose -----------------------------------------------------

TEST_F(NormalizationTest, TheVarianceIsTakenFromDeviations) {
  // 4096 + (0, 1, 2, 3): E[x^2] - E[x]^2 in FP32 has an ulp of 2 at 2^24 and gives anything between -2 and 4;
  // the deviations -1.5, -0.5, 0.5, 1.5 are exact, and so is their variance 1.25.
  const Variable x = constant({4, 1}, {4096, 4097, 4098, 4099});
  const ops::BatchNormResult result = ops::batch_norm(x, {}, {}, 0.0f);
  EXPECT_EQ(values_of(*backend, result.mean), std::vector<float>{4097.5f});
  EXPECT_EQ(values_of(*backend, result.variance), std::vector<float>{1.25f});
  EXPECT_EQ(values(result.y),
            values(ops::reshape(ops::layer_norm(ops::reshape(x, {1, 4}), {}, {}, 0.0f), {4, 1})));
}

TEST_F(NormalizationTest, BatchStatisticsAreBiasedAndPerChannel) {
  // Channel 0: 1, 2, 3, 6 (mean 3, squared deviations 4, 1, 0, 9: 14/4); channel 1: four times -2.
  const Variable x = constant({2, 2, 1, 2}, {1, 2, -2, -2, 3, 6, -2, -2});
  const ops::BatchNormResult result = ops::batch_norm(x, {}, {}, 0x1p-4f);
  EXPECT_EQ(result.mean.shape(), Shape{2});
  EXPECT_EQ(values_of(*backend, result.mean), (std::vector<float>{3, -2}));
  EXPECT_EQ(values_of(*backend, result.variance), (std::vector<float>{3.5f, 0}));
  const std::vector<float> y = values(result.y);
  for (const std::size_t i : {2, 3, 6, 7}) EXPECT_EQ(y[i], 0.0f) << "a constant channel";
}

TEST_F(NormalizationTest, NchwAndNhwcHaveTheSameStatistics) {
  const HostTensor x = with_signs({3, 4, 2, 5}, 1, 2.0f);
  const Variable nchw = constant(x.shape, x.values);
  const Variable nhwc = ops::permute(nchw, std::array{0, 2, 3, 1});
  const ops::BatchNormResult a = ops::batch_norm(nchw, {}, {}, 1e-5f, Layout::nchw);
  const ops::BatchNormResult b = ops::batch_norm(nhwc, {}, {}, 1e-5f, Layout::nhwc);
  EXPECT_EQ(bytes_of(*backend, a.mean), bytes_of(*backend, b.mean));
  EXPECT_EQ(bytes_of(*backend, a.variance), bytes_of(*backend, b.variance));
  EXPECT_EQ(values(a.y), values(ops::permute(b.y, std::array{0, 3, 1, 2})));
}

TEST_F(NormalizationTest, GroupNormHasTheSameBitsInBothLayouts) {
  const HostTensor x = with_signs({3, 4, 2, 5}, 1, 2.0f);
  const Variable nchw = constant(x.shape, x.values), weight = constant({4}, {1, 2, -1, 0.5f}),
                 bias = constant({4}, {0, 1, 2, 3});
  const Variable nhwc = ops::permute(nchw, std::array{0, 2, 3, 1});
  const Variable a = ops::group_norm(nchw, 2, weight, bias, 1e-5f, Layout::nchw);
  const Variable b = ops::group_norm(nhwc, 2, weight, bias, 1e-5f, Layout::nhwc);
  EXPECT_EQ(bytes_of(*backend, a.tensor()),
            bytes_of(*backend, ops::permute(b, std::array{0, 3, 1, 2}).tensor()));
}

TEST_F(NormalizationTest, InferenceWithTheBatchsStatisticsIsTraining) {
  const HostTensor x = with_signs({3, 2, 2, 2}, 1, 2.0f);
  const Variable input = constant(x.shape, x.values);
  const Variable weight = constant({2}, {1.5f, -0.5f}), bias = constant({2}, {0.25f, 1});
  const ops::BatchNormResult training = ops::batch_norm(input, weight, bias, 1e-5f);
  const Variable inference =
      ops::batch_norm_inference(input, training.mean, training.variance, weight, bias, 1e-5f);
  EXPECT_EQ(bytes_of(*backend, training.y.tensor()), bytes_of(*backend, inference.tensor()));
}

// ---- dtypes -----------------------------------------------------------------------------------------

TEST_F(NormalizationTest, UnderAutocastSoftmaxAndLayerNormAreFp32AndBatchNormFollows) {
  amp::Autocast autocast{tape, {.level = amp::Level::O1}};
  const CastPolicyGuard guard(tape, &autocast);
  const Variable x = tape.input(halves_of(*backend, {4, 2}, with_signs({4, 2}, 1).values));
  const Variable weight = constant({2}, {1, 1}), bias = constant({2}, {0, 0});
  EXPECT_EQ(ops::softmax(x, 1).dtype(), DType::f32);
  EXPECT_EQ(ops::log_softmax(x, 1).dtype(), DType::f32);
  EXPECT_EQ(ops::layer_norm(x, weight, bias, 1e-5f).dtype(), DType::f32);
  EXPECT_EQ(ops::layer_norm(x, {}, {}, 1e-5f).dtype(), DType::f32);
  EXPECT_EQ(ops::rms_norm(x, weight, 1e-5f).dtype(), DType::f32);
  EXPECT_EQ(ops::group_norm(x, 2, weight, bias, 1e-5f).dtype(), DType::f32);
  const ops::BatchNormResult result = ops::batch_norm(x, weight, bias, 1e-5f);
  EXPECT_EQ(result.y.dtype(), DType::f16);
  EXPECT_EQ(result.mean.dtype(), DType::f32);
  EXPECT_EQ(result.variance.dtype(), DType::f32);
  EXPECT_EQ(ops::batch_norm_inference(x, result.mean, result.variance, weight, bias, 1e-5f).dtype(),
            DType::f16);
}

/// Without a policy a 16-bit input gives a 16-bit result: the FP32 result of the widened input, rounded once;
/// and the gradient likewise.
TEST_F(NormalizationTest, SixteenBitInputsComputeInFp32AndRoundOnce) {
  const std::vector<float> x = with_signs({4, 6}, 1).values, g = with_signs({4, 6}, 2).values;
  const auto compare = [&](const std::string& name, const std::function<Variable(const Variable&)>& op) {
    SCOPED_TRACE(name);
    const Variable half = tape.input(halves_of(*backend, {4, 6}, x));
    const Variable wide = tape.input(ops::cast(half, DType::f32).tensor());
    const Variable y = op(half), y_wide = op(wide);
    EXPECT_EQ(y.dtype(), DType::f16);
    EXPECT_EQ(values(y), values(ops::cast(y_wide, DType::f16)));
    const Tensor seed = halves_of(*backend, {4, 6}, g);
    const Tensor seed_wide = ops::cast(tape.constant(seed), DType::f32).tensor();
    const auto gradient = tape.gradients(std::vector{y}, std::vector{seed}, std::vector{half});
    const auto gradient_wide = tape.gradients(std::vector{y_wide}, std::vector{seed_wide}, std::vector{wide});
    EXPECT_EQ(gradient[0].dtype(), DType::f16);
    EXPECT_EQ(values(gradient[0]), values(ops::cast(gradient_wide[0], DType::f16)));
  };
  compare("log_softmax", [](const Variable& v) { return ops::log_softmax(v, 1); });
  compare("layer_norm", [](const Variable& v) { return ops::layer_norm(v, {}, {}, 1e-5f); });
  compare("rms_norm", [](const Variable& v) { return ops::rms_norm(v, {}, 1e-5f); });
  compare("group_norm", [](const Variable& v) { return ops::group_norm(v, 2, {}, {}, 1e-5f); });
  compare("batch_norm", [](const Variable& v) { return ops::batch_norm(v, {}, {}, 1e-5f).y; });
  // softmax's derivative uses its result, which the FP32 part keeps unrounded: the same rule.
  compare("softmax", [](const Variable& v) { return ops::softmax(v, 1); });
}

TEST_F(NormalizationTest, LargeSixteenBitInputsDoNotOverflowInside) {
  // Sums of squares of 16-bit numbers leave the format; the statistics are FP32. 60000 is 60000 in f16.
  const Variable x = tape.constant(halves_of(*backend, {4, 1}, {60000, -60000, 60000, -60000}));
  EXPECT_EQ(values(ops::batch_norm(x, {}, {}, 1e-5f).y), (std::vector<float>{1, -1, 1, -1}));
  const Variable row = ops::reshape(x, {1, 4});
  EXPECT_EQ(values(ops::layer_norm(row, {}, {}, 1e-5f)), (std::vector<float>{1, -1, 1, -1}));
  EXPECT_EQ(values(ops::rms_norm(row, {}, 1e-5f)), (std::vector<float>{1, -1, 1, -1}));
  EXPECT_EQ(values(ops::group_norm(row, 2, {}, {}, 1e-5f)), (std::vector<float>{1, -1, 1, -1}));
}

// ---- observation --------------------------------------------------------------------------------------

TEST_F(NormalizationTest, NormsShowTheirGradientsWhereTheyAreRounded) {
  const auto run = [&](const std::string& name, bool half, const std::function<Variable(const V&)>& op) {
    SCOPED_TRACE(name);
    const std::vector<float> values_in = with_signs({4, 3}, 1, 2.0f).values;
    const Variable x =
        tape.input(half ? halves_of(*backend, {4, 3}, values_in) : tensor_of(*backend, {4, 3}, values_in));
    const Variable weight = tape.input(tensor_of(*backend, {3}, {1, 2, 3}));
    const Variable bias = tape.input(tensor_of(*backend, {3}, {1, 2, 3}));
    const Variable y = [&] {
      const ScopeGuard scope(tape, name);
      return op({x, weight, bias});
    }();
    SeenGradients seen;
    const CountingGuard counted(tape, seen);
    tape.gradients(std::vector{weighted_sum(tape, y)}, {}, std::vector{x, weight, bias});
    EXPECT_EQ(seen.totals(), (std::map<std::string, std::uint64_t>{
                                 {name + ".input", 12}, {name + ".weight", 3}, {name + ".bias", 3}}));
    EXPECT_EQ(seen.rows[name + ".input"].dtype, half ? DType::f16 : DType::f32);
    EXPECT_EQ(seen.rows[name + ".input"].kind, GradientKind::activation);
    EXPECT_EQ(seen.rows[name + ".weight"].dtype, DType::f32);
    EXPECT_EQ(seen.rows[name + ".weight"].kind, GradientKind::weight);
    for (const auto& [label, row] : seen.rows) EXPECT_EQ(row.times, 1) << label;
    if (!half) {
      for (const auto& [label, row] : seen.rows) EXPECT_EQ(row.probe.before, row.probe.after) << label;
    }
  };
  for (const bool half : {false, true}) {
    run(half ? "ln_half" : "ln", half, [](const V& x) { return ops::layer_norm(x[0], x[1], x[2], 1e-5f); });
    run(half ? "gn_half" : "gn", half,
        [](const V& x) { return ops::group_norm(x[0], 1, x[1], x[2], 1e-5f); });
    // RMS norm has no bias: one more op gives it what the others have.
    run(half ? "rms_half" : "rms", half, [](const V& x) {
      return ops::add(ops::rms_norm(x[0], x[1], 1e-5f), ops::watch(x[2], SlotLabel::bias));
    });
    run(half ? "bn_half" : "bn", half, [](const V& x) { return ops::batch_norm(x[0], x[1], x[2], 1e-5f).y; });
  }
}

TEST_F(NormalizationTest, WhatTheInputsGradientLosesToSixteenBitsIsCounted) {
  // y = x * 2^-20 (variance 1, epsilon 0, weight 2^-20) with seed 2^-6 on one element in f16: all of dL/dx is
  // below 2^-25 and lost, although dL/dy is not.
  const Variable x = tape.input(halves_of(*backend, {4, 1}, {1, -1, 1, -1}));
  const Variable weight = tape.input(tensor_of(*backend, {1}, {0x1p-20f})), bias = constant({1}, {0});
  const Variable y = [&] {
    const ScopeGuard scope(tape, "bn");
    return ops::batch_norm(x, weight, bias, 0.0f).y;
  }();
  SeenGradients seen;
  const CountingGuard counted(tape, seen);
  const Tensor seed = halves_of(*backend, {4, 1}, {0x1p-6f, 0, 0, 0});
  tape.gradients(std::vector{y}, std::vector{seed}, std::vector{x, weight});
  // g - mean - xhat mean(g xhat) = (1 - 1/4 - 1/4, -1/4 + 1/4, -1/4 - 1/4, -1/4 + 1/4) 2^-26.
  EXPECT_EQ(seen.rows.at("bn.input").probe.before.finite_nonzero(), 2u);
  EXPECT_EQ(seen.rows.at("bn.input").probe.after.zero, 4u);
  EXPECT_EQ(seen.rows.at("bn.weight").dtype, DType::f32);
}

TEST_F(NormalizationTest, ANormsPolicyDoesNotReachItsParts) {
  // A dialect that computes every single operation in 16 bits, but the norms in FP32.
  struct NormsWide final : CastPolicy {
    DType compute_dtype(OpSite site, std::span<const DType>) override {
      const Op op = site.op;
      return op == Op::layer_norm || op == Op::softmax ? DType::f32 : DType::f16;
    }
    Variable cast(const Variable& input, DType dtype) override { return ops::cast(input, dtype); }
  } policy;
  const HostTensor x = with_signs({2, 5}, 1, 2.0f);
  const Variable input = constant(x.shape, x.values);
  const std::vector<float> expected = values(ops::layer_norm(input, {}, {}, 1e-5f));
  const std::vector<float> expected_softmax = values(ops::softmax(input, 1));
  const CastPolicyGuard guard(tape, &policy);
  EXPECT_EQ(values(ops::layer_norm(input, {}, {}, 1e-5f)), expected);
  EXPECT_EQ(values(ops::softmax(input, 1)), expected_softmax);
}

TEST_F(NormalizationTest, APolicyMayRoundWhatEntersAndWhatLeaves) {
  // A list that puts the norm in 16 bits gets 16-bit rounding of input, result and gradients, around FP32
  // arithmetic; each gradient is counted once, where it becomes 16 bits wide.
  struct NormsNarrow final : CastPolicy {
    DType compute_dtype(OpSite site, std::span<const DType>) override {
      const Op op = site.op;
      return op == Op::layer_norm ? DType::f16 : DType::f32;
    }
    Variable cast(const Variable& input, DType dtype) override { return ops::cast(input, dtype); }
  } policy;
  std::vector<float> at = with_signs({2, 5}, 1, 2.0f).values;
  for (float& value : at) value += 0x1p-13f;  // lost in 16 bits
  const Variable x = tape.input(tensor_of(*backend, {2, 5}, at));
  const Variable y = [&] {
    const CastPolicyGuard guard(tape, &policy);
    const ScopeGuard scope(tape, "ln");
    return ops::layer_norm(x, {}, {}, 1e-5f);
  }();
  const Variable rounded = ops::cast(ops::cast(x, DType::f16), DType::f32);
  EXPECT_EQ(y.dtype(), DType::f16);
  EXPECT_EQ(values(y), values(ops::cast(ops::layer_norm(rounded, {}, {}, 1e-5f), DType::f16)));
  SeenGradients seen;
  const CountingGuard counted(tape, seen);
  const Tensor seed = halves_of(*backend, {2, 5}, with_signs({2, 5}, 2).values);
  const auto slope = tape.gradients(std::vector{y}, std::vector{seed}, std::vector{x});
  EXPECT_EQ(slope[0].dtype(), DType::f32);
  EXPECT_EQ(values(slope[0]), values(ops::cast(ops::cast(slope[0], DType::f16), DType::f32)));
  EXPECT_EQ(seen.totals(), (std::map<std::string, std::uint64_t>{{"ln.input", 10}}));
  EXPECT_EQ(seen.rows["ln.input"].dtype, DType::f16);
}

// ---- memory and errors ----------------------------------------------------------------------------------

TEST_F(NormalizationTest, ASecondBackwardPassNeedsRetainGraph) {
  const Variable x = tape.input(tensor_of(*backend, {2, 5}, with_signs({2, 5}, 1, 2.0f).values));
  const Variable y = ops::sum(ops::layer_norm(x, {}, {}, 1e-5f));
  tape.gradients(std::vector{y}, {}, std::vector{x});
  EXPECT_THROW(tape.gradients(std::vector{y}, {}, std::vector{x}), AutogradError);
}

TEST_F(NormalizationTest, ErrorsNameTheOpAndTheShapes) {
  const Variable x = constant({2, 3}, {1, 2, 3, 4, 5, 6}), two = constant({2}, {1, 1}),
                 three = constant({3}, {1, 1, 1}), cube = constant({1, 2, 3}, {1, 2, 3, 4, 5, 6}),
                 row = constant({1, 3}, {1, 2, 3});
  expect_rejected([&] { ops::softmax(x, 2); }, {"softmax: no axis 2", "(2, 3)"});
  expect_rejected([&] { ops::log_softmax(x, -3); }, {"log_softmax: no axis -3", "(2, 3)"});
  expect_rejected([&] { ops::layer_norm(x, two, three, 1e-5f); }, {"layer_norm: ", "f32 (2)", "(2, 3)"});
  expect_rejected([&] { ops::layer_norm(x, three, {}, 1e-5f); }, {"layer_norm: ", "both or neither"});
  expect_rejected([&] { ops::layer_norm(x, three, three, -1.0f); }, {"layer_norm: epsilon -1"});
  expect_rejected([&] { ops::rms_norm(x, two, 1e-5f); }, {"rms_norm: ", "f32 (2)", "(3) is needed"});
  expect_rejected([&] { ops::rms_norm(x, three, -1.0f); }, {"rms_norm: epsilon -1"});
  expect_rejected([&] { ops::rms_norm(constant({}, {1}), {}, 0.0f); }, {"rms_norm: ", "no last axis"});
  expect_rejected([&] { ops::group_norm(x, 2, three, three, 1e-5f); },
                  {"group_norm: 2 groups of the 3 channels of f32 (2, 3)", "must divide"});
  expect_rejected([&] { ops::group_norm(x, 0, three, three, 1e-5f); }, {"group_norm: 0 groups"});
  expect_rejected([&] { ops::group_norm(x, 3, two, two, 1e-5f); }, {"group_norm: ", "(3) is needed"});
  expect_rejected([&] { ops::group_norm(x, 3, three, {}, 1e-5f); }, {"group_norm: ", "both or neither"});
  expect_rejected([&] { ops::group_norm(two, 1, {}, {}, 1e-5f); }, {"group_norm: ", "(N, C, ...)"});
  expect_rejected([&] { ops::batch_norm(cube, three, three, 1e-5f); }, {"batch_norm: ", "(1, 2, 3)"});
  expect_rejected([&] { ops::batch_norm(x, two, two, 1e-5f); }, {"batch_norm: ", "f32 (2)", "(3) is needed"});
  expect_rejected([&] { ops::batch_norm(row, {}, {}, 1e-5f); },
                  {"batch_norm: ", "(1, 3)", "fewer than two values per channel"});
  expect_rejected([&] { ops::batch_norm_inference(x, two.tensor(), three.tensor(), {}, {}, 1e-5f); },
                  {"batch_norm: ", "statistic", "f32 (2)", "(2, 3)"});
  EXPECT_THROW(ops::softmax(Variable(), 0), AutogradError);
  EXPECT_THROW(ops::layer_norm(Variable(), {}, {}, 1e-5f), AutogradError);
}

}  // namespace
}  // namespace fp16lab::engine::test::normalization_test
