// PatchMap: which element of an activation an implicit product multiplies at (position, depth index), or that
// it is +0.
//
// Forward and for the weight gradient a position is a window (n, p, q) of y and the element one of x; for the
// input gradient a position is a place (n, h, w) of x and the element one of dY. The depth index walks
// channels and taps in the order of the chain. Elements are those of the first group of channels; the others'
// are group_step() further on. Both sides are decomposed once, with all the divisions there are, and meet in
// additions and comparisons:
//   * x: tap t of window o reads place (o * stride - padding) + (t * dilation);
//   * dY: place i is read through tap t by window (i + padding - t * dilation) / stride, if that is whole.
//     With i + padding = a * stride + b and t * dilation = c * stride + d it is whole exactly if b = d, and
//     then a - c.
#pragma once

#include <cstdint>

#include "engine/backend/backend.hpp"
#include "engine/backend/cuda/runtime/fast_division.hpp"
#include "engine/backend/window_functions.hpp"
#include "numerics/platform/portability.hpp"

namespace fp16lab::engine::functions {

/// The parameters of a patch.
enum class PatchSource : std::uint8_t {
  inputs,   ///< x, read by the windows of y
  outputs,  ///< dY, read by the places of x
};
/// The order of the depth index, slowest first.
enum class DepthOrder : std::uint8_t { channel_row_column, row_column_channel };

/// A position or a tap along one axis: a place, or its part of one, and the remainder by the stride (0 for
/// x).
struct AxisSpot {
  std::int32_t place = 0;
  std::int32_t phase = 0;
};

/// A position taken apart. It reads the element at its place plus the depth index's, if their phases agree
/// and the place exists; `offset` and the depth index's then make the element's.
struct PatchPosition {
  std::int64_t offset = 0;
  AxisSpot row, column;
  std::int32_t columns_left = 0;  ///< positions from here to the end of their row, this one included
  std::int32_t rows_left = 0;     ///< likewise
};
/// A depth index taken apart.
struct PatchDepth {
  std::int64_t offset = 0;
  AxisSpot row, column;
  std::uint32_t taps = 0;  ///< PatchMap::tap_bits of its row and column
  std::int32_t channels_left =
      0;  ///< depth indices from here on with the same tap, where channels are innermost
  std::int32_t columns_left = 0;  ///< taps from here to the end of their row, this one included
};

class PatchMap {
 public:
  /// Places, padding and the reach of taps included, must stay below this.
  static constexpr std::int64_t largest_coordinate = std::int64_t{1} << 29;

  PatchMap() = default;
  PatchMap(const Conv2dPlan& plan, PatchSource source, Layout layout, DepthOrder order)
      : vertical_(plan.vertical, source), horizontal_(plan.horizontal, source), order_(order) {
    const bool inputs = source == PatchSource::inputs;
    const std::int64_t height = vertical_.extent, width = horizontal_.extent;
    const std::int64_t channels = inputs ? plan.inputs : plan.outputs;
    const std::int64_t group_channels = inputs ? plan.group_inputs() : plan.group_outputs();
    column_step_ = layout == Layout::nchw ? 1 : channels;
    row_step_ = width * column_step_;
    channel_step_ = layout == Layout::nchw ? height * width : 1;
    image_step_ = height * width * channels;
    group_step_ = group_channels * channel_step_;
    const std::int64_t rows = inputs ? plan.vertical.output : plan.vertical.input;
    const std::int64_t columns = inputs ? plan.horizontal.output : plan.horizontal.input;
    positions_ = plan.images * rows * columns;
    depth_ = group_channels * plan.vertical.taps * plan.horizontal.taps;
    by_row_ = Divisor(at_least_one(rows));
    by_column_ = Divisor(at_least_one(columns));
    by_tap_row_ = Divisor(plan.vertical.taps);
    by_tap_column_ = Divisor(plan.horizontal.taps);
    by_channel_ = Divisor(at_least_one(group_channels));
  }

  /// Do the coordinates of `plan` fit in 32 bits?
  static bool holds(const Conv2dPlan& plan) {
    const auto fits = [](const WindowAxis& axis) {
      constexpr std::int64_t limit = largest_coordinate;
      return axis.taps <= limit && axis.dilation <= limit && axis.stride <= limit && axis.padding <= limit &&
             axis.input + 2 * axis.padding + axis.dilation * (axis.taps - 1) <= limit;
    };
    return fits(plan.vertical) && fits(plan.horizontal);
  }

  FP16LAB_HD std::int64_t positions() const { return positions_; }
  FP16LAB_HD std::int64_t depth() const { return depth_; }
  FP16LAB_HD std::int64_t image_step() const { return image_step_; }
  /// From an element to the same one of the next group.
  FP16LAB_HD std::int64_t group_step() const { return group_step_; }

