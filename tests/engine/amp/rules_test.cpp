// Who decides when several do: to_float, guards, excluded layers, lists, levels. And what a decision does to
// the bits.
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "engine/amp/levels/autocast.hpp"
#include "engine/autograd/counting.hpp"
#include "tests/engine/amp/support.hpp"

namespace fp16lab::engine::test {
namespace {

using amp::AmpOptions;
using amp::Autocast;
using amp::AutocastGuard;
using amp::Dialect;
using amp::Fp16Region;
using amp::Level;

constexpr DType f32 = DType::f32, f16 = DType::f16, bf16 = DType::bf16;

class RulesTest : public testing::Test {
 protected:
  Variable of(DType dtype, const Shape& shape = {2, 2}) {
    return tape.constant(filled(*backend, shape, dtype));
  }
  Variable of(const std::vector<float>& values, const Shape& shape, DType dtype = f32) {
    Tensor tensor = backend->empty(shape, dtype);
    backend->cast(tensor_of(*backend, shape, values), tensor);
    return tape.constant(tensor);
  }
  /// The dtype of matmul in a scope, of FP32 inputs.
  DType product_in(std::string_view scope) {
    const ScopeGuard inside(tape, scope);
    return ops::matmul(of(f32), of(f32)).dtype();
  }

  std::unique_ptr<Backend> backend = hopper_backend();
  Tape tape{*backend};
};

// ---- precedence ----

TEST_F(RulesTest, CustomListsComeBeforeTheDialects) {
  Autocast autocast(tape, {.level = Level::O1, .white = {"exp", "tanh"}, .black = {"matmul", "relu"}});
  const AutocastGuard guard(tape, autocast);
  EXPECT_EQ(ops::exp(of(f32)).dtype(), f16) << "black in torch";
  EXPECT_EQ(ops::tanh(of(f32)).dtype(), f16) << "unlisted in torch";
  EXPECT_EQ(ops::matmul(of(f32), of(f32)).dtype(), f32) << "white in torch";
  EXPECT_EQ(ops::relu(of(f16)).dtype(), f32) << "unlisted in torch";
  EXPECT_EQ(ops::log(of(f16)).dtype(), f32) << "as before";
}

TEST_F(RulesTest, CustomListsHoldAtLevelsWithoutLists) {
  Autocast autocast(tape,
                    {.level = Level::O3, .dialect = Dialect::apex, .white = {"tanh"}, .black = {"exp"}});
  const AutocastGuard guard(tape, autocast);
  EXPECT_EQ(ops::exp(of(f16)).dtype(), f32);
  EXPECT_EQ(ops::tanh(of(f32)).dtype(), f16);
  EXPECT_EQ(ops::log(of(f16)).dtype(), f16);
}

TEST_F(RulesTest, AnExcludedLayerComputesInFp32) {
  Autocast autocast(tape, {.level = Level::O1, .white = {"exp"}, .excluded = {"fc2", "block*"}});
  const AutocastGuard guard(tape, autocast);
  EXPECT_EQ(product_in("fc1"), f16);
  EXPECT_EQ(product_in("fc2"), f32);
  EXPECT_EQ(product_in("fc21"), f16);
  EXPECT_EQ(product_in("block3"), f32);
  const ScopeGuard outer(tape, "fc2");
  const ScopeGuard inner(tape, "gate");
  EXPECT_EQ(ops::exp(of(f16)).dtype(), f32) << "custom lists do not reach into it";
  EXPECT_EQ(ops::add(of(f16), of(f16)).dtype(), f32) << "unlisted ops neither";
}

TEST_F(RulesTest, OutsideOfGuardedRegionsOpsAreFp32) {
  Autocast autocast(tape,
                    {.level = Level::O2, .dialect = Dialect::paddle, .use_guard = true, .guard = {"fc1"}});
  const AutocastGuard guard(tape, autocast);
  EXPECT_EQ(product_in("fc1"), f16);
  EXPECT_EQ(product_in("fc2"), f32);
  EXPECT_EQ(ops::add(of(f16), of(f16)).dtype(), f32);
  {
    const Fp16Region region(autocast);
    EXPECT_EQ(product_in("fc2"), f16);
    {
      const Fp16Region inner(autocast);
      EXPECT_EQ(product_in("fc2"), f16);
    }
    EXPECT_EQ(product_in("fc2"), f16) << "regions nest";
    EXPECT_EQ(ops::exp(of(f16)).dtype(), f16) << "as the lists say inside";
  }
  EXPECT_EQ(product_in("fc2"), f32);
}

TEST_F(RulesTest, RegionsMeanNothingWithoutUseGuard) {
  Autocast autocast(tape, {.level = Level::O2, .dialect = Dialect::paddle});
  const AutocastGuard guard(tape, autocast);
  EXPECT_EQ(product_in("fc1"), f16);
  const Fp16Region region(autocast);
  EXPECT_EQ(product_in("fc1"), f16);
}

TEST_F(RulesTest, ExcludedHoldsInsideAGuardedRegion) {
  Autocast autocast(tape,
                    {.level = Level::O2, .dialect = Dialect::paddle, .excluded = {"fc1"}, .use_guard = true});
  const AutocastGuard guard(tape, autocast);
  const Fp16Region region(autocast);
  EXPECT_EQ(product_in("fc1"), f32);
  EXPECT_EQ(product_in("fc2"), f16);
}

TEST_F(RulesTest, ToFloatWinsOverEverything) {
  const std::vector<std::string> to_float = {"fc*=bf16", "fc3=f32", "fc4=f16"};
  Autocast autocast(tape, {.level = Level::O1,
                           .black = {"matmul"},
                           .excluded = {"fc4"},
                           .use_guard = true,
                           .to_float = to_float});
  const AutocastGuard guard(tape, autocast);
  EXPECT_EQ(product_in("fc1"), bf16) << "over the black list and the guard";
  EXPECT_EQ(product_in("fc3"), f32) << "the last match counts";
  EXPECT_EQ(product_in("fc4"), f16) << "over excluded";
  EXPECT_EQ(product_in("conv"), f32) << "outside of the guard";
  const ScopeGuard scope(tape, "fc4");
  EXPECT_EQ(ops::binary_cross_entropy(of(f32), of(f32)).dtype(), f16)
      << "banned ops included: the user has decided";
}

TEST_F(RulesTest, ToFloatHoldsAtO0) {
  Autocast autocast(tape, {.level = Level::O0, .to_float = {"fc1=f16"}});
  EXPECT_TRUE(autocast.acts());
  const AutocastGuard guard(tape, autocast);
  EXPECT_EQ(product_in("fc1"), f16);
  EXPECT_EQ(product_in("fc2"), f32);
  EXPECT_EQ(ops::matmul(of(f16), of(f32)).dtype(), f32) << "later ops follow, to the widest";
}

TEST_F(RulesTest, MixedF16AndBf16PromoteToF32) {
  EXPECT_EQ(ops::add(of(f16), of(bf16)).dtype(), f32) << "without autocast";
  Autocast autocast(tape, {.level = Level::O1});
  const AutocastGuard guard(tape, autocast);
  EXPECT_EQ(ops::add(of(f16), of(bf16)).dtype(), f32);
  EXPECT_EQ(ops::add(of(bf16), of(bf16)).dtype(), bf16) << "a dtype that is not the level's own follows too";
  EXPECT_EQ(ops::matmul(of(bf16), of(bf16)).dtype(), f16) << "white is the level's dtype";
}

TEST_F(RulesTest, BannedOpsAreFp32WhereApexAllowsThem) {
  Autocast refusing(tape, {.level = Level::O1, .dialect = Dialect::apex});
  Autocast allowing(tape, {.level = Level::O1, .dialect = Dialect::apex, .allow_banned = true});
  {
    const AutocastGuard guard(tape, refusing);
    EXPECT_THROW(ops::binary_cross_entropy(of(f32), of(f32)), AutogradError);
  }
  const AutocastGuard guard(tape, allowing);
  EXPECT_EQ(ops::binary_cross_entropy(of(f16), of(f16)).dtype(), f32);
}

TEST_F(RulesTest, GuardsNestAndSwitchOff) {
  Autocast autocast(tape, {.level = Level::O1});
  Parameter weight{"w", filled(*backend, {2, 2}, f32)};
  const AutocastGuard outer(tape, autocast);
  EXPECT_EQ(ops::matmul(of(f32), tape.parameter(weight)).dtype(), f16);
  {
    const AutocastGuard off(tape, autocast, false);
    EXPECT_EQ(ops::matmul(of(f32), tape.parameter(weight)).dtype(), f32);
    {
      const AutocastGuard on(tape, autocast);
      EXPECT_EQ(ops::matmul(of(f32), tape.parameter(weight)).dtype(), f16);
    }
    EXPECT_EQ(ops::matmul(of(f32), tape.parameter(weight)).dtype(), f32);
  }
  EXPECT_EQ(ops::matmul(of(f32), tape.parameter(weight)).dtype(), f16);
  EXPECT_EQ(autocast.cache_size(), 1u) << "inner guards leave the cache alone";
  EXPECT_EQ(autocast.cache_hits(), 2u);
}

TEST_F(RulesTest, ALowLossFollowsItsPrediction) {
  AmpOptions options{.level = Level::O2, .dialect = Dialect::paddle};
  const auto loss = [&](DType prediction) {
    Autocast autocast(tape, options);
    const AutocastGuard guard(tape, autocast);
    return ops::mse_loss(of(prediction), of(f32)).dtype();
  };
  EXPECT_EQ(loss(f16), f32) << "the FP32 target widens it";
  options.low_loss = true;
  EXPECT_EQ(loss(f16), f16) << "the target is cast";
  EXPECT_EQ(loss(f32), f32);
  options.black = {"mse_loss"};
  EXPECT_EQ(loss(f16), f32) << "lists come first";
}

// ---- bits ----

/// (1, 1) x (1, 1) + bias = 2048 + 1/2: FP16 has steps of 2 there.
TEST_F(RulesTest, PaddleRoundsALinearLayerTwice) {
  const Variable x = of({2048.0f}, {1, 1}), w = of({1.0f}, {1, 1}), b = of({0.5f}, {1});
  const auto linear = [&](const AmpOptions& options) {
    Autocast autocast(tape, options);
    const AutocastGuard guard(tape, autocast);
    return values_of(*backend, ops::linear(x, w, b).tensor()).at(0);
  };
  EXPECT_EQ(linear({.level = Level::O1, .dialect = Dialect::torch}), 2048.0f) << "the sum is rounded to FP16";
  EXPECT_EQ(linear({.level = Level::O1, .dialect = Dialect::paddle}), 2048.5f)
      << "the product is, the sum is FP32";
}

/// The product 60000 x 2 overflows FP16 before the bias can bring it back: two ops, two roundings.
TEST_F(RulesTest, PaddleOverflowsWhereAFusedLinearDoesNot) {
  const Variable x = of({60000.0f}, {1, 1}), w = of({2.0f}, {1, 1}), b = of({-60000.0f}, {1});
  const auto linear = [&](const AmpOptions& options) {
    Autocast autocast(tape, options);
    const AutocastGuard guard(tape, autocast);
    return values_of(*backend, ops::linear(x, w, b).tensor()).at(0);
  };
  EXPECT_EQ(linear({.level = Level::O1, .dialect = Dialect::torch}), 60000.0f);
  EXPECT_EQ(linear({.level = Level::O1, .dialect = Dialect::paddle}), std::numeric_limits<float>::infinity());
}

TEST_F(RulesTest, ASplitLinearHasTheGradientsOfAFusedOne) {
  // Small integers: every product and sum is exact in FP16, so that both ways have the same bits.
  const std::vector<float> xs = {1, -2, 3, 0.5f, 4, -1}, ws = {2, 1, -1, 3, 0.5f, -2}, bs = {1, -1};
  const auto gradients = [&](Dialect dialect, const Shape& shape) {
    Tape own(*backend);
    Autocast autocast(own, {.level = Level::O1, .dialect = dialect});
    const Variable x = own.input(tensor_of(*backend, shape, xs)),
                   w = own.input(tensor_of(*backend, {2, 3}, ws)),
                   b = own.input(tensor_of(*backend, {2}, bs));
    const AutocastGuard guard(own, autocast);
    const Variable y = ops::linear(x, w, b);
    std::vector<std::vector<float>> all = {values_of(*backend, y.tensor())};
    for (const Variable& g :
         own.gradients(std::vector{ops::sum(ops::multiply(y, y))}, {}, std::vector{x, w, b})) {
      EXPECT_EQ(g.dtype(), f32);
      all.push_back(values_of(*backend, g.tensor()));
    }
    return all;
  };
  EXPECT_EQ(gradients(Dialect::paddle, {2, 3}), gradients(Dialect::torch, {2, 3}));
  EXPECT_EQ(gradients(Dialect::paddle, {2, 1, 3}), gradients(Dialect::torch, {2, 1, 3})) << "leading axes";
}

TEST_F(RulesTest, ASplitLinearKeepsTheNamesOfItsGradients) {
  struct Names : Tap {
    std::vector<std::string> seen;
    void see(const Event& event) override {
      const auto* const counted = event.as<CountedTensor>();
      if (counted == nullptr || counted->intermediate) return;
      seen.push_back(std::string(counted->name) + (counted->kind == GradientKind::weight ? " w " : " a ") +
                     std::string(name_of(counted->dtype)) + " " +
                     std::to_string(counted->probe.before.total()));
    }
  } names;
  const CountingGuard counted(tape, names);
  AmpOptions options{.level = Level::O1, .dialect = Dialect::paddle};
  const auto run = [&] {
    names.seen.clear();
    Autocast autocast(tape, options);
    const Variable x = tape.input(filled(*backend, {4, 3}, f32)),
                   w = tape.input(filled(*backend, {2, 3}, f32)), b = tape.input(filled(*backend, {2}, f32));
    const AutocastGuard guard(tape, autocast);
    Variable y;
    {
      const ScopeGuard scope(tape, "fc1");
      y = ops::linear(x, w, b);
    }
    tape.gradients(std::vector{ops::sum(y)}, {}, std::vector{x, w, b});
    return names.seen;
  };
  EXPECT_THAT(run(), testing::ElementsAre("fc1.bias w f32 2", "fc1.input a f16 12", "fc1.weight w f16 6"));
  options.white = {"elementwise_add"};
  EXPECT_THAT(run(), testing::ElementsAre("fc1.bias w f16 2", "fc1.input a f16 12", "fc1.weight w f16 6"));
}

TEST_F(RulesTest, AMindSporeCellRoundsThoughItHandsOnFp32) {
  Autocast autocast(tape, {.level = Level::O1, .dialect = Dialect::mindspore});
  const AutocastGuard guard(tape, autocast);
  const Variable y = ops::relu(of({1.0f + 0x1p-11f}, {1}));
  EXPECT_EQ(y.dtype(), f32);
  EXPECT_EQ(values_of(*backend, y.tensor()).at(0), 1.0f) << "a tie, to even";
}

/// 20000 + 20000 + 20000 + 20000 overflows FP16, their mean does not: the sum is FP32, and rounded once.
TEST_F(RulesTest, A16BitMeanDoesNotOverflowBecauseItsSumWould) {
  const Variable x = of(std::vector<float>(4, 20000.0f), {4}, f16);
  EXPECT_EQ(ops::mean(x).dtype(), f16);
  EXPECT_EQ(values_of(*backend, ops::mean(x).tensor()).at(0), 20000.0f);
  EXPECT_EQ(values_of(*backend, ops::sum(x).tensor()).at(0), std::numeric_limits<float>::infinity());
}

/// layer_norm under a low model: FP32 parameters do not widen the result, and are not rounded.
TEST_F(RulesTest, NormParametersStayAsTheyAreStored) {
  Autocast autocast(tape, {.level = Level::O2, .dialect = Dialect::paddle});
  const AutocastGuard guard(tape, autocast);
  // xhat = (-1, 1); 1 + 2^-11 + 2^-12 is no FP16 number, 2^11 times it (2049.5) neither, but 2049.5 - 2048
  // is.
  const float weight = 2049.5f;
  const Variable y = ops::layer_norm(of({-1.0f, 1.0f}, {1, 2}, f16), of({weight, weight}, {2}),
                                     of({-2048.0f, -2048.0f}, {2}), 0.0f);
  EXPECT_EQ(y.dtype(), f16);
  EXPECT_EQ(values_of(*backend, y.tensor()).at(1), 1.5f) << "a weight rounded to FP16 would give 2 or 0";
}

// ---- FP8 operands ----

TEST_F(RulesTest, Fp8RoundsTheOperandsOfForwardAndBackwardProducts) {
  Autocast autocast(tape, {.level = Level::O1, .fp8_operands = DType::e4m3, .fp8_gradients = DType::e5m2});
  // E4M3 has 3 fraction bits, E5M2 has 2. 1.0625 -> 1 (tie to even) in E4M3, 1.1875 -> 1.25 (tie, up); the
  // seed 1.125 -> 1 (tie to even) in E5M2. One product each, so nothing else rounds.
  const Variable a = tape.input(tensor_of(*backend, {1, 1}, {1.0625f}));
  const Variable b = tape.input(tensor_of(*backend, {1, 1}, {1.1875f}));
  const std::vector<Tensor> seed = {halves_of(*backend, {1, 1}, {1.125f})};
  for (const bool as_linear : {false, true}) {
    Variable y;
    {
      const AutocastGuard guard(tape, autocast);
      y = as_linear ? ops::linear(a, b, {}) : ops::matmul(a, b);
    }
    EXPECT_EQ(values_of(*backend, y.tensor()).at(0), 1.25f) << "1 x 1.25";
    const auto gradients = tape.gradients(std::vector{y}, seed, std::vector{a, b});
    EXPECT_EQ(values_of(*backend, gradients[0].tensor()).at(0), 1.25f) << "seed 1 x b 1.25";
    EXPECT_EQ(values_of(*backend, gradients[1].tensor()).at(0), 1.0f) << "seed 1 x a 1";
  }
}

TEST_F(RulesTest, Fp8LeavesFp32ProductsAndConvolutionsAlone) {
  Autocast autocast(
      tape,
      {.level = Level::O1, .black = {"matmul"}, .fp8_operands = DType::e4m3, .fp8_gradients = DType::e5m2});
  const AutocastGuard guard(tape, autocast);
  const Variable a = of({1.0625f}, {1, 1}), one = of({1.0f}, {1, 1});
  EXPECT_EQ(values_of(*backend, ops::matmul(a, one).tensor()).at(0), 1.0625f);
  const Variable image = of({1.0625f}, {1, 1, 1, 1}), tap = of({1.0f}, {1, 1, 1, 1});
  EXPECT_EQ(values_of(*backend, ops::conv2d(image, tap, {}, {}).tensor()).at(0), 1.0625f);
}

}  // namespace
}  // namespace fp16lab::engine::test
