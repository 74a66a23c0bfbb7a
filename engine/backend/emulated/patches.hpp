// Patches: the operand of an implicit product, written out. The matrix has one row for every channel of a
// group and tap (r, s), with the element that the tap reads at every position, or +0 where it reads padding
// or a stride hole.
//
// Forward the positions are windows and the elements places of x; for the input gradient the positions are
// places of x and the elements windows of dY. Either way the planes of the source are unrolled first: padding
// and stride holes become zeros in memory, and what a tap reads along a row of positions becomes contiguous.
// Then a row of the matrix is short copies without any test.
#pragma once

#include <cstdint>
#include <cstring>

#include "engine/backend/backend.hpp"
#include "engine/backend/emulated/workers.hpp"
#include "engine/backend/window_functions.hpp"

namespace fp16lab::engine {

enum class Gather { inputs, outputs };

/// One axis of an unrolled plane: slot `position * step + tap * tap_step + tap_0` is what the tap reads
/// there, and source element j is in slot j * source_step + source_0 (if that is a slot).
struct UnrolledAxis {
  UnrolledAxis(const functions::WindowAxis& axis, Gather gather) : taps(axis.taps) {
    const std::int64_t reach = axis.dilation * (axis.taps - 1);
    if (gather == Gather::inputs) {
      positions = axis.output, step = axis.stride;
      tap_0 = 0, tap_step = axis.dilation;
      sources = axis.input, source_0 = axis.padding, source_step = 1;
    } else {
      positions = axis.input, step = 1;
      tap_0 = reach, tap_step = -axis.dilation;
      sources = axis.output, source_0 = reach - axis.padding, source_step = axis.stride;
    }
    slots = (positions - 1) * step + reach + 1;
  }
  std::int64_t slot_of(std::int64_t tap) const { return tap_0 + tap * tap_step; }  ///< at position 0
  /// The slots are the source elements themselves.
  bool trivial() const { return source_0 == 0 && source_step == 1 && slots <= sources; }

  std::int64_t positions, step, taps, tap_0, tap_step, sources, source_0, source_step, slots;
};

/// Copies n elements; short ones without a call.
template <class T>
inline void copy_run(const T* from, std::int64_t n, T* to) {
  constexpr std::int64_t vector = 16 / sizeof(T);
  if (n < vector || n > 16 * vector) {
    std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
    return;
  }
  for (std::int64_t i = 0; i < n - vector; i += vector) std::memcpy(to + i, from + i, 16);
  std::memcpy(to + n - vector, from + n - vector, 16);  // overlaps the one before
}

/// The patches of one activation.
class Patches {
 public:
  Patches(const functions::Conv2dPlan& plan, Gather gather)
      : vertical_(plan.vertical, gather),
        horizontal_(plan.horizontal, gather),
        images_(plan.images),
        channels_(gather == Gather::inputs ? plan.inputs : plan.outputs),
        group_channels_(gather == Gather::inputs ? plan.group_inputs() : plan.group_outputs()) {}

  std::int64_t group_channels() const { return group_channels_; }
  std::int64_t taps() const { return vertical_.taps * horizontal_.taps; }
  std::int64_t depth() const { return group_channels_ * taps(); }  ///< rows of a group's matrix
  /// Positions of one image.
  std::int64_t plane() const { return vertical_.positions * horizontal_.positions; }
  std::int64_t positions() const { return images_ * plane(); }  ///< columns of the matrix

  /// The shape of the unrolled planes. std::invalid_argument where no shape is so large.
  Shape planes() const { return {images_, channels_, vertical_.slots, pitch()}; }
  /// Is the activation itself its planes?
  bool in_place(Layout layout) const {
    return layout == Layout::nchw && vertical_.trivial() && horizontal_.trivial() && horizontal_.step == 1;
  }
  /// The unrolled planes of x: x itself where nothing changes.
  template <class T>
  Tensor unrolled(Backend& backend, const Workers& workers, const Tensor& x, Layout layout) const {
    if (in_place(layout)) return x;
    Tensor planes = backend.empty(this->planes(), x.dtype());
    const T* const from = x.host<T>().data();
    T* const to = planes.host<T>().data();
    const std::int64_t row_elements = std::max<std::int64_t>(1, channels_ * pitch());
    workers.for_each_chunk(images_ * vertical_.slots,
                           std::max<std::int64_t>(1, elementwise_chunk / row_elements),
                           [&](std::int64_t begin, std::int64_t end) {
                             for (std::int64_t i = begin; i < end; ++i)
                               unroll_row(from, layout, i / vertical_.slots, i % vertical_.slots, to);
                           });
    return planes;
  }

