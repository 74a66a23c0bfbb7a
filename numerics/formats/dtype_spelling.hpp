// A format as people write it, in options and prefixes.
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>

#include "numerics/formats/dtype.hpp"

namespace fp16lab {

/// The one of this name or title, in any case: "f16", "F16", "fp16" and "FP16" are one. What programs write,
/// in files and keys, is the name alone (dtype_called).
template <bool (*is)(DType)>
std::optional<DType> dtype_spelled(std::string_view text) {
  const auto same = [text](std::string_view known) {
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
    return std::ranges::equal(text, known, {}, lower, lower);
  };
  for (const DType dtype : dtypes<is>)
    if (same(name_of(dtype)) || same(title_of(dtype))) return dtype;
  return std::nullopt;
}

}  // namespace fp16lab
