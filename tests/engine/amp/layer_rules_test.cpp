// The rules of layer scales by themselves: ada-loss's formula, and the rule of one scale among several.
#include <cmath>
#include <limits>
#include <vector>

#include <gmock/gmock.h>

#include "engine/amp/policies/ada_loss.hpp"
#include "engine/amp/policies/layer_rule.hpp"
#include "engine/amp/policy.hpp"

namespace fp16lab::engine::test {
namespace {

using amp::AdaLossScaling;
using amp::LayerRule;
using amp::LayerScale;
using testing::ElementsAre;

// ---- ada-loss, the formula

AdaLossScaling::LayerParams released() {
  return {.quantile = AdaLossScaling::quantile_of(1e-3),
          .u_min = 6e-8,
          .u_max = 6e4,
          .scale_upper_bound = 16,
          .accum_upper_bound = 1024};
}

TEST(AdaLoss, QuantileIsThatOfTheNormalDistribution) {
  // sqrt(2) * erfinv(1e-3) = 0.0012533145 (Zhao et al.'s threshold); erf is libm's here, an independent
  // judge.
  EXPECT_NEAR(AdaLossScaling::quantile_of(1e-3), 0.0012533145, 1e-10);
  for (const double share : {1e-6, 1e-3, 0.05, 0.25, 0.5})
    EXPECT_NEAR(std::erf(AdaLossScaling::quantile_of(share) / std::sqrt(2.0)), share, share * 1e-14);
}

TEST(AdaLoss, FactorKeepsTheShareThatMayUnderflow) {
  const auto params = released();
  const auto factor = [&](double sigma, double largest) {
    return AdaLossScaling::factor(params, {.mean_square = sigma * sigma, .largest = largest});
  };
  // 6e-8 / (0.00125331 * sigma) = 4.787e-5 / sigma
  EXPECT_NEAR(factor(1e-6, 1e-5), 47.873, 0.001);
  EXPECT_NEAR(factor(1e-9, 1e-8), 47873, 1);
  EXPECT_EQ(factor(1e-3, 1e-2), 1) << "never below 1 for underflow's sake";
  EXPECT_EQ(factor(1e-9, 60), 1000) << "60 * 1000 = u_max";
  EXPECT_EQ(factor(2, 64000), 0.9375) << "beyond u_max: down";
  EXPECT_EQ(factor(0, 0), 1) << "all zeros";
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(factor(infinity, infinity), 1);
  EXPECT_EQ(factor(std::nan(""), std::nan("")), 1);
}

TEST(AdaLoss, WeightsCountAsInThePaper) {
  // sigma^2 = (sg^2 + mg^2)(sw^2 + mw^2) * fan_in / 2; u_max is divided by the fan-in and bounds g_max w_max.
  const auto params = released();
  const AdaLossScaling::Moments gradient{.mean_square = 25e-12, .largest = 1e-4};
  const AdaLossScaling::Moments weight{.mean_square = 0.04, .largest = 0.5};
  const double sigma = 5e-6 * 0.2 * std::sqrt(0.5 * 128);
  EXPECT_NEAR(AdaLossScaling::factor(params, gradient, weight, 128), 6e-8 / (params.quantile * sigma), 1e-9);
  const AdaLossScaling::Moments peak{.mean_square = 25e-12, .largest = 400};
  EXPECT_EQ(AdaLossScaling::factor(params, peak, weight, 128), 6e4 / 128 / 200);
}

TEST(AdaLoss, BoundsAndPowersOfTwo) {
  const auto params = released();
  EXPECT_EQ(AdaLossScaling::exponent_after(params, 1, 0), 0);
  EXPECT_EQ(AdaLossScaling::exponent_after(params, 15.99, 0), 3);
  EXPECT_EQ(AdaLossScaling::exponent_after(params, 16, 0), 4);
  EXPECT_EQ(AdaLossScaling::exponent_after(params, 1e9, 0), 4) << "16 a layer";
  EXPECT_EQ(AdaLossScaling::exponent_after(params, 1e9, 4), 8);
  EXPECT_EQ(AdaLossScaling::exponent_after(params, 1e9, 8), 10) << "1024 in all";
  EXPECT_EQ(AdaLossScaling::exponent_after(params, 1e9, 10), 10);
  EXPECT_EQ(AdaLossScaling::exponent_after(params, 0.9, 5), 4) << "downwards";
  EXPECT_EQ(AdaLossScaling::exponent_after(params, 1, 12), 10) << "a join may be above the bound";
}

// ---- layerwise and groups, the rule of one scale

TEST(LayerRule, GrowsAndBacksOffByItself) {
  const LayerRule rule{.growth_interval = 3, .min_scale = 0.25f, .max_scale = 8.0f};
  LayerScale layer{2.0f, 0};
  std::vector<double> scales;
  for (const bool overflow : {false, false, false, false, true, false, false, false, false, false, false,
                              false, false, false, true,  true, true,  true,  true,  true,  true}) {
    amp::update_layer(layer, rule, overflow);
    scales.push_back(static_cast<double>(layer.scale));
  }
  EXPECT_THAT(scales, ElementsAre(2, 2, 4, 4, 2, 2, 2, 4, 4, 4, 8, 8, 8, 8, 4, 2, 1, 0.5, 0.25, 0.25, 0.25));
}

TEST(LayerRule, ClampsInsteadOfReachingInfinityOrZero) {
  const LayerRule rule{.growth_interval = 1};  // fairscale's clamp: FP32's range
  LayerScale layer{0x1p126f, 0};
  for (int step = 0; step < 3; ++step) amp::update_layer(layer, rule, false);
  EXPECT_EQ(layer.scale, 0x1p127f);
  layer.scale = 0x1p-125f;
  for (int step = 0; step < 3; ++step) amp::update_layer(layer, rule, true);
  EXPECT_EQ(layer.scale, 0x1p-126f);
}

TEST(LayerRule, MindSporeGroupsDoubleInAThousandSteps) {
  const auto* growth = amp::scale_policy("groups").find("growth_factor");
  const auto* backoff = amp::scale_policy("groups").find("backoff_factor");
  EXPECT_EQ(growth->fallback, std::pow(2.0, 1.0 / 1000));
  EXPECT_EQ(backoff->fallback, std::pow(2.0, -0.5));
  LayerScale group{16.0f, 0};
  const LayerRule rule{.growth_factor = static_cast<float>(growth->fallback),
                       .backoff_factor = static_cast<float>(backoff->fallback),
                       .growth_interval = 1};
  for (int step = 0; step < 1000; ++step) amp::update_layer(group, rule, false);
  // (1 + d)^1000 with 1000 + 1 roundings of relative size 2^-24 each, and the factor's own, a thousand times
  EXPECT_NEAR(group.scale, 32.0f, 32 * 2001 * 0x1p-24f);
}

}  // namespace
}  // namespace fp16lab::engine::test
