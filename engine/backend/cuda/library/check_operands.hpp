// The operands on which an algorithm is compared before it is pinned: every element a function of its place,
// so that a kernel fills matrices of any size on the device and the host knows each element without copying
// one.
//
//   wide        every binary exponent that keeps the sums finite, random significands: alignment and
//               truncation
//   cancelling  every product comes twice, with opposite signs, from both ends of k: the exact sum is 0, so
//               what is left is nothing but the roundings of the order in which it was added
//   special     zeros of both signs and subnormals; some lines with a NaN of any payload, an infinity, or
//               both infinities
//   order_a     +M and -M in a line of a, small units elsewhere (masks as in FPRev, arXiv 2411.00442): a unit
//               survives
//   order_b     if it is added outside of the smallest subtree that holds both, so the sum tells the order.
//               In half of the lines +M and -M lie in one block of 16, line after line in the next block:
//               survivors are the blocks behind it if and only if all blocks before it were added first; all
//               blocks so tested, the order is the ascending one. In the others they lie anywhere. order_b:
//               the same in the columns of b.
#pragma once

#include <cstdint>

#include "numerics/formats/small_float.hpp"
#include "numerics/platform/portability.hpp"
#include "numerics/random/philox.hpp"

namespace fp16lab::engine {

enum class AlgorithmChoices : std::uint8_t { wide, cancelling, special, order_a, order_b };

/// One operand of a data set. A *line* is a row of op(a) or a column of op(b), counted through the whole
/// batch.
struct CheckMatrix {
  AlgorithmChoices set = AlgorithmChoices::wide;
  bool is_b = false;
  bool bf16 = false;             ///< else FP16
  std::int64_t k = 0;            ///< elements of a line
  std::int32_t lowest = 0;       ///< `wide`: the least
  std::int32_t highest = 0;      ///< and the greatest exponent
  std::uint32_t round = 0;       ///< other numbers
  std::int64_t first_visit = 0;  ///< of the masks: blocks that rounds before this one have visited
};

namespace check_detail {

inline constexpr std::int64_t block = 16;          ///< products of one step of k on every route
inline constexpr std::int32_t mask_exponent = 15;  ///< M = 2^15 * 2^15
inline constexpr std::int32_t unit_exponent =
    -24;  ///< a unit = 2^-24 * 2^15: M / unit = 2^39 is beyond every alignment

/// (-1)^negative * significand * 2^(exponent - F), where significand has F + 1 bits, F of the format; F + 1
/// >= 8. Bits below the least subnormal are dropped.
template <class F>
FP16LAB_HD constexpr std::uint16_t encoded(bool negative, std::int32_t exponent, std::uint32_t significand) {
  std::uint32_t code = 0;
  if (exponent < F::emin) {
    const std::int32_t shift = F::emin - exponent;
    code = shift > F::fraction_bits ? 0 : significand >> shift;
  } else {
    code = (static_cast<std::uint32_t>(exponent + F::bias) << F::fraction_bits) |
           (significand & F::fraction_mask);
  }
  return static_cast<std::uint16_t>(code | (negative ? F::sign_mask : 0u));
}

/// A random number with an exponent from `lowest` to `highest`.
template <class F>
FP16LAB_HD constexpr std::uint16_t random_number(const PhiloxCounter& words, std::int32_t lowest,
                                                 std::int32_t highest) {
  const auto exponents = static_cast<std::uint32_t>(highest - lowest + 1);
  const std::int32_t exponent = lowest + static_cast<std::int32_t>(words[1] % exponents);
  return encoded<F>((words[0] & 1u) != 0, exponent, (1u << F::fraction_bits) | (words[2] & F::fraction_mask));
}

/// count * 2^unit_exponent, 1 <= count <= 15.
template <class F>
FP16LAB_HD constexpr std::uint16_t units(std::uint32_t count) {
  const std::int32_t top = count >= 8 ? 3 : count >= 4 ? 2 : count >= 2 ? 1 : 0;
  return encoded<F>(false, unit_exponent + top, count << (F::fraction_bits - top));
}

template <class F>
FP16LAB_HD constexpr std::uint16_t special(const PhiloxCounter& line, const PhiloxCounter& words,
                                           std::int64_t k, std::int64_t extent) {
  const auto count = static_cast<std::uint64_t>(extent);
  const auto first = static_cast<std::int64_t>(line[1] % count),
             second = static_cast<std::int64_t>(line[2] % count);
  const std::uint32_t kind = line[0] % 8;  // 0 to 3: no special in this line
  const bool negative = (words[0] & 1u) != 0;
  const auto infinity = [](bool minus) {
    return static_cast<std::uint16_t>(F::infinity | (minus ? F::sign_mask : 0u));
  };
  if (kind >= 4 && k == first) {
    if (kind == 4)
      return static_cast<std::uint16_t>(F::infinity | (words[1] & F::fraction_mask) | 1u |
                                        (negative ? F::sign_mask : 0u));
    return infinity((line[3] & 1u) != 0);
  }
  if (kind == 5 && k == second) return infinity((line[3] & 1u) == 0);
  if (words[3] % 4 == 0) return negative ? F::sign_mask : std::uint16_t{0};
  if (words[3] % 4 == 1) return encoded<F>(negative, F::emin - 1, (words[1] & F::fraction_mask) | 1u);
  return random_number<F>(words, -6, 2);
}

/// The side that holds the masks.
template <class F>
FP16LAB_HD constexpr std::uint16_t mask(const CheckMatrix& x, const PhiloxCounter& line_words,
                                        const PhiloxCounter& words, std::int64_t line, std::int64_t k) {
  std::int64_t begin = 0, end = x.k;  // +M and -M lie in [begin, end)
  if (line % 2 == 0) {
    const std::int64_t blocks = (x.k + block - 1) / block;
    const std::int64_t visit = (line / 2 + x.first_visit) % blocks;  // from the last block down
    begin = (blocks - 1 - visit) * block;
    end = begin + block < x.k ? begin + block : x.k;
  }
  const auto extent = static_cast<std::uint64_t>(end - begin);
  if (extent >= 2) {
    const auto plus = static_cast<std::int64_t>(line_words[0] % extent);
    const auto apart = static_cast<std::int64_t>(1 + line_words[1] % (extent - 1));
    const std::int64_t minus = (plus + apart) % static_cast<std::int64_t>(extent);
    if (k == begin + plus || k == begin + minus)
      return encoded<F>(k == begin + minus, mask_exponent, 1u << F::fraction_bits);
  }
  return units<F>(1 + words[0] % 15);
}

template <class F>
FP16LAB_HD constexpr std::uint16_t element(const CheckMatrix& x, std::int64_t line, std::int64_t k) {
  const std::uint64_t stream = 2 * static_cast<std::uint64_t>(x.set) + (x.is_b ? 1 : 0);
  const PhiloxStream elements{.seed = 0x70696e, .stream = stream, .iteration = x.round};
  const PhiloxStream lines{.seed = 0x70696e, .stream = stream + 64, .iteration = x.round};
  const auto index = [&x](std::int64_t row, std::int64_t column) {
    return static_cast<std::uint64_t>(row) * static_cast<std::uint64_t>(x.k) +
           static_cast<std::uint64_t>(column);
  };
  const auto line_words = [&] { return lines.block(static_cast<std::uint64_t>(line)); };
  switch (x.set) {
    case AlgorithmChoices::wide:
      return random_number<F>(elements.block(index(line, k)), x.lowest, x.highest);
    case AlgorithmChoices::cancelling: {
      const bool second_half = k >= (x.k + 1) / 2;
      const std::int64_t twin = second_half ? x.k - 1 - k : k;
      const std::uint16_t number = random_number<F>(elements.block(index(line, twin)), 4, 5);
      return static_cast<std::uint16_t>(number ^ (second_half && !x.is_b ? F::sign_mask : 0u));
    }
    case AlgorithmChoices::special:
      return special<F>(line_words(), elements.block(index(line, k)), k, x.k);
    case AlgorithmChoices::order_a:
    case AlgorithmChoices::order_b:
      break;
  }
  if ((x.set == AlgorithmChoices::order_b) != x.is_b)
    return encoded<F>(false, mask_exponent - static_cast<std::int32_t>(line % 3), 1u << F::fraction_bits);
  return mask<F>(x, line_words(), elements.block(index(line, k)), line, k);
}

}  // namespace check_detail

/// The bits of element `k` of `line`.
FP16LAB_HD constexpr std::uint16_t check_element(const CheckMatrix& x, std::int64_t line, std::int64_t k) {
  return x.bf16 ? check_detail::element<BrainFloat16>(x, line, k)
                : check_detail::element<Binary16>(x, line, k);
}

}  // namespace fp16lab::engine
