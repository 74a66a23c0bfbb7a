// NCCL's orders of additions by hand and by a twin, and the bytes that their ranks send.
#include "engine/parallel/nccl_order.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include "engine/parallel/chunk_range.hpp"
#include "numerics/convert/convert.hpp"
#include "tests/engine/parallel/order_twins.hpp"

namespace fp16lab::engine::parallel {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

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

// ---- orders of additions

// 2048 + 1 is the tie between 2048 and 2050 and stays 2048; 2048 + 2 = 2050; 2050 + 1 is a tie and becomes
// 2052.
TEST(Allreduce, RingAddsEveryChunkInItsOwnOrder) {
  std::vector<std::vector<Float16>> ranks{halves({2048, 2048, 2048, 2048}), halves({1, 1, 1, 1}),
                                          halves({1, 1, 1, 1}), halves({1, 1, 1, 1})};
  all_reduce<Float16>(SumOrder::nccl_ring, ranks);
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
  all_reduce<Float16>(SumOrder::nccl_tree, ranks);
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

// A sum of two FP16 (FP32) numbers is exact in FP64 here (exponents within 30), so one rounding follows.
TEST(Allreduce, BitsAreThoseOfTheTwinsForAnyNumberOfRanks) {
  constexpr std::size_t elements = 61;  // no multiple of any number of ranks
  for (const int count : {2, 3, 4, 5, 6, 7, 8, 12, 13, 16}) {
    const auto x = mixed(count, elements);
    std::size_t orders_differ = 0;
    for (const SumOrder algorithm : {SumOrder::nccl_ring, SumOrder::nccl_tree}) {
      const bool ring = algorithm == SumOrder::nccl_ring;
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
      EXPECT_GT(orders_differ, 0u) << count << " ranks: the data must distinguish ring and tree";
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
    EXPECT_EQ(all_reduce<float>(SumOrder::nccl_ring, wide).sent_bytes,
              std::vector<std::uint64_t>(static_cast<std::size_t>(ranks), 4 * sent));
    EXPECT_EQ(all_reduce<Float16>(SumOrder::nccl_ring, low).sent_bytes,
              std::vector<std::uint64_t>(static_cast<std::size_t>(ranks), 2 * sent));
  }
}

TEST(Allreduce, TreesSendAsManyBytesButNotFromEveryRank) {
  std::vector<std::vector<float>> four(4, std::vector<float>(10, 1));
  // Each half is 5 elements, 20 bytes. Rank 2 is the inner node of the first tree (up once, down twice) and a
  // leaf of the second one (up once): 80 bytes; rank 1 the other way round; the roots 0 and 3 send one half
  // down, one up: 40.
  EXPECT_EQ(all_reduce<float>(SumOrder::nccl_tree, four).sent_bytes,
            (std::vector<std::uint64_t>{40, 80, 80, 40}));
  for (const int ranks : {2, 3, 5, 8, 16}) {
    std::vector<std::vector<float>> buffers(static_cast<std::size_t>(ranks), std::vector<float>(7, 1));
    EXPECT_EQ(all_reduce<float>(SumOrder::nccl_tree, buffers).total(),
              2 * static_cast<std::uint64_t>(ranks - 1) * 7 * 4);
  }
}

TEST(Allreduce, OneRankSendsNothing) {
  for (const SumOrder algorithm : {SumOrder::nccl_ring, SumOrder::nccl_tree}) {
    std::vector<std::vector<float>> one{{1, 2, 3}};
    EXPECT_EQ(all_reduce<float>(algorithm, one).total(), 0u);
    EXPECT_EQ(one[0], (std::vector<float>{1, 2, 3}));
  }
}

TEST(Allreduce, RefusesBuffersThatDoNotMatch) {
  std::vector<std::vector<float>> none, unequal{{1, 2}, {1}};
  EXPECT_THROW(all_reduce<float>(SumOrder::nccl_ring, none), std::invalid_argument);
  EXPECT_THROW(all_reduce<float>(SumOrder::nccl_tree, unequal), std::invalid_argument);
}

TEST(Allreduce, AnInfinityReachesEveryRank) {
  for (const SumOrder algorithm : {SumOrder::nccl_ring, SumOrder::nccl_tree}) {
    std::vector<std::vector<float>> ranks{{1, 1}, {1, infinity}, {1, -infinity}};
    all_reduce<float>(algorithm, ranks);
    for (const std::vector<float>& rank : ranks) {
      EXPECT_EQ(rank[0], 3);
      EXPECT_TRUE(std::isnan(rank[1]));
    }
  }
}

/// Windows of the elements, put together, are the whole: bits and bytes.
TEST(Allreduce, WindowsHaveTheBitsOfTheWhole) {
  constexpr std::size_t elements = 61;
  for (const int count : {2, 3, 8})
    for (const SumOrder order : {SumOrder::nccl_ring, SumOrder::nccl_tree}) {
      std::vector<std::vector<float>> whole, windows;
      for (const auto& values : mixed(count, elements)) whole.emplace_back(values.begin(), values.end());
      windows = whole;
      const std::uint64_t bytes = all_reduce<float>(order, whole).total();
      std::uint64_t in_windows = 0;
      for (const ChunkRange window : {ChunkRange{0, 1}, {1, 30}, {30, 31}, {31, 31}, {31, 61}}) {
        std::vector<std::span<float>> spans;
        for (std::vector<float>& buffer : windows)
          spans.push_back(std::span(buffer).subspan(window.begin, window.size()));
        in_windows += all_reduce<float>(order, spans, window.begin, elements).total();
      }
      EXPECT_EQ(windows, whole) << name_of(order) << ", " << count << " ranks";
      EXPECT_EQ(in_windows, bytes);
    }
  std::vector<float> beyond(3);
  const std::vector<std::span<float>> spans{beyond};
  EXPECT_THROW(all_reduce<float>(SumOrder::nccl_ring, spans, 59, elements), std::invalid_argument);
  EXPECT_THROW(all_reduce<float>(SumOrder::tree, spans, 0, elements), std::invalid_argument);
}

}  // namespace
}  // namespace fp16lab::engine::parallel
