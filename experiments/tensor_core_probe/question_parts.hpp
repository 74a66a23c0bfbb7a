// What the probe's questions are written with.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "experiments/tensor_core_probe/question.hpp"

namespace fp16lab::probe {

using Words = std::vector<std::uint32_t>;

/// The word of a value that the format has.
std::uint32_t encode(DType format, float value);

/// +-2^exponent.
std::uint32_t power(DType format, int exponent, float sign = 1);
/// +-2^exponent as the product at place k, its exponent halved between a and b.
void put_power(Vector& vector, std::size_t k, DType format, int exponent, float sign = 1);

/// "row 'hopper' with f16 operands, f16 accumulator".
std::string row_name(const TensorCoreModel& row, const Instruction& in);
/// The hypothesis that `row` holds where the table has `claim`.
Hypothesis hypothesis_of(std::string name, const Instruction& in, const TensorCoreModel& claim,
                         const TensorCoreModel& row);

/// The products in another order along k: place i takes those of order[i].
DotProduct reordered(std::vector<std::size_t> order, DotProduct dot);

/// All k below `count`, those in the first block ahead; ascending otherwise.
template <class InFirst>
std::vector<std::size_t> split(std::size_t count, InFirst in_first) {
  std::vector<std::size_t> order(count);
  for (std::size_t k = 0; k < count; ++k) order[k] = k;
  std::stable_partition(order.begin(), order.end(), in_first);
  return order;
}

/// P7 and P11.
Question fp8_order(const Instruction& in, const TensorCoreModel& row, const Settings& settings);
Question truncated_accumulator(const Instruction& in, const TensorCoreModel& row);

}  // namespace fp16lab::probe
