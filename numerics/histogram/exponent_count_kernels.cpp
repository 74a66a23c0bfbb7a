#include "numerics/histogram/exponent_count_kernels.hpp"

#include <algorithm>

#include "numerics/formats/bits.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/histogram/exponent_count_kernels.cpp"
#include "numerics/platform/highway_targets.hpp"
// clang-format off: the order is Highway's protocol
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace fp16lab::exponent_detail {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

BlockRange exponent_bytes(const float* values, std::size_t count, std::uint8_t* bytes) {
  const hn::ScalableTag<std::uint32_t> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<std::uint8_t, decltype(d)> d8;
  const std::size_t lanes = hn::Lanes(d);
  const auto magnitude_mask = hn::Set(d, Binary32::magnitude_mask);
  const auto one = hn::Set(d, 1u);
  const auto last = hn::Set(d, std::uint32_t{byte_of_zero});
  auto greatest = hn::Zero(d);                    // magnitude
  auto smallest = hn::Set(d, ~std::uint32_t{0});  // magnitude - 1, in which zeros are above all else
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto magnitude =
        hn::And(hn::BitCast(d, hn::LoadU(hn::ScalableTag<float>(), values + i)), magnitude_mask);
    const auto below = hn::Sub(magnitude, one);
    const auto index = hn::Min(hn::ShiftRight<Binary32::fraction_bits>(below), last);
    greatest = hn::Max(greatest, magnitude);
    smallest = hn::Min(smallest, below);
    hn::StoreU(hn::DemoteTo(d8, hn::BitCast(di, index)), d8, bytes + i);
  }
  std::uint32_t greatest_magnitude = hn::GetLane(hn::MaxOfLanes(d, greatest));
  std::uint32_t smallest_below = hn::GetLane(hn::MinOfLanes(d, smallest));
  for (; i < count; ++i) {
    const std::uint32_t magnitude = bits_of(values[i]) & Binary32::magnitude_mask;
    greatest_magnitude = std::max(greatest_magnitude, magnitude);
    smallest_below = std::min(smallest_below, magnitude - 1u);
    bytes[i] = static_cast<std::uint8_t>(std::min<std::uint32_t>(byte_of(magnitude), byte_of_zero));
  }
  return {.smallest = smallest_below + 1u,
          .greatest = greatest_magnitude,
          .finite = greatest_magnitude < Binary32::infinity};
}

using ByteTag = hn::ScalableTag<std::uint8_t>;

/// tally + 1 in the lanes where bytes == wanted.
HWY_INLINE hn::Vec<ByteTag> tallied(hn::Vec<ByteTag> tally, hn::Vec<ByteTag> bytes, hn::Vec<ByteTag> wanted) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  // One masked operation, where the portable form makes a vector of the mask first.
  return decltype(tally){_mm512_mask_add_epi8(tally.raw, _mm512_cmpeq_epi8_mask(bytes.raw, wanted.raw),
                                              tally.raw, _mm512_set1_epi8(1))};
#else
  return hn::Sub(tally, hn::VecFromMask(ByteTag(), hn::Eq(bytes, wanted)));
#endif
}

/// `group` bins from `first` on, side by side over all the bytes.
template <int group>
void count_group(const std::uint8_t* bytes, std::size_t count, std::uint32_t first, std::uint32_t* counts) {
  const ByteTag d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t whole = count - count % lanes;
  hn::Vec<ByteTag> wanted[group];
  for (int bin = 0; bin < group; ++bin)
    wanted[bin] = hn::Set(d, static_cast<std::uint8_t>(first + static_cast<std::uint32_t>(bin)));
  constexpr std::size_t most = 255;  // vectors before a lane of a tally could wrap
  for (std::size_t begin = 0; begin < whole; begin += most * lanes) {
    const std::size_t end = std::min(whole, begin + most * lanes);
    hn::Vec<ByteTag> tally[group];
    for (auto& one : tally) one = hn::Zero(d);
    for (std::size_t i = begin; i < end; i += lanes) {
      const auto loaded = hn::LoadU(d, bytes + i);
      for (int bin = 0; bin < group; ++bin) tally[bin] = tallied(tally[bin], loaded, wanted[bin]);
    }
    const hn::Repartition<std::uint64_t, ByteTag> d64;
    for (int bin = 0; bin < group; ++bin)
      counts[bin] += static_cast<std::uint32_t>(hn::GetLane(hn::SumOfLanes(d64, hn::SumsOf8(tally[bin]))));
  }
  for (std::size_t i = whole; i < count; ++i) {
    const std::uint32_t bin = bytes[i] - first;
    if (bin < static_cast<std::uint32_t>(group)) ++counts[bin];
  }
}

void count_equal_bytes(const std::uint8_t* bytes, std::size_t count, std::uint32_t lowest,
                       std::uint32_t highest, std::uint32_t* counts) {
  std::uint32_t bin = lowest;
  for (; bin + 8 <= highest + 1; bin += 8) count_group<8>(bytes, count, bin, counts + bin);
  for (; bin + 4 <= highest + 1; bin += 4) count_group<4>(bytes, count, bin, counts + bin);
  for (; bin <= highest; ++bin) count_group<1>(bytes, count, bin, counts + bin);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fp16lab::exponent_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp16lab::exponent_detail {

HWY_EXPORT(exponent_bytes);
HWY_EXPORT(count_equal_bytes);

BlockRange exponent_bytes(std::span<const float> values, std::uint8_t* bytes) {
  return HWY_DYNAMIC_DISPATCH(exponent_bytes)(values.data(), values.size(), bytes);
}

void count_equal_bytes(std::span<const std::uint8_t> bytes, std::uint8_t lowest, std::uint8_t highest,
                       std::array<std::uint32_t, 256>& counts) {
  HWY_DYNAMIC_DISPATCH(count_equal_bytes)(bytes.data(), bytes.size(), lowest, highest, counts.data());
}

}  // namespace fp16lab::exponent_detail
#endif
