// The elements of tensors, as kernels see them.
#pragma once

#include "engine/tensor/tensor.hpp"

namespace fp16lab::engine::gpu {

/// The elements of a tensor in device memory; only kernels may look at them.
template <class T>
T* elements(const Tensor& x) {
  return reinterpret_cast<T*>(x.data());
}

}  // namespace fp16lab::engine::gpu
