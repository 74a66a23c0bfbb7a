// Guards around every policy: floor, ceiling, finite guard, powers of two.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "engine/amp/guards.hpp"
#include "engine/amp/policy.hpp"

namespace fp16lab::engine::test::guards_test {
namespace {

using amp::Guards;
using amp::ScalerOptions;

constexpr double infinity = std::numeric_limits<double>::infinity();

std::vector<double> trace(const ScalerOptions& options, const std::string& sequence) {
  const amp::ScalePolicy policy = amp::make_scale_policy(options);
  StepState step = policy.initial;
  std::vector<double> scales;
  for (const char c : sequence) {
    amp::advance(policy, step, {.found_inf = c == 'O'});
    EXPECT_EQ(step.inverse_scale, static_cast<float>(1.0 / step.scale));
    scales.push_back(step.scale);
  }
  return scales;
}

TEST(Guards, FloorAndCeilingHoldForTheStateToo) {
  // After the floor the rule goes on from the floor, not from the unguarded scale.
  EXPECT_THAT(
      trace({.policy = "torch", .initial_scale = 8, .growth_interval = 1, .parameters = {{"min_scale", 2}}},
            "OOOOFF"),
      testing::ElementsAre(4, 2, 2, 2, 4, 8));
  EXPECT_THAT(
      trace({.policy = "torch", .initial_scale = 8, .growth_interval = 1, .parameters = {{"max_scale", 16}}},
            "FFFFO"),
      testing::ElementsAre(16, 16, 16, 16, 8));
}

TEST(Guards, ScalesBeyondUseAreNotTaken) {
  const Guards on, off{.finite_guard = 0};
  for (const double bad : {0.0, -1.0, infinity, 0x1p128, 0x1p-127, std::nan("")}) {
    EXPECT_EQ(amp::guarded(8, bad, on), 8) << bad;
    EXPECT_FALSE(amp::is_usable_scale(bad));
  }
  for (const double good : {0x1p-126, 0x1p127, 1.0, 3.0}) EXPECT_EQ(amp::guarded(8, good, on), good);
  EXPECT_EQ(amp::guarded(8, infinity, off), infinity);
  EXPECT_EQ(amp::guarded(8, 0, off), 0);
  EXPECT_EQ(amp::recovered(infinity, on), 0x1p127);
  EXPECT_EQ(amp::recovered(0, on), 0x1p-126);
  EXPECT_EQ(amp::recovered(infinity, off), infinity);
  // Torch without floor: the scale stays where its reciprocal would no longer be finite.
  EXPECT_THAT(trace({.policy = "torch", .initial_scale = 0x1p-125}, "OOO"),
              testing::ElementsAre(0x1p-126, 0x1p-126, 0x1p-126));
  EXPECT_EQ(trace({.policy = "torch", .initial_scale = 0x1p126, .growth_interval = 1}, "FFFO"),
            (std::vector<double>{0x1p127, 0x1p127, 0x1p127, 0x1p126}));
}

TEST(Guards, RoundDownKeepsTheRuleAndUsesThePowerBelow) {
  const ScalerOptions plain{
      .policy = "torch", .initial_scale = 1000, .backoff_factor = 0.8, .growth_interval = 2};
  ScalerOptions rounded = plain;
  rounded.power_of_two = amp::PowerOfTwo::round_down;
  const std::string sequence = "FOOFFOFFFFOOO";
  const std::vector<double> scales = trace(plain, sequence), powers = trace(rounded, sequence);
  for (std::size_t i = 0; i < scales.size(); ++i) {
    EXPECT_EQ(powers[i], std::exp2(std::floor(std::log2(scales[i])))) << i;
  }
  EXPECT_NE(powers, scales);
  EXPECT_EQ(amp::make_scale_policy(rounded).initial.scale, 512);
  for (const double exact : {0x1p-126, 1.0, 0x1p127})
    EXPECT_EQ(amp::applied_scale(exact, {.round_to_power_of_two = 1}), exact);
  EXPECT_EQ(amp::applied_scale(infinity, {.finite_guard = 0, .round_to_power_of_two = 1}), infinity);
}

/// g * S * (1/S), each product rounded to FP32, as the engine does it.
bool comes_back(float g, double scale) {
  StepState step;
  step.set_scale(scale);
  const float scaled = g * static_cast<float>(scale);
  const float back = scaled * step.inverse_scale;
  return back == g && std::isfinite(scaled);
}

TEST(Guards, UnscalingUndoesScalingForPowersOfTwo) {
  // Every FP16 value that is normal, at every power of two that keeps it a finite normal FP32 number.
  std::uint64_t tried = 0;
  for (int k = -126; k <= 127; ++k) {
    const double scale = std::ldexp(1.0, k);
    ASSERT_TRUE(amp::is_usable_scale(scale));
    for (std::uint32_t code = 0x0400; code < 0x7c00; code += 7) {
      const float g =
          std::ldexp(1.0f + static_cast<float>(code & 0x3ff) / 1024.0f, static_cast<int>(code >> 10) - 15);
      const double product = static_cast<double>(g) * scale;
      if (product < 0x1p-126 || product >= 0x1p128) continue;
      ++tried;
      ASSERT_TRUE(comes_back(g, scale)) << g << " at 2^" << k;
    }
  }
  EXPECT_GT(tried, 1000000u);
  // 0.8 of a power of two does not: inexact_unscaling warns of that.
  std::uint64_t changed = 0;
  for (std::uint32_t code = 0x0400; code < 0x7c00; code += 7) {
    const float g =
        std::ldexp(1.0f + static_cast<float>(code & 0x3ff) / 1024.0f, static_cast<int>(code >> 10) - 15);
    changed += comes_back(g, 65536 * 0.8) ? 0 : 1;
  }
  EXPECT_GT(changed, 0u);
}

TEST(Guards, InexactUnscalingNamesThePart) {
  using testing::HasSubstr;
  using testing::Optional;
  const auto why = [](const ScalerOptions& options) { return amp::inexact_unscaling(options); };
  EXPECT_EQ(why({.policy = "torch"}), std::nullopt);
  EXPECT_EQ(why({.policy = "none"}), std::nullopt);
  EXPECT_THAT(why({.policy = "torch", .backoff_factor = 0.8}),
              Optional(HasSubstr("scaler.backoff_factor = 0.8")));
  EXPECT_THAT(why({.policy = "torch", .initial_scale = 1000}),
              Optional(HasSubstr("scaler.initial_scale = 1000")));
  EXPECT_THAT(why({.policy = "torch", .parameters = {{"max_scale", 100000}}}),
              Optional(HasSubstr("scaler.max_scale")));
  EXPECT_EQ(why({.policy = "torch", .backoff_factor = 0.8, .power_of_two = amp::PowerOfTwo::round_down}),
            std::nullopt);
}

}  // namespace
}  // namespace fp16lab::engine::test::guards_test
