// Pooling. Neighbouring windows that read through the same tap form a run: along a row where channels are
// planes (NCHW), along the channels where they are innermost (NHWC). All arithmetic is loops over such runs.
#include <algorithm>
#include <array>
#include <limits>

#include "engine/backend/checks.hpp"
#include "engine/backend/emulated/backend_impl.hpp"
#include "engine/backend/emulated/element_types.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/platform/vector_clones.hpp"

namespace fp16lab::engine {

using checks::PoolIndexPlan;
using functions::Pool2dPlan;
using functions::WindowAxis;

namespace {

/// Neighbouring windows that are walked together.
constexpr std::int64_t longest_strip = 512;

/// `count` windows, contiguous in memory from `window` on.
struct Strip {
  std::int64_t window, count;
};

/// Windows `window` + i and what one tap reads there: element `place` + i * `step` of memory.
struct Run {
  std::int64_t window, place, step, count;
};

/// In which order the taps of a row of windows come.
enum class Order { ascending, descending };

/// Walks one unit, an image's plane in NCHW or a whole image in NHWC: for each strip of windows in ascending
/// order, begin(strip), run(run) for every tap, row by row, horizontally in `order`, then end(strip).
template <class Begin, class Step, class End>
inline void walk(const Pool2dPlan& plan, Layout layout, std::int64_t unit, Order order, const Begin& begin,
                 const Step& run, const End& end) {
  const WindowAxis &v = plan.vertical, &h = plan.horizontal;
  const bool nchw = layout == Layout::nchw;
  const std::int64_t depth = nchw ? 1 : plan.channels;  // elements at one place
  const std::int64_t places = unit * plan.places() * depth, windows = unit * plan.windows() * depth;
  const auto for_each_tap = [&](std::int64_t p, const auto& body) {
    for (std::int64_t r = 0; r < v.taps; ++r) {
      const std::int64_t row = v.input_of(p, r);
      if (row < 0) continue;
      for (std::int64_t i = 0; i < h.taps; ++i) body(row, order == Order::ascending ? i : h.taps - 1 - i);
    }
  };
  for (std::int64_t p = 0; p < v.output; ++p) {
    if (nchw) {
      for (std::int64_t left = 0; left < h.output; left += longest_strip) {
        const std::int64_t right = std::min(h.output, left + longest_strip);
        const std::int64_t row_of_windows = windows + p * h.output;
        begin(Strip{row_of_windows + left, right - left});
        for_each_tap(p, [&](std::int64_t row, std::int64_t s) {
          const std::int64_t first = std::max(left, h.first_inside(s)),
                             last = std::min(right, h.last_inside(s));
          if (first >= last) return;
          run(Run{row_of_windows + first, places + row * h.input + h.input_of(first, s), h.stride,
                  last - first});
        });
        end(Strip{row_of_windows + left, right - left});
      }
      continue;
    }
    for (std::int64_t q = 0; q < h.output; ++q)
      for (std::int64_t left = 0; left < depth; left += longest_strip) {
        const Strip strip{windows + (p * h.output + q) * depth + left, std::min(depth - left, longest_strip)};
        begin(strip);
        for_each_tap(p, [&](std::int64_t row, std::int64_t s) {
          const std::int64_t column = h.input_of(q, s);
          if (column < 0) return;
          run(Run{strip.window, places + (row * h.input + column) * depth + left, 1, strip.count});
        });
        end(strip);
      }
  }
}

/// How many units of `elements` elements make a chunk: all, if there are too few to pay for waking a thread.
std::int64_t chunk_of(std::int64_t units, std::int64_t elements) {
  constexpr std::int64_t worth_sharing = 4 * elementwise_chunk;
  elements = std::max<std::int64_t>(1, elements);
  if (units * elements < worth_sharing) return std::max<std::int64_t>(1, units);
  return std::max<std::int64_t>(1, elementwise_chunk / 2 / elements);
}

/// Calls body(unit) for all units of `walk`, on all threads.
template <class Body>
void for_each_unit(const Workers& workers, const Pool2dPlan& plan, Layout layout, const Body& body) {
  const bool nchw = layout == Layout::nchw;
  const std::int64_t units = nchw ? plan.images * plan.channels : plan.images;
  workers.for_each_chunk(units, chunk_of(units, plan.places() * (nchw ? 1 : plan.channels)),
                         [&](std::int64_t begin, std::int64_t end) {
                           for (std::int64_t unit = begin; unit < end; ++unit) body(unit);
                         });
}

// ---- maximum ----

// Every element becomes one number, so that the maximum of a window is the maximum of integers in any order:
// above, the value, with -0 and +0 alike and every NaN above everything; below, the complement of its place,
// so that of equal values the first one wins.

template <class Format>
inline std::int64_t rank_of(typename Format::Bits code, std::int64_t place) {
  const auto magnitude = static_cast<std::int64_t>(code & Format::magnitude_mask);
  const std::int64_t value = (code & Format::sign_mask) != 0 ? -magnitude : magnitude;
  const bool nan = magnitude > std::int64_t{Format::infinity};
  return (nan ? std::int64_t{Binary32::magnitude_mask} : value) * (std::int64_t{1} << 32) +
         (std::int64_t{0xffffffff} - place);
}
inline std::int32_t place_of(std::int64_t rank) {
  return static_cast<std::int32_t>(std::int64_t{0xffffffff} - (rank & 0xffffffff));
}
constexpr std::int64_t below_all_ranks = std::numeric_limits<std::int64_t>::min();

template <class Format>
inline void rank_all(const typename Format::Bits* codes, std::int64_t places, std::int64_t depth,
                     std::int64_t* ranks) {
  if (depth == 1) {
    for (std::int64_t i = 0; i < places; ++i) ranks[i] = rank_of<Format>(codes[i], i);
    return;
  }
  for (std::int64_t place = 0; place < places; ++place)
    for (std::int64_t i = place * depth; i < (place + 1) * depth; ++i)
      ranks[i] = rank_of<Format>(codes[i], place);
}

FP16LAB_VECTOR_CLONES
void rank_all(const float* x, std::int64_t places, std::int64_t depth, std::int64_t* ranks) {
  rank_all<Binary32>(reinterpret_cast<const std::uint32_t*>(x), places, depth, ranks);
}
FP16LAB_VECTOR_CLONES
void rank_all(const Float16* x, std::int64_t places, std::int64_t depth, std::int64_t* ranks) {
  rank_all<Binary16>(reinterpret_cast<const std::uint16_t*>(x), places, depth, ranks);
}
FP16LAB_VECTOR_CLONES
void rank_all(const BFloat16* x, std::int64_t places, std::int64_t depth, std::int64_t* ranks) {
  rank_all<BrainFloat16>(reinterpret_cast<const std::uint16_t*>(x), places, depth, ranks);
}

/// The places of the maxima of one unit's windows. `ranks` are those of the unit.
FP16LAB_VECTOR_CLONES
void max_pool_unit(const Pool2dPlan& plan, Layout layout, std::int64_t unit, const std::int64_t* ranks,
                   std::int32_t* index) {
  std::array<std::int64_t, longest_strip> best;
  const std::int64_t first_element = unit * plan.places() * (layout == Layout::nchw ? 1 : plan.channels);
  std::int64_t first_window = 0;
  walk(
      plan, layout, unit, Order::ascending,
      [&](const Strip& strip) {
        first_window = strip.window;
        std::fill_n(best.begin(), strip.count, below_all_ranks);
      },
      [&](const Run& run) {
        std::int64_t* const to = best.data() + (run.window - first_window);
        const std::int64_t* const from = ranks + (run.place - first_element);
        FP16LAB_INDEPENDENT_ITERATIONS
        for (std::int64_t i = 0; i < run.count; ++i) {
          const std::int64_t rank = from[i * run.step];
          to[i] = rank > to[i] ? rank : to[i];
        }
      },
      [&](const Strip& strip) {
        for (std::int64_t i = 0; i < strip.count; ++i)
          index[strip.window + i] = place_of(best[static_cast<std::size_t>(i)]);
      });
}

// ---- average ----
// Sums start from -0, because -0 + x is x for every x.

FP16LAB_VECTOR_CLONES
void average_unit(const Pool2dPlan& plan, Layout layout, std::int64_t unit, const float* x, float* out) {
  const auto divisor = static_cast<float>(plan.vertical.taps * plan.horizontal.taps);
  walk(
      plan, layout, unit, Order::ascending,
      [&](const Strip& strip) { std::fill_n(out + strip.window, strip.count, -0.0f); },
      [&](const Run& run) {
        FP16LAB_INDEPENDENT_ITERATIONS
        for (std::int64_t i = 0; i < run.count; ++i) out[run.window + i] += x[run.place + i * run.step];
      },
      [&](const Strip& strip) {
        for (std::int64_t i = strip.window; i < strip.window + strip.count; ++i)
          out[i] = canonicalize(out[i] / divisor);
      });
}

/// Within a row of windows a place meets later ones through earlier taps, hence the descending order.
FP16LAB_VECTOR_CLONES
void average_transposed_unit(const Pool2dPlan& plan, Layout layout, std::int64_t unit, const float* x,
                             float* out) {
  const auto divisor = static_cast<float>(plan.vertical.taps * plan.horizontal.taps);
  const std::int64_t elements = plan.places() * (layout == Layout::nchw ? 1 : plan.channels);
  const auto nothing = [](const Strip&) {};
  float* const places = out + unit * elements;
  std::fill_n(places, elements, 0.0f);
  const auto for_each_held = [&](const auto& change) {
    walk(
        plan, layout, unit, Order::descending, nothing,
        [&](const Run& run) {
          FP16LAB_INDEPENDENT_ITERATIONS
          for (std::int64_t i = 0; i < run.count; ++i) change(out[run.place + i * run.step], run.window + i);
        },
        nothing);
  };
  for_each_held([](float& sum, std::int64_t) { sum = -0.0f; });
  for_each_held([x](float& sum, std::int64_t window) { sum += x[window]; });
  for (std::int64_t i = 0; i < elements; ++i) places[i] = canonicalize(places[i] / divisor);
}

// ---- by index ----

/// Calls body(plane's first element, first window, distance between neighbours in memory) for every plane.
template <class Body>
void for_each_plane(const Workers& workers, const PoolIndexPlan& plan, Layout layout, const Body& body) {
  const std::int64_t planes = plan.images * plan.channels;
  workers.for_each_chunk(planes, chunk_of(planes, plan.windows), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t image = i / plan.channels * plan.channels, channel = i % plan.channels;
      if (layout == Layout::nchw)
        body((image + channel) * plan.places, (image + channel) * plan.windows, 1);
      else
        body(image * plan.places + channel, image * plan.windows + channel, plan.channels);
    }
  });
}

