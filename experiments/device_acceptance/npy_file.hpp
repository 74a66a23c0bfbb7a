// Operands and outputs of cases as .npy files, for people with numpy.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>

#include "tests/engine/backend/cases/case_context.hpp"

namespace fp16lab::experiments::acceptance {

/// Version 1.0 of the format, little-endian, C order. BF16 is '<u2', its bits; without a dtype the elements
/// are unsigned words of `element_bytes` (1, 2, 4 or 8) in a row.
void write_npy(const std::filesystem::path& path, std::optional<DType> dtype, const engine::Shape& shape,
               std::size_t element_bytes, std::span<const std::byte> bytes);
/// An operand that write_npy wrote. std::runtime_error naming the file where it holds another dtype or shape.
Operand read_npy(const std::filesystem::path& path, DType dtype, const engine::Shape& shape);

}  // namespace fp16lab::experiments::acceptance
