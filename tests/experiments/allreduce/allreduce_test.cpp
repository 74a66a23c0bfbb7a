// All-reduce: the order of additions by hand and by a twin, bytes, scalings around the sum, and who skips.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "engine/backend/emulated/emulated_backend.hpp"
#include "experiments/allreduce/agreement.hpp"
#include "experiments/allreduce/allreduce.hpp"
#include "experiments/allreduce/gradient_mean.hpp"
#include "numerics/convert/convert.hpp"
#include "numerics/random/philox.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::experiments::allreduce {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// Rounded to FP16 by its definition (11 significant bits, steps of 2^-24 at least, ties to even): shares
/// nothing with numerics/, which only moves the codes of numbers that FP16 has.
double to_half(double x) {
  if (x == 0 || !std::isfinite(x)) return x;
  const double step = std::ldexp(1.0, std::max(std::ilogb(x) - 10, -24));
  const double rounded = std::nearbyint(x / step) * step;
  return std::fabs(rounded) < 65536 ? rounded : std::copysign(static_cast<double>(infinity), x);
}
double value_of(Float16 code) { return static_cast<double>(widen(code)); }

std::vector<Float16> halves(const std::vector<double>& values) {
  std::vector<Float16> codes;
  for (const double value : values) {
    codes.push_back(narrow<Binary16>(static_cast<float>(value)));
    EXPECT_EQ(value_of(codes.back()), value) << "is no FP16 number";
  }
  return codes;
}
std::vector<double> values_of(const std::vector<Float16>& codes) {
  std::vector<double> values;
  for (const Float16 code : codes) values.push_back(value_of(code));
  return values;
}

/// Mixed magnitudes and signs, so that the order of additions shows; FP16 numbers.
std::vector<std::vector<double>> mixed(int ranks, std::size_t elements) {
  std::vector<std::vector<double>> all;
  for (int rank = 0; rank < ranks; ++rank) {
    const PhiloxStream stream{.seed = static_cast<std::uint64_t>(rank), .stream = stream_id("allreduce")};
    std::vector<double>& values = all.emplace_back();
    for (std::size_t i = 0; i < elements; ++i) {
      const std::uint32_t word = stream.word(i);
      const double magnitude =
          std::ldexp(1.0 + (word >> 8 & 1023) / 1024.0, static_cast<int>(word >> 20 & 15) - 8);
      values.push_back(word % 2 == 0 ? magnitude : -magnitude);
    }
  }
  return all;
}

// ---- orders of additions

// 2048 + 1 is the tie between 2048 and 2050 and stays 2048; 2048 + 2 = 2050; 2050 + 1 is a tie and becomes
// 2052.
TEST(Allreduce, RingAddsEveryChunkInItsOwnOrder) {
  std::vector<std::vector<Float16>> ranks{halves({2048, 2048, 2048, 2048}), halves({1, 1, 1, 1}),
                                          halves({1, 1, 1, 1}), halves({1, 1, 1, 1})};
  all_reduce<Float16>(Algorithm::ring, ranks);
  // chunk 0: ((x1 + x2) + x3) + x0 = 3 + 2048 = 2051 -> 2052
  // chunk 1: ((x2 + x3) + x0) + x1 = 2050 + 1 -> 2052
  // chunk 2: ((x3 + x0) + x1) + x2: 2049 -> 2048, and again, and again
  // chunk 3: ((x0 + x1) + x2) + x3: likewise
  EXPECT_EQ(values_of(ranks[0]), (std::vector<double>{2052, 2052, 2048, 2048}));
}

TEST(Allreduce, TreesAddTheNodesOwnPartFirst) {
  // First tree (elements 0 and 1): 2 <- {1, 3}, 0 <- 2. Second one mirrored: 1 <- {2, 0}, 3 <- 1.
  std::vector<std::vector<Float16>> ranks{halves({1, 1, 1, 1}), halves({1, 2048, 2048, 1}),
                                          halves({2048, 1, 1, 1}), halves({1, 1, 1, 2048})};
  all_reduce<Float16>(Algorithm::tree, ranks);
  // element 0: x0 + ((x2 + x1) + x3) = 1 + ((2048 + 1) + 1) -> 1 + 2048 -> 2048
  // element 1: x0 + ((x2 + x1) + x3) = 1 + ((1 + 2048) + 1) -> 1 + 2048 -> 2048
  // element 2: x3 + ((x1 + x2) + x0) = 1 + ((2048 + 1) + 1) -> 2048
  // element 3: x3 + ((x1 + x2) + x0) = 2048 + 3 -> 2052
  EXPECT_EQ(values_of(ranks[0]), (std::vector<double>{2048, 2048, 2048, 2052}));
}

