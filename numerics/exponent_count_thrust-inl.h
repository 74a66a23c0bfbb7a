// Counting exponents by sorting: values become unsigned keys, the keys are sorted, and the place where each key ends,
// less the place where the one before it ends, is its count. One algorithm of Thrust's parallel primitives for the
// OpenMP back end and for CUDA.
//
// Included by exactly two sources: numerics/exponent_count_thrust.cpp with the Thrust that compiles for OpenMP, and
// engine/backend/cuda/sorted_histogram.cu with the one that comes with nvcc. They are different versions and must not
// meet: neither in one translation unit nor, because templates of both have the same names, in the linker. So the first
// one sets THRUST_WRAPPED_NAMESPACE, everything of Thrust is named through THRUST_NS_QUALIFIER, and what is defined
// here is local to its translation unit.
#pragma once

#include <thrust/adjacent_difference.h>
#include <thrust/binary_search.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/sort.h>
#include <thrust/transform.h>

#include <cstddef>
#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/convert.hpp"
#include "numerics/exponent_histogram.hpp"
#include "numerics/portability.hpp"

namespace fp16lab {
namespace {  // NOLINT(google-build-namespaces): see above

/// Keys in ascending order: the bins, then these.
inline constexpr std::uint32_t key_of_zero = ExponentHistogram::bin_count;
inline constexpr std::uint32_t key_of_infinity = key_of_zero + 1;
inline constexpr std::uint32_t key_of_nan = key_of_zero + 2;
inline constexpr std::uint32_t key_count = key_of_zero + 3;

struct KeyOf {
  FP16LAB_HD std::uint16_t operator()(float value) const {
    const std::uint32_t magnitude = bits_of(value) & Binary32::magnitude_mask;
    if (magnitude == 0) return static_cast<std::uint16_t>(key_of_zero);
    if (magnitude < Binary32::infinity)
      return static_cast<std::uint16_t>(ExponentHistogram::bin_of(magnitude));
    return static_cast<std::uint16_t>(magnitude == Binary32::infinity ? key_of_infinity : key_of_nan);
  }
  template <class F>
  FP16LAB_HD std::uint16_t operator()(SmallFloat<F> value) const {
    return (*this)(widen(value));
  }
};

/// counts[key] = how many of elements[0 .. size) have it, for key < key_count. `keys` has room for `size` keys, `ends` for
/// key_count; all in memory that the policy's algorithms work on.
template <class Policy, class T>
void count_by_sorting(const Policy& policy, const T* elements, std::ptrdiff_t size, std::uint16_t* keys,
                      std::uint64_t* ends, std::uint64_t* counts) {
  namespace parallel = THRUST_NS_QUALIFIER;
  parallel::transform(policy, elements, elements + size, keys, KeyOf{});
  parallel::sort(policy, keys, keys + size);
  const parallel::counting_iterator<std::uint32_t> first_key(0);
  parallel::upper_bound(policy, keys, keys + size, first_key, first_key + key_count, ends);
  parallel::adjacent_difference(policy, ends, ends + key_count, counts);
}

inline void add_key_counts(const std::uint64_t* counts, ExponentHistogram& histogram) {
  for (std::size_t bin = 0; bin < histogram.bins.size(); ++bin) histogram.bins[bin] += counts[bin];
  histogram.zero += counts[key_of_zero];
  histogram.infinite += counts[key_of_infinity];
  histogram.nan += counts[key_of_nan];
}

}  // namespace
}  // namespace fp16lab
