// What holds for every policy of the table, whatever its rule: on random overflows and gradients the scale
// stays within its bounds and finite, the update is a pure function of bytes, and a run can be stopped
// anywhere.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "engine/amp/observation.hpp"
#include "engine/amp/policy.hpp"
#include "tests/engine/amp/policy_traces.hpp"

namespace fp16lab::engine::test {
namespace {

using amp::GradientStatistics;
using amp::PolicyDescription;
using amp::PolicyParameter;
using amp::ScalePolicy;

auto bytes_of(const StepState& step) { return std::bit_cast<std::array<std::byte, sizeof(StepState)>>(step); }

/// Steps of a run with gradients up to 2^exponent, whose overflow follows from the scale; or overflows by
/// chance.
class RandomSteps {
 public:
  RandomSteps(unsigned seed, bool by_chance) : random_(seed), by_chance_(by_chance) {}

  /// The policy's view of the step in progress. `statistics` must outlive its use.
  amp::Observation next(const StepState& step, GradientStatistics& statistics) {
    statistics = {};
    exponent_ += static_cast<int>(random_() % 5) - 2;
    if (exponent_ < -60 || exponent_ > 20) exponent_ = -10;
    if (random_() % 50 == 0) exponent_ = -150;  // a step without any gradient
    bool overflow = by_chance_ && random_() % 3 == 0;
    for (int value = 0; value < 40; ++value) {
      const double magnitude = std::ldexp(1.0 + static_cast<double>(random_() % 1024) / 1024.0,
                                          exponent_ - static_cast<int>(random_() % 20));
      const auto scaled = exponent_ == -150 ? 0.0f : static_cast<float>(magnitude * step.scale);
      overflow = overflow || !(scaled < 65520.0f);
      (value % 3 == 0 ? statistics.activation : statistics.weight)
          .count(std::bit_cast<std::uint32_t>(scaled));
    }
    return {.found_inf = overflow, .statistics = &statistics};
  }

 private:
  std::mt19937 random_;  // its sequence is the standard's
  bool by_chance_;
  int exponent_ = -10;
};

struct Case {
  std::string policy;
  amp::PolicySettings settings;
};
std::ostream& operator<<(std::ostream& out, const Case& one) {
  out << one.policy;
  for (const auto& [name, value] : one.settings) out << ' ' << name << '=' << value;
  return out;
}

void set_if_known(Case& one, std::string_view name, double value) {
  const PolicyParameter* const parameter = amp::scale_policy(one.policy).find(name);
  if (parameter != nullptr) one.settings.insert_or_assign(std::string(name), value);
}

/// Every policy with its defaults, with short windows, and with bounds that its scale runs into.
std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const PolicyDescription& description : amp::scale_policies()) {
    const std::string name(description.name);
    cases.push_back({name, {}});
    Case lively{name, {}};
    set_if_known(lively, "growth_interval", 3);
    cases.push_back(lively);
    set_if_known(lively, "bad_steps", 3);
    set_if_known(lively, "hysteresis", 3);
    set_if_known(lively, "tolerance", 0.3);
    cases.push_back(lively);
    Case bounded{name, {}};
    set_if_known(bounded, "initial_scale", 16);
    set_if_known(bounded, "growth_interval", 2);
    set_if_known(bounded, "min_loss_scale", 0);
    set_if_known(bounded, "raise_error_at_min_scale", 0);
    if (name != "none") {
      set_if_known(bounded, "min_scale", 4);
      set_if_known(bounded, "max_scale", 64);
    }
    cases.push_back(bounded);
    Case wild{name, {}};  // towards the ends of FP32
    set_if_known(wild, "growth_interval", 1);
    set_if_known(wild, "growth_factor", 0x1p30);
    set_if_known(wild, "backoff_factor", 0x1p-30);
    set_if_known(wild, "min_scale", 0);
    set_if_known(wild, "max_scale", 0);
    set_if_known(wild, "min_loss_scale", 0);
    set_if_known(wild, "raise_error_at_min_scale", 0);
    set_if_known(wild, "finite_guard", 1);
    cases.push_back(wild);
  }
  return cases;
}

constexpr int steps_of_a_run = 600;

ScalePolicy make(const Case& one) {
  return amp::make_scale_policy(
      {.policy = one.policy, .parameters = one.settings, .power_of_two = amp::PowerOfTwo::any});
}

TEST(PolicyProperties, TheScaleIsANumberWithinItsBounds) {
  for (const Case& one : all_cases()) {
    SCOPED_TRACE(testing::PrintToString(one));
    const ScalePolicy policy = make(one);
    const double floor = policy.values.real("min_scale"), ceiling = policy.values.real("max_scale");
    const bool guarded = policy.values.real("finite_guard") != 0;
    for (const bool by_chance : {true, false}) {
      StepState step = policy.initial;
      RandomSteps run(7, by_chance);
      GradientStatistics statistics;
      for (int number = 0; number <= steps_of_a_run; ++number) {
        ASSERT_FALSE(std::isnan(step.scale)) << "step " << number;
        ASSERT_GE(step.scale, floor) << "step " << number;
        if (ceiling != 0) {
          ASSERT_LE(step.scale, ceiling) << "step " << number;
        }
        if (guarded) {
          ASSERT_TRUE(amp::is_usable_scale(step.scale)) << step.scale << ", step " << number;
          ASSERT_TRUE(std::isfinite(step.inverse_scale) && step.inverse_scale > 0) << "step " << number;
        }
        const float once = static_cast<float>(1.0 / step.scale);
        ASSERT_EQ(std::bit_cast<std::uint32_t>(step.inverse_scale), std::bit_cast<std::uint32_t>(once));
        amp::advance(policy, step, run.next(step, statistics));
      }
    }
  }
}

