#include "experiments/tensor_core_probe/question_parts.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "numerics/convert/convert.hpp"
#include "numerics/formats/bits.hpp"

namespace fp16lab::probe {

std::uint32_t encode(DType format, float value) {
  if (size_of(format) == sizeof(float)) return bits_of(value);
  return visit_dtype<is_low_precision>(format, [value](auto dtype) -> std::uint32_t {
    return narrow<typename decltype(dtype)::Format>(value).bits();
  });
}

std::uint32_t power(DType format, int exponent, float sign) {
  return encode(format, std::copysign(std::ldexp(1.0f, exponent), sign));
}

void put_power(Vector& vector, std::size_t k, DType format, int exponent, float sign) {
  if (vector.a.size() <= k) vector.a.resize(k + 1);
  if (vector.b.size() <= k) vector.b.resize(k + 1);
  vector.a[k] = power(format, exponent / 2);
  vector.b[k] = power(format, exponent - exponent / 2, sign);
}

std::string row_name(const TensorCoreModel& row, const Instruction& in) {
  return fmt::format("row '{}' with {} operands, {} accumulator", row.name, name_of(in.operands),
                     name_of(in.accumulator));
}

Hypothesis hypothesis_of(std::string name, const Instruction& in, const TensorCoreModel& claim,
                         const TensorCoreModel& row) {
  std::string change = row_name(claim, in) + ':';
  if (row.block().products != claim.block().products)
    change += fmt::format(" block_size {} -> {}", claim.block().products, row.block().products);
  if (row.block().fraction_bits != claim.block().fraction_bits)
    change += fmt::format(" fraction_bits {} -> {}", claim.block().fraction_bits, row.block().fraction_bits);
  if (row.block().exponent_floor != claim.block().exponent_floor)
    change +=
        fmt::format(" exponent_floor {} -> {}", claim.block().exponent_floor, row.block().exponent_floor);
  if (row.block().output != claim.block().output)
    change += row.block().output == BlockOutput::fp32_toward_zero ? " output -> fp32_toward_zero"
                                                                  : " output -> fp32_toward_zero_14_bits";
  if (row.stages.size() != claim.stages.size() || row.block().share != claim.block().share)
    change += " stages -> " + stages_text(row);
  if (row.subnormal_accumulator != claim.subnormal_accumulator)
    change += " subnormal_accumulator -> own_exponent";
  if (row.underflow_zero != claim.underflow_zero) change += " underflow_zero -> keeps_sign";
  return {std::move(name), std::move(change), dot_product_of(row, in.operands)};
}

DotProduct reordered(std::vector<std::size_t> order, DotProduct dot) {
  return [order = std::move(order), dot = std::move(dot)](std::span<const std::uint32_t> a,
                                                          std::span<const std::uint32_t> b, std::uint32_t c) {
    Words x, y;
    for (const std::size_t k : order) {
      x.push_back(a[k]);
      y.push_back(b[k]);
    }
    return dot(x, y, c);
  };
}

}  // namespace fp16lab::probe
