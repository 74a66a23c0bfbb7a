#include "numerics/files/array_counts.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "numerics/bits.hpp"
#include "numerics/convert.hpp"

namespace fp16lab {
namespace {

constexpr std::uint64_t smallest_fp32 = bits_of(0x1p-149);
constexpr std::uint64_t largest_fp32 = bits_of(0x1.fffffep127);

/// Binades of (magnitude bits - 1), as ExponentHistogram::bin_of has them for FP32, by FP64's exponent field.
constexpr std::size_t binades = std::size_t{1} << Binary64::exponent_bits;
constexpr int lowest_binade = Binary64::bias + ExponentHistogram::min_exponent;

template <class F>
void count_small(std::span<const SmallFloat<F>> values, ExponentHistogram& histogram, int threads) {
  std::vector<float> wide(values.size());
  widen(values, std::span(wide), threads);
  count_exponents(wide, histogram, threads);
}

struct Counter {
  ArrayCounts& counts;
  int threads;

  void operator()(std::span<const float> values) const { count_exponents(values, counts.values, threads); }
  void operator()(std::span<const Float16> values) const { count_exponents(values, counts.values, threads); }
  void operator()(std::span<const BFloat16> values) const { count_exponents(values, counts.values, threads); }
  void operator()(std::span<const double> values) const { count_exponents(values, counts); }
  void operator()(std::span<const Float8E4M3> values) const { count_small(values, counts.values, threads); }
  void operator()(std::span<const Float8E5M2> values) const { count_small(values, counts.values, threads); }
};

}  // namespace

ArrayCounts& ArrayCounts::operator+=(const ArrayCounts& other) {
  values += other.values;
  below_fp32 += other.below_fp32;
  above_fp32 += other.above_fp32;
  return *this;
}

void count_exponents(std::span<const double> values, ArrayCounts& counts) {
  // Two tables in turn: consecutive values often fall into one bin, and its increments would wait for each other.
  std::array<std::array<std::uint64_t, binades>, 2> tables{};
  std::uint64_t zero = 0, infinite = 0, nan = 0, below = 0, above = 0;
  std::size_t table = 0;
  for (const double value : values) {
    const std::uint64_t magnitude = bits_of(value) & Binary64::magnitude_mask;
    if (magnitude == 0) {
      ++zero;
    } else if (magnitude >= Binary64::infinity) {
      ++(magnitude == Binary64::infinity ? infinite : nan);
    } else {
      ++tables[table][(magnitude - 1) >> Binary64::fraction_bits];
      table ^= 1;
      below += magnitude < smallest_fp32 ? 1 : 0;
      above += magnitude > largest_fp32 ? 1 : 0;
    }
  }
  for (std::size_t binade = 0; binade < binades; ++binade) {
    const int bin = std::clamp(static_cast<int>(binade) - lowest_binade, 0, ExponentHistogram::bin_count - 1);
    counts.values.bins[static_cast<std::size_t>(bin)] += tables[0][binade] + tables[1][binade];
  }
  counts.values.forget_extremes();  // no FP32 numbers
  counts.values.zero += zero;
  counts.values.infinite += infinite;
  counts.values.nan += nan;
  counts.below_fp32 += below;
  counts.above_fp32 += above;
}

ArrayCounts count_array(const ArrayFile& file, const ArrayInfo& array, int threads) {
  ArrayCounts counts;
  file.visit(array, [&](const ArrayChunk& chunk) { std::visit(Counter{counts, threads}, chunk); });
  return counts;
}

}  // namespace fp16lab
