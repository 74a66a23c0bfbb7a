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

/// Strips, so that the threads that OpenMP gives have several each.
constexpr std::uint32_t strips = 64;

template <class T>
void count_all(std::span<const T> values, ExponentHistogram& histogram) {
  const StripLayout layout{.strips = strips, .side_by_side = false};
  std::vector<std::uint32_t> table(layout.table_size());
  std::vector<std::uint64_t> parts(std::size_t{row_count} * part_count);
  std::array<std::uint64_t, row_count> totals;
  for (std::size_t begin = 0; begin < values.size(); begin += counted_at_once) {
    const std::span<const T> part =
        values.subspan(begin, std::min<std::size_t>(counted_at_once, values.size() - begin));
    count_by_strips(THRUST_NS_QUALIFIER::omp::par, part.data(), part.size(), layout, table.data(),
                    parts.data(), totals.data());
    add_totals(totals.data(), histogram);
  }
}

}  // namespace

bool have_thrust_counting() { return true; }

void count_exponents_by_thrust(std::span<const float> values, ExponentHistogram& histogram) {
  count_all(values, histogram);
}
void count_exponents_by_thrust(std::span<const Float16> values, ExponentHistogram& histogram) {
  count_all(values, histogram);
}
void count_exponents_by_thrust(std::span<const BFloat16> values, ExponentHistogram& histogram) {
  count_all(values, histogram);
}

}  // namespace fp16lab