template <class T>
void pick_all(const Workers& workers, const PoolIndexPlan& plan, Layout layout, const Tensor& x,
              const Tensor& index, Tensor& out) {
  const T* const from = x.host<T>().data();
  T* const to = out.host<T>().data();
  const std::int32_t* const place = index.host<std::int32_t>().data();
  for_each_plane(workers, plan, layout,
                 [=, &plan](std::int64_t plane, std::int64_t window, std::int64_t step) {
                   for (std::int64_t i = 0; i < plan.windows; ++i, window += step)
                     to[window] = canonical(from[plane + place[window] * step]);
                 });
}

}  // namespace

void EmulatedBackend::do_max_pool2d(const Tensor& x, const Pool2dGeometry& geometry, Tensor& out,
                                    Tensor& index, const Pool2dPlan& plan) {
  const FloatingPointScope scope;
  const std::int64_t depth = geometry.layout == Layout::nchw ? 1 : plan.channels;
  const std::int64_t units = plan.images * plan.channels / std::max<std::int64_t>(1, depth);
  const std::int64_t elements = plan.places() * depth;
  const std::int64_t chunk = std::max<std::int64_t>(1, chunk_of(units, elements));
  const bool shared = chunk < units;
  const Tensor scratch =
      empty(Shape{shared ? workers_.threads() : 1, elements, static_cast<std::int64_t>(sizeof(std::int64_t))},
            DType::u8);
  const auto pool = [&](const auto* from) {
    const auto pool_one = [&](std::int64_t unit, std::int64_t seat) {
      auto* const ranks = reinterpret_cast<std::int64_t*>(scratch.data()) + seat * elements;
      rank_all(from + unit * elements, plan.places(), depth, ranks);
      max_pool_unit(plan, geometry.layout, unit, ranks, index.host<std::int32_t>().data());
    };
    workers_.for_each_task((units + chunk - 1) / chunk, [&](std::int64_t task, std::int64_t seat) {
      for (std::int64_t unit = task * chunk; unit < std::min(units, (task + 1) * chunk); ++unit)
        pool_one(unit, seat);
    });
  };
  const PoolIndexPlan places{plan.images, plan.channels, plan.places(), plan.windows()};
  with_element_type(x.dtype(), [&](auto tag) {
    using T = decltype(tag);
    pool(static_cast<const T*>(x.host<T>().data()));
    pick_all<T>(workers_, places, geometry.layout, x, index, out);
  });
}

