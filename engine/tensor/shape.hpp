// The extents of a tensor, outermost first (row-major, C order).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>

#include "numerics/platform/extent.hpp"

namespace fp16lab::engine {

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
