// Sums over shards: the same bits on any number of ranks, held against a recursive sum in plain loops.
#include "engine/parallel/shard_tree.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/engine/parallel/thread_ranks.hpp"
#include "tests/support/floating_point_mode.hpp"

namespace fp16lab::engine::parallel {
namespace {

using Row = std::vector<float>;

std::vector<std::uint32_t> bits(const Row& row) {
  std::vector<std::uint32_t> words(row.size());
  std::memcpy(words.data(), row.data(), row.size() * sizeof(float));
  return words;
}

/// Values of many magnitudes, so that every order of additions has bits of its own; some Inf, NaN, -0,
/// subnormals.
std::vector<Row> made_shards(std::int64_t shards, std::size_t elements, bool special = true) {
  std::mt19937 random(static_cast<unsigned>(shards * 131 + static_cast<std::int64_t>(elements)));
  std::vector<Row> rows(static_cast<std::size_t>(shards), Row(elements));
  for (Row& row : rows)
    for (float& value : row) {
      const float magnitude = std::ldexp(1.0F + static_cast<float>(random() % 8388608) / 8388608.0F,
                                         static_cast<int>(random() % 20) - 10);
      value = random() % 2 == 0 ? magnitude : -magnitude;
      if (!special) continue;
      switch (random() % 97) {
        case 0:
          value = std::numeric_limits<float>::infinity();
          break;
        case 1:
          value = -std::numeric_limits<float>::infinity();
          break;
        case 2:
          value = std::numeric_limits<float>::quiet_NaN();
          break;
        case 3:
          value = -0.0F;
          break;
        case 4:
          value = std::numeric_limits<float>::denorm_min() * static_cast<float>(random() % 100);
          break;
        default:
          break;
      }
    }
  return rows;
}

/// The oracle: node(first, count) of element i, by halves.
float node(const std::vector<Row>& rows, std::size_t i, std::size_t first, std::size_t count) {
  if (count == 1) return rows[first][i];
  const float left = node(rows, i, first, count / 2), right = node(rows, i, first + count / 2, count / 2);
  volatile float sum = left + right;
  return sum;
}
std::vector<std::uint32_t> expected_sum(const std::vector<Row>& rows) {
  std::vector<std::uint32_t> words;
  for (std::size_t i = 0; i < rows.front().size(); ++i) {
    const float sum = node(rows, i, 0, rows.size());
    std::uint32_t word = 0;
    std::memcpy(&word, &sum, sizeof word);
    words.push_back(std::isnan(sum) && rows.size() > 1 ? 0x7fffffff : word);
  }
  return words;
}

Row local_stack(const std::vector<Row>& rows, const Shards& shards) {
  Row stack;
  for (std::int64_t i = 0; i < shards.local; ++i) {
    const Row& row = rows[static_cast<std::size_t>(shards.first + i)];
    stack.insert(stack.end(), row.begin(), row.end());
  }
  return stack;
}

Shards shards_of(std::int64_t total, const Communicator& communicator) {
  return placed_shards(total, communicator.size(), communicator.rank());
}

TEST(ShardTree, AnyNumberOfRanksHasTheBitsOfTheRecursiveSum) {
  for (const std::int64_t total : {1, 2, 4, 8, 16})
    for (int ranks = 1; ranks <= total; ++ranks)
      for (const std::size_t elements : {0, 1, 5, 33, 2500}) {
        const std::vector<Row> rows = made_shards(total, elements);
        const std::vector<std::uint32_t> expected = expected_sum(rows);
        on_thread_ranks(ranks, [&](Communicator& communicator) {
          ShardTree tree(communicator, shards_of(total, communicator));
          Row out(elements, 77.0F);
          tree.sum(local_stack(rows, tree.shards()), out);
          EXPECT_EQ(bits(out), expected)
              << total << " shards on " << ranks << " ranks, " << elements << " elements";
        });
      }
}

TEST(ShardTree, ManyShardsHaveOneTreeToo) {
  const std::vector<Row> rows = made_shards(1024, 70);
  const std::vector<std::uint32_t> expected = expected_sum(rows);
  for (const int ranks : {1, 3, 7, 12})
    on_thread_ranks(ranks, [&](Communicator& communicator) {
      ShardTree tree(communicator, shards_of(1024, communicator));
      Row out(70);
      tree.sum(local_stack(rows, tree.shards()), out);
      EXPECT_EQ(bits(out), expected) << ranks << " ranks";
    });
}

TEST(ShardTree, MeansUnderWayHaveTheBitsOfThoseThatWait) {
  constexpr std::int64_t total = 8;
  std::vector<std::vector<Row>> buckets;
  for (std::size_t i = 0; i < 6; ++i) buckets.push_back(made_shards(total, 3 + 401 * i, false));
  const std::vector<Row> statistic = made_shards(total, 9, false);
  std::vector<std::vector<std::uint32_t>> means;
  for (const std::vector<Row>& rows : buckets) {
    std::vector<Row> divided = rows;
    for (Row& row : divided)
      for (float& value : row) value /= 8.0F;
    means.push_back(expected_sum(divided));
  }
  for (const int ranks : {1, 2, 3, 5, 8})
    for (const int late : {0, 4})
      on_thread_ranks(
          ranks,
          [&](Communicator& communicator) {
            ShardTree tree(communicator, shards_of(total, communicator));
            for (int step = 0; step < 3; ++step) {
              std::vector<Row> out;
              for (const std::vector<Row>& rows : buckets) out.emplace_back(rows.front().size());
              for (std::size_t i = 0; i < buckets.size(); ++i) {
                Row stack = local_stack(buckets[i], tree.shards());
                const ShardTree::Stack call{stack, out[i]};
                tree.start_mean({&call, 1});
                stack.assign(stack.size(), -1.0F);  // it has been read
                Row sum(9);
                tree.sum(local_stack(statistic, tree.shards()), sum);
                EXPECT_EQ(bits(sum), expected_sum(statistic));
                tree.poll();
              }
              EXPECT_TRUE(communicator.any(communicator.rank() == 0));
              tree.finish();
              for (std::size_t i = 0; i < buckets.size(); ++i) EXPECT_EQ(bits(out[i]), means[i]) << ranks;
            }
          },
          late);
}

/// The traffic that shard_tree.hpp documents: k nodes of every other slice, then the own slice to all others.
TEST(ShardTree, TrafficIsThatOfItsComment) {
  constexpr std::size_t elements = 1000;
  const std::vector<Row> rows = made_shards(8, elements);
  const auto sent = [&](int ranks, const WireOptions& wire) {
    std::vector<std::uint64_t> bytes(static_cast<std::size_t>(ranks));
    on_thread_ranks(ranks, [&](Communicator& communicator) {
      ShardTree tree(communicator, shards_of(8, communicator), wire);
      Row out(elements);
      tree.mean(local_stack(rows, tree.shards()), out);
      bytes[static_cast<std::size_t>(communicator.rank())] = communicator.sent_bytes();
    });
    return bytes;
  };
  using Bytes = std::vector<std::uint64_t>;
  EXPECT_EQ(sent(1, {}), Bytes{0});
  EXPECT_EQ(sent(2, {}), Bytes(2, 4 * 2 * 500));
  EXPECT_EQ(sent(8, {}), Bytes(8, 4 * 2 * 7 * 125));
  EXPECT_EQ(sent(8, {.wire = DType::bf16}), Bytes(8, 2 * 2 * 7 * 125));
  // Shards 0-1, 2-4 and 5-7 are 1, 2 and 2 subtrees; slices have 333, 333 and 334 elements.
  EXPECT_EQ(sent(3, {}), (Bytes{4 * (667 + 2 * 333), 4 * (2 * 667 + 2 * 333), 4 * (2 * 666 + 2 * 334)}));
  EXPECT_EQ(sent(3, {.order = SumOrder::nccl_ring}),
            (Bytes{4 * (2 * 667 + 2 * 333), 4 * (3 * 667 + 2 * 333), 4 * (3 * 666 + 2 * 334)}));
}

#if defined(__x86_64__)
TEST(ShardTree, FloatingPointModesOfTheCallerChangeNoBit) {
  const std::vector<Row> rows = made_shards(8, 2000);
  const auto communicator = make_single_process();
  ShardTree tree(*communicator, {8, 0, 8});
  const Row stack = local_stack(rows, tree.shards());
  const std::vector<std::uint32_t> expected = expected_sum(rows);
  for (const unsigned mode : testing_support::floating_point_modes) {
    Row out(2000);
    bool untouched = false;
    {
      const testing_support::FloatingPointMode set(mode);
      tree.sum(stack, out);
      untouched = set.untouched();
    }
    EXPECT_TRUE(untouched) << mode;
    EXPECT_EQ(bits(out), expected) << mode;
  }
}
#endif

TEST(ShardTree, OneShardIsACopy) {
  const auto communicator = make_single_process();
  ShardTree tree(*communicator, {}, {.wire = DType::f16, .order = SumOrder::nccl_ring});
  const Row values{1.0F + 0x1p-20F, -0.0F, 0x1p-140F, std::numeric_limits<float>::infinity()};
  Row out(values.size());
  tree.mean(values, out);
  EXPECT_EQ(bits(out), bits(values));
}

TEST(ShardTree, RefusesShardsOfAnotherPlaceAndStacksOfAnotherSize) {
  const auto communicator = make_single_process();
  try {
    ShardTree(*communicator, {.total = 8, .first = 0, .local = 4});
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "rank 0 of 1 holds 4 shards from 0 of 8; expected 8 from 0");
  }
  ShardTree tree(*communicator, {.total = 4, .first = 0, .local = 4});
  Row stack(11), out(3);
  EXPECT_THROW(tree.sum(stack, out), std::invalid_argument);
  EXPECT_THROW(ShardTree(*communicator, {}, {.wire = DType::e4m3}), std::invalid_argument);
}

}  // namespace
}  // namespace fp16lab::engine::parallel
