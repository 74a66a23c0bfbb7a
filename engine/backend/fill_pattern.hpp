// The bit pattern that Backend::fill writes.
#pragma once

#include <cstdint>

#include "numerics/formats/dtype.hpp"

namespace fp16lab::engine {

/// `value` rounded once to nearest even to `dtype`, as bits in the low size_of(dtype) bytes; NaN is
/// canonical. Integer dtypes take integers in their range only (std::invalid_argument otherwise).
std::uint64_t fill_pattern(double value, DType dtype);

}  // namespace fp16lab::engine
