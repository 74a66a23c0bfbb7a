// Loss-scale policies on traces of F (a good step) and O (an overflow), as `fp16lab policy` runs them.
#pragma once

#include <charconv>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "engine/amp/policy.hpp"

namespace fp16lab::engine::test {

/// "growth_interval=4 bad_steps=2".
inline amp::PolicySettings settings_of(const std::string& text) {
  amp::PolicySettings settings;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    double value = 0;
    const auto [end, error] = std::from_chars(word.data() + equals + 1, word.data() + word.size(), value);
    EXPECT_TRUE(error == std::errc() && end == word.data() + word.size()) << word;
    settings.emplace(word.substr(0, equals), value);
  }
  return settings;
}

inline amp::ScalePolicy policy_of(const std::string& name, const std::string& settings = "") {
  return amp::make_scale_policy(
      {.policy = name, .parameters = settings_of(settings), .power_of_two = amp::PowerOfTwo::any});
}

/// The scale after each step, beginning with the state `step`, which is left as it is after the last one.
inline std::vector<double> trace_from(StepState& step, const amp::ScalePolicy& policy,
                                      std::string_view sequence) {
  std::vector<double> scales;
  for (const char kind : sequence) {
    amp::advance(policy, step, {.found_inf = kind == 'O'});
    scales.push_back(step.scale);
  }
  return scales;
}
inline std::vector<double> trace_of(const std::string& name, const std::string& settings,
                                    std::string_view sequence) {
  const amp::ScalePolicy policy = policy_of(name, settings);
  StepState step = policy.initial;
  return trace_from(step, policy, sequence);
}

}  // namespace fp16lab::engine::test
