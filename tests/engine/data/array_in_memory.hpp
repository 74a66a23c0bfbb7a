// Arrays of examples from numbers that a test writes down.
#pragma once

#include <cstring>
#include <utility>
#include <vector>

#include "engine/data/dataset.hpp"

namespace fp16lab::engine::data {

/// Examples of this shape, one after the other.
template <class T>
ExampleArray array_of(std::vector<std::int64_t> shape, const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return {DTypeOf<T>::value, std::move(shape), std::move(bytes)};
}

}  // namespace fp16lab::engine::data