  /// Columns [begin, end) of the rows of `channel`: that of tap (r, s) to out + (r * S + s) * stride.
  template <class T>
  void write(const T* planes, Layout layout, std::int64_t channel, std::int64_t begin, std::int64_t end,
             T* out, std::int64_t stride) const {
    const std::int64_t width = in_place(layout) ? horizontal_.sources : pitch();
    const std::int64_t height = in_place(layout) ? vertical_.sources : vertical_.slots;
    for (std::int64_t tap = 0; tap < taps(); ++tap) {
      const std::int64_t slot = horizontal_.slot_of(tap % horizontal_.taps);
      const std::int64_t column = slot % horizontal_.step * phase_pitch() + slot / horizontal_.step;
      const T* const first =
          planes + (channel * height + vertical_.slot_of(tap / horizontal_.taps)) * width + column;
      write_row(first, channels_ * height * width, vertical_.step * width, begin, end, out + tap * stride);
    }
  }

 private:
  /// Slots of one row with the same remainder modulo the step are adjacent: a tap reads one such phase.
  std::int64_t phase_pitch() const { return (horizontal_.slots + horizontal_.step - 1) / horizontal_.step; }
  std::int64_t pitch() const { return phase_pitch() * horizontal_.step; }

  /// Row `slot` of every channel's plane.
  template <class T>
  void unroll_row(const T* x, Layout layout, std::int64_t image, std::int64_t slot, T* planes) const {
    const std::int64_t distance = slot - vertical_.source_0;
    const std::int64_t row = distance / vertical_.source_step;
    const bool hole = distance < 0 || distance % vertical_.source_step != 0 || row >= vertical_.sources;
    const std::int64_t width = horizontal_.sources, plane = vertical_.sources * width;
    const bool nchw = layout == Layout::nchw;
    for (std::int64_t channel = 0; channel < channels_; ++channel) {
      T* const to = planes + ((image * channels_ + channel) * vertical_.slots + slot) * pitch();
      std::memset(static_cast<void*>(to), 0, static_cast<std::size_t>(pitch()) * sizeof(T));
      if (hole) continue;
      const T* const from = x + image * channels_ * plane +
                            (nchw ? channel * plane + row * width : row * width * channels_ + channel);
      unroll_columns(from, nchw ? 1 : channels_, to);
    }
  }

  template <class T>
  void unroll_columns(const T* from, std::int64_t from_step, T* to) const {
    const UnrolledAxis& axis = horizontal_;
    // Source elements [first, end) have a slot.
    std::int64_t first = axis.source_0 >= 0 ? 0 : (axis.source_step - 1 - axis.source_0) / axis.source_step;
    const std::int64_t end =
        std::min(axis.sources, (axis.slots - axis.source_0 + axis.source_step - 1) / axis.source_step);
    if (first >= end) return;
    if (axis.step == 1 && axis.source_step == 1 && from_step == 1) {
      copy_run(from + first, end - first, to + axis.source_0 + first);
    } else if (axis.step == 1) {
      for (; first < end; ++first) to[axis.source_0 + first * axis.source_step] = from[first * from_step];
    } else {  // phase by phase; then the source step is 1
      for (std::int64_t j = first; j < std::min(end, first + axis.step); ++j) {
        const std::int64_t slot = axis.source_0 + j;
        T* phase = to + slot % axis.step * phase_pitch() + slot / axis.step;
        for (std::int64_t i = j; i < end; i += axis.step) *phase++ = from[i * from_step];
      }
    }
  }

  /// One row of the matrix: `first` is what position 0 of image 0 reads.
  template <class T>
  void write_row(const T* first, std::int64_t image_step, std::int64_t row_step, std::int64_t begin,
                 std::int64_t end, T* out) const {
    std::int64_t width = horizontal_.positions, rows = vertical_.positions;
    if (row_step == width) width *= rows, rows = 1;  // rows follow one another in memory
    std::int64_t image = begin / (rows * width);
    std::int64_t y = begin % (rows * width) / width;
    std::int64_t x = begin % width;
    for (std::int64_t left = end - begin; left > 0; x = 0) {
      const std::int64_t count = std::min(left, width - x);
      copy_run(first + image * image_step + y * row_step + x, count, out);
      out += count;
      left -= count;
      if (++y == rows) y = 0, ++image;
    }
  }

  UnrolledAxis vertical_, horizontal_;
  std::int64_t images_, channels_, group_channels_;
};

}  // namespace fp16lab::engine
