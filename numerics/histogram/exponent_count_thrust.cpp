// The OpenMP build of numerics/histogram/exponent_count_thrust-inl.h. Before any of Thrust's headers:
#define THRUST_WRAPPED_NAMESPACE fp16lab_openmp
#define THRUST_HOST_SYSTEM THRUST_HOST_SYSTEM_CPP
#define THRUST_DEVICE_SYSTEM THRUST_DEVICE_SYSTEM_OMP

#include "numerics/histogram/exponent_count_thrust.hpp"

#include <thrust/system/omp/execution_policy.h>

#include <algorithm>
#include <array>
#include <vector>

#include "numerics/histogram/exponent_count_thrust-inl.h"

namespace fp16lab {
namespace {

/// Elements whose keys are sorted at once: 64 MiB of keys, and as much again while they are merged.
constexpr std::size_t part_size = std::size_t{1} << 24;

template <class T>
void count_all(std::span<const T> values, ExponentHistogram& histogram) {
  std::vector<std::uint32_t> keys(std::min(values.size(), part_size));
  std::array<std::uint64_t, edge_count> ends;
  std::array<std::uint64_t, slot_count> counts;
  for (std::size_t begin = 0; begin < values.size(); begin += part_size) {
    const std::span<const T> part = values.subspan(begin, std::min(part_size, values.size() - begin));
    count_by_sorting(THRUST_NS_QUALIFIER::omp::par, part.data(), static_cast<std::ptrdiff_t>(part.size()),
                     keys.data(), ends.data(), counts.data());
    add_counts(counts.data(), histogram);
  }
}

}  // namespace

bool have_thrust_counting() { return true; }

void count_exponents_by_sorting(std::span<const float> values, ExponentHistogram& histogram) {
  count_all(values, histogram);
}
void count_exponents_by_sorting(std::span<const Float16> values, ExponentHistogram& histogram) {
  count_all(values, histogram);
}
void count_exponents_by_sorting(std::span<const BFloat16> values, ExponentHistogram& histogram) {
  count_all(values, histogram);
}

}  // namespace fp16lab
