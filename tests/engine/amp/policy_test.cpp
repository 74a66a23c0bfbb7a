// Options of loss-scale policies: those that cannot be, aliases, and scales that are no powers of two.
#include <cmath>
#include <limits>
#include <string>

#include <gmock/gmock.h>

#include "engine/amp/policy.hpp"

namespace fp16lab::engine::test {
namespace {

using amp::ScalerOptions;
using testing::AllOf;
using testing::HasSubstr;

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
  for (const double bad : {0.0, -4.0, 0x1p31, 2.5, nan}) {
    EXPECT_THAT(message({.policy = "dynamic", .growth_interval = bad}), HasSubstr("growth_interval")) << bad;
  }
  EXPECT_THAT(message({.policy = "dynamc"}),
              AllOf(HasSubstr("scaler.policy = \"dynamc\""), HasSubstr("none, fixed, torch, paddle, "),
                    HasSubstr("did you mean 'dynamic'?")));
  EXPECT_THAT(message({.policy = "megatorn"}), HasSubstr("did you mean 'megatron'?"));
  EXPECT_THAT(message({.policy = "torch", .parameters = {{"growth_intervall", 3}}}),
              AllOf(HasSubstr("no policy has a parameter 'growth_intervall'"),
                    HasSubstr("did you mean 'growth_interval'?")));
  // A parameter of another policy: one set of options serves a sweep over policies.
  EXPECT_EQ(message({.policy = "torch", .parameters = {{"hysteresis", 3}}}), "accepted");
  EXPECT_THAT(message({.policy = "megatron", .parameters = {{"hysteresis", 0}}}),
              HasSubstr("scaler.hysteresis = 0: must be an integer from 1"));
  EXPECT_THAT(message({.policy = "fairseq", .parameters = {{"tolerance", 1.5}}}),
              HasSubstr("scaler.tolerance = 1.5"));
  EXPECT_THAT(message({.policy = "keras2", .initial_scale = 0.5}),
              AllOf(HasSubstr("initial_scale = 0.5"), HasSubstr("min_scale = 1")));
  EXPECT_THAT(message({.policy = "torch", .parameters = {{"min_scale", 8}, {"max_scale", 4}}}),
              AllOf(HasSubstr("max_scale = 4"), HasSubstr("min_scale = 8")));
  EXPECT_THAT(message({.policy = "torch", .parameters = {{"finite_guard", 2}}}), HasSubstr("true or false"));
  EXPECT_EQ(message({.policy = "dynamic"}), "accepted");
  EXPECT_THAT(message({.policy = "dynamic", .drop_overflow_update = false}),
              AllOf(HasSubstr("drop_overflow_update"), HasSubstr("dynamic"), HasSubstr("fixed")));
  EXPECT_EQ(message({.policy = "fixed", .drop_overflow_update = false}), "accepted");
  EXPECT_EQ(message({.policy = "mindspore-fixed", .drop_overflow_update = false}), "accepted");
  EXPECT_EQ(message({.policy = "none", .drop_overflow_update = false}), "accepted");
}

TEST(PolicyOptions, AliasesAreTheSamePolicy) {
  const amp::ScalePolicy torch = amp::make_scale_policy({.policy = "torch"});
  const amp::ScalePolicy alias = amp::make_scale_policy({.policy = "dynamic"});
  EXPECT_EQ(alias.name, "torch");
  EXPECT_EQ(alias.update.name, torch.update.name);
  EXPECT_EQ(alias.values, torch.values);
}

TEST(PolicyOptions, ScalesThatAreNoPowersOfTwoAreSaid) {
  const auto words = [](const ScalerOptions& options) {
    return amp::inexact_unscaling(options).value_or("exact");
  };
  for (const char* const policy : {"torch", "paddle", "megatron", "metaseq", "mindspore", "flax"})
    EXPECT_EQ(words({.policy = policy}), "exact") << policy;
  for (const char* const policy : {"paddle-static-legacy", "tf1-exponential"})
    EXPECT_THAT(words({.policy = policy}), HasSubstr("scaler.backoff_factor = 0.8 is not a power of two"));
  EXPECT_THAT(words({.policy = "chainer"}), HasSubstr("not a power"));
  EXPECT_THAT(words({.policy = "torch", .growth_factor = 3}), HasSubstr("scaler.growth_factor = 3"));
  EXPECT_EQ(words({.policy = "torch", .growth_factor = 3, .power_of_two = amp::PowerOfTwo::round_down}),
            "exact");
}

}  // namespace
}  // namespace fp16lab::engine::test
