// Values to and from a back end's tensors.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include "engine/backend/backend.hpp"

namespace fp16lab::engine::test {

/// A contiguous range of one of the engine's types, as a tensor of that dtype.
Tensor uploaded(Backend& backend, const Shape& shape, const auto& values) {
  using T = typename std::decay_t<decltype(values)>::value_type;
  Tensor result = backend.empty(shape, DTypeOf<T>::value);
  backend.upload(std::as_bytes(std::span(values)), result);
  return result;
}

/// The values of `x`, whose dtype is that of T.
template <class T>
std::vector<T> downloaded(Backend& backend, const Tensor& x) {
  std::vector<T> values(static_cast<std::size_t>(x.element_count()), T{});
  backend.download(x, std::as_writable_bytes(std::span(values)));
  return values;
}

}  // namespace fp16lab::engine::test
