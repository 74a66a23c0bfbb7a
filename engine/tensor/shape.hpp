// The extents of a tensor, outermost first (row-major, C order).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>

namespace fp16lab::engine {

/// At most `max_rank` extents, each >= 0. Rank 0 is a scalar with one element. A value type without heap
/// memory.
class Shape {
 public:
  static constexpr int max_rank = 6;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents) : Shape(std::span(extents.begin(), extents.size())) {}
  explicit Shape(std::span<const std::int64_t> extents) {
    if (extents.size() > max_rank)
      throw std::invalid_argument("shape of rank " + std::to_string(extents.size()) + ", at most 6");
    for (const std::int64_t extent : extents) {
      if (extent < 0)
        throw std::invalid_argument("negative extent " + std::to_string(extent) + " in a shape");
      extents_[static_cast<std::size_t>(rank_++)] = extent;
    }
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
  std::int64_t element_count() const {
    std::int64_t count = 1;
    for (const std::int64_t extent : extents()) count *= extent;
    return count;
  }
  /// "(64, 784)"; "()" for a scalar.
  std::string to_string() const {
    std::string text = "(";
    for (int axis = 0; axis < rank_; ++axis) {
      if (axis > 0) text += ", ";
      text += std::to_string(extents_[static_cast<std::size_t>(axis)]);
    }
    return text + ")";
  }
  bool operator==(const Shape& other) const {
    return rank_ == other.rank_ &&
           std::equal(extents_.begin(), extents_.begin() + rank_, other.extents_.begin());
  }

 private:
  std::array<std::int64_t, max_rank> extents_{};
  int rank_ = 0;
};

}  // namespace fp16lab::engine
