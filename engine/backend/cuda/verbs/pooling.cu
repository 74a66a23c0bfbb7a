// Pooling: one thread for every output element (in NHWC for every 16 bytes of channels), which gathers what
// belongs to it in the order that backend.hpp states. No two threads add to the same sum. pool_place, whose
// index may name any place, first finds the first and the last window that name each one, and walks from one
// to the other: after a pooling with windows side by side that is at most one.
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "engine/backend/checks.hpp"
#include "engine/backend/cuda/runtime/element_types.hpp"
#include "engine/backend/cuda/runtime/fast_division.hpp"
#include "engine/backend/cuda/runtime/instructions.hpp"
#include "engine/backend/cuda/runtime/launch.hpp"
#include "engine/backend/cuda/verbs/backend_impl.hpp"
#include "engine/backend/window_functions.hpp"
#include "numerics/formats/bits.hpp"

namespace fp16lab::engine::gpu {

using functions::Divisor;
using functions::Pool2dPlan;
using functions::WindowAxis;

namespace {

constexpr std::uint32_t threads_per_block = 256;

/// Neighbouring channels that one thread works on, loaded and stored together.
template <class T, int width>
struct alignas(width * sizeof(T) < 16 ? width * sizeof(T) : 16) Channels {
  T values[width];
};

/// Where an output element is: `unit` is an image's plane in NCHW, an image in NHWC; `pack` counts the packs
/// of one place.
struct Spot {
  std::int64_t unit, row, column, pack;
};

/// The output as packs (unit, row, column, pack), row-major.
struct OutputMap {
  std::int64_t count = 0;  ///< packs
  std::int64_t packs = 1;  ///< at one place; 1 in NCHW
  Divisor by_pack, by_column, by_row;

  OutputMap(const Pool2dPlan& plan, Layout layout, std::int64_t rows, std::int64_t columns, int width)
      : packs(layout == Layout::nchw ? 1 : plan.channels / width), by_column(columns), by_row(rows) {
    by_pack = Divisor(packs > 0 ? packs : 1);
    count = plan.images * rows * columns * (layout == Layout::nchw ? plan.channels : packs);
  }
  __device__ __forceinline__ Spot operator()(std::int64_t i) const {
    Spot spot{};
    spot.pack = by_pack.take(i);
    spot.column = by_column.take(i);
    spot.row = by_row.take(i);
    spot.unit = i;
    return spot;
  }
};

struct Range {
  std::int64_t begin, end;
};
/// The places [begin, end) that window `o` holds.
__device__ __forceinline__ Range places_of(const WindowAxis& axis, std::int64_t o) {
  const std::int64_t first = o * axis.stride - axis.padding, last = first + axis.taps;
  return {first > 0 ? first : 0, last < axis.input ? last : axis.input};
}
/// The windows [begin, end) that hold place `i`.
__device__ __forceinline__ Range windows_of(const WindowAxis& axis, const Divisor& by_stride,
                                            std::int64_t i) {
  const std::int64_t from_start = i + axis.padding;  // distance from the start of window 0
  const std::int64_t missed = from_start - axis.taps;
  const std::int64_t begin = missed < 0 ? 0 : by_stride.quotient(missed) + 1;
  const std::int64_t end = by_stride.quotient(from_start) + 1;
  return {begin, end < axis.output ? end : axis.output};
}

/// NaN is above everything; the first of equal values and of NaNs stays.
__device__ __forceinline__ bool above(float candidate, float best) {
  if (is_nan(best)) return false;
  return is_nan(candidate) || candidate > best;
}

template <class T, int width>
__global__ void max_pool(const Channels<T, width>* x, WindowAxis vertical, WindowAxis horizontal,
                         OutputMap map, Channels<T, width>* out, Channels<std::int32_t, width>* index) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < map.count; i += stride) {
    const Spot spot = map(i);
    const Range rows = places_of(vertical, spot.row), columns = places_of(horizontal, spot.column);
    const Channels<T, width>* const unit =
        x + spot.unit * vertical.input * horizontal.input * map.packs + spot.pack;
    float best[width];
    Channels<std::int32_t, width> places;
    for (int j = 0; j < width; ++j) best[j] = 0.0f, places.values[j] = -1;
    for (std::int64_t row = rows.begin; row < rows.end; ++row)
      for (std::int64_t column = columns.begin; column < columns.end; ++column) {
        const std::int64_t place = row * horizontal.input + column;
        const Channels<T, width> pack = unit[place * map.packs];
        for (int j = 0; j < width; ++j) {
          const float value = loaded(pack.values[j]);
          if (places.values[j] >= 0 && !above(value, best[j])) continue;
          best[j] = value;
          places.values[j] = static_cast<std::int32_t>(place);
        }
      }
    Channels<T, width> maxima;
    for (int j = 0; j < width; ++j) maxima.values[j] = stored<T>(canonicalize(best[j]));
    out[i] = maxima;
    index[i] = places;
  }
}

