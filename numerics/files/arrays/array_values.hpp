// The values of the arrays of numerics/files/arrays/array_stream.hpp, counted.
#pragma once

#include <memory>
#include <utility>
#include <variant>

#include "numerics/files/arrays/array_stream.hpp"
#include "numerics/histogram/value_histogram.hpp"

namespace fp16lab {

/// All elements of one array, as the numbers that they are: none is rounded first. On `threads` threads,
/// which change speed and never counts. Errors as ArrayFile::visit.
inline ValueHistogram count_array(const ArrayFile& file, const ArrayInfo& array,
                                  std::shared_ptr<const ValueBins> bins, int threads = 1) {
  ValueHistogram values(std::move(bins));
  file.visit(array, [&](const ArrayChunk& chunk) {
    std::visit([&](const auto& elements) { values.add(elements, threads); }, chunk);
  });
  return values;
}

}  // namespace fp16lab
