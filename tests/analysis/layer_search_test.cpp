// The list of layers that must stay in FP32, where every set of layers can be asked.
#include "analysis/layer_search.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

namespace fp16lab::analysis {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::vector<std::string> layers{"a", "b", "c", "d", "e", "f", "g"};

TEST(LayerSearch, NoneOneAndAll) {
  const auto tame = [](const std::vector<std::string>&) { return 0.01; };
  EXPECT_THAT(shortest_list(layers, 0.05, tame).layers, IsEmpty());
  EXPECT_EQ(shortest_list(layers, 0.05, tame).tried, 1u);
  const auto one = [](const std::vector<std::string>& wide) {
    return std::ranges::count(wide, "e") > 0 ? 0.02 : INFINITY;
  };
  const LayerList list = shortest_list(layers, 0.05, one);
  EXPECT_THAT(list.layers, ElementsAre("e"));
  EXPECT_EQ(list.damage.at("e"), INFINITY);
  EXPECT_EQ(list.damage.at("a"), 0.02);
  EXPECT_EQ(list.within, 0.02);
  const LayerList never = shortest_list(layers, 0.001, one);
  EXPECT_FALSE(never.restored);
  EXPECT_EQ(never.layers, layers);
  EXPECT_EQ(never.tried, 2u);
}

/// "c" underflows, and "d" does so too unless it and what is before it are in FP32; "a", "b" and "c" all hand
/// FP32 on to "c", so none of them does damage alone. Only what their operations lose names the culprit.
TEST(LayerSearch, WhatItsOwnOperationsLoseNamesTheCulprit) {
  const auto error = [](const std::vector<std::string>& wide) {
    const auto has = [&](const char* layer) { return std::ranges::count(wide, layer) > 0; };
    return has("d") && (has("a") || has("b") || has("c")) ? 0.01 : 1.0;
  };
  std::vector<double> harm(layers.size(), 0.0003);
  harm[2] = 1;
  EXPECT_THAT(shortest_list(layers, 0.05, error, harm).layers, ElementsAre("c", "d"));
  EXPECT_THAT(shortest_list(layers, 0.05, error).layers, ElementsAre("a", "d")) << "a tie, without it";
  EXPECT_THROW(shortest_list(layers, 0.05, error, std::vector{1.0}), std::invalid_argument);
}

/// Errors that add up, and pairs of which either layer does: at the end no layer can be left out, whatever
/// the order.
TEST(LayerSearch, NoLayerOfTheListCanBeLeftOut) {
  std::mt19937 engine(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<double> harm(layers.size());
    for (double& one : harm) one = std::ldexp(1.0, -static_cast<int>(engine() % 8));
    const std::size_t x = engine() % layers.size(), y = engine() % layers.size();
    std::set<std::vector<std::string>> asked;
    const auto error = [&](const std::vector<std::string>& wide) {
      const auto has = [&](std::size_t layer) { return std::ranges::count(wide, layers[layer]) > 0; };
      double sum = 0;
      for (std::size_t i = 0; i < layers.size(); ++i) sum += has(i) ? 0 : harm[i];
      return has(x) || has(y) ? sum : INFINITY;
    };
    const double margin = 0.3;
    const LayerList list = shortest_list(layers, margin, [&](const std::vector<std::string>& wide) {
      EXPECT_TRUE(asked.insert(wide).second) << "each set is asked for once";
      return error(wide);
    });
    EXPECT_TRUE(list.restored);
    EXPECT_LE(error(list.layers), margin);
    for (const std::string& layer : list.layers) {
      std::vector<std::string> rest = list.layers;
      std::erase(rest, layer);
      EXPECT_GT(error(rest), margin) << layer;
    }
    EXPECT_EQ(list.tried, asked.size());
  }
}

}  // namespace
}  // namespace fp16lab::analysis