  /// Position `i`; at and after positions() one that reads +0 everywhere.
  FP16LAB_HD PatchPosition position(std::int64_t i) const {
    PatchPosition at;
    const bool exists = i < positions_;
    const auto column = static_cast<std::int32_t>(by_column_.take(i));
    const auto row = static_cast<std::int32_t>(by_row_.take(i));
    at.row = vertical_.position(row);
    at.column = horizontal_.position(column);
    at.offset = i * image_step_ + at.row.place * row_step_ + at.column.place * column_step_;
    at.columns_left = static_cast<std::int32_t>(by_column_.value()) - column;
    at.rows_left = static_cast<std::int32_t>(by_row_.value()) - row;
    if (!exists) at.row.place = outside;
    return at;
  }
  /// Depth index `k`; at and after depth() one that reads +0 everywhere.
  FP16LAB_HD PatchDepth depth_index(std::int64_t k) const {
    const bool exists = k < depth_;
    std::int64_t row = 0, column = 0, channel = 0;
    if (order_ == DepthOrder::channel_row_column) {
      column = by_tap_column_.take(k);
      row = by_tap_row_.take(k);
      channel = k;
    } else {
      channel = by_channel_.take(k);
      column = by_tap_column_.take(k);
      row = k;
    }
    PatchDepth depth;
    depth.row = vertical_.tap(static_cast<std::int32_t>(row));
    depth.column = horizontal_.tap(static_cast<std::int32_t>(column));
    depth.offset = channel * channel_step_ + depth.row.place * row_step_ + depth.column.place * column_step_;
    depth.taps =
        exists ? tap_bits(static_cast<std::int32_t>(row), static_cast<std::int32_t>(column)) : no_tap;
    depth.channels_left = static_cast<std::int32_t>(by_channel_.value() - channel);
    depth.columns_left = static_cast<std::int32_t>(by_tap_column_.value() - column);
    if (!exists) depth.row.place = outside;
    return depth;
  }

  /// The element at (position, depth index), or -1 for +0.
  FP16LAB_HD std::int64_t element(const PatchPosition& position, const PatchDepth& depth) const {
    return vertical_.read(position.row, depth.row) && horizontal_.read(position.column, depth.column)
               ? position.offset + depth.offset
               : -1;
  }

  // ---- the same with sets of taps, for positions that meet many depth indices ----

  /// Are taps few enough for 31 bits?
  FP16LAB_HD bool has_tap_bits() const { return by_tap_row_.value() + by_tap_column_.value() <= 31; }
  /// Row r is bit r of a set of taps, column s bit R + s.
  FP16LAB_HD std::uint32_t tap_bits(std::int32_t row, std::int32_t column) const {
    if (!has_tap_bits()) return no_tap;
    return 1u << row | 1u << (static_cast<std::int32_t>(by_tap_row_.value()) + column);
  }
  /// The rows and columns of taps that read an element at `position`: (position, depth) is one where
  /// depth.taps is a subset.
  FP16LAB_HD std::uint32_t taps_read(const PatchPosition& position) const {
    const auto rows = static_cast<std::int32_t>(by_tap_row_.value()),
               columns = static_cast<std::int32_t>(by_tap_column_.value());
    std::uint32_t bits = 0;
    for (std::int32_t r = 0; r < rows; ++r)
      if (vertical_.read(position.row, vertical_.tap(r))) bits |= 1u << r;
    for (std::int32_t s = 0; s < columns; ++s)
      if (horizontal_.read(position.column, horizontal_.tap(s))) bits |= 1u << (rows + s);
    return bits;
  }

 private:
  friend class PositionWalk;
  friend class DepthWalk;

  /// Below every place, also with another one added; and walks from two of them added stay within 32 bits.
  static constexpr std::int32_t outside = -static_cast<std::int32_t>(largest_coordinate);
  static constexpr std::uint32_t no_tap = 1u << 31;
  static constexpr std::int64_t at_least_one(std::int64_t x) { return x > 0 ? x : 1; }

  struct Axis {
    Axis() = default;
    Axis(const WindowAxis& axis, PatchSource source)
        : spacing(source == PatchSource::inputs ? 1 : axis.stride) {
      const bool inputs = source == PatchSource::inputs;
      position_step = static_cast<std::int32_t>(inputs ? axis.stride : 1);
      position_0 = static_cast<std::int32_t>(inputs ? -axis.padding : axis.padding);
      dilation = static_cast<std::int32_t>(axis.dilation);
      sign = inputs ? 1 : -1;
      extent = static_cast<std::int32_t>(inputs ? axis.input : axis.output);
    }
    FP16LAB_HD AxisSpot position(std::int32_t i) const { return divided(i * position_step + position_0); }
    FP16LAB_HD AxisSpot tap(std::int32_t t) const {
      AxisSpot spot = divided(t * dilation);
      spot.place *= sign;
      return spot;
    }
    FP16LAB_HD bool read(const AxisSpot& position, const AxisSpot& tap) const {
      return position.phase == tap.phase &&
             static_cast<std::uint32_t>(position.place + tap.place) < static_cast<std::uint32_t>(extent);
    }
    /// Only x has negative numbers here, and spacing 1.
    FP16LAB_HD AxisSpot divided(std::int32_t number) const {
      if (spacing.value() == 1) return {number, 0};
      std::int64_t place = number;
      const auto phase = static_cast<std::int32_t>(spacing.take(place));
      return {static_cast<std::int32_t>(place), phase};
    }

