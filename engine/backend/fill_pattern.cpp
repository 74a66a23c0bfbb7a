#include "engine/backend/fill_pattern.hpp"

#include <fmt/format.h>

#include <limits>
#include <stdexcept>

#include "numerics/convert/convert.hpp"
#include "numerics/formats/bits.hpp"

namespace fp16lab::engine {

namespace {

template <class Integer>
std::uint64_t integer_pattern(double value, DType dtype) {
  using Limits = std::numeric_limits<Integer>;
  const bool in_range =
      value >= static_cast<double>(Limits::min()) && value <= static_cast<double>(Limits::max());
  if (!in_range || static_cast<double>(static_cast<Integer>(value)) != value) {
    throw std::invalid_argument(fmt::format("fill: {} is not an integer in the range of {}, [{}, {}]", value,
                                            name_of(dtype), static_cast<std::int64_t>(Limits::min()),
                                            static_cast<std::int64_t>(Limits::max())));
  }
  return static_cast<std::uint32_t>(static_cast<Integer>(value));
}

template <class To>
std::uint64_t float_pattern(double value) {
  // One rounding, not through FP32.
  return convert<To>(SmallFloat<Binary64>::from_bits(bits_of(value))).bits();
}

}  // namespace

std::uint64_t fill_pattern(double value, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return float_pattern<Binary32>(value);
    case DType::f16:
      return float_pattern<Binary16>(value);
    case DType::bf16:
      return float_pattern<BrainFloat16>(value);
    case DType::f64:
      return bits_of(canonicalize(value));
    case DType::i32:
      return integer_pattern<std::int32_t>(value, dtype);
    case DType::u8:
      return integer_pattern<std::uint8_t>(value, dtype);
    case DType::e4m3:
      return float_pattern<Fp8E4M3>(value);
    case DType::e5m2:
      return float_pattern<Fp8E5M2>(value);
  }
  throw std::invalid_argument(fmt::format("fill: unknown dtype id {}", static_cast<int>(dtype)));
}

}  // namespace fp16lab::engine
