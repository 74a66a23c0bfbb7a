// The verbs of a communicator over ranks in threads, and the placement of shards.
#include "engine/parallel/communicator.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/parallel/shards.hpp"
#include "tests/engine/parallel/thread_ranks.hpp"

namespace fp16lab::engine::parallel {
namespace {

/// What rank `from` sends to `to`: its length and every byte say so.
std::vector<std::byte> letter(int from, int to) {
  const auto length = static_cast<std::size_t>((from * 5 + to * 3) % 7);
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < length; ++i)
    bytes.push_back(static_cast<std::byte>(from * 16 + to + static_cast<int>(i) * 40));
  return bytes;
}

TEST(Communicator, AllToAllMovesEveryPairsBytes) {
  for (const int ranks : {1, 2, 3, 5, 8})
    on_thread_ranks(ranks, [&](Communicator& communicator) {
      std::vector<std::vector<std::byte>> sent, received;
      for (int other = 0; other < ranks; ++other) {
        sent.push_back(letter(communicator.rank(), other));
        received.emplace_back(letter(other, communicator.rank()).size());
      }
      std::vector<std::span<const std::byte>> send(sent.begin(), sent.end());
      std::vector<std::span<std::byte>> receive(received.begin(), received.end());
      communicator.all_to_all(send, receive);
      std::uint64_t bytes = 0;
      for (int other = 0; other < ranks; ++other) {
        EXPECT_EQ(received[static_cast<std::size_t>(other)], letter(other, communicator.rank()));
        if (other != communicator.rank()) bytes += letter(communicator.rank(), other).size();
      }
      EXPECT_EQ(communicator.sent_bytes(), bytes);
    });
}

TEST(Communicator, GathersPiecesAndTexts) {
  for (const int ranks : {1, 2, 4, 7})
    on_thread_ranks(ranks, [&](Communicator& communicator) {
      std::vector<std::size_t> ends;
      for (int rank = 0; rank < ranks; ++rank)
        ends.push_back((ends.empty() ? 0 : ends.back()) + static_cast<std::size_t>(rank % 3));
      std::vector<std::byte> bytes(ends.back()), expected(ends.back());
      for (int rank = 0; rank < ranks; ++rank)
        for (std::size_t i = rank == 0 ? 0 : ends[static_cast<std::size_t>(rank) - 1];
             i < ends[static_cast<std::size_t>(rank)]; ++i) {
          expected[i] = static_cast<std::byte>(rank * 30 + static_cast<int>(i));
          if (rank == communicator.rank()) bytes[i] = expected[i];
        }
      communicator.all_gather(bytes, ends);
      EXPECT_EQ(bytes, expected);

      const auto text_of = [](int rank) { return std::string(static_cast<std::size_t>(rank * rank), 'a'); };
      const std::vector<std::string> texts = communicator.all_gather(text_of(communicator.rank()));
      for (int rank = 0; rank < ranks; ++rank)
        EXPECT_EQ(texts[static_cast<std::size_t>(rank)], text_of(rank));
    });
}

TEST(Communicator, IntegersAreExact) {
  for (const int ranks : {1, 2, 3, 6})
    for (const std::size_t count : {0, 1, 2, 40})
      on_thread_ranks(ranks, [&](Communicator& communicator) {
        const auto own = [&](std::size_t rank, std::size_t i) {
          return std::uint64_t{0x9e3779b97f4a7c15} * (rank + 1) * (i + 3);
        };
        std::vector<std::uint64_t> sums(count), largest(count), sum_expected(count), max_expected(count);
        for (std::size_t i = 0; i < count; ++i) {
          sums[i] = largest[i] = own(static_cast<std::size_t>(communicator.rank()), i);
          for (std::size_t rank = 0; rank < static_cast<std::size_t>(ranks); ++rank) {
            sum_expected[i] += own(rank, i);
            max_expected[i] = std::max(max_expected[i], own(rank, i));
          }
        }
        communicator.sum(sums);
        communicator.max(largest);
        EXPECT_EQ(sums, sum_expected);
        EXPECT_EQ(largest, max_expected);
        for (int rank = 0; rank < ranks; ++rank) EXPECT_TRUE(communicator.any(communicator.rank() == rank));
        EXPECT_FALSE(communicator.any(false));
      });
}

TEST(Communicator, BroadcastsFromAnyRank) {
  for (const int ranks : {1, 2, 5})
    for (int from = 0; from < ranks; ++from)
      for (const std::size_t count : {0, 1, 3, 100})
        on_thread_ranks(ranks, [&](Communicator& communicator) {
          std::vector<std::byte> bytes(count), expected(count);
          for (std::size_t i = 0; i < count; ++i) expected[i] = static_cast<std::byte>(i * 7 + 1);
          if (communicator.rank() == from) bytes = expected;
          communicator.broadcast(bytes, from);
          EXPECT_EQ(bytes, expected);
        });
}

TEST(Communicator, RefusesMessagesToItselfAndTwoToOneRank) {
  on_thread_ranks(2, [](Communicator& communicator) {
    const std::vector<std::byte> byte(1);
    const Communicator::Outgoing own[] = {{communicator.rank(), byte}};
    EXPECT_THROW(communicator.start(communicator.next_ticket(), 0, own, {}), std::logic_error);
    const int other = 1 - communicator.rank();
    const Communicator::Outgoing twice[] = {{other, byte}, {other, byte}};
    EXPECT_THROW(communicator.start(communicator.next_ticket(), 0, twice, {}), std::logic_error);
  });
}

TEST(Shards, RunsCoverAllShardsAndDifferByOneAtMost) {
  for (std::int64_t total = 1; total <= most_shards; total *= 2)
    for (int ranks = 1; ranks <= total; ++ranks) {
      std::int64_t next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Shards run = placed_shards(total, ranks, rank);
        ASSERT_EQ(run.first, next);
        ASSERT_EQ(run.total, total);
        ASSERT_TRUE(run.local == total / ranks || run.local == (total + ranks - 1) / ranks);
        next += run.local;
      }
      ASSERT_EQ(next, total);
    }
}