TEST(Allreduce, ParentsAreThoseOfNcclsDrawing) {
  // The comment of ncclGetBtree, 14 ranks: 0 - 8; 8 - {4, 12}; 4 - {2, 6}; 12 - {10, 13}; 2 - {1, 3}; 6 - {5,
  // 7}; ...
  const std::vector<int> fourteen{-1, 2, 4, 2, 8, 6, 4, 6, 0, 10, 12, 10, 8, 12};
  for (int rank = 0; rank < 14; ++rank)
    EXPECT_EQ(tree_parent(rank, 14), fourteen[static_cast<std::size_t>(rank)]) << rank;
  // And of ncclGetDtree, 12 ranks, whose 10 hangs below 8 because there is no 12.
  const std::vector<int> twelve{-1, 2, 4, 2, 8, 6, 4, 6, 0, 10, 8, 10};
  for (int rank = 0; rank < 12; ++rank)
    EXPECT_EQ(tree_parent(rank, 12), twelve[static_cast<std::size_t>(rank)]) << rank;
}

/// Rounded after every addition by `round`, by the definition in allreduce.hpp.
template <class Round>
double ring_twin(const std::vector<std::vector<double>>& x, std::size_t i, std::size_t elements,
                 const Round& round) {
  const std::size_t ranks = x.size();
  std::size_t chunk = 0;
  while (elements * (chunk + 1) / ranks <= i) ++chunk;
  double sum = x[(chunk + 1) % ranks][i];
  for (std::size_t hop = 2; hop <= ranks; ++hop) sum = round(sum + x[(chunk + hop) % ranks][i]);
  return sum;
}
/// The tree as an interval: the node in the middle of (low, high) has the middles of both halves as children.
template <class Round>
double subtree(const std::vector<double>& x, int low, int high, const Round& round) {
  int step = 1;
  while (step * 2 < high - low) step *= 2;
  const int ranks = static_cast<int>(x.size());
  int node = low + step;
  while (node >= ranks) {  // a missing node hands its place to its lower half
    high = node;
    step /= 2;
    node = low + step;
  }
  double sum = x[static_cast<std::size_t>(node)];
  if (node - low > 1) sum = round(sum + subtree(x, low, node, round));
  if (node + 1 < std::min(high, ranks)) sum = round(sum + subtree(x, node, high, round));
  return sum;
}
template <class Round>
double tree_twin(const std::vector<std::vector<double>>& x, std::size_t i, std::size_t elements,
                 const Round& round) {
  const std::size_t ranks = x.size();
  const bool second = i >= elements / 2;
  std::vector<double> placed;
  for (std::size_t position = 0; position < ranks; ++position) {
    const std::size_t mirrored = ranks - 1 - position, shifted = (position + 1) % ranks;
    placed.push_back(x[!second ? position : ranks % 2 == 0 ? mirrored : shifted][i]);
  }
  int top = 1;
  while (top < static_cast<int>(ranks)) top *= 2;
  return round(placed[0] + subtree(placed, 0, top, round));
}

