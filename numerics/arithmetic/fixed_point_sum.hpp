// A sum that never rounds: a fixed-point integer wide enough for every term (Kulisch's long accumulator).
// Adding is integer addition, so no order, no chunking and no number of threads shows in the result.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "numerics/arithmetic/round_pack.hpp"

namespace fp16lab {

/// Sums of non-negative multiples of 2^LowestExponent below 2^(64 * WordCount + LowestExponent). The owner
/// leaves room above the largest term for as many terms as there may be: carries out of the last word are
/// lost.
template <int LowestExponent, std::size_t WordCount>
class FixedPointSum {
 public:
  static constexpr int lowest_exponent = LowestExponent;

  /// Adds significand * 2^exponent, exponent >= lowest_exponent.
  constexpr void add(unsigned __int128 significand, int exponent) {
    const auto position = static_cast<unsigned>(exponent - LowestExponent);
    const std::size_t word = position / 64;
    const unsigned shift = position % 64;
    add_at(word, static_cast<std::uint64_t>(significand << shift));
    add_at(word + 1, static_cast<std::uint64_t>((significand << shift) >> 64));
    if (shift > 0) add_at(word + 2, static_cast<std::uint64_t>(significand >> 64) >> (64 - shift));
  }

  constexpr FixedPointSum& operator+=(const FixedPointSum& other) {
    for (std::size_t word = 0; word < WordCount; ++word) add_at(word, other.words_[word]);
    return *this;
  }

  /// The nearest FP64 number, ties to even; infinite beyond the largest.
  double nearest() const {
    std::size_t top = WordCount;
    while (top > 0 && words_[top - 1] == 0) --top;
    if (top == 0) return 0.0;
    // The leading 64 bits, and whether anything is below them.
    const int width = bit_width(words_[top - 1]);
    Exact exact;
    exact.kind = Exact::Kind::finite;
    exact.significand = words_[top - 1];
    exact.exponent = LowestExponent + 64 * static_cast<int>(top - 1);
    if (top > 1) {
      if (width < 64) {
        exact.significand = (words_[top - 1] << (64 - width)) | (words_[top - 2] >> width);
        exact.exponent -= 64 - width;
        exact.sticky = (words_[top - 2] << (64 - width)) != 0;
      } else {
        exact.sticky = words_[top - 2] != 0;
      }
      for (std::size_t word = 0; word + 2 < top; ++word) exact.sticky = exact.sticky || words_[word] != 0;
    }
    return double_from_bits(round_pack<Binary64>(exact, ArithmeticOptions{}).bits());
  }

  /// Least significant first; the unit of the first is 2^lowest_exponent.
  const std::array<std::uint64_t, WordCount>& words() const { return words_; }
  bool operator==(const FixedPointSum&) const = default;

 private:
  constexpr void add_at(std::size_t word, std::uint64_t amount) {
    while (amount != 0 && word < WordCount) {
      words_[word] += amount;
      amount = words_[word] < amount ? 1 : 0;  // the carry
      ++word;
    }
  }

  std::array<std::uint64_t, WordCount> words_{};
};

}  // namespace fp16lab