/// Sums that begin with their first summand: -0 + x is x for every x.
template <class T, int width>
struct Sums {
  float values[width];

  __device__ __forceinline__ explicit Sums(float start) {
    for (int j = 0; j < width; ++j) values[j] = start;
  }
  __device__ __forceinline__ void add(const Channels<T, width>& x) {
    for (int j = 0; j < width; ++j) values[j] = values[j] + loaded(x.values[j]);
  }
  __device__ __forceinline__ Channels<T, width> divided(float divisor) const {
    Channels<T, width> quotients;
    for (int j = 0; j < width; ++j) quotients.values[j] = stored<T>(canonicalize(values[j] / divisor));
    return quotients;
  }
};

template <class T, int width>
__global__ void average_pool(const Channels<T, width>* x, WindowAxis vertical, WindowAxis horizontal,
                             OutputMap map, float divisor, Channels<T, width>* out) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < map.count; i += stride) {
    const Spot spot = map(i);
    const Range rows = places_of(vertical, spot.row), columns = places_of(horizontal, spot.column);
    const Channels<T, width>* const unit =
        x + spot.unit * vertical.input * horizontal.input * map.packs + spot.pack;
    Sums<T, width> sums(-0.0f);  // every window holds a place
    for (std::int64_t row = rows.begin; row < rows.end; ++row)
      for (std::int64_t column = columns.begin; column < columns.end; ++column)
        sums.add(unit[(row * horizontal.input + column) * map.packs]);
    out[i] = sums.divided(divisor);
  }
}

template <class T, int width>
__global__ void average_pool_transposed(const Channels<T, width>* x, WindowAxis vertical,
                                        WindowAxis horizontal, Divisor by_vertical_stride,
                                        Divisor by_horizontal_stride, OutputMap map, float divisor,
                                        Channels<T, width>* out) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < map.count; i += stride) {
    const Spot spot = map(i);
    const Range rows = windows_of(vertical, by_vertical_stride, spot.row),
                columns = windows_of(horizontal, by_horizontal_stride, spot.column);
    const Channels<T, width>* const unit =
        x + spot.unit * vertical.output * horizontal.output * map.packs + spot.pack;
    const bool held = rows.begin < rows.end && columns.begin < columns.end;
    Sums<T, width> sums(held ? -0.0f : 0.0f);
    for (std::int64_t row = rows.begin; row < rows.end; ++row)
      for (std::int64_t column = columns.begin; column < columns.end; ++column)
        sums.add(unit[(row * horizontal.output + column) * map.packs]);
    out[i] = sums.divided(divisor);
  }
}

// ---- by index ----

/// Windows and places of an index: `step` elements apart in memory, and in NHWC that many planes interleaved.
struct IndexMap {
  std::int64_t planes, places, windows, step;
  Divisor by_window_run, by_place_run, by_step;

  IndexMap(const checks::PoolIndexPlan& plan, Layout layout)
      : planes(plan.images * plan.channels),
        places(plan.places),
        windows(plan.windows),
        step(layout == Layout::nchw ? 1 : plan.channels) {
    by_window_run = divisor(windows * step);
    by_place_run = divisor(places * step);
    by_step = divisor(step);
  }