    std::int32_t position_step = 1, position_0 = 0, dilation = 1, sign = 1, extent = 0;
    Divisor spacing{1};
  };

  Axis vertical_, horizontal_;
  DepthOrder order_ = DepthOrder::channel_row_column;
  std::int64_t column_step_ = 0, row_step_ = 0, channel_step_ = 0, image_step_ = 0, group_step_ = 0;
  std::int64_t positions_ = 0, depth_ = 0;
  Divisor by_row_{1}, by_column_{1};                          // positions
  Divisor by_tap_row_{1}, by_tap_column_{1}, by_channel_{1};  // depth indices
};

// Walks along neighbours, without a division for each.

/// Positions first, first + 1, ... at one depth index. Only for PatchSource::inputs.
class PositionWalk {
 public:
  FP16LAB_HD PositionWalk(const PatchMap& map, std::int64_t first, const PatchPosition& position,
                          const PatchDepth& depth)
      : offset_(position.offset + depth.offset),
        left_(static_cast<std::int32_t>(map.positions_ - first)),
        row_(position.row.place + depth.row.place),
        column_(position.column.place + depth.column.place),
        columns_left_(position.columns_left),
        rows_left_(position.rows_left) {}

  /// The element, or -1.
  FP16LAB_HD std::int64_t element(const PatchMap& map) const {
    const bool inside =
        left_ > 0 && static_cast<std::uint32_t>(row_) < static_cast<std::uint32_t>(map.vertical_.extent) &&
        static_cast<std::uint32_t>(column_) < static_cast<std::uint32_t>(map.horizontal_.extent);
    return inside ? offset_ : -1;
  }
  FP16LAB_HD void next(const PatchMap& map) {
    const std::int32_t down = map.vertical_.position_step, right = map.horizontal_.position_step;
    --left_;
    column_ += right;
    offset_ += right * map.column_step_;
    if (--columns_left_ > 0) return;
    const auto columns = static_cast<std::int32_t>(map.by_column_.value());
    columns_left_ = columns;
    column_ -= columns * right;
    row_ += down;
    offset_ += down * map.row_step_ - columns * right * map.column_step_;
    if (--rows_left_ > 0) return;
    const auto rows = static_cast<std::int32_t>(map.by_row_.value());
    rows_left_ = rows;
    row_ -= rows * down;
    offset_ += map.image_step_ - rows * down * map.row_step_;
  }

 private:
  std::int64_t offset_;
  std::int32_t left_, row_, column_, columns_left_, rows_left_;
};

/// Depth indices first, first + 1, ... at one position. Only for DepthOrder::row_column_channel, and with
/// several taps only for PatchSource::inputs.
class DepthWalk {
 public:
  FP16LAB_HD DepthWalk(const PatchMap& map, const PatchPosition& position, std::int64_t first,
                       const PatchDepth& depth)
      : offset_(position.offset + depth.offset),
        left_(position.row.phase == depth.row.phase && position.column.phase == depth.column.phase
                  ? static_cast<std::int32_t>(map.depth_ - first)
                  : 0),
        row_(position.row.place + depth.row.place),
        column_(position.column.place + depth.column.place),
        channels_left_(depth.channels_left),
        columns_left_(depth.columns_left) {}

  FP16LAB_HD std::int64_t element(const PatchMap& map) const {
    const bool inside =
        left_ > 0 && static_cast<std::uint32_t>(row_) < static_cast<std::uint32_t>(map.vertical_.extent) &&
        static_cast<std::uint32_t>(column_) < static_cast<std::uint32_t>(map.horizontal_.extent);
    return inside ? offset_ : -1;
  }
  FP16LAB_HD void next(const PatchMap& map) {
    const std::int32_t down = map.vertical_.dilation, right = map.horizontal_.dilation;
    --left_;
    offset_ += map.channel_step_;
    if (--channels_left_ > 0) return;
    channels_left_ = static_cast<std::int32_t>(map.by_channel_.value());
    column_ += right;
    offset_ += right * map.column_step_ - channels_left_ * map.channel_step_;
    if (--columns_left_ > 0) return;
    const auto columns = static_cast<std::int32_t>(map.by_tap_column_.value());
    columns_left_ = columns;
    column_ -= columns * right;
    row_ += down;
    offset_ += down * map.row_step_ - columns * right * map.column_step_;
  }

 private:
  std::int64_t offset_;
  std::int32_t left_, row_, column_, channels_left_, columns_left_;
};

}  // namespace fp16lab::engine::functions
