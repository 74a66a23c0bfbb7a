// Philox4x32-10 against the known answers that ship with Random123 (kat_vectors; D. E. Shaw Research).
#include "numerics/random/philox.hpp"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace fp16lab {
namespace {

TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, StreamIdIsFnv1a) {
  // The published test vectors of 64-bit FNV-1a (Fowler, Noll, Vo).
  EXPECT_EQ(stream_id(""), 0xcbf29ce484222325u);
  EXPECT_EQ(stream_id("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(stream_id("foobar"), 0x85944171f73967e8u);
}

TEST(Philox, EveryCoordinateMatters) {
  const PhiloxStream base{1, stream_id("fc1.weight"), 2, 3};
  std::vector<PhiloxStream> streams(5, base);
  streams[1].seed = 2;
  streams[2].stream = stream_id("fc2.weight");
  streams[3].iteration = 3;
  streams[4].micro_batch = 4;
  std::set<std::uint32_t> words;
  for (const PhiloxStream& stream : streams)
    for (std::uint64_t index : {0u, 1u, 2u, 3u, 4u}) words.insert(stream.word(index));
  words.insert(base.word(std::uint64_t{1} << 34));  // block index 2^32: the counter's second word
  EXPECT_EQ(words.size(), 26u);
}

TEST(Philox, WordsAreTheBlocksInOrder) {
  const PhiloxStream stream{42, 7, 0, 0};
  for (std::uint64_t index = 0; index < 64; ++index)
    EXPECT_EQ(stream.word(index), stream.block(index / 4)[index % 4]);
}

TEST(Philox, Uniform01IsHalfOpenAndExact) {
  EXPECT_EQ(uniform01(0), 0.0f);
  EXPECT_EQ(uniform01(0xff), 0.0f);
  EXPECT_EQ(uniform01(0x100), 0x1p-24f);
  EXPECT_EQ(uniform01(0x80000000u), 0.5f);
  EXPECT_EQ(uniform01(0xffffffffu), 1.0f - 0x1p-24f);
}

}  // namespace
}  // namespace fp16lab
