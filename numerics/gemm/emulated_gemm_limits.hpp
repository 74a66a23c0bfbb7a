// Which kernel may compute what: the bounds that the proofs in emulated_gemm_kernel-inl.h and
// emulated_gemm_general-inl.h need.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>

#include "numerics/gemm/emulated_gemm_kernels.hpp"

namespace fp16lab::gemm_detail {

/// The general kernel adds in FP64: every sum of a block is an integer below (4 L + 2) 2^F in magnitude. With
/// exact groups a product is at most 28 * 28 (E3M2) times 1.875^2, the significands of scales, in units of
/// the scales' exponents.
constexpr bool has_general_kernel(const KernelRow& row) {
  const std::int64_t most = row.exact_group > 1 ? 28 * 28 * 4 : 4;
  return (most * row.block_size + 2) << row.fraction_bits <= std::int64_t{1} << 53;
}

/// The tiles of a product that the fast kernel may take, and under which floor.
class FastTiles {
 public:
  FastTiles(const KernelRow& row, DType a, DType b) : row_(row) {
    const bool short_significands = has_short_significand(a) && has_short_significand(b);
    possible_ = row.exact_group == 1 && row.subnormal_accumulator != SubnormalAccumulator::fp16_emin &&
                row.fraction_bits <= 25 && row.exponent_floor <= largest_product &&
                (row.block_size == 4 || row.block_size == 8 || row.block_size == 16 ||
                 (row.block_size == 32 && (row.fraction_bits <= 24 || short_significands)));
  }

  struct Terms {
    bool admitted = false;
    int floor = 0;                 ///< for EmulatedTile
    std::uint32_t least_bits = 0;  ///< FP32 magnitude bits of the least non-zero accumulator
    std::uint32_t small_bits = 0;  ///< below these, accumulators leave all exponents of the tile within F

    /// Zero, or finite and not too small?
    bool admits_accumulator(std::uint32_t bits) const {
      const std::uint32_t magnitude = bits & Binary32::magnitude_mask;
      return magnitude == 0 || magnitude - least_bits < Binary32::infinity - least_bits;
    }
    bool is_small(std::uint32_t bits) const { return (bits & Binary32::magnitude_mask) < small_bits; }
  };

  /// Limits of `depth` products.
  Terms terms(ExponentRange a, ExponentRange b, std::size_t depth) const {
    constexpr int finite = Binary32::emax;
    Terms terms;
    if (!possible_ || a.largest > finite || b.largest > finite || a.largest + b.largest > largest_product)
      return terms;
    const int own_floor = std::max(least_floor, std::max(a.largest, b.largest) - finite);
    if (row_.exponent_floor >= own_floor) {
      terms.floor = row_.exponent_floor;
    } else {
      if (a.smallest + b.smallest < own_floor) return terms;
      terms.floor = own_floor;
      // Where it is joined, c enters no block.
      if (!row_.joined) terms.least_bits = bits_of_power(own_floor);
    }
    terms.admitted = true;
    // The sum is below depth * 2^(largest + 2), the accumulator then below 2^F.
    const int largest = a.largest + b.largest + 2 + static_cast<int>(std::bit_width(depth));
    if (std::max(largest, terms.floor) < row_.fraction_bits)
      terms.small_bits = bits_of_power(row_.fraction_bits - 1);
    return terms;
  }

  static constexpr int least_floor = -101;
  static constexpr int largest_product = 100;

  /// What emulated_gemm_groups-inl.h asks for, of the scales' exponents: EmulatedTile's bounds, or nothing.
  struct GroupBounds {
    int least_place, limit;
    bool in_integers;
  };
  std::optional<GroupBounds> of_groups(ExponentRange a, ExponentRange b) const {
    const int smallest = a.smallest + b.smallest, largest = a.largest + b.largest;
    const int fraction_bits = row_.fraction_bits, unit = smallest - group_places;
    // A product has 180 * 180 < 2^15 units at most, times what its scales are above the least ones; a block's sum:
    const int bits = 15 + static_cast<int>(std::bit_width(static_cast<unsigned>(row_.block_size)));
    if (row_.exact_group <= 1 || group % static_cast<std::size_t>(row_.exact_group) != 0 ||
        row_.output != BlockOutput::fp32_toward_zero ||
        row_.subnormal_accumulator == SubnormalAccumulator::fp16_emin ||
        row_.block_size % row_.exact_group != 0 || fraction_bits < Binary32::fraction_bits ||
        fraction_bits + bits + 1 - group_places > Binary64::precision || row_.exponent_floor > largest ||
        largest - fraction_bits > unit ||
        8 + largest - smallest >= 31)  // a product of integers that are scales
      return std::nullopt;
    return GroupBounds{largest - fraction_bits, unit + fraction_bits + 1, bits + largest - smallest < 31};
  }

 private:
  static constexpr int group_places = 2 * (PackedGroups::element_places + PackedGroups::scale_places);

  /// At most 5 bits, as in FP8: then 16 products and c stay inside int32, 16 (2 - 2^-4)^2 + 2 < 2^6.
  static bool has_short_significand(DType format) {
    return visit_dtype<is_operand>(format, [](auto row) { return decltype(row)::Format::precision <= 5; });
  }
  static constexpr std::uint32_t bits_of_power(int exponent) {
    return static_cast<std::uint32_t>(exponent + Binary32::bias) << Binary32::fraction_bits;
  }

  const KernelRow& row_;
  bool possible_ = false;
};

}  // namespace fp16lab::gemm_detail