// A sum of two FP16 (FP32) numbers is exact in FP64 here (exponents within 30), so one rounding follows.
TEST(Allreduce, BitsAreThoseOfTheTwinsForAnyNumberOfRanks) {
  const auto to_single = [](double x) { return static_cast<double>(static_cast<float>(x)); };
  constexpr std::size_t elements = 61;  // no multiple of any number of ranks
  for (const int count : {2, 3, 4, 5, 6, 7, 8, 12, 13, 16}) {
    const auto x = mixed(count, elements);
    std::size_t orders_differ = 0;
    for (const Algorithm algorithm : {Algorithm::ring, Algorithm::tree}) {
      const bool ring = algorithm == Algorithm::ring;
      std::vector<std::vector<Float16>> low;
      std::vector<std::vector<float>> wide;
      for (const auto& values : x) {
        low.push_back(halves(values));
        wide.emplace_back(values.begin(), values.end());
      }
      all_reduce<Float16>(algorithm, low);
      all_reduce<float>(algorithm, wide);
      for (std::size_t i = 0; i < elements; ++i) {
        const double half = ring ? ring_twin(x, i, elements, to_half) : tree_twin(x, i, elements, to_half);
        const double single =
            ring ? ring_twin(x, i, elements, to_single) : tree_twin(x, i, elements, to_single);
        EXPECT_EQ(value_of(low[0][i]), half) << name_of(algorithm) << ", " << count << " ranks, " << i;
        EXPECT_EQ(static_cast<double>(wide[0][i]), single)
            << name_of(algorithm) << ", " << count << " ranks, " << i;
        orders_differ += ring && half != tree_twin(x, i, elements, to_half) ? 1 : 0;
      }
      for (std::size_t rank = 1; rank < x.size(); ++rank) {
        EXPECT_EQ(values_of(low[rank]), values_of(low[0])) << "rank " << rank;
        EXPECT_EQ(wide[rank], wide[0]) << "rank " << rank;
      }
    }
    if (count > 2) {
      EXPECT_GT(orders_differ, 0u) << count << " ranks: the data must tell ring and tree apart";
    }
  }
}

// ---- bytes

TEST(Allreduce, RingSendsTwiceRMinusOneChunksFromEveryRank) {
  for (const int ranks : {2, 3, 4, 8}) {
    const std::size_t elements = 24;  // 24 / R elements a chunk
    std::vector<std::vector<float>> wide(static_cast<std::size_t>(ranks), std::vector<float>(elements, 1));
    std::vector<std::vector<Float16>> low(static_cast<std::size_t>(ranks),
                                          halves(std::vector<double>(elements, 1)));
    const auto sent =
        2 * static_cast<std::uint64_t>(ranks - 1) * elements / static_cast<std::uint64_t>(ranks);
    EXPECT_EQ(all_reduce<float>(Algorithm::ring, wide).sent_bytes,
              std::vector<std::uint64_t>(static_cast<std::size_t>(ranks), 4 * sent));
    EXPECT_EQ(all_reduce<Float16>(Algorithm::ring, low).sent_bytes,
              std::vector<std::uint64_t>(static_cast<std::size_t>(ranks), 2 * sent));
  }
}

TEST(Allreduce, TreesSendAsManyBytesButNotFromEveryRank) {
  std::vector<std::vector<float>> four(4, std::vector<float>(10, 1));
  // Each half is 5 elements, 20 bytes. Rank 2 is the inner node of the first tree (up once, down twice) and a
  // leaf of the second one (up once): 80 bytes; rank 1 the other way round; the roots 0 and 3 send one half
  // down, one up: 40.
  EXPECT_EQ(all_reduce<float>(Algorithm::tree, four).sent_bytes,
            (std::vector<std::uint64_t>{40, 80, 80, 40}));
  for (const int ranks : {2, 3, 5, 8, 16}) {
    std::vector<std::vector<float>> buffers(static_cast<std::size_t>(ranks), std::vector<float>(7, 1));
    EXPECT_EQ(all_reduce<float>(Algorithm::tree, buffers).total(),
              2 * static_cast<std::uint64_t>(ranks - 1) * 7 * 4);
  }
}

TEST(Allreduce, OneRankSendsNothing) {
  for (const Algorithm algorithm : {Algorithm::ring, Algorithm::tree}) {
    std::vector<std::vector<float>> one{{1, 2, 3}};
    EXPECT_EQ(all_reduce<float>(algorithm, one).total(), 0u);
    EXPECT_EQ(one[0], (std::vector<float>{1, 2, 3}));
  }
}

TEST(Allreduce, RefusesBuffersThatDoNotMatch) {
  std::vector<std::vector<float>> none, unequal{{1, 2}, {1}};
  EXPECT_THROW(all_reduce<float>(Algorithm::ring, none), std::invalid_argument);
  EXPECT_THROW(all_reduce<float>(Algorithm::tree, unequal), std::invalid_argument);
}

