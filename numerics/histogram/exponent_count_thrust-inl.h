// Counting exponents by sorting: magnitudes are sorted, and the place where the numbers of a bin end, less
// the place where those of the bin before it end, is its count. One algorithm of Thrust's parallel primitives
// for the OpenMP back end and for CUDA.
//
// Included by exactly two sources: numerics/histogram/exponent_count_thrust.cpp with the Thrust that compiles
// for OpenMP, and engine/backend/cuda/verbs/sorted_histogram.cu with the one that comes with nvcc. They are
// different versions and must not meet: neither in one translation unit nor, because templates of both have
// the same names, in the linker. So the first one sets THRUST_WRAPPED_NAMESPACE, everything of Thrust is
// named through THRUST_NS_QUALIFIER, and what is defined here is local to its translation unit.
#pragma once

#include <thrust/adjacent_difference.h>
#include <thrust/binary_search.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/sort.h>
#include <thrust/transform.h>

#include <cstddef>
#include <cstdint>

#include "numerics/convert/convert.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/histogram/exponent_histogram.hpp"
#include "numerics/platform/portability.hpp"

namespace fp16lab {
namespace {  // NOLINT(google-build-namespaces): see above

/// Keys are FP32 magnitudes as bits, in whose order zeros come first, then the bins, infinities and NaN. An
/// edge is the last key of its class.
inline constexpr std::uint32_t edge_of_zero = 0;
inline constexpr std::uint32_t edge_of_infinity = ExponentHistogram::bin_count + 1;
inline constexpr std::uint32_t edge_count = edge_of_infinity + 2;
/// counts has these behind those of the edges: FP32 bits of the extremes, 0 for none.
inline constexpr std::uint32_t slot_of_smallest = edge_count;
inline constexpr std::uint32_t slot_of_greatest = edge_count + 1;
inline constexpr std::uint32_t slot_count = edge_count + 2;

struct KeyOf {
  FP16LAB_HD std::uint32_t operator()(float value) const { return bits_of(value) & Binary32::magnitude_mask; }
  template <class F>
  FP16LAB_HD std::uint32_t operator()(SmallFloat<F> value) const {
    return (*this)(widen(value));
  }
};
struct EdgeOf {
  FP16LAB_HD std::uint32_t operator()(std::uint32_t index) const {
    if (index == edge_of_zero) return 0;
    if (index < edge_of_infinity) return ExponentHistogram::greatest_of_bin(static_cast<int>(index) - 1);
    return index == edge_of_infinity ? Binary32::infinity : ~std::uint32_t{0};
  }
};
/// The extremes lie at both ends of the finite keys that are not zero.
struct ExtremeOf {
  const std::uint32_t* keys;
  const std::uint64_t* ends;
  FP16LAB_HD std::uint64_t operator()(std::uint32_t slot) const {
    const std::uint64_t first = ends[edge_of_zero], end = ends[edge_of_infinity - 1];
    return first == end ? 0 : keys[slot == slot_of_smallest ? first : end - 1];
  }
};

/// counts[edge] = how many of elements[0 .. size) are in its class, and the extremes. `keys` has room for
/// `size` keys, `ends` for edge_count and `counts` for slot_count; all in memory that the policy's algorithms
/// work on.
template <class Policy, class T>
void count_by_sorting(const Policy& policy, const T* elements, std::ptrdiff_t size, std::uint32_t* keys,
                      std::uint64_t* ends, std::uint64_t* counts) {
  namespace parallel = THRUST_NS_QUALIFIER;
  parallel::transform(policy, elements, elements + size, keys, KeyOf{});
  parallel::sort(policy, keys, keys + size);
  const parallel::counting_iterator<std::uint32_t> first(0), first_extreme(slot_of_smallest);
  const auto edges = parallel::make_transform_iterator(first, EdgeOf{});
  parallel::upper_bound(policy, keys, keys + size, edges, edges + edge_count, ends);
  parallel::adjacent_difference(policy, ends, ends + edge_count, counts);
  parallel::transform(policy, first_extreme, first_extreme + 2, counts + slot_of_smallest,
                      ExtremeOf{keys, ends});
}

inline void add_counts(const std::uint64_t* counts, ExponentHistogram& histogram) {
  ExponentHistogram part;
  for (std::size_t bin = 0; bin < part.bins.size(); ++bin) part.bins[bin] = counts[bin + 1];
  part.zero = counts[edge_of_zero];
  part.infinite = counts[edge_of_infinity];
  part.nan = counts[edge_of_infinity + 1];
  part.smallest = static_cast<std::uint32_t>(counts[slot_of_smallest]);
  part.greatest = static_cast<std::uint32_t>(counts[slot_of_greatest]);
  histogram += part;
}

}  // namespace
}  // namespace fp16lab