TEST(Shards, SubtreesAreAlignedAndFew) {
  for (std::int64_t total = 1; total <= 256; total *= 2)
    for (std::int64_t first = 0; first < total; ++first)
      for (std::int64_t count = 1; first + count <= total; ++count) {
        std::int64_t next = first;
        std::size_t whole = 0;
        for (const Subtree& subtree : aligned_subtrees(first, count)) {
          ASSERT_EQ(subtree.first(), next);
          ASSERT_EQ(subtree.first() % subtree.count(), 0);
          next += subtree.count();
          ++whole;
        }
        ASSERT_EQ(next, first + count);
        std::size_t bound = 1;
        for (std::int64_t left = count; left > 1; left /= 2) bound += 2;
        ASSERT_LE(whole, bound);
      }
  EXPECT_EQ(aligned_subtrees(2, 3), (std::vector<Subtree>{{1, 1}, {0, 4}}));
  EXPECT_EQ(aligned_subtrees(5, 3), (std::vector<Subtree>{{0, 5}, {1, 3}}));
  EXPECT_EQ(aligned_subtrees(8, 4), (std::vector<Subtree>{{2, 2}}));
}

void expect_refused(std::int64_t total, int ranks, int rank, const std::string& message) {
  try {
    placed_shards(total, ranks, rank);
    FAIL() << message;
  } catch (const std::invalid_argument& error) {
    EXPECT_EQ(error.what(), message);
  }
}
TEST(Shards, RefusalsNameTheValue) {
  expect_refused(6, 1, 0, "6 shards; expected a power of two from 1 to 1024");
  expect_refused(0, 1, 0, "0 shards; expected a power of two from 1 to 1024");
  expect_refused(2048, 1, 0, "2048 shards; expected a power of two from 1 to 1024");
  expect_refused(4, 5, 0, "5 ranks for 4 shards; expected at most as many ranks as shards");
  expect_refused(4, 0, 0, "0 ranks for 4 shards; expected at most as many ranks as shards");
  expect_refused(4, 2, 2, "rank 2 of 2 ranks; expected 0 to 1");
  expect_refused(4, 2, -1, "rank -1 of 2 ranks; expected 0 to 1");
}

}  // namespace
}  // namespace fp16lab::engine::parallel
