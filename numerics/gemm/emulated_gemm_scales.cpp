#include "numerics/gemm/emulated_gemm_scales.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "numerics/arithmetic/round_pack.hpp"

namespace fp16lab::gemm_detail {
namespace {

constexpr int most_exponent = 50;
constexpr std::int8_t zero_byte = -128;  // emulated_gemm_kernels.hpp

template <class F>
ScaleTable table_of() {
  ScaleTable table;
  for (std::size_t code = 0; code < 256; ++code) {
    const Exact exact = decode(SmallFloat<F>::from_bits(static_cast<std::uint8_t>(code)));
    table.values[code] = exact.kind == Exact::Kind::nan
                             ? std::numeric_limits<double>::quiet_NaN()
                             : std::ldexp(static_cast<double>(exact.significand), exact.exponent);
    table.exponents[code] = exact.kind == Exact::Kind::zero
                                ? ScaleTable::zero_exponent
                                : static_cast<std::int16_t>(exact.exponent + F::fraction_bits);
  }
  return table;
}

const std::uint8_t& code_at(const PartCodes& part, std::size_t line, std::size_t k) {
  return part
      .codes[static_cast<std::int64_t>(line) * part.line_step + static_cast<std::int64_t>(k) * part.step];
}

/// The exponents of a part's scales that are not zero, and whether all scales can be multiplied in.
class Limits {
 public:
  /// `is_zero(line, k)` says whether an element is.
  template <class IsZero>
  Limits(const KernelRow& row, const PartCodes& scales, std::size_t lines, std::size_t depth,
         const IsZero& is_zero) {
    const ScaleTable& table = scale_table(row.scales.format);
    const auto block = static_cast<std::size_t>(row.scales.block);
    for (std::size_t k = 0; k < depth; k += block)
      for (std::size_t line = 0; line < lines; ++line) {
        const std::uint8_t code = code_at(scales, line, k / block);
        const int exponent = table.exponents[code];
        if (exponent == ScaleTable::zero_exponent) continue;
        if (std::isnan(table.values[code])) {
          possible = false;
        } else if (exponent < -most_exponent || exponent > most_exponent) {
          for (std::size_t i = k; i < std::min(k + block, depth); ++i)
            possible = possible && is_zero(line, i);
        } else {
          smallest = std::min(smallest, exponent);
          largest = std::max(largest, exponent);
        }
      }
  }

  void widen(ExponentRange& range) const {
    range.has_scales = true;
    if (smallest <= largest && range.largest <= Binary32::emax) {
      range.smallest += smallest;
      range.largest += largest;
    }
  }

  /// Of the scales alone.
  ExponentRange range() const {
    return smallest <= largest ? ExponentRange{smallest, largest, possible} : ExponentRange{0, 0, possible};
  }

  bool possible = true;

