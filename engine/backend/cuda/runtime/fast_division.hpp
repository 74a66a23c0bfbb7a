// Divisor: division of non-negative integers by a number that is known before a kernel starts, without the
// tens of instructions that an integer division costs on a GPU.
//
// Granlund and Montgomery, "Division by invariant integers using multiplication", PLDI 1994, section 4: with
// s = ceil(log2 d) and m = floor(2^32 (2^s - d) / d) + 1, the quotient of every 32-bit n by d is
// (mulhi(m, n) + n) >> s; below 2^31 the sum fits in 32 bits. What is larger is divided the plain way.
#pragma once

#include <cstdint>

#include "numerics/platform/portability.hpp"

namespace fp16lab::engine::functions {

class Divisor {
 public:
  constexpr Divisor() = default;
  /// d >= 1.
  explicit constexpr Divisor(std::int64_t d) : value_(d) {
    if (d > largest_fast) return;
    while ((std::int64_t{1} << shift_) < d) ++shift_;
    const auto power = static_cast<std::uint64_t>(1) << shift_, divisor = static_cast<std::uint64_t>(d);
    multiplier_ = static_cast<std::uint32_t>(((power - divisor) << 32) / divisor + 1);
    fast_below_ = largest_fast + 1;
  }

  FP16LAB_HD constexpr std::int64_t value() const { return value_; }
  /// n / d for n >= 0.
  FP16LAB_HD constexpr std::int64_t quotient(std::int64_t n) const {
    if (n >= fast_below_) return n / value_;
    const auto low = static_cast<std::uint32_t>(n);
    const auto high = static_cast<std::uint32_t>((std::uint64_t{multiplier_} * low) >> 32);
    return static_cast<std::int64_t>((high + low) >> shift_);
  }
  /// n becomes n / d; the remainder is returned.
  FP16LAB_HD constexpr std::int64_t take(std::int64_t& n) const {
    const std::int64_t whole = quotient(n), rest = n - whole * value_;
    n = whole;
    return rest;
  }

 private:
  static constexpr std::int64_t largest_fast = (std::int64_t{1} << 31) - 1;

  std::int64_t value_ = 1;
  std::int64_t fast_below_ = 0;
  std::uint32_t multiplier_ = 1;
  std::uint32_t shift_ = 0;
};

}  // namespace fp16lab::engine::functions
