// Counting exponents by strips: every strip of the elements counts into a column of a table, whose columns
// are added afterwards. One algorithm of Thrust's parallel primitives for the OpenMP back end and for CUDA.
// It reads every element once and needs no atomic operation and no memory but its table.
//
// Included by exactly two sources: numerics/histogram/exponent_count_thrust.cpp with the Thrust that compiles
// for OpenMP, and engine/backend/cuda/verbs/thrust_histogram.cu with the one that comes with nvcc. They are
// different versions and must not meet: neither in one translation unit nor, because templates of both have
// the same names, in the linker. So the first one sets THRUST_WRAPPED_NAMESPACE, everything of Thrust is
// named through THRUST_NS_QUALIFIER, and what is defined here is local to its translation unit.
#pragma once

#include <thrust/fill.h>
#include <thrust/for_each.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/transform.h>

#include <cstddef>
#include <cstdint>

#include "numerics/convert/convert.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/histogram/exponent_histogram.hpp"
#include "numerics/platform/portability.hpp"

namespace fp16lab {
namespace {  // NOLINT(google-build-namespaces): see above

/// Rows of the table: those for the bins, then these. Counts are added; for the extremes, in the last two
/// rows, the greatest is taken, so the smallest magnitude m is kept as infinity - m.
inline constexpr std::uint32_t row_of_zero = ExponentHistogram::bin_count, row_of_infinity = row_of_zero + 1,
                               row_of_nan = row_of_zero + 2, row_of_smallest = row_of_zero + 3,
                               row_of_greatest = row_of_zero + 4, row_count = row_of_zero + 5;
/// The columns that are added first make so many sums a row.
inline constexpr std::uint32_t part_count = 64;
/// Elements that are counted at once: a counter has 32 bits.
inline constexpr std::uint64_t counted_at_once = std::uint64_t{1} << 31;

/// Where strips and the counters of a column are: adjacent threads of a GPU read adjacent memory; a thread of
/// a CPU has memory of its own.
struct StripLayout {
  std::uint32_t strips = 1;
  bool side_by_side = false;

  FP16LAB_HD std::size_t at(std::uint32_t row, std::uint32_t strip) const {
    return side_by_side ? std::size_t{row} * strips + strip : std::size_t{strip} * row_count + row;
  }
  std::size_t table_size() const { return std::size_t{strips} * row_count; }
};

FP16LAB_HD inline std::uint32_t magnitude_of(float value) {
  return bits_of(value) & Binary32::magnitude_mask;
}
template <class F>
FP16LAB_HD std::uint32_t magnitude_of(SmallFloat<F> value) {
  return magnitude_of(widen(value));
}

template <class T>
struct CountStrip {
  const T* elements;
  std::uint64_t size;
  StripLayout layout;
  std::uint32_t* table;

  FP16LAB_HD void operator()(std::uint32_t strip) const {
    const std::uint64_t each = (size + layout.strips - 1) / layout.strips;
    const std::uint64_t first = layout.side_by_side ? strip : each * strip,
                        last = layout.side_by_side || size < first + each ? size : first + each,
                        step = layout.side_by_side ? layout.strips : 1;
    std::uint32_t low = 0, high = 0;
    for (std::uint64_t i = first; i < last; i += step) {
      const std::uint32_t magnitude = magnitude_of(elements[i]);
      std::uint32_t row = row_of_nan;
      if (magnitude == 0) {
        row = row_of_zero;
      } else if (magnitude < Binary32::infinity) {
        row = static_cast<std::uint32_t>(ExponentHistogram::bin_of(magnitude));
        const std::uint32_t distance = Binary32::infinity - magnitude;
        low = distance > low ? distance : low;
        high = magnitude > high ? magnitude : high;
      } else if (magnitude == Binary32::infinity) {
        row = row_of_infinity;
      }
      ++table[layout.at(row, strip)];
    }
    table[layout.at(row_of_smallest, strip)] = low;
    table[layout.at(row_of_greatest, strip)] = high;
  }
};

FP16LAB_HD inline std::uint64_t joined(std::uint32_t row, std::uint64_t a, std::uint64_t b) {
  return row < row_of_smallest ? a + b : a > b ? a : b;
}
/// Joins the columns part, part + part_count, ... of a row; index = row * part_count + part.
struct JoinColumns {
  const std::uint32_t* table;
  StripLayout layout;
  FP16LAB_HD std::uint64_t operator()(std::uint32_t index) const {
    const std::uint32_t row = index / part_count;
    std::uint64_t total = 0;
    for (std::uint32_t strip = index % part_count; strip < layout.strips; strip += part_count)
      total = joined(row, total, table[layout.at(row, strip)]);
    return total;
  }
};
struct JoinParts {
  const std::uint64_t* parts;
  FP16LAB_HD std::uint64_t operator()(std::uint32_t row) const {
    std::uint64_t total = 0;
    for (std::uint32_t part = 0; part < part_count; ++part)
      total = joined(row, total, parts[row * part_count + part]);
    return total;
  }
};

/// totals[row] of elements[0 .. size), size <= counted_at_once. `table` has room for layout.table_size()
/// counters, `parts` for row_count * part_count and `totals` for row_count; all in memory that the policy's
/// algorithms work on.
template <class Policy, class T>
void count_by_strips(const Policy& policy, const T* elements, std::uint64_t size, const StripLayout& layout,
                     std::uint32_t* table, std::uint64_t* parts, std::uint64_t* totals) {
  namespace parallel = THRUST_NS_QUALIFIER;
  const parallel::counting_iterator<std::uint32_t> first(0);
  parallel::fill(policy, table, table + layout.table_size(), std::uint32_t{0});
  parallel::for_each(policy, first, first + layout.strips, CountStrip<T>{elements, size, layout, table});
  parallel::transform(policy, first, first + row_count * part_count, parts, JoinColumns{table, layout});
  parallel::transform(policy, first, first + row_count, totals, JoinParts{parts});
}

inline void add_totals(const std::uint64_t* totals, ExponentHistogram& histogram) {
  ExponentHistogram part;
  for (std::size_t bin = 0; bin < part.bins.size(); ++bin) part.bins[bin] = totals[bin];
  part.zero = totals[row_of_zero];
  part.infinite = totals[row_of_infinity];
  part.nan = totals[row_of_nan];
  if (totals[row_of_greatest] != 0) {
    part.smallest = Binary32::infinity - static_cast<std::uint32_t>(totals[row_of_smallest]);
    part.greatest = static_cast<std::uint32_t>(totals[row_of_greatest]);
  }
  histogram += part;
}

}  // namespace
}  // namespace fp16lab
