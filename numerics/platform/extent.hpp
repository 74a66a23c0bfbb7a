// Checked arithmetic on sizes of arrays that no check has seen yet.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

namespace fp16lab {

/// What the extents of an array may multiply to, an extent of 0 counted as 1: 2^48, more than any memory has.
/// So every product of some extents of one array fits an int64 many times over, with an element's bytes too.
inline constexpr std::int64_t most_elements = std::int64_t{1} << 48;
/// The largest stride, padding, dilation or kernel of a window, and the largest integer of a layer whose row of
/// the table of types says no less: the product of two of them fits an int64.
inline constexpr std::int64_t largest_size = 2147483647;

/// An integer of extents: where a sum, difference or product does not fit an int64 it throws
/// std::invalid_argument naming both numbers. For sizes that no shape has checked; not for inner loops.
class Extent {
 public:
  constexpr Extent(std::int64_t value) : value_(value) {}  // NOLINT: numbers are extents

  constexpr std::int64_t value() const { return value_; }
  friend Extent operator+(Extent a, Extent b) {
    std::int64_t sum = 0;
    return __builtin_add_overflow(a.value_, b.value_, &sum) ? overflow(a, '+', b) : sum;
  }
  friend Extent operator-(Extent a, Extent b) {
    std::int64_t difference = 0;
    return __builtin_sub_overflow(a.value_, b.value_, &difference) ? overflow(a, '-', b) : difference;
  }
  friend Extent operator*(Extent a, Extent b) {
    std::int64_t product = 0;
    return __builtin_mul_overflow(a.value_, b.value_, &product) ? overflow(a, '*', b) : product;
  }

 private:
  [[noreturn]] static std::int64_t overflow(Extent a, char sign, Extent b) {
    throw std::invalid_argument("a size of " + std::to_string(a.value_) + ' ' + sign + ' ' +
                                std::to_string(b.value_) + ": expected less than 2^63");
  }

  std::int64_t value_;
};

/// The product of all; std::invalid_argument where it does not fit an int64.
inline std::int64_t product_of(std::span<const std::int64_t> extents) {
  Extent product = 1;
  for (const std::int64_t extent : extents) product = product * extent;
  return product.value();
}

}  // namespace fp16lab