 private:
  int smallest = most_exponent + 1, largest = -most_exponent - 1;
};

/// What elements of a block are multiplied by, and what is added to the exponents of those that are not zero.
struct Factor {
  float value;
  int exponent;
};
Factor factor_of(const ScaleTable& table, std::uint8_t code) {
  const int exponent = table.exponents[code];
  // A scale beyond the limits has zeros alone.
  if (exponent != ScaleTable::zero_exponent && std::abs(exponent) > most_exponent) return {0, 0};
  return {static_cast<float>(table.values[code]), exponent};
}

constexpr std::int8_t moved(std::int8_t exponent, int by) {
  return exponent == zero_byte ? zero_byte : static_cast<std::int8_t>(exponent + by);
}

}  // namespace

const ScaleTable& scale_table(DType format) {
  static const ScaleTable e8m0 = table_of<ScaleE8M0>(), ue4m3 = table_of<ScaleUE4M3>();
  return format == DType::e8m0 ? e8m0 : ue4m3;
}

bool takes_scales_when_packed(const KernelRow& row) {
  return row.exact_group == 1 && row.scales.format == DType::e8m0 && !row.joined;
}

bool takes_groups(const KernelRow& row, DType a, DType b) {
  return (row.exact_group == 16 || row.exact_group == 32) && row.scales.block > 0 && a == DType::e2m1 &&
         b == DType::e2m1;
}

ExponentRange scale_groups(const KernelRow& row, const PartCodes& scales, const PartCodes& elements,
                           std::size_t lines, std::size_t depth, std::size_t width, std::int32_t* integers) {
  const ScaleTable& table = scale_table(row.scales.format);
  const auto block = static_cast<std::size_t>(row.scales.block);
  const Limits limits(row, scales, lines, depth, [&](std::size_t line, std::size_t k) {
    return (code_at(elements, line, k) & Fp4E2M1::magnitude_mask) == 0;
  });
  const ExponentRange range = limits.range();
  constexpr int too_far_apart = 24;  // FastTiles::of_groups refuses them
  if (!limits.possible || range.largest - range.smallest >= too_far_apart) return range;
  const float to_integer = std::ldexp(1.0F, PackedGroups::scale_places - range.smallest);
  const auto size = static_cast<std::size_t>(row.exact_group);
  for (std::size_t k = 0; k < depth; k += size, integers += width) {
    for (std::size_t line = 0; line < lines; ++line)
      integers[line] =
          static_cast<std::int32_t>(factor_of(table, code_at(scales, line, k / block)).value * to_integer);
    std::fill(integers + lines, integers + width, 0);
  }
  return range;
}

void scale_packed_a(const KernelRow& row, const PartCodes& scales, std::size_t lines, std::size_t depth,
                    float* values, std::uint32_t* exponents, ExponentRange& range) {
  const ScaleTable& table = scale_table(row.scales.format);
  const auto block = static_cast<std::size_t>(row.scales.block);
  const auto place_of = [](std::size_t line, std::size_t k) {
    return k / group * group * row_block + line * group + k % group;
  };
  const Limits limits(row, scales, lines, depth,
                      [&](std::size_t line, std::size_t k) { return values[place_of(line, k)] == 0; });
  if (!limits.possible) return;
  for (std::size_t line = 0; line < lines; ++line)
    for (std::size_t k = 0, count = 0; k < depth; k += count) {  // neighbours in memory, of one block
      count = std::min(block - k % block, group - k % group);
      const Factor factor = factor_of(table, code_at(scales, line, k / block));
      const std::size_t place = place_of(line, k);
      for (std::size_t i = place; i < place + count; ++i) values[i] *= factor.value;
      if (factor.exponent == 0 || factor.value == 0) continue;
      for (std::size_t i = place; i < place + count; ++i)
        exponents[i] =
            static_cast<std::uint8_t>(moved(static_cast<std::int8_t>(exponents[i] & 0xff), factor.exponent)) *
            std::uint32_t{0x01010101};
    }
  limits.widen(range);
}

void scale_packed_b(const KernelRow& row, const PartCodes& scales, std::size_t lines, std::size_t depth,
                    std::size_t width, float* values, std::int8_t* exponents, ExponentRange& range) {
  const ScaleTable& table = scale_table(row.scales.format);
  const auto block = static_cast<std::size_t>(row.scales.block);
  const Limits limits(row, scales, lines, depth,
                      [&](std::size_t line, std::size_t k) { return values[k * width + line] == 0; });
  if (!limits.possible) return;
  float factors[max_columns] = {};
  int added[max_columns] = {};
  for (std::size_t k = 0; k < depth; k += block) {
    bool moves = false;
    for (std::size_t line = 0; line < lines; ++line) {
      const Factor factor = factor_of(table, code_at(scales, line, k / block));
      factors[line] = factor.value;
      added[line] = factor.value == 0 ? 0 : factor.exponent;
      moves = moves || added[line] != 0;
    }
    for (std::size_t i = k; i < std::min(k + block, depth); ++i) {
      for (std::size_t x = 0; x < width; ++x) values[i * width + x] *= factors[x];
      if (!moves) continue;
      for (std::size_t x = 0; x < width; ++x)
        exponents[i * width + x] = moved(exponents[i * width + x], added[x]);
    }
  }
  limits.widen(range);
}

}  // namespace fp16lab::gemm_detail