TEST(Allreduce, AnInfinityReachesEveryRank) {
  for (const Algorithm algorithm : {Algorithm::ring, Algorithm::tree}) {
    std::vector<std::vector<float>> ranks{{1, 1}, {1, infinity}, {1, -infinity}};
    all_reduce<float>(algorithm, ranks);
    for (const std::vector<float>& rank : ranks) {
      EXPECT_EQ(rank[0], 3);
      EXPECT_TRUE(std::isnan(rank[1]));
    }
  }
}

// ---- scalings around the sum

Variant half_ring(Unscale unscale, Division division) {
  return {DType::f16, Algorithm::ring, unscale, division};
}

TEST(GradientMean, PredivideKeepsASumThatPostdivideLosesToInfinity) {
  const std::vector<std::vector<float>> gradients{{60000, 1}, {60000, 3}};
  const Mean post = reduce_mean(half_ring(Unscale::after, Division::post), gradients, 1);
  EXPECT_EQ(post.born, 1u);
  EXPECT_TRUE(std::isinf(post.values[0]));
  EXPECT_EQ(post.values[1], 2);
  const Mean pre = reduce_mean(half_ring(Unscale::after, Division::pre), gradients, 1);
  EXPECT_EQ(pre.born, 0u);
  EXPECT_EQ(pre.values, (std::vector<float>{60000, 2}));
}

TEST(GradientMean, AnInfinityThatARankBroughtIsNotBorn) {
  const std::vector<std::vector<float>> gradients{{infinity}, {1}};
  EXPECT_EQ(reduce_mean({}, gradients, 1).born, 0u);
}

TEST(GradientMean, UnscalingBeforeTheWireLosesWhatTheScaleHadSaved) {
  // 2^-26 after unscaling: below 2^-25. Scaled by 2^10 it is 2^-16, a subnormal FP16 number.
  const std::vector<std::vector<float>> gradients(4, {0x1p-16f});
  const ExactMean exact = exact_mean(gradients, 1024);
  EXPECT_EQ(exact.values[0], 0x1p-26);
  const Mean early = reduce_mean(half_ring(Unscale::before, Division::post), gradients, 1024);
  EXPECT_EQ(early.values[0], 0);
  EXPECT_EQ(compare(early, exact).lost, 1u);
  EXPECT_EQ(compare(early, exact).absolute, 0x1p-26);
  const Mean late = reduce_mean(half_ring(Unscale::after, Division::post), gradients, 1024);
  EXPECT_EQ(late.values[0], 0x1p-26f);
  EXPECT_EQ(compare(late, exact).lost, 0u);
  EXPECT_EQ(compare(late, exact).absolute, 0);
}

TEST(GradientMean, SplitDividesByTheRootOnEachSide) {
  // R = 16, root 4: 16 x 2^-23 / 4 keeps 2^-25 away from the tie that predivide (2^-27) falls below.
  const std::vector<std::vector<float>> gradients(16, {0x1p-22f});
  EXPECT_EQ(reduce_mean(half_ring(Unscale::after, Division::split), gradients, 1).values[0], 0x1p-22f);
  EXPECT_EQ(reduce_mean(half_ring(Unscale::after, Division::pre), gradients, 1).values[0], 0);
}

TEST(GradientMean, ExactMeanAndItsNorms) {
  const std::vector<std::vector<float>> gradients{{3, -2, infinity}, {5, 2, 1}};
  const ExactMean exact = exact_mean(gradients, 2);
  EXPECT_EQ(exact.values[0], 2);
  EXPECT_EQ(exact.values[1], 0);
  EXPECT_FALSE(exact.finite[2]);
  EXPECT_EQ(exact.norm, 2);
  EXPECT_EQ(exact.absolute_norm, std::sqrt(4.0 + 1.0));
}

