// Numbers that are given in FP64 and computed with in FP32: what FP32 cannot hold is refused with its place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "experiments/app/config/config.hpp"
#include "numerics/formats/fp32_range.hpp"
#include "tests/experiments/app/usage_error.hpp"

namespace fp16lab::experiments {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& setting) {
  return usage_error_of([&] {
    RunConfig config;
    apply_setting(config, setting, "--set");
  });
}

TEST(Fp32Range, OfNumbers) {
  constexpr double largest = std::numeric_limits<float>::max(), least = 0x1p-149;
  for (const double held : {0.0, -0.0, 1.0, -0.1, largest, -largest, least, 0x1.fffffeffffffp127, 0x1.1p-150})
    EXPECT_TRUE(fp32_holds(held)) << held;
  for (const double not_held :
       {1e39, -1e308, 1e-46, 0x1p-150, 0x1.ffffffp127, std::numeric_limits<double>::infinity(),
        std::numeric_limits<double>::quiet_NaN()})
    EXPECT_FALSE(fp32_holds(not_held)) << not_held;
  EXPECT_EQ(static_cast<double>(fp32_neighbours(0.1).below), 0.09999999403953552);
  EXPECT_EQ(static_cast<double>(fp32_neighbours(0.1).above), 0.10000000149011612);
  EXPECT_EQ(fp32_neighbours(0.5).below, 0.5f);
  EXPECT_EQ(fp32_neighbours(0.5).above, 0.5f);
}

TEST(Fp32Range, OfEveryRealKeyThatAStepComputesWith) {
  std::size_t bounded = 0;
  for (const ConfigKey& key : config_keys()) {
    if (key.type != ConfigType::real || !key.range.fp32) continue;
    ++bounded;
    EXPECT_THAT(refusal(key.name + " = 1e-60"), HasSubstr(key.name + " = 1e-60: expected ")) << key.name;
    EXPECT_THAT(refusal(key.name + " = 2^-200"), HasSubstr("FP32")) << key.name;
    const double most = key.range.maximum;
    if (std::isinf(most)) {
      EXPECT_THAT(refusal(key.name + " = 1e308"), HasSubstr("would turn it into inf")) << key.name;
      EXPECT_THAT(refusal(key.name + " = 2^128"), HasSubstr("FP32")) << key.name;
      EXPECT_EQ(refusal(key.name + " = 3e38"), "no error") << key.name;
    } else {
      EXPECT_THAT(refusal(key.name + " = 0.99999999999"), HasSubstr("would turn it into 1")) << key.name;
      EXPECT_EQ(refusal(key.name + " = 0.9999"), "no error") << key.name;
    }
  }
  EXPECT_EQ(bounded, 13u);
  for (const char* const name :
       {"train.clip_value", "optimizer.lr", "optimizer.epsilon", "optimizer.beta2"}) {
    const auto key = std::ranges::find(config_keys(), name, &ConfigKey::name);
    EXPECT_TRUE(key->range.fp32) << name;
  }
}

TEST(Fp32Range, AScaleThatIsNotAnFp32NumberGetsTheNearestOnes) {
  EXPECT_EQ(refusal("scaler.initial_scale=0.1"),
            "--set: scaler.initial_scale = 0.1: expected an FP32 number; the nearest ones are "
            "0.09999999403953552 and 0.10000000149011612");
  EXPECT_THAT(refusal("scaler.initial_scale=16777217"),
              HasSubstr("an FP32 number; the nearest ones are 16777216 and 16777218"));
  EXPECT_THAT(refusal("scaler.initial_scale=0"),
              HasSubstr("expected a finite number from 2^-126 up to 2^127"));
  EXPECT_THAT(refusal("scaler.initial_scale=2^128"),
              HasSubstr("expected a finite number from 2^-126 up to 2^127"));
  EXPECT_THAT(refusal("scaler.growth_factor=2^200"), HasSubstr("above 1, which FP32 holds"));
  EXPECT_THAT(refusal("scaler.growth_factor=1e300"), HasSubstr("above 1, which FP32 holds"));
  EXPECT_EQ(refusal("scaler.initial_scale=0.5"), "no error");
  EXPECT_EQ(refusal("scaler.initial_scale=2^-126"), "no error");
}

}  // namespace
}  // namespace fp16lab::experiments