TEST(PolicyProperties, AnUpdateDependsOnTheBytesOfTheStateAlone) {
  for (const Case& one : all_cases()) {
    SCOPED_TRACE(testing::PrintToString(one));
    const ScalePolicy policy = make(one), again = make(one);
    EXPECT_EQ(bytes_of(policy.initial), bytes_of(again.initial));
    StepState step = policy.initial;
    RandomSteps run(11, true);
    GradientStatistics statistics;
    for (int number = 0; number < steps_of_a_run; ++number) {
      // Through bytes, as a checkpoint keeps them, into another policy object.
      StepState restored;
      const auto bytes = bytes_of(step);
      std::memcpy(&restored, bytes.data(), bytes.size());
      const amp::Observation observation = run.next(step, statistics);
      amp::advance(policy, step, observation);
      amp::advance(again, restored, observation);
      ASSERT_EQ(bytes_of(step), bytes_of(restored)) << "step " << number;
    }
  }
}

TEST(PolicyProperties, NoOtherByteOfTheStepStateMoves) {
  for (const Case& one : all_cases()) {
    SCOPED_TRACE(testing::PrintToString(one));
    const ScalePolicy policy = make(one);
    StepState step = policy.initial;
    step.iteration = 17;
    step.taken_steps[3] = 5;
    step.beta1_power[2] = 0.25;
    RandomSteps run(13, true);
    GradientStatistics statistics;
    for (int number = 0; number < 50; ++number) {
      StepState expected = step;
      const amp::Observation observation = run.next(step, statistics);
      amp::advance(policy, step, observation);
      expected.policy = step.policy;
      expected.set_scale(step.scale);
      expected.found_inf = {};
      expected.found_inf.front() = observation.found_inf ? 1.0f : 0.0f;
      ASSERT_EQ(bytes_of(step), bytes_of(expected)) << "step " << number;
    }
  }
}

TEST(PolicyProperties, AScaleBeyondUseComesBackWithTheGuard) {
  for (const PolicyDescription& description : amp::scale_policies()) {
    if (description.per_layer) continue;
    Case one{std::string(description.name), {{"finite_guard", 1.0}}};
    SCOPED_TRACE(testing::PrintToString(one));
    const ScalePolicy policy = make(one);
    for (const double lost : {std::numeric_limits<double>::infinity(), 0.0}) {
      StepState step = policy.initial;
      // The scale is the first member of a state, as FP32 or FP64; one of the two fits.
      const auto narrow = static_cast<float>(step.scale);
      float first = 0;
      std::memcpy(&first, step.policy.data(), sizeof(first));
      if (first == narrow) {
        const auto value = static_cast<float>(lost);
        std::memcpy(step.policy.data(), &value, sizeof(value));
      } else {
        double wide = 0;
        std::memcpy(&wide, step.policy.data(), sizeof(wide));
        ASSERT_EQ(wide, step.scale);
        std::memcpy(step.policy.data(), &lost, sizeof(lost));
      }
      step.set_scale(lost);
      amp::advance(policy, step, {.found_inf = true});
      EXPECT_TRUE(amp::is_usable_scale(step.scale)) << lost << " became " << step.scale;
    }
  }
}

TEST(PolicyProperties, DescriptionsAreComplete) {
  std::set<std::string_view> names;
  for (const PolicyDescription& description : amp::scale_policies()) {
    SCOPED_TRACE(std::string(description.name));
    EXPECT_TRUE(names.insert(description.name).second) << "twice";
    EXPECT_EQ(amp::make_scale_policy({.policy = std::string(description.name)}).update.name,
              "policy." + std::string(description.name));
    EXPECT_FALSE(description.rule.empty());
    EXPECT_FALSE(description.source.empty());
    EXPECT_EQ(&amp::scale_policy(description.name), &amp::scale_policy(description.name));
    std::set<std::string_view> parameters;
    for (const PolicyParameter& parameter : description.parameters) {
      EXPECT_TRUE(parameters.insert(parameter.name).second) << parameter.name << " twice";
      EXPECT_FALSE(parameter.help.empty()) << parameter.name;
      EXPECT_NO_THROW(amp::check_value(parameter, parameter.fallback)) << parameter.name;
    }
    for (const PolicyParameter& guard : amp::guard_parameters) EXPECT_TRUE(parameters.contains(guard.name));
  }
  EXPECT_FALSE(names.contains(amp::policy_alias));
  EXPECT_EQ(amp::scale_policy("dynamic").name, "torch");
}

}  // namespace
}  // namespace fp16lab::engine::test