TEST(GradientMean, EveryVariantStaysWithinItsBound) {
  for (const int ranks : {2, 3, 5, 8})
    for (const double scale : {1.0, 1000.0, 65536.0}) {
      std::vector<std::vector<float>> gradients;
      for (const auto& values : mixed(ranks, 200)) gradients.emplace_back(values.begin(), values.end());
      const ExactMean exact = exact_mean(gradients, scale);
      for (const Variant& variant : all_variants()) {
        const Mean mean = reduce_mean(variant, gradients, scale);
        EXPECT_EQ(mean.born, 0u);
        const double error = compare(mean, exact).absolute, bound = error_bound(variant, exact, ranks, scale);
        EXPECT_LE(error, bound) << describe(variant) << ", " << ranks << " ranks, S = " << scale;
        if (variant.wire == DType::f32) {
          EXPECT_LT(bound, 1e-5 * exact.absolute_norm);
        }
      }
    }
  EXPECT_EQ(all_variants().size(), 24u);
}

// ---- who skips

TEST(Agreement, RanksStayReplicasOnlyWhereFoundInfIsShared) {
  const auto backend = engine::make_emulated_backend(tensor_core_model("hopper"), 1);
  const std::vector<float> weights{1, 2, 3};
  // Scaled by 4. The overflow lies in the last element, which rank 2 owns where the mean is sharded.
  const std::vector<std::vector<float>> gradients{{4, 8, 12}, {4, 8, infinity}, {4, 8, 12}};
  const Iteration iteration{.weights = &weights,
                            .gradients = gradients,
                            .learning_rate = 1,
                            .scaler = {.policy = "dynamic", .initial_scale = 4}};
  const auto skips = [&](Check check) {
    std::vector<bool> skipped;
    for (const RankOutcome& outcome : run_ranks(*backend, iteration, check)) {
      EXPECT_EQ(outcome.scale, outcome.skipped ? 2.0 : 4.0) << "who skips backs off";
      skipped.push_back(outcome.skipped);
    }
    return skipped;
  };
  EXPECT_EQ(skips(Check::local), (std::vector<bool>{false, true, false}));
  EXPECT_EQ(skips(Check::local_max), (std::vector<bool>{true, true, true}));
  EXPECT_EQ(skips(Check::mean), (std::vector<bool>{true, true, true}));
  EXPECT_EQ(skips(Check::shards), (std::vector<bool>{false, false, true}));
  EXPECT_EQ(skips(Check::shards_max), (std::vector<bool>{true, true, true}));

  const auto local = run_ranks(*backend, iteration, Check::local);
  EXPECT_EQ(local[0].nonfinite_weights, 1u) << "it stepped by an infinite gradient";
  EXPECT_EQ(local[1].nonfinite_weights, 0u);
  EXPECT_EQ(local[0].state_hash, local[2].state_hash);
  EXPECT_NE(local[0].state_hash, local[1].state_hash);
  const auto shards = run_ranks(*backend, iteration, Check::shards);
  EXPECT_EQ(shards[0].nonfinite_weights, 0u) << "the owner of the infinite chunk skipped it";
  for (const Check check : all_checks)
    EXPECT_EQ(distinct_states(run_ranks(*backend, iteration, check)), agrees_by_construction(check) ? 1u : 2u)
        << name_of(check);
}

TEST(Agreement, WithoutAnOverflowAllChecksTakeTheSameStep) {
  const auto backend = engine::make_emulated_backend(tensor_core_model("hopper"), 1);
  const std::vector<float> weights{1, 2, 3, 4};
  const std::vector<std::vector<float>> gradients{{4, 8, 12, 16}, {8, 8, 8, 8}};
  const Iteration iteration{.weights = &weights,
                            .gradients = gradients,
                            .learning_rate = 0.5f,
                            .scaler = {.policy = "dynamic", .initial_scale = 4}};
  const std::uint64_t expected = run_ranks(*backend, iteration, Check::mean)[0].state_hash;
  for (const Check check : all_checks)
    for (const RankOutcome& outcome : run_ranks(*backend, iteration, check)) {
      EXPECT_FALSE(outcome.skipped);
      EXPECT_EQ(outcome.state_hash, expected)
          << name_of(check) << ": powers of two, so all orders have the same bits";
    }
}

}  // namespace
}  // namespace fp16lab::experiments::allreduce
