// The extents of a tensor, outermost first (row-major, C order), and checked arithmetic on extents.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>

namespace fp16lab::engine {

/// What the extents of a shape may multiply to, an extent of 0 counted as 1: 2^48, more than any memory has.
/// So every product of some extents of one shape fits an int64 many times over, with an element's bytes too.
inline constexpr std::int64_t most_elements = std::int64_t{1} << 48;
/// The longest stride, padding, dilation or kernel of a window, and the largest integer of a layer where its
/// row of the table of types says no less: the product of two of them fits an int64.
inline constexpr std::int64_t largest_size = 2147483647;

/// An integer of extents: where a sum, difference or product does not fit an int64 it throws
/// std::invalid_argument naming both numbers. For sizes that no shape has checked yet; not for inner loops.
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

/// At most `max_rank` extents, each >= 0, that multiply to no more than `most_elements`. Rank 0 is a scalar
/// with one element. A value type without heap memory.
class Shape {
 public:
  static constexpr int max_rank = 6;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents) : Shape(std::span(extents.begin(), extents.size())) {}
  explicit Shape(std::span<const std::int64_t> extents) {
    if (extents.size() > max_rank)
      throw std::invalid_argument("shape of rank " + std::to_string(extents.size()) + ", at most 6");
    std::int64_t product = 1;
    for (const std::int64_t extent : extents) {
      if (extent < 0)
        throw std::invalid_argument("negative extent " + std::to_string(extent) + " in a shape");
      if (__builtin_mul_overflow(product, std::max<std::int64_t>(extent, 1), &product) ||
          product > most_elements)
        throw std::invalid_argument("shape " + text(extents) + ": expected at most 2^48 elements");
      if (extent == 0) element_count_ = 0;
      extents_[static_cast<std::size_t>(rank_++)] = extent;
    }
    element_count_ *= product;
  }

  int rank() const { return rank_; }
  /// Extent of `axis`; negative axes count from the end. std::out_of_range if there is no such axis.
  std::int64_t operator[](int axis) const {
    const int index = axis < 0 ? axis + rank_ : axis;
    if (index < 0 || index >= rank_)
      throw std::out_of_range("axis " + std::to_string(axis) + " of shape " + to_string());
    return extents_[static_cast<std::size_t>(index)];
  }
  std::span<const std::int64_t> extents() const { return {extents_.data(), static_cast<std::size_t>(rank_)}; }
  std::int64_t element_count() const { return element_count_; }
  /// "(64, 784)"; "()" for a scalar.
  std::string to_string() const { return text(extents()); }
  bool operator==(const Shape& other) const {
    return rank_ == other.rank_ &&
           std::equal(extents_.begin(), extents_.begin() + rank_, other.extents_.begin());
  }

 private:
  static std::string text(std::span<const std::int64_t> extents) {
    std::string all = "(";
    for (const std::int64_t extent : extents) {
      if (all.size() > 1) all += ", ";
      all += std::to_string(extent);
    }
    return all + ")";
  }

  std::array<std::int64_t, max_rank> extents_{};
  std::int64_t element_count_ = 1;
  int rank_ = 0;
};

}  // namespace fp16lab::engine
