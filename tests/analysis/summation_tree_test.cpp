// Trees of sums: made at random and revealed again, known orders, words, refusals, rows of tensor cores.
#include "analysis/summation_tree.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <set>

#include "analysis/tensor_core_order.hpp"

namespace fp16lab::analysis {
namespace {

using ::testing::HasSubstr;
using Join = SummationTree::Join;
using Nodes = std::vector<std::size_t>;

Nodes all(std::size_t terms) {
  Nodes nodes(terms);
  std::iota(nodes.begin(), nodes.end(), std::size_t{0});
  return nodes;
}

/// Joins nodes one after another.
struct Joins {
  std::size_t terms;
  std::vector<Join> joins = {};

  std::size_t add(Join join) {
    joins.push_back(std::move(join));
    return terms + joins.size() - 1;
  }
  std::size_t chain(const Nodes& nodes) {
    std::size_t sum = nodes.front();
    for (std::size_t i = 1; i < nodes.size(); ++i) sum = add({sum, nodes[i]});
    return sum;
  }
  SummationTree tree() const { return {terms, joins}; }
};

SummationTree chain_of(const Nodes& order) {
  Joins joins{order.size()};
  joins.chain(order);
  return joins.tree();
}

SummationTree blocks_of(std::size_t terms, std::size_t size) {
  Joins joins{terms};
  Nodes open;
  for (std::size_t term = 0; term < terms; ++term) {
    open.push_back(term);
    if (term % size != size - 1 && term + 1 != terms) continue;
    if (open.size() > 1) open = {joins.add(open)};
  }
  return joins.tree();
}

SummationTree random_tree(std::size_t terms, std::size_t widest, std::mt19937& random) {
  Joins joins{terms};
  Nodes open = all(terms);
  while (open.size() > 1) {
    std::ranges::shuffle(open, random);
    const std::size_t children = std::min<std::size_t>(2 + random() % (widest - 1), open.size());
    const Join join(open.end() - static_cast<std::ptrdiff_t>(children), open.end());
    open.resize(open.size() - children);
    open.push_back(joins.add(join));
  }
  return joins.tree();
}

/// What the tree gives where a join aligns its children to the largest and keeps 24 bits below it.
double sum_of(const SummationTree& tree, std::span<const double> terms) {
  std::vector<double> value(terms.begin(), terms.end());
  for (const Join& join : tree.joins()) {
    double largest = 0, sum = 0;
    for (const std::size_t child : join) largest = std::max(largest, std::abs(value[child]));
    for (const std::size_t child : join)
      if (std::abs(value[child]) * 0x1p24 > largest) sum += value[child];
    value.push_back(sum);
  }
  return value.back();
}

Summation sum_of(const SummationTree& tree) {
  return [&tree](std::span<const double> terms) { return sum_of(tree, terms); };
}

TEST(SummationTree, RandomTreesOfAnyArityAreRevealed) {
  std::mt19937 random(1);
  std::set<std::string> seen;
  for (int i = 0; i < 400; ++i) {
    const std::size_t terms = 1 + random() % (i < 200 ? 8 : 90);
    const SummationTree tree = random_tree(terms, 2 + random() % 7, random);
    ProbeTerms probes;
    if (i % 3 == 0) probes.most_units = 1 + random() % 20;
    const RevealedSum revealed = reveal(terms, sum_of(tree), probes);
    ASSERT_EQ(revealed.tree, tree) << tree.text() << " revealed as " << revealed.tree.text();
    ASSERT_EQ(revealed.tree.text(), tree.text());
    seen.insert(tree.text());
  }
  EXPECT_GT(seen.size(), 300U);
}

TEST(SummationTree, ChildrenHaveNoOrderAndJoinsNone) {
  EXPECT_EQ(SummationTree(4, {{0, 1}, {3, 2}, {5, 4}}), SummationTree(4, {{2, 3}, {1, 0}, {5, 4}}));
  EXPECT_NE(SummationTree(4, {{0, 1}, {3, 2}, {5, 4}}), SummationTree(4, {{0, 2}, {1, 3}, {5, 4}}));
  EXPECT_NE(SummationTree(3, {{0, 1, 2}}), SummationTree(3, {{0, 1}, {3, 2}}));
  EXPECT_EQ(SummationTree(3, {{2, 1}, {3, 0}}).joins(), (std::vector<Join>{{1, 2}, {0, 3}}));
}

TEST(SummationTree, RefusesWhatIsNoTree) {
  const auto refused = [](std::size_t terms, const std::vector<Join>& joins) {
    try {
      const SummationTree tree(terms, joins);
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused(0, {}), "a sum of 0 terms: expected 1 to 16384");
  EXPECT_EQ(refused(3, {{0, 1}}), "3 terms and 1 joins: expected all of them below the last join");
  EXPECT_THAT(refused(2, {{0, 0}}), HasSubstr("join 0: child 0"));
  EXPECT_THAT(refused(2, {{0, 2}}), HasSubstr("join 0: child 2"));
  EXPECT_THAT(refused(2, {{0}}), HasSubstr("expected two children"));
  EXPECT_EQ(refused(1, {}), "");
}

TEST(SummationTree, SaysKnownOrdersInWordsAndShort) {
  struct Case {
    SummationTree tree;
    const char *words, *text;
  };
  Nodes down = all(100), swapped = all(64);
  std::ranges::reverse(down);
  for (std::size_t i = 0; i < 64; i += 2) std::swap(swapped[i], swapped[i + 1]);

  Joins restarts{700};
  {
    Nodes sums;
    for (std::size_t begin = 0; begin < 700; begin += 256) {
      Nodes part;
      for (std::size_t k = begin; k < std::min<std::size_t>(begin + 256, 700); ++k) part.push_back(k ^ 1U);
      sums.push_back(restarts.chain(part));
    }
    restarts.chain(sums);
  }
  Joins interleaved{100};
  {
    Nodes sums;
    for (std::size_t s = 0; s < 4; ++s) {
      Nodes part;
      for (std::size_t k = s; k < 100; k += 4) part.push_back(k);
      sums.push_back(interleaved.chain(part));
    }
    interleaved.chain(sums);
  }
  Joins lanes{37};  // 8 lanes, folded, then a tail
  {
    Nodes sums;
    for (std::size_t s = 0; s < 8; ++s) sums.push_back(lanes.chain({s, s + 8, s + 16, s + 24}));
    for (std::size_t half = 4; half > 0; half /= 2)
      for (std::size_t s = 0; s < half; ++s) sums[s] = lanes.add({sums[s], sums[s + half]});
    lanes.chain({sums[0], 32, 33, 34, 35, 36});
  }
  Joins rest{63};  // as ATen adds the products of small matrices: 4 chains, the rest in the first
  {
    Nodes sums;
    for (std::size_t s = 0; s < 4; ++s) {
      Nodes part;
      for (std::size_t k = s; k < 60; k += 4) part.push_back(k);
      if (s == 0) part.insert(part.end(), {60, 61, 62});
      sums.push_back(rest.chain(part));
    }
    rest.chain(sums);
  }
  Joins vector{101};  // as oneDNN adds a row times a column: 16 lanes of pairs
  {
    Nodes sums;
    for (std::size_t lane = 0; lane < 16; ++lane) {
      Nodes part;
      for (std::size_t k = 2 * lane; k < 101; k += 32) {
        if (k + 1 < 101) part.push_back(k + 1);
        part.push_back(k);
      }
      sums.push_back(vector.chain(part));
    }
    for (std::size_t half = 8; half > 2; half /= 2)
      for (std::size_t s = 0; s < half; ++s) sums[s] = vector.add({sums[s], sums[s + half]});
    vector.add({vector.add({sums[0], sums[1]}), vector.add({sums[2], sums[3]})});
  }
  Joins pairwise{8};
  pairwise.add({pairwise.add({pairwise.add({0, 1}), pairwise.add({2, 3})}),
                pairwise.add({pairwise.add({4, 5}), pairwise.add({6, 7})})});

  const std::vector<Case> cases{
      {chain_of(all(1)), "a single term", "0"},
      {chain_of(all(100)), "ascending chain of 100", "[0 1 .. 99]"},
      {chain_of(down), "descending chain of 100", "[99 98 .. 0]"},
      {chain_of(swapped), "ascending chain of 64, the higher one of each pair first", "[1 0 3 2 .. 63 62]"},
      {blocks_of(64, 8), "chain of 8 blocks of 8", "[{0..7} {8..15} .. {56..63}]"},
      {blocks_of(1024, 16), "chain of 64 blocks of 16", "[{0..15} {16..31} .. {1008..1023}]"},
      {blocks_of(20, 8), "chain of 2 blocks of 8 and one of 4", "[{0..7} {8..15} {16..19}]"},
      {blocks_of(8, 8), "one sum of 8", "{0..7}"},
      {restarts.tree(),
       "restarts every 256: 3 parts, the last of 188, each (ascending chain of 256, the higher one of each "
       "pair first), their sums (ascending chain of 3)",
       "[[1 0 3 2 .. 255 254] [257 256 259 258 .. 511 510] [513 512 515 514 .. 699 698]]"},
      {interleaved.tree(),
       "4 interleaved parts, k mod 4, each (ascending chain of 25), their sums (ascending chain of 4)",
       "[[0 4 .. 96] [1 5 .. 97] [2 6 .. 98] [3 7 .. 99]]"},
      {lanes.tree(),
       "the first 32 (8 interleaved parts, k mod 8, each (ascending chain of 4), their sums (pairwise tree "
       "of 8, "
       "halves added to each other)), then 5 one by one",
       "[[[[[0 8 16 24] [4 12 20 28]] [[2 10 18 26] [6 14 22 30]]] [[[1 9 17 25] [5 13 21 29]] "
       "[[3 11 19 27] [7 15 23 31]]]] 32 33 .. 36]"},
      {rest.tree(),
       "4 interleaved parts, k mod 4, but the last 3 in the first, each (ascending chain of 15), their sums "
       "(ascending chain of 4)",
       "[[0 4 .. 60 61 62] [1 5 .. 57] [2 6 .. 58] [3 7 .. 59]]"},
      {vector.tree(),
       "16 parts, to which groups of 2 go in turn, each (ascending chain, the higher one of each pair "
       "first), their sums (pairwise tree of 16, halves added to each other down to 4, then (pairwise tree "
       "of 4, neighbours first))",
       nullptr},
      {pairwise.tree(), "pairwise tree of 8, neighbours first", "[[[0 1] [2 3]] [[4 5] [6 7]]]"}};
  for (const Case& one : cases) {
    EXPECT_EQ(one.tree.in_words().value_or("no words"), one.words);
    if (one.text != nullptr) {
      EXPECT_EQ(one.tree.short_text(), one.text);
    }
    EXPECT_EQ(reveal(one.tree.terms(), sum_of(one.tree)).tree, one.tree) << one.words;
  }
}

TEST(SummationTree, HasNoWordsForWhatIsAlmostAKnownOrder) {
  Nodes order = all(64);
  std::swap(order[40], order[41]);
  EXPECT_EQ(chain_of(order).in_words(), std::nullopt);
  std::mt19937 random(2);
  int without = 0;
  for (int i = 0; i < 100; ++i) without += random_tree(40, 4, random).in_words() ? 0 : 1;
  EXPECT_EQ(without, 100);
}

TEST(SummationTree, DepthWidthAndJson) {
  const SummationTree tree = blocks_of(12, 4);
  EXPECT_EQ(tree.depth(), 3U);
  EXPECT_EQ(tree.widest_join(), 5U);
  EXPECT_EQ(tree.text(), "(((0 1 2 3) 4 5 6 7) 8 9 10 11)");
  const nlohmann::json json = nlohmann::json::parse(json_of(tree, 1));
  EXPECT_EQ(json.at("terms"), 12);
  EXPECT_EQ(json.at("in_words"), "chain of 3 blocks of 4");
  EXPECT_EQ(SummationTree(12, json.at("joins").get<std::vector<Join>>()), tree);
  EXPECT_TRUE(nlohmann::json::parse(json_of(SummationTree(5, {{0, 1, 3}, {2, 4}, {5, 6}}), 0))
                  .at("in_words")
                  .is_null());
}

TEST(SummationTree, ChainsTakeFewCallsAndLongOnesFit) {
  EXPECT_LT(reveal(2048, sum_of(chain_of(all(2048)))).calls, 4 * 2048U);
  Nodes down = all(1024);
  std::ranges::reverse(down);
  const SummationTree tree = chain_of(down);
  EXPECT_LT(reveal(1024, sum_of(tree)).calls, 5 * 1024U);
  EXPECT_EQ(chain_of(all(SummationTree::most_terms)).depth(), SummationTree::most_terms - 1);
}

/// A result of so many bits counts no further; the order comes out all the same.
TEST(SummationTree, ResultsOfFewBits) {
  const SummationTree tree = blocks_of(300, 8);
  for (const int bits : {8, 11, 5}) {
    const Summation rounded = [&](std::span<const double> terms) {
      const double sum = sum_of(tree, terms);
      if (sum == 0) return sum;
      const double ulp = std::ldexp(1.0, std::ilogb(sum) - bits + 1);
      return std::nearbyint(sum / ulp) * ulp;
    };
    EXPECT_EQ(reveal(300, rounded).tree, tree) << bits;
  }
}

std::string refusal(std::size_t terms, const Summation& sum, const ProbeTerms& probes = {}) {
  try {
    reveal(terms, sum, probes);
  } catch (const NoSummationTree& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
  return "revealed";
}

TEST(Reveal, RefusesInOneSentence) {
  const auto plain = [](std::span<const double> terms) {
    return std::accumulate(terms.begin(), terms.end(), 0.0);
  };
  EXPECT_EQ(refusal(20, plain), "revealed");
  // long double loses nothing of 2^60.
  EXPECT_THAT(refusal(20,
                      [](std::span<const double> terms) {
                        return static_cast<double>(std::accumulate(terms.begin(), terms.end(), 0.0L));
                      },
                      {.big = 0x1p60}),
              HasSubstr("nothing is lost between them"));
  EXPECT_THAT(refusal(20, plain, {.big = 1024}), HasSubstr("nothing is lost between them"));
  // Sorted by size.
  EXPECT_THAT(refusal(20,
                      [&](std::span<const double> terms) {
                        std::vector<double> sorted(terms.begin(), terms.end());
                        std::ranges::sort(sorted, std::greater{}, [](double x) { return std::abs(x); });
                        return plain(sorted);
                      }),
              HasSubstr("nothing is lost between them"));
  // The largest instead of the sum, and a sum that is scaled.
  EXPECT_THAT(refusal(20, [](std::span<const double> terms) { return *std::ranges::max_element(terms); }),
              HasSubstr("expected a number of these"));
  EXPECT_THAT(refusal(20, [&](std::span<const double> terms) { return plain(terms) * 1.5; }),
              HasSubstr("expected the sum of the terms"));
  EXPECT_THAT(refusal(20, [](std::span<const double>) { return std::nan(""); }),
              HasSubstr("expected the sum of the terms"));
  // M overflows.
  EXPECT_THAT(refusal(20,
                      [&](std::span<const double> terms) {
                        return std::abs(terms[3]) > 1e6 ? terms[3] * HUGE_VAL : plain(terms);
                      }),
              HasSubstr("expected a number of these"));
}

TEST(Reveal, RefusesOrdersThatDependOnTheTermsOrChange) {
  const auto up = [](std::span<const double> terms) {
    return std::accumulate(terms.begin(), terms.end(), 0.0);
  };
  const auto down = [](std::span<const double> terms) {
    return std::accumulate(terms.rbegin(), terms.rend(), 0.0);
  };
  for (const std::size_t terms : {20, 100}) {
    int calls = 0;
    EXPECT_THAT(
        refusal(terms, [&](std::span<const double> t) { return ++calls % 7 == 0 ? down(t) : up(t); }),
        ::testing::AnyOf(HasSubstr("the order is not a tree"), HasSubstr("changes from call to call")))
        << terms;
    // Another order where there are few units, or where the negative term is first.
    EXPECT_THAT(refusal(terms,
                        [&](std::span<const double> t) {
                          return static_cast<std::size_t>(std::ranges::count(t, 1.0)) < t.size() / 2 ? down(t)
                                                                                                     : up(t);
                        },
                        {.most_units = terms}),
                HasSubstr("depends on the terms"));
    EXPECT_THAT(refusal(terms,
                        [&](std::span<const double> t) {
                          const auto first =
                              std::ranges::find_if(t, [](double x) { return std::abs(x) > 1e6; });
                          return first != t.end() && *first < 0 ? down(t) : up(t);
                        }),
                HasSubstr("depends on the terms"));
  }
}

TEST(Reveal, RefusesProbesThatAreNone) {
  const Summation sum = sum_of(chain_of(all(4)));
  EXPECT_THROW(reveal(0, sum), std::invalid_argument);
  EXPECT_THROW(reveal(SummationTree::most_terms + 1, sum), std::invalid_argument);
  EXPECT_THROW(reveal(4, sum, {.big = 1, .unit = 1}), std::invalid_argument);
  EXPECT_THROW(reveal(4, sum, {.big = HUGE_VAL}), std::invalid_argument);
  EXPECT_THROW(reveal(4, sum, {.unit = -1}), std::invalid_argument);
  EXPECT_THROW(reveal(4, sum, {.most_units = 0}), std::invalid_argument);
  struct Theirs {};
  EXPECT_THROW(reveal(4, [](std::span<const double>) -> double { throw Theirs(); }), Theirs);
}

/// FP8 through FP16 on mma.sync: two blocks of 16 of an instruction's 32 products, c after them.
SummationTree fp8_through_fp16(std::size_t terms, bool in_pairs) {
  Joins joins{terms};
  Nodes sums;
  for (std::size_t begin = 0; begin < terms; begin += 32) {
    Join first, second;
    for (std::size_t k = begin; k < begin + 32; ++k)
      (in_pairs ? k % 4 < 2 : k % 32 < 16) ? first.push_back(k) : second.push_back(k);
    second.push_back(joins.add(first));
    sums.push_back(joins.add(second));
  }
  joins.chain(sums);
  return joins.tree();
}

TEST(TensorCoreOrder, EveryRowAddsTheBlocksThatItStates) {
  int chains = 0, through_fp16 = 0;
  for (const TensorCoreModel& row : tensor_core_models())
    for (const DType operands : dtypes<is_low_precision>) {
      if (!row.operands.contains(operands)) continue;
      if (is_byte_format(operands) && !is_fp8(operands)) {  // 6 and 4 bits have no range to tell terms by
        EXPECT_THROW(order_of(row, operands, 4), std::invalid_argument) << name_of(operands);
        continue;
      }
      const std::string name =
          fmt::format("{} {} {}", row.name, name_of(operands), name_of(row.accumulator()));
      for (const std::size_t terms : {1, 7, 64, 150}) {
        const SummationTree revealed = order_of(row, operands, terms).tree;
        if (row.stages == fma_pairs()) {
          Nodes high_first;
          for (std::size_t k = 0; k < terms; ++k)
            high_first.push_back(k % 2 == 0 && k + 1 == terms ? k : k % 2 == 0 ? k + 1 : k - 1);
          EXPECT_EQ(revealed, chain_of(high_first)) << name << ": " << revealed.text();
          continue;
        }
        if (revealed == blocks_of(terms, static_cast<std::size_t>(row.block().products))) {
          ++chains;
          continue;
        }
        if (terms != 64) continue;
        EXPECT_TRUE(is_fp8(operands)) << name << ": " << revealed.text();
        EXPECT_TRUE(revealed == fp8_through_fp16(terms, true) || revealed == fp8_through_fp16(terms, false))
            << name << ": " << revealed.text();
        ++through_fp16;
      }
    }
  EXPECT_GT(chains, 100);
  EXPECT_GT(through_fp16, 2);
}

TEST(TensorCoreOrder, RefusesFormatsThatTheRowHasNot) {
  EXPECT_THROW(order_of(tensor_core_model("volta"), DType::bf16, 8), std::invalid_argument);
}

}  // namespace
}  // namespace fp16lab::analysis
