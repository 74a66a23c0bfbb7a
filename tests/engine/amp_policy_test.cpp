// Loss-scale policies: traces by hand, and options that cannot be.
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>

#include "engine/amp/policies/dynamic.hpp"
#include "engine/amp/policies/fixed.hpp"
#include "engine/amp/policies/none.hpp"
#include "engine/amp/policy.hpp"
#include "tests/engine/amp_scaler_support.hpp"

namespace fp16lab::engine::test {
namespace {

using amp::ScalerOptions;
using testing::HasSubstr;

template <class Policy>
std::vector<double> trace(const typename Policy::Params& params, std::string_view sequence) {
  auto state = Policy::initial(params);
  std::vector<double> scales;
  for (const char step : sequence) {
    Policy::update(state, params, step == 'O');
    scales.push_back(static_cast<double>(state.scale));
  }
  return scales;
}

TEST(DynamicPolicy, FollowsTorchOnBothSequences) {
  const amp::DynamicScaling::Params params{.growth_interval = 4};
  EXPECT_EQ(trace<amp::DynamicScaling>(params, sequence_a), powers_of_two(torch_a));
  EXPECT_EQ(trace<amp::DynamicScaling>(params, sequence_b), powers_of_two(torch_b));
}

TEST(DynamicPolicy, GrowthNeverReachesInfinityAndTheWindowRestarts) {
  // flax#2547, pytorch#98828: a scale that once was infinite never comes back.
  const amp::DynamicScaling::Params params{.initial_scale = 0x1p126f, .growth_interval = 1};
  EXPECT_EQ(trace<amp::DynamicScaling>(params, "FFFO"),
            (std::vector<double>{0x1p127, 0x1p127, 0x1p127, 0x1p126}));
}

TEST(DynamicPolicy, MultipliesInFp32) {
  const amp::DynamicScaling::Params params{
      .initial_scale = 3.0f, .backoff_factor = 0.8f, .growth_interval = 100};
  const float once = 3.0f * 0.8f;
  EXPECT_EQ(trace<amp::DynamicScaling>(params, "OO"), (std::vector<double>{once, once * 0.8f}));
}

TEST(DynamicPolicy, HasNoFloor) {
  const amp::DynamicScaling::Params params{.initial_scale = 1.0f};
  EXPECT_EQ(trace<amp::DynamicScaling>(params, "OOO").back(), 0.125);
}

TEST(FixedAndNone, NeverMove) {
  for (const double scale : trace<amp::FixedScaling>({.scale = 2048.0f}, sequence_a))
    EXPECT_EQ(scale, 2048.0);
  for (const double scale : trace<amp::NoScaling>({}, sequence_a)) EXPECT_EQ(scale, 1.0);
}

TEST(PolicyOptions, ImpossibleValuesAreNamed) {
  const auto message = [](const ScalerOptions& options) -> std::string {
    try {
      amp::make_scale_policy(options);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "accepted";
  };
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {1.0, 0.5, -2.0, 1.0 + 1e-12, infinity, nan}) {
    EXPECT_THAT(message({.policy = "dynamic", .growth_factor = bad}), HasSubstr("growth_factor")) << bad;
  }
  for (const double bad : {1.0, 0.0, -0.5, 1.0 - 1e-12, 1e-60, infinity, nan}) {
    EXPECT_THAT(message({.policy = "dynamic", .backoff_factor = bad}), HasSubstr("backoff_factor")) << bad;
  }
  for (const double bad : {0.0, -1.0, infinity, nan, 1e300, 0.1, 1e-60}) {
    EXPECT_THAT(message({.policy = "dynamic", .initial_scale = bad}), HasSubstr("initial_scale")) << bad;
    EXPECT_THAT(message({.policy = "fixed", .initial_scale = bad}), HasSubstr("initial_scale")) << bad;
  }
  for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{-4}, std::int64_t{1} << 31}) {
    EXPECT_THAT(message({.policy = "dynamic", .growth_interval = bad}), HasSubstr("growth_interval")) << bad;
  }
  EXPECT_THAT(message({.policy = "dynamc"}),
              testing::AllOf(HasSubstr("dynamc"), HasSubstr("none, fixed, dynamic")));
  EXPECT_EQ(message({.policy = "dynamic"}), "accepted");
  EXPECT_THAT(message({.policy = "dynamic", .drop_overflow_update = false}),
              testing::AllOf(HasSubstr("drop_overflow_update"), HasSubstr("dynamic"), HasSubstr("fixed")));
  EXPECT_EQ(message({.policy = "fixed", .drop_overflow_update = false}), "accepted");
  EXPECT_EQ(message({.policy = "none", .drop_overflow_update = false}), "accepted");
}

}  // namespace
}  // namespace fp16lab::engine::test