void EmulatedBackend::do_average_pool2d(const Tensor& x, const Pool2dGeometry& geometry, Tensor& out,
                                        const Pool2dPlan& plan) {
  const FloatingPointScope scope;
  const Tensor wide = widened(x);
  const Tensor result = out.dtype() == DType::f32 ? out : empty(out.shape(), DType::f32);
  for_each_unit(workers_, plan, geometry.layout, [&](std::int64_t unit) {
    average_unit(plan, geometry.layout, unit, wide.host<float>().data(), result.host<float>().data());
  });
  store(result, out, nullptr);
}

void EmulatedBackend::do_average_pool2d_transposed(const Tensor& x, const Pool2dGeometry& geometry,
                                                   Tensor& out, const Pool2dPlan& plan) {
  const FloatingPointScope scope;
  const Tensor wide = widened(x);
  const Tensor result = out.dtype() == DType::f32 ? out : empty(out.shape(), DType::f32);
  for_each_unit(workers_, plan, geometry.layout, [&](std::int64_t unit) {
    average_transposed_unit(plan, geometry.layout, unit, wide.host<float>().data(),
                            result.host<float>().data());
  });
  store(result, out, nullptr);
}

void EmulatedBackend::do_pool_pick(const Tensor& x, const Tensor& index, Layout layout, Tensor& out,
                                   const checks::PoolIndexPlan& plan) {
  checks::index_range("pool_pick", index.host<std::int32_t>(), plan.places);
  with_element_type(x.dtype(),
                    [&](auto tag) { pick_all<decltype(tag)>(workers_, plan, layout, x, index, out); });
}

void EmulatedBackend::do_pool_place(const Tensor& x, const Tensor& index, Layout layout, Tensor& out,
                                    const checks::PoolIndexPlan& plan) {
  const std::int32_t* const place = index.host<std::int32_t>().data();
  checks::index_range("pool_place", index.host<std::int32_t>(), plan.places);
  const Tensor wide = widened(x);
  Tensor result = out.dtype() == DType::f32 ? out : empty(out.shape(), DType::f32);
  fill(result, 0.0);
  const float* const from = wide.host<float>().data();
  float* const sums = result.host<float>().data();
  for_each_plane(workers_, plan, layout,
                 [=, &plan](std::int64_t plane, std::int64_t window, std::int64_t step) {
                   // As in the transposed average, sums start from -0, and only where there is one.
                   for (std::int64_t i = 0; i < plan.windows; ++i)
                     sums[plane + place[window + i * step] * step] = -0.0f;
                   for (std::int64_t i = 0; i < plan.windows; ++i, window += step) {
                     float& sum = sums[plane + place[window] * step];
                     sum = canonicalize(sum + from[window]);
                   }
                 });
  store(result, out, nullptr);
}

}  // namespace fp16lab::engine
