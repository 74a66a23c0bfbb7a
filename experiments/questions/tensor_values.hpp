// The elements of a tensor, wherever it is.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine/backend/backend.hpp"

namespace fp16lab::experiments {

/// Appends them to `values`, 16-bit ones widened, which is exact.
inline void append_values(engine::Backend& backend, const engine::Tensor& tensor,
                          std::vector<float>& values) {
  engine::Tensor wide = tensor;
  if (tensor.dtype() != DType::f32) {
    wide = backend.empty(tensor.shape(), DType::f32);
    backend.cast(tensor, wide);
  }
  const std::size_t begin = values.size();
  values.resize(begin + static_cast<std::size_t>(wide.element_count()));
  backend.download(wide, std::as_writable_bytes(std::span(values).subspan(begin)));
}

inline std::vector<float> values_of(engine::Backend& backend, const engine::Tensor& tensor) {
  std::vector<float> values;
  append_values(backend, tensor, values);
  return values;
}

}  // namespace fp16lab::experiments