 private:
  static Divisor divisor(std::int64_t d) { return Divisor(d > 0 ? d : 1); }
};

/// An element of a run of `extent` * step elements: the element of its plane with number 0, and its own
/// number.
struct Member {
  std::int64_t run, number, lane;
};
__device__ __forceinline__ Member member_of(std::int64_t i, const Divisor& by_run, const Divisor& by_step) {
  std::int64_t run = i;
  std::int64_t number = by_run.take(run);
  const std::int64_t lane = by_step.take(number);
  return {run, number, lane};
}

template <class T>
__global__ void pick_places(const T* x, const std::int32_t* index, IndexMap map, T* out, IndexCheck check) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x, count = map.planes * map.windows;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    const Member window = member_of(i, map.by_window_run, map.by_step);
    const std::int32_t place = index[i];
    if (!index_in_range(check, i, place)) continue;
    out[i] = stored<T>(canonicalize(loaded(x[(window.run * map.places + place) * map.step + window.lane])));
  }
}

/// The windows that name a place are in [first << shift, (last + 1) << shift). Both begin with all bits set;
/// a window's number >> shift is less, so that `first` shows whether there is any.
struct NamedBy {
  std::uint32_t first;
  std::uint32_t minus_last;  ///< 2^32 - 1 - last: the least one is of the last window
};

/// Finds the windows that name each place. Minima of integers are the same in any order.
__global__ void find_named(const std::int32_t* index, IndexMap map, int shift, NamedBy* named,
                           IndexCheck check) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x, count = map.planes * map.windows;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    const Member window = member_of(i, map.by_window_run, map.by_step);
    const std::int32_t place = index[i];
    if (!index_in_range(check, i, place)) continue;
    NamedBy* const by = named + (window.run * map.places + place) * map.step + window.lane;
    const auto number = static_cast<std::uint32_t>(window.number >> shift);
    atomicMin(&by->first, number);
    atomicMin(&by->minus_last, 0xffffffffu - number);
  }
}

template <class T>
__global__ void place_sums(const T* x, const std::int32_t* index, const NamedBy* named, IndexMap map,
                           int shift, T* out) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x, count = map.planes * map.places;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    const NamedBy by = named[i];
    if (by.first == 0xffffffffu) {
      out[i] = stored<T>(0.0f);
      continue;
    }
    const Member place = member_of(i, map.by_place_run, map.by_step);
    const std::int64_t base = place.run * map.windows * map.step + place.lane;
    const std::int64_t first = std::int64_t{by.first} << shift,
                       beyond = (std::int64_t{0xffffffffu - by.minus_last} + 1) << shift,
                       last = beyond < map.windows ? beyond : map.windows;
    float sum = -0.0f;  // -0 + x is x
    for (std::int64_t window = first; window < last; ++window) {
      const std::int64_t element = base + window * map.step;
      if (index[element] == place.number) sum = sum + loaded(x[element]);
    }
    out[i] = stored<T>(canonicalize(sum));
  }
}

// ---- plans ----

/// Calls visit(width) with the channels that a thread takes: as many as 16 bytes hold where all tensors allow
/// it.
template <class T, class Visitor>
void with_width(const Pool2dPlan& plan, Layout layout, std::initializer_list<const void*> tensors,
                const Visitor& visit) {
  constexpr int most = 16 / sizeof(T);
  bool wide = layout == Layout::nhwc && plan.channels % most == 0;
  for (const void* address : tensors) wide = wide && reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
  if (wide)
    visit(std::integral_constant<int, most>{});
  else
    visit(std::integral_constant<int, 1>{});
}

LaunchShape shape_for(std::int64_t count) {
  return {.x = blocks_for(count, threads_per_block), .threads = threads_per_block};
}

/// The kernel's extent as FP32; beyond 2^24 rounded to nearest even.
float window_size(const Pool2dPlan& plan) {
  return static_cast<float>(plan.vertical.taps * plan.horizontal.taps);
}

}  // namespace

