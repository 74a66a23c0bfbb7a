// Gradient scales that a test decides.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/autograd/gradient_scales.hpp"
#include "engine/autograd/parameter.hpp"

namespace fp16lab::engine::test {

/// Exponents from a function of what is asked, which it keeps.
struct AskedScales final : GradientScales {
  struct Question {
    std::string scope;
    Op op{};
    std::string weight;
    int exponent = 0;
  };
  explicit AskedScales(std::function<int(const GradientSite&)> rule) : answer(std::move(rule)) {}
  int exponent_at(const GradientSite& site) override {
    asked.push_back(
        {std::string(site.scope), site.op, site.weight == nullptr ? "" : site.weight->name, site.exponent});
    return answer(site);
  }
  std::function<int(const GradientSite&)> answer;
  std::vector<Question> asked;
};

}  // namespace fp16lab::engine::test
