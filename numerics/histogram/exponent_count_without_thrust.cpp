#include <stdexcept>

#include "numerics/histogram/exponent_count_thrust.hpp"

namespace fp16lab {
namespace {

[[noreturn]] void refuse() {
  throw std::runtime_error(
      "count_exponents_by_thrust: built without Thrust; install libthrust-dev and configure again");
}

}  // namespace

bool have_thrust_counting() { return false; }

void count_exponents_by_thrust(std::span<const float> /*values*/, ExponentHistogram& /*histogram*/) {
  refuse();
}
void count_exponents_by_thrust(std::span<const Float16> /*values*/, ExponentHistogram& /*histogram*/) {
  refuse();
}
void count_exponents_by_thrust(std::span<const BFloat16> /*values*/, ExponentHistogram& /*histogram*/) {
  refuse();
}

}  // namespace fp16lab
