// Philox words for whole arrays.
#pragma once

#include <cstdint>
#include <span>

#include "numerics/random/philox.hpp"

namespace fp16lab {

/// to[i] = stream.word(first_index + i), vectorised for the current CPU.
void philox_words(const PhiloxStream& stream, std::uint64_t first_index, std::span<std::uint32_t> to);

}  // namespace fp16lab