void CudaBackend::do_max_pool2d(const Tensor& x, const Pool2dGeometry& geometry, Tensor& out, Tensor& index,
                                const Pool2dPlan& plan) {
  with_element_type(x.dtype(), [&](auto tag) {
    using T = decltype(tag);
    with_width<T>(plan, geometry.layout, {x.data(), out.data(), index.data()}, [&](auto chosen) {
      constexpr int width = chosen;
      const OutputMap map(plan, geometry.layout, plan.vertical.output, plan.horizontal.output, width);
      launch(runtime_, "max_pool2d", &max_pool<T, width>, shape_for(map.count),
             elements<const Channels<T, width>>(x), plan.vertical, plan.horizontal, map,
             elements<Channels<T, width>>(out), elements<Channels<std::int32_t, width>>(index));
    });
  });
}

void CudaBackend::do_average_pool2d(const Tensor& x, const Pool2dGeometry& geometry, Tensor& out,
                                    const Pool2dPlan& plan) {
  with_element_type(x.dtype(), [&](auto tag) {
    using T = decltype(tag);
    with_width<T>(plan, geometry.layout, {x.data(), out.data()}, [&](auto chosen) {
      constexpr int width = chosen;
      const OutputMap map(plan, geometry.layout, plan.vertical.output, plan.horizontal.output, width);
      launch(runtime_, "average_pool2d", &average_pool<T, width>, shape_for(map.count),
             elements<const Channels<T, width>>(x), plan.vertical, plan.horizontal, map, window_size(plan),
             elements<Channels<T, width>>(out));
    });
  });
}

void CudaBackend::do_average_pool2d_transposed(const Tensor& x, const Pool2dGeometry& geometry, Tensor& out,
                                               const Pool2dPlan& plan) {
  with_element_type(x.dtype(), [&](auto tag) {
    using T = decltype(tag);
    with_width<T>(plan, geometry.layout, {x.data(), out.data()}, [&](auto chosen) {
      constexpr int width = chosen;
      const OutputMap map(plan, geometry.layout, plan.vertical.input, plan.horizontal.input, width);
      launch(runtime_, "average_pool2d_transposed", &average_pool_transposed<T, width>, shape_for(map.count),
             elements<const Channels<T, width>>(x), plan.vertical, plan.horizontal,
             Divisor(plan.vertical.stride), Divisor(plan.horizontal.stride), map, window_size(plan),
             elements<Channels<T, width>>(out));
    });
  });
}

void CudaBackend::do_pool_pick(const Tensor& x, const Tensor& index, Layout layout, Tensor& out,
                               const checks::PoolIndexPlan& plan) {
  const IndexMap map(plan, layout);
  with_element_type(x.dtype(), [&](auto tag) {
    using T = decltype(tag);
    launch(runtime_, "pool_pick", &pick_places<T>, shape_for(out.element_count()), elements<const T>(x),
           elements<const std::int32_t>(index), map, elements<T>(out),
           index_check(IndexVerb::pool_pick, index, map.places));
  });
}

void CudaBackend::do_pool_place(const Tensor& x, const Tensor& index, Layout layout, Tensor& out,
                                const checks::PoolIndexPlan& plan) {
  const IndexMap map(plan, layout);
  if (out.element_count() == 0 && index.element_count() == 0) return;
  int shift = 0;
  while (map.windows >> shift >= std::int64_t{0xffffffff}) ++shift;
  Tensor holder;
  auto* const named = scratch<NamedBy>(out.element_count(), holder);
  runtime_.set_bytes(holder.data(), 0xff, holder.byte_count());
  launch(runtime_, "pool_place, windows of places", &find_named, shape_for(index.element_count()),
         elements<const std::int32_t>(index), map, shift, named,
         index_check(IndexVerb::pool_place, index, map.places));
  with_element_type(x.dtype(), [&](auto tag) {
    using T = decltype(tag);
    launch(runtime_, "pool_place", &place_sums<T>, shape_for(out.element_count()), elements<const T>(x),
           elements<const std::int32_t>(index), static_cast<const NamedBy*>(named), map, shift,
           elements<T>(out));
  });
}

}  // namespace fp16lab::engine::gpu
