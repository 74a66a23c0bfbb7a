#include "engine/backend/fill_pattern.hpp"

#include <fmt/format.h>

#include <cmath>
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
      value >= static_cast<double>(Limits::min()) && value < std::ldexp(1.0, Limits::digits);
  if (!in_range || static_cast<double>(static_cast<Integer>(value)) != value) {
    throw std::invalid_argument(fmt::format("fill: {} is not an integer in the range of {}, [{}, {}]", value,
                                            name_of(dtype), +Limits::min(), +Limits::max()));
  }
  return static_cast<std::uint64_t>(static_cast<Integer>(value)) &
         ~std::uint64_t{0} >> (64 - 8 * sizeof(Integer));
}

}  // namespace

std::uint64_t fill_pattern(double value, DType dtype) {
  return visit_dtype(dtype, [&](auto row) -> std::uint64_t {
    using T = typename decltype(row)::Element;
    if constexpr (is_floating(DTypeOf<T>::value))
      // One rounding, not through FP32.
      return convert<typename FormatOf<T>::type>(SmallFloat<Binary64>::from_bits(bits_of(value))).bits();
    else
      return integer_pattern<T>(value, dtype);
  });
}

}  // namespace fp16lab::engine
