// Philox4x32-10 in vectors, compiled once per instruction set (foreach_target).
//
// Each 64-bit lane runs one counter: the generator multiplies 32 by 32 bits to 64, which is what a lane can
// do, and neither the multiplication nor the final packing looks at the upper halves that the xors leave.
#include "numerics/random/philox_words.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/random/philox_words.cpp"
#include "numerics/platform/highway_targets.hpp"
// clang-format off: the order is Highway's protocol
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace fp16lab {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

std::size_t whole_blocks(const PhiloxStream&, std::uint64_t, std::uint32_t*, std::size_t) { return 0; }

#else

using D32 = hn::ScalableTag<std::uint32_t>;
using D64 = hn::ScalableTag<std::uint64_t>;
using V64 = hn::Vec<D64>;

/// The lower halves of two vectors' lanes, `low` below `high`.
HWY_INLINE V64 pack(V64 low, V64 high) {
  return hn::Or(hn::And(low, hn::Set(D64(), 0xffffffffu)), hn::ShiftLeft<32>(high));
}

/// Vectors of counters side by side: a round waits for its multiplications, and one vector alone would wait
/// most of the time.
constexpr std::size_t vectors = HWY_TARGET <= HWY_AVX3 ? 4 : 2;

/// Writes the words of as many of the blocks first, ... as fill whole vectors; returns how many.
std::size_t whole_blocks(const PhiloxStream& stream, std::uint64_t first, std::uint32_t* to,
                         std::size_t blocks) {
  const D32 d32;
  const D64 d64;
  const auto multiply = [&](V64 x, std::uint64_t factor) {
    return hn::MulEven(hn::BitCast(d32, x), hn::BitCast(d32, hn::Set(d64, factor)));
  };
  const std::size_t lanes = hn::Lanes(d64);
  // Interleaving works within 128 bits, so even lanes take the first half of the blocks and odd lanes the
  // other.
  std::array<std::uint64_t, HWY_MAX_BYTES / sizeof(std::uint64_t)> order{};
  for (std::size_t lane = 0; lane < lanes; ++lane) order[lane] = lane / 2 + lane % 2 * (lanes / 2);
  const V64 lane_order = hn::LoadU(d64, order.data());
  std::array<PhiloxKey, 10> keys{stream.key()};
  for (std::size_t round = 1; round < keys.size(); ++round)
    keys[round] = {keys[round - 1][0] + 0x9E3779B9u, keys[round - 1][1] + 0xBB67AE85u};

  std::size_t done = 0;
  for (; done + vectors * lanes <= blocks; done += vectors * lanes) {
    V64 c0[vectors], c1[vectors], c2[vectors], c3[vectors];
    for (std::size_t v = 0; v < vectors; ++v) {
      c0[v] = hn::Add(hn::Set(d64, stream.first_block + first + done + v * lanes), lane_order);
      c1[v] = hn::ShiftRight<32>(c0[v]);
      c2[v] = hn::Set(d64, stream.iteration);
      c3[v] = hn::Set(d64, stream.micro_batch);
    }
    for (const PhiloxKey& key : keys)
      for (std::size_t v = 0; v < vectors; ++v) {
        const V64 product0 = multiply(c0[v], 0xD2511F53u);
        const V64 product1 = multiply(c2[v], 0xCD9E8D57u);
        c0[v] = hn::Xor3(hn::ShiftRight<32>(product1), c1[v], hn::Set(d64, key[0]));
        c1[v] = product1;
        c2[v] = hn::Xor3(hn::ShiftRight<32>(product0), c3[v], hn::Set(d64, key[1]));
        c3[v] = product0;
      }
    for (std::size_t v = 0; v < vectors; ++v) {
      const V64 low = pack(c0[v], c1[v]);
      const V64 high = pack(c2[v], c3[v]);
      std::uint32_t* const out = to + 4 * (done + v * lanes);
      hn::StoreU(hn::BitCast(d32, hn::InterleaveLower(d64, low, high)), d32, out);
      hn::StoreU(hn::BitCast(d32, hn::InterleaveUpper(d64, low, high)), d32, out + 2 * lanes);
    }
  }
  return done;
}

#endif

}  // namespace

void words_of_blocks(const PhiloxStream& stream, std::uint64_t first, std::uint32_t* to, std::size_t blocks) {
  for (std::size_t done = whole_blocks(stream, first, to, blocks); done < blocks; ++done) {
    const PhiloxCounter words = stream.block(first + done);
    std::copy(words.begin(), words.end(), to + 4 * done);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp16lab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp16lab {

HWY_EXPORT(words_of_blocks);

void philox_words(const PhiloxStream& stream, std::uint64_t first_index, std::span<std::uint32_t> to) {
  std::size_t head = 0;
  for (; head < to.size() && (first_index + head) % 4 != 0; ++head)
    to[head] = stream.word(first_index + head);
  const std::size_t blocks = (to.size() - head) / 4;
  HWY_DYNAMIC_DISPATCH(words_of_blocks)(stream, (first_index + head) / 4, to.data() + head, blocks);
  for (std::size_t i = head + 4 * blocks; i < to.size(); ++i) to[i] = stream.word(first_index + i);
}

}  // namespace fp16lab
#endif
